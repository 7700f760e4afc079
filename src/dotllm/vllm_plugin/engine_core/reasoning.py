"""A request that reasons first is not held for its index before its reasoning ends.

`pending_grammars.OverlapScheduler` holds a request one token before the end of its prompt. With a reasoning parser the
constraint begins later: until then tokens are sampled freely, and the grammar is neither asked nor moved. So such a
request gets a `DeferredGrammar` and runs at once; when its reasoning has ended and its index is not there, it stops,
as a running request for which there are no tokens to run.

Under asynchronous scheduling the next step is put together before the last token is known, which may be the end of the
reasoning. So while its index is pending, a reasoning request is scheduled only when none of its tokens is on the way:
every other step, for the milliseconds a compile takes.

vLLM 0.32 and later. Not with speculative decoding, which needs masks within the step in which the reasoning ends, nor
where a token of the answer itself may end the reasoning: about those the grammar is asked beforehand (`implicit_ends`).
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.engine_core import pending_grammars
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class
from dotllm.vllm_plugin.engine_core.hold_times import HoldTimes
from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.settings import BACKEND
from dotllm.vllm_plugin.workarounds.implicit_ends import implicit_ends

logger = logging.getLogger(__name__)

_SCHEDULER = "vllm.v1.core.sched.scheduler"


class ReasoningScheduler:
    """Goes before `pending_grammars.OverlapScheduler`, which then sees a request whose grammar is there."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._late: dict[str, Any] = {}
        self._reasoning_holds = HoldTimes("reasoning")
        self._reasons_late = CompilationOptions.from_environment().overlap and not why_not(self)

    def idles(self) -> bool:
        """Whether nobody reasons in this engine (see `scheduler_class`)."""
        return not self._reasons_late

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step. Readiness is looked up here, and nowhere else."""
        for request in list(self._late.values()):
            structured = request.structured_output_request
            late = structured._grammar
            if late.pending:
                continue
            if late.error is None:
                structured.grammar = late.resolve()
                del self._late[request.request_id]
                self._reasoning_holds.goes_on(request.request_id, self)
            else:
                self._register_late_failure(request, late)
        return super().schedule(*args, **kwargs)  # type: ignore[misc]  # the class after us has it

    def _register_late_failure(self, request: Any, late: Any) -> None:
        """Let vLLM end it as a waiting request whose compile failed.

        Nothing is scheduled for it until it has, but a token may still be on its way, so the stand-in stays there.
        """
        from vllm.v1.request import RequestStatus

        structured, status = request.structured_output_request, request.status
        structured._grammar = late.error
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        try:
            super()._handle_blocked_waiting_request(request)  # type: ignore[misc]
        finally:
            request.status = status
            structured._grammar = late

    def _handle_blocked_waiting_request(self, request: Any) -> bool:
        if request.request_id in self._late:
            if request.structured_output_request.reasoning_ended:
                return False  # preempted, and nothing to resume it for yet
        elif self._reasons_late and self._runs_late(request):
            from dotllm.vllm_plugin.engine_core.deferred_grammar import DeferredGrammar

            structured = request.structured_output_request
            structured._grammar = DeferredGrammar(structured._grammar)
            self._late[request.request_id] = request
        return bool(super()._handle_blocked_waiting_request(request))  # type: ignore[misc]

    def _runs_late(self, request: Any) -> bool:
        from vllm.v1.request import RequestStatus

        structured = request.structured_output_request
        if (
            request.status != RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
            or structured is None
            or structured.params._backend != BACKEND
            or not isinstance(structured._grammar, Future)
            or structured._grammar.done()
            or structured.reasoning_ended
            or request.resumable
        ):
            return False
        reasoner = self.structured_output_manager._get_reasoner(request)  # type: ignore[attr-defined]
        if reasoner is None or getattr(reasoner, "implicit_reasoning_end_token_ids", None) or implicit_ends(reasoner):
            return False
        return not reasoner.is_reasoning_end(request.prompt_token_ids or [])

    def _reserve_prefill_lookahead(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:
        """Nothing for a request that waits for its grammar now, or might after the token that is on its way."""
        if request.request_id in self._late and request.status.name == "RUNNING":
            structured = request.structured_output_request
            if structured.reasoning_ended:
                self._reasoning_holds.stands_still(request.request_id)
            if (
                structured.reasoning_ended
                or request.num_output_placeholders > 0
                or structured._grammar.error is not None
            ):
                return 0
        return super()._reserve_prefill_lookahead(request, num_computed_tokens, num_new_tokens)  # type: ignore[misc, no-any-return]

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._reasoning_holds.forget(request.request_id)
        if self._late.pop(request.request_id, None) is not None:
            request.structured_output_request._grammar.cancel()
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def why_not(of: Any) -> str:
    """Why requests of this engine are held at the end of their prompt even if they reason first; "" if they are not."""
    manager = of.structured_output_manager
    checks = (
        (manager.reasoner_cls is None, "no reasoning parser"),
        (bool(manager.enable_in_reasoning), "reasoning is constrained too"),
        (of.num_spec_tokens > 0, "speculative decoding"),
        (not hasattr(manager, "_get_reasoner"), "an unknown structured output manager"),
    )
    return next((reason for applies, reason in checks if applies), "") or pending_grammars.why_not(of)


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if not hasattr(Scheduler, "_handle_blocked_waiting_request"):
        raise AttributeError("Scheduler has no _handle_blocked_waiting_request (vLLM before 0.32)")
    scheduler_class.add(ReasoningScheduler)


HOOK = Hook(
    name="overlap-reasoning",
    summary="a request reasons while its specification compiles",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler._handle_blocked_waiting_request", ("self", "request")),
        Target("vllm.v1.structured_output", "StructuredOutputManager._get_reasoner", ("self", "request")),
        Target("vllm.v1.structured_output.request", "StructuredOutputRequest.reasoning_ended:"),
    ),
    apply=_apply,
    required=False,
    without_it="a request that reasons first waits at the end of its prompt, as others do",
)
