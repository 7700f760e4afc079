"""Our metrics in vLLM's /metrics.

/metrics is answered by an API server, while what is counted happens in the engine core (see
`dotllm.compilation.metrics`). So the directory they share is made here, in the first process that loads the plugin, and
put into the environment before vLLM starts the others; and whatever registry is answered from gets our collector:
vLLM's own, or, with several API servers, one that prometheus_client's collector of many processes was made for, which
happens anew at each scrape.
"""

from __future__ import annotations

import atexit
import os
import shutil
from typing import Any

from dotllm.vllm_plugin.hook import Hook


def _share_directory() -> None:
    from dotllm.compilation.metrics import DIRECTORY_VARIABLE, shared_directory

    if os.environ.get(DIRECTORY_VARIABLE):
        return
    directory, owner = shared_directory(), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves it to us
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)


def _expose_of_many_processes() -> None:
    from prometheus_client import CollectorRegistry, multiprocess

    original = multiprocess.MultiProcessCollector
    if getattr(original, "is_dotllm", False):
        return

    class MultiProcessCollector(original):  # type: ignore[misc, valid-type]
        """What all API servers count, and with it what the engine does."""

        is_dotllm = True

        def __init__(self, registry: CollectorRegistry | None, path: str | None = None) -> None:
            from dotllm.compilation.exposition import register

            super().__init__(registry, path)
            if registry is not None:
                register(registry)

    multiprocess.MultiProcessCollector = MultiProcessCollector


def _expose() -> None:
    """What of this is no replacement of a function."""
    _share_directory()
    _expose_of_many_processes()


HOOK = Hook(
    name="metrics",
    summary="compiles, caches and refusals in /metrics",
    apply=_expose,
    without_it="/metrics shows nothing of dotllm",
)


@HOOK.replaces("vllm.v1.metrics.prometheus:get_prometheus_registry")
def _get_prometheus_registry_with(original: Any) -> Any:
    def get_prometheus_registry() -> Any:
        from dotllm.compilation.exposition import register

        registry = original()
        register(registry)
        return registry

    return get_prometheus_registry
