"""The first token of a constrained request leaves before the next step is launched.

With asynchronous scheduling vLLM launches step n + 1 before it looks at the results of step n. That keeps the device
busy while a batch generates, but a request that is alone has no use for it after its prompt: the device has long done
what the host took milliseconds to launch (a prompt has no graph by default), and the first token waits for the launch
of a step whose own token nobody needs so soon: 1.4 of 9.4 milliseconds (docs/performance.md). For a constrained request
that step is often for nothing, too: where its first token leads is a place that the device mostly does not know yet, so
the step would be repeated (`walk`). With the token at hand the engine core sends the place with the step.

So where everything that runs is a constrained request whose first token is on its way, the result is taken first. Not
for prompts that the device was seen to take longer for than their launch: there the next launch costs nobody anything.
"""

from __future__ import annotations

import time
from typing import Any

from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.step_phases import LAUNCH_S
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_CORE = "vllm.v1.engine.core"
_SCHEDULER = "vllm.v1.core.sched.scheduler"

# Waits that were too long, one after another, that say that it is the prompts.
TOO_OFTEN = 2
# Steps not waited for, after which it is tried again.
TRIED_AGAIN = 256


class Patience:
    """For how many tokens the device has mostly done a step by the time the host has launched it."""

    def __init__(self) -> None:
        self._limit: float = float("inf")
        self._too_long = 0
        self._refused = 0

    def suffices(self, tokens: int) -> bool:
        """Whether the result of a step of so many tokens is worth waiting for."""
        if tokens <= self._limit:
            return True
        self._refused += 1
        if self._refused >= TRIED_AGAIN:
            self._limit, self._refused, self._too_long = float("inf"), 0, TOO_OFTEN - 1
        return False

    def waited(self, tokens: int, seconds: float) -> None:
        """How long the result of such a step took."""
        if seconds <= LAUNCH_S:
            self._too_long = 0
            return
        self._too_long += 1
        if self._too_long >= TOO_OFTEN:
            self._limit, self._too_long = tokens - 1, 0


class FirstTokenScheduler:
    """Goes before `walk_scheduler.WalkScheduler`, which knows the last step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._result_came = 0.0
        self._patience = Patience()
        parallel: Any = self.vllm_config.parallel_config  # type: ignore[attr-defined]
        self._alone = parallel.data_parallel_size == 1  # (ranks count one another's steps)

    def idles(self) -> bool:
        """Whether this engine never takes results first (see `scheduler_class`)."""
        return not self._alone

    def awaits_first_tokens(self) -> bool:
        """Whether all there is to do is to wait for first tokens, of constrained requests that the GPU follows."""
        scheduler: Any = self
        # (neither is there if the hook after this one does not hold)
        launched, walk = getattr(scheduler, "_launched", None), getattr(scheduler, "_walk", None)
        running = scheduler.running
        if walk is None or launched is None or not running or running[0].num_output_tokens:
            return False
        if scheduler.waiting or getattr(scheduler, "skipped_waiting", ()):  # (the latter until 0.30)
            return False
        return all(
            request.num_output_tokens == 0
            and not request.is_prefill_chunk
            and request.request_id in walk.slot_of
            and request.request_id in launched.num_scheduled_tokens
            for request in running
        ) and self._patience.suffices(launched.total_num_scheduled_tokens)

    def results_first(self, step: Any) -> Any:
        """``step()``, in which the engine core finds nothing to schedule and takes the results of the last step."""
        tokens: int = self._launched.total_num_scheduled_tokens  # type: ignore[attr-defined]
        # For this step only: overridden in the class, these would cost every other step a call.
        for_now: dict[str, Any] = {"has_requests": lambda: False, "update_from_output": self._takes_time}
        mine = vars(self)
        began = time.perf_counter()
        mine.update(for_now)
        try:
            outputs, _ = step()
        finally:
            for name in for_now:
                del mine[name]
        self._patience.waited(tokens, self._result_came - began)
        # As if a step had been run: vLLM rests for a millisecond after one in which there was nothing to do.
        return outputs, True

    def _takes_time(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """``update_from_output`` of a step whose results have been waited for."""
        self._result_came = time.perf_counter()
        return type(self).update_from_output(self, scheduler_output, model_runner_output)  # type: ignore[attr-defined]


def _step_with(original: Any) -> Any:
    def step_with_batch_queue(self: Any) -> Any:
        scheduler, in_flight = self.scheduler, len(self.batch_queue)
        if in_flight == 1 and isinstance(scheduler, FirstTokenScheduler) and scheduler.awaits_first_tokens():
            return scheduler.results_first(lambda: original(self))
        return original(self)

    return step_with_batch_queue


def wrap_step() -> None:
    """Let the engine core's loop ask. Raises where it is not vLLM's."""
    from vllm.v1.engine.core import EngineCore

    replace_once(EngineCore, "step_with_batch_queue", _step_with)


def _apply() -> None:
    scheduler_class.add(FirstTokenScheduler)
    wrap_step()


HOOK = Hook(
    name="first-token",
    summary="the first token of a constrained request leaves before the next step is launched",
    targets=(
        *scheduler_class.TARGETS,
        Target(_CORE, "EngineCore.step_with_batch_queue", ("self",)),
        Target(_CORE, "EngineCore.__init__@batch_queue"),
        Target(_SCHEDULER, "Scheduler.has_requests", ("self",)),
        Target(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output", "model_runner_output")),
        Target("vllm.v1.request", "Request.__init__@is_prefill_chunk"),
    ),
    apply=_apply,
    required=False,
    without_it="it waits for the next step to be launched",
)
