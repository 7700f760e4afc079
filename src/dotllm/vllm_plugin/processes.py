"""A process becomes an engine core, or has a worker: the hooks for that are applied then.

vLLM loads plugins in each of its processes, at the first of three points: a front end parses its arguments, an engine
core begins, a worker is made. But a process may be more than one of these, and one that is forked inherits that plugins
have been loaded. So the functions with which an engine core and a worker begin apply what is for them first.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.tiers import ENGINE_CORE, WORKER

ENGINE_CORE_HOOK = Hook(
    name="engine-core",
    summary="an engine core has the hooks that are for it, also in a process that was a front end before",
    required=True,
    without_it="nothing would be constrained in such an engine core",
)
WORKER_HOOK = Hook(
    name="workers",
    summary="a worker has the hooks that are for it, also in a process that was an engine core before",
    required=True,
    without_it="such a worker would not know what the engine core sends",
)


@ENGINE_CORE_HOOK.replaces("vllm.v1.engine.core:EngineCore.__init__")
def _engine_core(self: object, *args: Any, original: Original, **kwargs: Any) -> None:
    registry.apply_required(ENGINE_CORE)
    original(self, *args, **kwargs)


@WORKER_HOOK.replaces("vllm.v1.worker.worker_base:WorkerWrapperBase.init_worker")
def _worker(self: object, *args: Any, original: Original, **kwargs: Any) -> None:
    registry.apply_required(WORKER)
    original(self, *args, **kwargs)
