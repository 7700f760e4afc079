"""The first token of a constrained request leaves before the next step is launched.

With asynchronous scheduling vLLM launches step n + 1 before it looks at the results of step n. That keeps the device
busy while a batch generates, but a request that is alone has no use for it after its prompt: the device has long done
what the host took milliseconds to launch (a prompt has no graph by default), and the first token waits for the launch
of a step whose own token nobody needs so soon: 2 of 13 milliseconds (docs/performance.md). For a constrained request
that step is often for nothing, too: where its first token leads is a place that the device mostly does not know yet, so
the step would be repeated (`walk`). With the token at hand the engine core sends the place with the step.

So where everything that runs is a constrained request whose first token is on its way, the result is taken first. Not
for prompts that the device was seen to take longer for than their launch: there the next launch costs nobody anything.
"""

from __future__ import annotations

import time
from functools import wraps
from typing import Any

from dotllm.vllm_plugin import scheduler_class
from dotllm.vllm_plugin.hook import Hook, Target

_CORE = "vllm.v1.engine.core"
_SCHEDULER = "vllm.v1.core.sched.scheduler"

# Seconds in which a step is launched: who waits longer for a result had better have used the time.
LAUNCH = 0.002


class FirstTokenScheduler:
    """Goes before `walk_scheduler.WalkScheduler`, which knows the last step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._results_first = False
        self._longest_prompt: float = float("inf")  # tokens of a step that the device has done by when it is launched
        parallel: Any = self.vllm_config.parallel_config  # type: ignore[attr-defined]
        self._alone = parallel.data_parallel_size == 1  # (ranks count one another's steps)

    def has_requests(self) -> bool:
        """Whether there is anything to schedule."""
        return not self._results_first and bool(super().has_requests())  # type: ignore[misc]

    def awaits_first_tokens(self) -> bool:
        """Whether all there is to do is to wait for first tokens, of constrained requests that the GPU follows."""
        scheduler: Any = self
        launched, walk = scheduler._launched, scheduler._walk
        if walk is None or launched is None or scheduler.waiting or not self._alone:
            return False
        if launched.total_num_scheduled_tokens > self._longest_prompt:
            return False
        return bool(scheduler.running) and all(
            request.num_output_tokens == 0
            and not request.is_prefill_chunk
            and request.request_id in walk.slot_of
            and request.request_id in launched.num_scheduled_tokens
            for request in scheduler.running
        )

    def results_first(self, step: Any) -> Any:
        """``step()``, in which the engine core finds nothing to schedule and takes the results of the last step."""
        began = time.perf_counter()
        self._results_first = True
        try:
            outputs, _ = step()
        finally:
            self._results_first = False
        if time.perf_counter() - began > LAUNCH:
            launched: Any = self._launched  # type: ignore[attr-defined]
            self._longest_prompt = launched.total_num_scheduled_tokens - 1
        # As if a step had been run: vLLM rests for a millisecond after one in which there was nothing to do.
        return outputs, True


def wrap_step() -> None:
    """Let the engine core's loop ask. Raises where it is not vLLM's."""
    from vllm.v1.engine.core import EngineCore

    original = EngineCore.step_with_batch_queue
    if getattr(original, "is_dotllm", False):
        return

    @wraps(original)
    def step_with_batch_queue(self: Any) -> Any:
        scheduler, in_flight = self.scheduler, len(self.batch_queue)
        if in_flight == 1 and isinstance(scheduler, FirstTokenScheduler) and scheduler.awaits_first_tokens():
            return scheduler.results_first(lambda: original(self))
        return original(self)

    step_with_batch_queue.is_dotllm = True  # type: ignore[attr-defined]  # marks the wrapper
    EngineCore.step_with_batch_queue = step_with_batch_queue


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
        Target("vllm.v1.request", "Request.__init__@is_prefill_chunk"),
    ),
    apply=_apply,
    required=False,
    without_it="it waits for the next step to be launched",
)
