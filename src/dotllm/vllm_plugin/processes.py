"""When a process becomes an engine core or gets a worker, the hooks for that role are applied.

vLLM loads plugins in each process at the first of three points: a front end parses its arguments, an engine core
starts, a worker is made. But one process may have several of these roles, and a forked process inherits the mark that
plugins are loaded. So the functions that start an engine core or a worker first apply its hooks.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.tiers import ENGINE_CORE, WORKER

ENGINE_CORE_HOOK = Hook(
    name="engine-core",
    summary="an engine core gets its hooks, even in a process that was a front end before",
    required=True,
    without_it="nothing would be constrained in such an engine core",
)
WORKER_HOOK = Hook(
    name="workers",
    summary="a worker gets its hooks, even in a process that was an engine core before",
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
