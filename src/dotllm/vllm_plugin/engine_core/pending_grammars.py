"""Requests run while their grammar compiles; what they do where it is still missing when it is needed.

vLLM keeps a request waiting until its grammar is there, and only then begins with the prompt. Here it is scheduled at
once, with a stand-in for its grammar (`DeferredGrammar`), and does one of three things (`Wait`):
 * HELD: all of its prompt is run but for the last token, so nothing is sampled, until the grammar has come. That last
   token costs a step of its own.
 * LATE: all of its prompt is run, and the mask is asked for as late as vLLM asks for it, behind the launch of the
   forward pass, which takes longer than most compiles. The step waits `COMPILE_WAIT_S` for the grammar there; where
   that is not enough, the request is preempted as vLLM does it, which drops what the step samples, and is HELD from
   then on. So that nobody waits for somebody else's compile, this is for requests that come while nothing else runs,
   with prompts that fit into one step.
 * REASONS: with a reasoning parser the constraint begins where the reasoning ends; until then tokens are sampled freely
   and nobody asks the grammar. When the reasoning has ended and the grammar is not there, the request stands still, as
   a running request for which there are no tokens to run. Under asynchronous scheduling the next step is put together
   before the last token is known, which may be the end of the reasoning: so while its grammar is pending, such a
   request is scheduled only when none of its tokens is on the way, every other step.
Where the scheduler does not fit (`why_not`, `why_no_reasoning`), vLLM's own waiting is what happens.

What must not go wrong, each with a test in test_pending_grammars.py or tests/serve/test_overlap.py:
 * Readiness is read once per request and step, in `schedule`. Read twice, a compile that fails in between would be
   scheduled with an exception for a grammar, and the engine would die. (vLLM sees the stand-in all the time.)
 * A failure is registered by vLLM's own code for waiting requests, which differs between releases.
 * A request admitted with exactly one token left to run would get zero tokens, and vLLM's waiting loop ends there, so
   everybody behind it would wait. Prefix cache hits are multiples of the hash block size, so this can only happen where
   it divides the prompt's length less one: those keep waiting as vLLM has it.
 * Held requests keep their KV blocks and a slot of the batch, so there is a limit to them.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.engine_core import scheduler_mixins
from dotllm.vllm_plugin.engine_core.compile_hook import backend_of
from dotllm.vllm_plugin.settings import BACKEND
from dotllm.vllm_plugin.workarounds.implicit_ends import implicit_ends

logger = logging.getLogger(__name__)

# Some three times what a typical specification takes to compile; the forward pass of a prompt takes as long.
COMPILE_WAIT_S = 0.01


class Wait(Enum):
    """What a request does while its grammar is missing; the value is the label of ``dotllm_held_seconds``."""

    HELD = "prompt"
    LATE = "mask"
    REASONS = "reasoning"


@dataclass
class Pending:
    """A request that runs without its grammar."""

    request: Any
    wait: Wait
    grammar: Any
    """its `DeferredGrammar`"""
    still_since: float | None = None
    """when it had nothing else to do than to wait (`time.monotonic`)"""

    def stands_still(self) -> None:
        """There is nothing to run for it (called in every step in which that is so)."""
        self.still_since = self.still_since or time.monotonic()


class PendingGrammarsScheduler:
    """Goes before vLLM's scheduler class (sync, async, or a user's own) in the method resolution order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pending: dict[str, Pending] = {}
        self._one_token_left: set[str] = set()
        self._alone = False
        """whether nothing runs but requests whose mask is asked for late"""
        options = CompilationOptions.from_environment()
        reason = "switched off" if not options.overlap else why_not(self)
        sequences = int(self.vllm_config.scheduler_config.max_num_seqs)  # type: ignore[attr-defined]
        self._hold_limit = 0 if reason else max(1, min(options.overlap_requests, sequences // 2))
        self._may_reason = not reason and not why_no_reasoning(self)
        self._may_be_late = not reason and not why_not_late(self)
        self._vllm_looks_ahead = super()._reserve_prefill_lookahead  # type: ignore[misc]  # the class after us has it
        logger.info("prefill overlaps compilation: %s", f"no ({reason})" if reason else "yes")

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        """One step. Requests whose grammar has come go on; this is the only place where that is looked up."""
        self._alone = all(self._is_late(request) for request in self.running)  # type: ignore[attr-defined]
        for pending in list(self._pending.values()):
            if pending.grammar.pending:
                if pending.wait is Wait.LATE and not self._alone:
                    pending.wait = Wait.HELD
                continue
            if pending.grammar.error is None:
                self._go_on(pending)
            else:
                self._register_failure(pending)
        if not self._pending:
            # vLLM asks for every request in every step: while none is pending, without a detour.
            vars(self)["_reserve_prefill_lookahead"] = self._vllm_looks_ahead
        return super().schedule(*args, **kwargs)  # type: ignore[misc]  # the class after us has it

    def _is_late(self, request: Any) -> bool:
        pending = self._pending.get(request.request_id)
        return pending is not None and pending.wait is Wait.LATE

    def get_grammar_bitmask(self, scheduler_output: Any) -> Any:
        """The masks of a step that has been launched, with the grammars that have come meanwhile."""
        late = [
            pending
            for name, pending in self._pending.items()
            if pending.wait is Wait.LATE
            and name in scheduler_output.num_scheduled_tokens
            and not pending.request.is_prefill_chunk
        ]
        if not late:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        all_are_late = len(late) == len(scheduler_output.num_scheduled_tokens)
        wait([pending.grammar.future for pending in late], COMPILE_WAIT_S if all_are_late else 0)
        missing = []
        for pending in late:
            if pending.grammar.pending or pending.grammar.error is not None:
                pending.wait = Wait.HELD
                missing.append(pending.request)
            else:
                self._go_on(pending)
        for request in missing:
            self._drop_step(request)
            request.is_prefill_chunk = True  # so it asks for no mask
        try:
            return super().get_grammar_bitmask(scheduler_output)  # type: ignore[misc]
        finally:
            for request in missing:
                request.is_prefill_chunk = False

    def _drop_step(self, request: Any) -> None:
        """Let what the step in flight samples for ``request`` not count, as vLLM's ``reset_prefix_cache`` does it."""
        scheduler: Any = self
        scheduler.running.remove(request)
        scheduler._preempt_request(request, time.monotonic(), drop_stale_output=True)
        scheduler.prev_step_scheduled_req_ids.discard(request.request_id)

    def _go_on(self, pending: Pending) -> None:
        request = pending.request
        request.structured_output_request.grammar = pending.grammar.resolve()
        del self._pending[request.request_id]
        backend = backend_of(self.structured_output_manager)  # type: ignore[attr-defined]
        if backend is not None:
            since = pending.still_since
            seconds = 0.0 if since is None else time.monotonic() - since
            backend.compiler.metrics.observe("dotllm_held_seconds", pending.wait.value, value=seconds)

    def _register_failure(self, pending: Pending) -> None:
        """Let vLLM do with a request that runs what it does with a waiting one whose compile failed: it ends it after
        this step. A token may still be on its way, so the stand-in stays where it is."""
        from vllm.v1.request import RequestStatus

        request = pending.request
        structured, status = request.structured_output_request, request.status
        structured._grammar = pending.grammar.error
        request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        try:
            super()._handle_blocked_waiting_request(request)  # type: ignore[misc]
        finally:
            structured._grammar, request.status = pending.grammar, status

    def _handle_blocked_waiting_request(self, request: Any) -> bool:
        """Whether a waiting request may be scheduled (also asked about those that have been preempted)."""
        pending = self._pending.get(request.request_id)
        if pending is not None and pending.wait is Wait.REASONS and request.structured_output_request.reasoning_ended:
            return False  # preempted behind its reasoning: there is nothing to resume it for
        if super()._handle_blocked_waiting_request(request):  # type: ignore[misc]
            return True
        how = self._how_to_wait(request)
        if how is None:
            return False
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.engine_core.deferred_grammar import DeferredGrammar

        structured = request.structured_output_request
        structured._grammar = DeferredGrammar(structured._grammar)
        self._pending[request.request_id] = Pending(request, how, structured._grammar)
        vars(self).pop("_reserve_prefill_lookahead", None)  # ours is asked from now on, see `schedule`
        request.status = RequestStatus.WAITING
        return True

    def _how_to_wait(self, request: Any) -> Wait | None:
        """What ``request``, which vLLM has not promoted, does until its grammar comes; None: it waits as vLLM has it.

        A failed compile has been registered by vLLM just now. Only the raw future tells it from a pending one without
        a second look: if it ended since, the request waits one step more, which is harmless."""
        from vllm.v1.request import RequestStatus

        if (
            not self._hold_limit
            or request.status != RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
            or not awaits_grammar(request)
            or request.resumable
        ):
            return None
        if self._may_reason and self._reasons_first(request):
            return Wait.REASONS
        held = sum(pending.wait is not Wait.REASONS for pending in self._pending.values())
        may_be_held = (
            held < self._hold_limit
            and not request.has_encoder_inputs
            and (request.num_tokens - 1) % self.hash_block_size != 0  # type: ignore[attr-defined]
            and request.request_id not in self._one_token_left
        )
        if not may_be_held:
            return None
        late = (
            self._alone
            and self._may_be_late
            and request.num_tokens <= self.max_num_scheduled_tokens  # type: ignore[attr-defined]  # all in one step
            and request.num_preemptions == 0
            and request.sampling_params.prompt_logprobs is None
        )
        return Wait.LATE if late else Wait.HELD

    def _reasons_first(self, request: Any) -> bool:
        """Whether the constraint of ``request`` begins behind a reasoning that its prompt has not ended. (Not where a
        token of the answer itself may end it: about those the grammar is asked beforehand.)"""
        if request.structured_output_request.reasoning_ended:
            return False
        reasoner = self.structured_output_manager._get_reasoner(request)  # type: ignore[attr-defined]
        if reasoner is None or implicit_ends(reasoner):
            return False
        return not reasoner.is_reasoning_end(request.prompt_token_ids or [])

    def _reserve_prefill_lookahead(self, request: Any, num_computed_tokens: int, num_new_tokens: int) -> int:
        """How many tokens of ``request`` to run in this step."""
        allowed: int = self._vllm_looks_ahead(request, num_computed_tokens, num_new_tokens)
        pending = self._pending.get(request.request_id)
        if pending is None:
            return allowed
        if pending.wait is Wait.HELD:
            allowed = min(allowed, max(0, request.num_tokens - 1 - num_computed_tokens))
            if allowed == 0:
                pending.stands_still()
                self._take_back(pending)
        elif request.status.name == "RUNNING":
            ended = request.structured_output_request.reasoning_ended
            if ended:
                pending.stands_still()
            if ended or request.num_output_placeholders > 0 or pending.grammar.error is not None:
                return 0
        return allowed

    def _take_back(self, pending: Pending) -> None:
        """Zero tokens for a request that is not running yet end vLLM's waiting loop.

        `_how_to_wait` sees to it that this does not happen; should it, let the request wait as vLLM has it, from the
        next step on.
        """
        from vllm.v1.request import RequestStatus

        request = pending.request
        if request.status == RequestStatus.WAITING:
            del self._pending[request.request_id]
            self._one_token_left.add(request.request_id)
            request.structured_output_request._grammar = pending.grammar.future
            request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """A request has ended, however: nobody waits for its compile any more."""
        self._one_token_left.discard(request.request_id)
        pending = self._pending.pop(request.request_id, None)
        compiles = pending.grammar.future if pending else getattr(request.structured_output_request, "_grammar", None)
        if isinstance(compiles, Future):
            compiles.cancel()
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def awaits_grammar(request: Any) -> bool:
    """Whether nobody has looked at the grammar of ``request``, one of ours, since its compile began."""
    structured = request.structured_output_request
    return structured is not None and structured.params._backend == BACKEND and isinstance(structured._grammar, Future)


def why_not(scheduler: Any) -> str:
    """Why prefill cannot overlap with compilation in this engine; "" if it can.

    These features use the same hook, or give a partial prompt a meaning of their own, and have not been tried with it.
    """
    config = scheduler.vllm_config
    checks = (
        (not config.scheduler_config.enable_chunked_prefill, "chunked prefill is off"),
        (scheduler.connector is not None, "a KV connector is in use"),
        (scheduler.ec_connector is not None, "an encoder cache connector is in use"),
        (scheduler.is_encoder_decoder, "the model is an encoder-decoder"),
        (scheduler.need_mamba_block_aligned_split, "the model's state is cached at block borders"),
        (scheduler.num_prefill_lookahead > 0, "the drafter looks ahead of the prefill"),
        (getattr(config.model_config, "is_diffusion", False), "the model is a diffusion model"),
        (config.parallel_config.distributed_executor_backend == "external_launcher", "each rank has its own scheduler"),
    )
    return next((reason for applies, reason in checks if applies), "")


def why_not_late(scheduler: Any) -> str:
    """Why no mask of this engine is asked for late; "" if they are."""
    manager = scheduler.structured_output_manager
    checks = (
        (manager.reasoner_cls is not None, "a reasoning parser decides where constraints begin"),
        (scheduler.num_spec_tokens > 0, "speculative decoding"),
        (scheduler.parallel_config.pipeline_parallel_size > 1, "pipeline stages"),
    )
    return next((reason for applies, reason in checks if applies), "")


def why_no_reasoning(scheduler: Any) -> str:
    """Why requests of this engine are held at the end of their prompt even if they reason first; "" if they are not."""
    manager = scheduler.structured_output_manager
    checks = (
        (manager.reasoner_cls is None, "no reasoning parser"),
        (bool(manager.enable_in_reasoning), "reasoning is constrained, too"),
        (scheduler.num_spec_tokens > 0, "speculative decoding needs masks within the step that ends the reasoning"),
    )
    return next((reason for applies, reason in checks if applies), "")


HOOK = scheduler_mixins.hook(
    PendingGrammarsScheduler,
    name="pending-grammars",
    summary="the prompt of a request, and its reasoning, run while its specification compiles",
    without_it="a structured request begins with its prompt when its specification is compiled, as in vLLM",
    overrides="schedule get_grammar_bitmask _handle_blocked_waiting_request _reserve_prefill_lookahead _free_request",
)
