"""Our metrics in vLLM's /metrics, and the time masks take.

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
import sys
import time
from typing import Any

from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_PROMETHEUS = "vllm.v1.metrics.prometheus"
# Imports the function by name, so it may hold the original.
_ROUTER = "vllm.entrypoints.serve.instrumentator.metrics"


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


def _get_prometheus_registry_with(original: Any) -> Any:
    def get_prometheus_registry() -> Any:
        from dotllm.compilation.exposition import register

        registry = original()
        register(registry)
        return registry

    return get_prometheus_registry


def _expose() -> None:
    from vllm.v1.metrics import prometheus

    _share_directory()
    _expose_of_many_processes()
    replace_once(prometheus, "get_prometheus_registry", _get_prometheus_registry_with)
    router = sys.modules.get(_ROUTER)
    if router is not None:
        router.get_prometheus_registry = prometheus.get_prometheus_registry  # type: ignore[attr-defined]  # imported by name


def _grammar_bitmask_with(original: Any) -> Any:
    def grammar_bitmask(
        self: Any, requests: Any, structured_output_request_ids: list[str], scheduled_spec_decode_tokens: Any
    ) -> Any:
        start = time.perf_counter()
        found = original(self, requests, structured_output_request_ids, scheduled_spec_decode_tokens)
        backend = backend_of(self)
        if backend is not None and structured_output_request_ids:
            metrics = backend.compiler.metrics
            metrics.observe("dotllm_mask_seconds", value=time.perf_counter() - start)
            metrics.add("dotllm_mask_rows", amount=float(len(structured_output_request_ids)))
        return found

    return grammar_bitmask


def _time_masks() -> None:
    from vllm.v1.structured_output import StructuredOutputManager

    replace_once(StructuredOutputManager, "grammar_bitmask", _grammar_bitmask_with)


EXPOSURE_HOOK = Hook(
    name="metrics",
    summary="compiles, caches and refusals in /metrics",
    targets=(Target(_PROMETHEUS, "get_prometheus_registry"),),
    apply=_expose,
    required=False,
    without_it="/metrics shows nothing of dotllm",
)

TIMING_HOOK = Hook(
    name="mask-metrics",
    summary="the time masks take, in /metrics",
    targets=(
        Target(
            "vllm.v1.structured_output",
            "StructuredOutputManager.grammar_bitmask",
            ("self", "requests", "structured_output_request_ids", "scheduled_spec_decode_tokens"),
        ),
    ),
    apply=_time_masks,
    required=False,
    without_it="/metrics does not show what masks cost",
)
