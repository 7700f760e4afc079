"""A request whose index still compiles runs its whole prompt; its grammar is asked for when the mask is, not before.

Most specifications compile in a few milliseconds, which is less than the forward pass that runs the prompt. vLLM asks
for masks after it has launched that pass, so the compile is over by then and has cost nothing: no step waits for it,
and the last token of the prompt needs no step of its own (see `pending_grammars`, which holds such a request back).

When the mask is needed and the grammar is not there, the step waits for it, and the whole batch with it, until
`GRAMMAR_WAIT_S` after the request was first looked at: at most 15 ms for each newly arrived request, once. Then the
token that was sampled for this request, without a mask, is dropped, and the request is *parked*: all its tokens are
computed, so vLLM's scheduler has nothing to run for it. When its grammar comes, the last token of its prompt is run
again, and what is sampled then counts. A compile that fails while its request is parked, or still runs its prompt, is
registered by vLLM's own code for waiting requests.

That a sampled token may be taken back is something that vLLM's first model runner knows of ("Some output tokens were
discarded", in ``GPUModelRunner._update_states``; its runner on CPUs is derived from it), where the scheduler decides
with all tokens known. So this is not for asynchronous scheduling, the second model runner, and what is named in
`why_not`; nor for requests in which a token that was sampled for nothing would be noticed: those with a seed, and those
that want log-probabilities of their prompt.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.engine_core import pending_grammars
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.engine_core.hold_times import HoldTimes
from dotllm.vllm_plugin.engine_core.step_phases import StepPhases
from dotllm.vllm_plugin.hook import Hook, Target

_SCHEDULER = "vllm.v1.core.sched.scheduler"

# Six times what a typical specification takes; the forward pass that runs beside it takes longer on most machines.
GRAMMAR_WAIT_S = 0.015


class Late(NamedTuple):
    """A request that was let through without its grammar, and until when (`time.monotonic`) a step waits for that."""

    request: Any
    deadline: float


class LateMaskScheduler:
    """Goes before `pending_grammars.OverlapScheduler`, which takes the requests that this one does not."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unmasked: dict[str, Late] = {}
        self._dropped: list[Any] = []
        self._parked_holds = HoldTimes("prompt")
        self._steps = StepPhases()
        options = CompilationOptions.from_environment()
        switched_on = options.overlap and not why_not(self)
        self._late_limit = (
            max(1, min(options.overlap_requests, pending_grammars.sequences(self) // 2)) if switched_on else 0
        )

    def idles(self) -> bool:
        """Whether masks cannot be late in this engine (see `scheduler_class`)."""
        return not self._late_limit

    def _runs_unmasked(self, request: Any) -> bool:
        """Whether ``request``, whose grammar is pending, may run its prompt without waiting for it."""
        parameters = request.sampling_params
        return (
            len(self._unmasked) < self._late_limit
            and pending_grammars.awaits_grammar(request)
            and not request.structured_output_request._grammar.done()
            and not request.resumable
            and not request.has_encoder_inputs
            and parameters.seed is None
            and parameters.prompt_logprobs is None
        )

    def _promotes(self, request: Any) -> bool:
        from vllm.v1.request import RequestStatus

        waits = request.status == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        if waits and self._runs_unmasked(request):
            self._unmasked[request.request_id] = Late(request, time.monotonic() + GRAMMAR_WAIT_S)
            request.status = RequestStatus.WAITING
            return True
        return self._next_promotes(request)

    _try_promote_blocked_waiting_request = _promotes
    _handle_blocked_waiting_request = _promotes

    def _next_promotes(self, request: Any) -> bool:
        return pending_grammars.promotes(super(), request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step. Parked requests whose grammar has come run the last token of their prompt again."""
        for name, late in list(self._unmasked.items()):
            request = late.request
            grammar = request.structured_output_request.grammar
            if grammar is None:
                continue
            if isinstance(grammar, Exception):
                # It stays here, and gets no token, until vLLM frees it at the end of this step.
                pending_grammars.register_failure(request, self._next_promotes)
                continue
            del self._unmasked[name]
            self._parked_holds.goes_on(name, self)
            if request.num_computed_tokens >= request.num_tokens:
                request.num_computed_tokens = request.num_tokens - 1
        return super().schedule(*args, **kwargs)  # type: ignore[misc]  # the class after us has it

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """The masks of a step whose forward pass is on its way; without those that are not there in time."""
        self._compiles_begin()
        reached = [
            late
            for name, late in self._unmasked.items()
            if name in scheduler_output.num_scheduled_tokens and not late.request.is_prefill_chunk
        ]
        if not reached:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        left = max(late.deadline for late in reached) - time.monotonic()
        if left > 0:
            pending = (late.request.structured_output_request._grammar for late in reached)
            wait([future for future in pending if isinstance(future, Future)], left)
        for late in reached:
            request = late.request
            if _is_there(request.structured_output_request._grammar):  # the one look at readiness in this step
                del self._unmasked[request.request_id]
            else:
                self._dropped.append(request)
                request.is_prefill_chunk = True  # vLLM makes no masks for these
                self._parked_holds.stands_still(request.request_id)
        try:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        finally:
            for request in self._dropped:
                request.is_prefill_chunk = False

    def _compiles_begin(self) -> None:
        backend = backend_of(self.structured_output_manager)  # type: ignore[attr-defined]
        if self._late_limit and backend is not None:
            backend.steps = self._steps
            self._steps.launched(backend.compiler)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The results of a step, without the tokens that were sampled without their mask."""
        self._steps.landed()
        for request in self._dropped:
            index = model_runner_output.req_id_to_index.get(request.request_id)
            if index is not None and model_runner_output.sampled_token_ids:
                model_runner_output.sampled_token_ids[index] = []
        self._dropped.clear()
        return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request has ended, however: nobody waits for its compile any more."""
        self._parked_holds.forget(request.request_id)
        if self._unmasked.pop(request.request_id, None) is not None:
            pending_grammars.withdraw(request)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def _is_there(grammar: Any) -> bool:
    """Whether a compile that was pending has ended well. (vLLM puts an exception in the place of one that failed.)"""
    return isinstance(grammar, Future) and grammar.done() and not grammar.cancelled() and grammar.exception() is None


def why_not(of: Any) -> str:
    """Why requests of this engine wait for their grammar before the last token of their prompt; "" if they do not."""
    config = of.vllm_config
    checks = (
        (bool(config.scheduler_config.async_scheduling), "scheduling is asynchronous"),
        (bool(getattr(of, "use_v2_model_runner", False)), "the second model runner"),
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (of.num_spec_tokens > 0, "speculative decoding"),
        (of.structured_output_manager.reasoner_cls is not None, "a reasoning parser"),
        (pending_grammars.has_recurrent_state(of), "the model has a recurrent state, which takes each token once"),
    )
    return next((reason for applies, reason in checks if applies), "") or pending_grammars.why_not(of)


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    pending_grammars.require_promotion(Scheduler)
    scheduler_class.add(LateMaskScheduler)


HOOK = Hook(
    name="late-mask",
    summary="a grammar is waited for when its mask is needed, beside the forward pass",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.schedule", ("self",)),
        Target(_SCHEDULER, "Scheduler.get_grammar_bitmask", ("self", "scheduler_output")),
        Target(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output", "model_runner_output")),
        Target(_SCHEDULER, "Scheduler._free_request", ("self", "request")),
        Target(_SCHEDULER, "Scheduler.__init__@use_v2_model_runner"),
        Target(_SCHEDULER, "Scheduler.__init__@num_spec_tokens"),
        Target("vllm.v1.request", "Request.__init__@is_prefill_chunk"),
        Target("vllm.v1.request", "Request.__init__@resumable"),
        Target("vllm.v1.worker.gpu_model_runner", "GPUModelRunner._update_states", ("self", "scheduler_output")),
    ),
    apply=_apply,
    required=False,
    without_it="the last token of a prompt takes a step of its own where its index still compiles",
)
