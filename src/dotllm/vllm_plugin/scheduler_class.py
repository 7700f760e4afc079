"""Our part of vLLM's scheduler: mixins that go before whatever class the server uses (sync, async, a user's own).

Each hook that needs the scheduler adds its mixin; they are put together when vLLM asks for the class. A composed class
keeps the base's name and module visible, and vLLM takes it for the base (no warning about custom schedulers).
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from dotllm.vllm_plugin.hook import Target

TARGETS = (Target("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", ("self",)),)

_mixins: list[type] = []


def add(mixin: type) -> None:
    """Put ``mixin`` before vLLM's scheduler class, behind those added before it. Idempotent."""
    _install()
    if mixin not in _mixins:
        _mixins.append(mixin)


def _install() -> None:
    from vllm.config import SchedulerConfig
    from vllm.v1.core.sched.scheduler import Scheduler

    original = SchedulerConfig.get_scheduler_cls
    if getattr(original, "is_dotllm", False):
        return

    @wraps(original)
    def get_scheduler_cls(self: Any) -> Any:
        base = original(self)
        missing = tuple(mixin for mixin in _mixins if not issubclass(base, mixin))
        if not missing or not issubclass(base, Scheduler):
            return base  # a class that shares nothing with vLLM's own does none of this our mixins change
        return type(f"Dotllm{base.__name__}", (*missing, base), {"__module__": base.__module__})

    get_scheduler_cls.is_dotllm = True  # type: ignore[attr-defined]  # marks the wrapper
    SchedulerConfig.get_scheduler_cls = get_scheduler_cls
