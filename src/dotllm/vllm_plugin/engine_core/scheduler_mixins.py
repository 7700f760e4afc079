"""Our part of vLLM's scheduler: mixins that go before whatever class the server uses (sync, async, a user's own).

Each hook that needs the scheduler adds its mixin (`hook`); they are put together when vLLM asks for the class. The
class keeps the base's name and module visible, and vLLM takes it for the base (no warning about custom schedulers).

Which of them an engine has a use for is known when its scheduler has been made: most are for one kind of engine. Each
method that a mixin overrides costs every step half a microsecond, even if all it does is to call the next one; with ten
mixins that was a quarter of what vLLM's loop takes for one free request (`python -m benchmarks.engine_loop`). So a
mixin may say that it `idles`, and the scheduler becomes one of a class without it. In an engine on another backend
none of them is of use.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Target, positional, replace_once
from dotllm.vllm_plugin.settings import is_ours

TARGETS = (Target("vllm.config.scheduler", "SchedulerConfig.get_scheduler_cls", ("self",)),)

_SCHEDULER = "vllm.v1.core.sched.scheduler"
_IDLES = "idles"  # a method of a mixin: whether it has nothing to do in this engine, now that it has been made

_mixins: list[type] = []


def add(mixin: type) -> None:
    """Put ``mixin`` before vLLM's scheduler class, behind those added before it. Idempotent."""
    _install()
    if mixin not in _mixins:
        _mixins.append(mixin)


def hook(mixin: type, name: str, summary: str, without_it: str, *, overrides: str, targets: Any = ()) -> Hook:
    """The hook that adds ``mixin``.

    ``overrides``: the methods of vLLM's ``Scheduler`` that it overrides, which must have the positional parameters that
    ours name; ``targets``: what it rests on beside these.
    """

    def apply() -> None:
        from vllm.v1.core.sched.scheduler import Scheduler

        for method in overrides.split():
            if not hasattr(Scheduler, method):
                raise AttributeError(f"Scheduler has no {method}")
        add(mixin)

    overridden = (
        Target(_SCHEDULER, f"Scheduler.{method}", positional(getattr(mixin, method))) for method in overrides.split()
    )
    return Hook(name, summary, (*TARGETS, *overridden, *targets), apply, without_it=without_it)


def _get_scheduler_cls_with(original: Any) -> Any:
    from vllm.v1.core.sched.scheduler import Scheduler

    def get_scheduler_cls(self: Any) -> Any:
        base = original(self)
        missing = tuple(mixin for mixin in _mixins if not issubclass(base, mixin))
        if not missing or not issubclass(base, Scheduler):
            return base  # a class that shares nothing with vLLM's own does none of this our mixins change
        return _composed((_Trimmed, *missing), base)

    return get_scheduler_cls


def _install() -> None:
    from vllm.config import SchedulerConfig

    replace_once(SchedulerConfig, "get_scheduler_cls", _get_scheduler_cls_with)


@cache
def _composed(mixins: tuple[type, ...], base: type) -> type:
    return type(f"Dotllm{base.__name__}", (*mixins, base), {"__module__": base.__module__})


class _Trimmed:
    """The first of a composed class: when all have been initialised, those that idle leave.

    It stays: Python lets an object change its class only where both have the same layout, which a class with vLLM's
    scheduler as its only base has not.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        first, *mixins, base = type(self).__bases__
        config: Any = self.vllm_config  # type: ignore[attr-defined]  # vLLM's scheduler has it
        ours = is_ours(config.structured_outputs_config.backend)
        self.__class__ = _composed((first, *(m for m in mixins if ours and not _idles(m, self))), base)


def _idles(mixin: type, scheduler: Any) -> bool:
    idles = vars(mixin).get(_IDLES)
    return idles is not None and bool(idles(scheduler))
