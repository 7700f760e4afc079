"""Our part of vLLM's scheduler: mixins that stand before whatever class the server uses (sync, async, a user's own).

Each hook that needs the scheduler adds its mixin (`hook`). When vLLM asks for the class, the mixins stand in its method
resolution order as their hooks stand in `registry.HOOKS`. The order matters in ``update_from_output``: `errors` gives
reasons to the outputs of all others, `batch_accept` lets grammars accept the sampled tokens, and `jump_forward` behind
it asks these grammars what is forced next. The class keeps the base's name and module visible, and vLLM takes it for
the base (no warning about custom schedulers). An engine on another backend gets vLLM's own class.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from dotllm.vllm_plugin.hook import Hook, Original, Target, positional
from dotllm.vllm_plugin.settings import is_ours
from dotllm.vllm_plugin.vllm_types import SchedulerConfig, VllmConfig

_mixins: list[type] = []


def hook(mixin: type, name: str, summary: str, without_it: str, *, targets: Sequence[Target] = ()) -> Hook:
    """The hook that puts ``mixin`` before vLLM's scheduler class, behind those that are there already.

    Each method of it that calls the one behind it overrides one of ``Scheduler``, which must have the positional
    parameters that ours names. ``targets``: what it rests on beside these.
    """
    calls_the_next = [
        method
        for method, member in vars(mixin).items()
        if method != "__init__" and "__class__" in getattr(getattr(member, "__code__", None), "co_freevars", ())
    ]

    def apply() -> None:
        from vllm.v1.core.sched.scheduler import Scheduler

        for method in calls_the_next:
            getattr(Scheduler, method)
        if mixin not in _mixins:
            _mixins.append(mixin)

    overridden = (
        Target("vllm.v1.core.sched.scheduler", f"Scheduler.{method}", positional(getattr(mixin, method)))
        for method in calls_the_next
    )
    made = Hook(name, summary, (*overridden, *targets), apply, without_it=without_it)
    made.replaces("vllm.config.scheduler:SchedulerConfig.get_scheduler_cls")(_get_scheduler_cls)
    return made


def _get_scheduler_cls(self: SchedulerConfig, *, original: Original) -> type:
    from vllm.v1.core.sched.scheduler import Scheduler

    base: type = original(self)
    missing = tuple(mixin for mixin in _mixins if not issubclass(base, mixin))
    if not missing or not issubclass(base, Scheduler):
        return base  # a class that shares nothing with vLLM's own does none of this our mixins change
    return _composed(missing, base)


@cache
def _composed(mixins: tuple[type, ...], base: type) -> type:
    def __new__(cls: type, vllm_config: VllmConfig, *args: Any, **kwargs: Any) -> Any:
        if is_ours(vllm_config.structured_outputs_config.backend):
            return object.__new__(cls)
        return base(vllm_config, *args, **kwargs)

    return type(f"Dotllm{base.__name__}", (*mixins, base), {"__module__": base.__module__, "__new__": __new__})
