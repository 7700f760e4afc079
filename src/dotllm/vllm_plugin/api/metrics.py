"""Adds our metrics to vLLM's /metrics.

An API server answers /metrics, but the counted events happen in the engine core (see `dotllm.compilation.metrics`). So
the first process that loads the plugin makes a directory for all processes, and puts its name into the environment
before vLLM starts the others. The registry that answers /metrics gets our collector. With one API server it is vLLM's
own registry. With several it is a registry that is rebuilt at each scrape, together with prometheus_client's
multi-process collector.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original


def _share_directory() -> None:
    from dotllm.compilation.metrics import shared_directory

    shared_directory()


HOOK = Hook(
    summary="/metrics shows compiles, caches and refusals",
    apply=_share_directory,
    without_it="/metrics has none of dotllm's metrics",
)


@HOOK.replaces("vllm.v1.metrics.prometheus:get_prometheus_registry")
def _get_prometheus_registry(*, original: Original) -> Any:
    from dotllm.compilation.metrics import register

    registry = original()
    register(registry)
    return registry


@HOOK.replaces("prometheus_client.multiprocess:MultiProcessCollector.__init__")
def _init(self: Any, registry: Any, path: str | None = None, *, original: Original) -> None:
    from dotllm.compilation.metrics import register

    original(self, registry, path)
    if registry is not None:
        register(registry)
