"""Runs requests while their grammars compile.

vLLM lets a request wait for its grammar before the prompt runs. Here the request is scheduled at once, with a stand-in
for its grammar (`DeferredGrammar`). The grammar is needed when vLLM asks for the request's first mask. vLLM asks after
it has launched the step that runs the end of the prompt, and a prompt takes longer than most compiles. With a reasoning
parser, the first mask comes after the reasoning, whose tokens need none.

If the grammar is still missing then, the scheduler preempts the request with vLLM's own method. The token that the step
samples for it is dropped, and the request waits as in vLLM. When it continues, its tokens are in the prefix cache. If
all requests of a step are such requests, the step first waits up to `COMPILE_WAIT_S` for their compiles: a preemption
costs more than most compiles take, and no other request is delayed. (Data-parallel ranks of a mixture of experts step
together, so there the step does not wait.) In engines that `why_not` excludes, requests wait for their grammar from the
beginning, as in vLLM.

These rules must hold (each has a test in test_pending_grammars.py or tests/serve/test_overlap.py):
 * No token that was sampled without the mask it needed may count.
 * A failed compile must reach vLLM as the Future itself, while the request waits: only vLLM's code for waiting requests
   turns it into an error. Until then vLLM sees the stand-in, never the failure.
 * A request runs ahead only once. Otherwise it would run its prompt again and again during a long compile.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import Enum
from typing import Any

from dotllm.compilation.options import CompilationOptions
from dotllm.vllm_plugin.enforce.compile_hook import backend_of
from dotllm.vllm_plugin.enforce.scheduler import PENDING, Part, takes_part
from dotllm.vllm_plugin.hook import Hook
from dotllm.vllm_plugin.settings import BACKEND
from dotllm.vllm_plugin.specification import answer_tokens
from dotllm.vllm_plugin.speed.request_state import beyond
from dotllm.vllm_plugin.vllm_types import Request, Scheduler, SchedulerOutput, StructuredOutputRequest
from dotllm.vllm_plugin.workarounds.implicit_ends import implicit_ends

logger = logging.getLogger(__name__)

# About three times the compile time of a typical specification; the forward pass of a prompt takes as long.
COMPILE_WAIT_S = 0.01

_MAY_BE_DROPPED = frozenset(
    {
        *("n", "temperature", "top_p", "top_k", "min_p", "seed", "max_tokens", "min_tokens", "thinking_token_budget"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "repetition_detection", "watermarking"),
        *("structured_outputs", "logit_bias", "allowed_token_ids", "bad_words", "_bad_words_token_ids", "extra_args"),
        *("stop", "stop_token_ids", "ignore_eos", "_eos_token_id", "_all_stop_token_ids", "include_stop_str_in_output"),
        *("logprobs", "logprob_token_ids", "flat_logprobs", "_watermarking_skipped"),
        *("detokenize", "skip_special_tokens", "spaces_between_special_tokens", "output_kind", "stream_interval"),
        *("output_text_buffer_length", "skip_clone", "skip_reading_prefix_cache"),
    }
)
"""Parameters of requests whose first step may be dropped. (Anything asked about the prompt comes with that step.)"""


@dataclass
class Pending:
    """A request that was scheduled before its compile had ended."""

    request: Request
    structured: StructuredOutputRequest
    """that of ``request``"""
    future: Future[Any]
    """of its grammar"""
    reasons: bool
    """whether it begins with a reasoning, whose tokens need no mask"""
    waits_since: float | None = None
    """when it was preempted because its grammar was needed and missing (`time.monotonic`)"""

    @property
    def is_compiled(self) -> bool:
        """Whether the grammar is there; also False after a failed compile."""
        return self.future.done() and not self.future.cancelled() and self.future.exception() is None


class PendingGrammars(Part):
    """Gives requests a stand-in for their grammar, and the grammar itself at the first mask."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(scheduler)
        self.requests: dict[str, Pending] = {}
        reason = why_not(scheduler) if CompilationOptions.from_environment().overlap else "switched off"
        self._runs_ahead = not reason
        manager = scheduler.structured_output_manager
        # (Speculative decoding needs masks within the step that ends the reasoning.)
        reasons = manager.reasoner_cls is not None and not manager.enable_in_reasoning
        self._lets_reason = reasons and scheduler.num_spec_tokens == 0
        config = scheduler.vllm_config
        self._in_lockstep = config.parallel_config.data_parallel_size > 1 and config.model_config.is_moe
        logger.info("prefill overlaps compilation: %s", f"no ({reason})" if reason else "yes")

    def begin_step(self) -> None:
        """Requests whose compile has ended continue, or are ended."""
        for pending in [pending for pending in self.requests.values() if pending.future.done()]:
            if pending.waits_since is not None:  # vLLM itself looks at requests that wait
                self._forget(pending)
            else:
                self._go_on(pending)

    def need_masks(self, step: SchedulerOutput) -> None:
        """The masks of ``step``, which is running, need the grammars."""
        scheduled = step.num_scheduled_tokens
        needed = [
            pending
            for name, pending in self.requests.items()
            if name in scheduled
            and not pending.request.is_prefill_chunk
            and not (pending.reasons and not pending.structured.reasoning_ended)
        ]
        if needed and len(needed) == len(self.scheduler.running) and not self._in_lockstep:
            wait([pending.future for pending in needed], COMPILE_WAIT_S)
        for pending in needed:
            self._go_on(pending)

    def _go_on(self, pending: Pending) -> None:
        """The request gets its grammar, or waits for it."""
        if pending.is_compiled:
            pending.structured.grammar = pending.future.result()
            self._forget(pending)
        else:
            pending.waits_since = time.monotonic()
            let_wait(self.scheduler, pending.request, pending.future)

    def _forget(self, pending: Pending) -> None:
        del self.requests[pending.request.request_id]
        backend = backend_of(self.scheduler.structured_output_manager)
        if backend is not None:
            where = "reasoning" if pending.reasons else "prompt"
            seconds = 0.0 if pending.waits_since is None else time.monotonic() - pending.waits_since
            backend.compiler.metrics.observe("dotllm_request_stall_seconds", where, value=seconds)

    def unblock(self, request: Request, waited_for: Enum, may_run: bool) -> bool:
        """A request that waits for its grammar may be scheduled, with a stand-in."""
        from vllm.v1.request import RequestStatus

        waits_for_grammar = waited_for == RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
        if may_run:
            # Workers already know the request. (A session that goes on is new to them in each turn.)
            if waits_for_grammar and request.num_preemptions and not request.resumable:
                request.status = RequestStatus.PREEMPTED
            return True
        structured = request.structured_output_request
        if not waits_for_grammar or structured is None or not self._may_run_ahead(request, structured):
            return False
        from dotllm.vllm_plugin.speed.deferred_grammar import DeferredGrammar

        future = structured._grammar
        reasons = self._reasons_first(request, structured)
        self.requests[request.request_id] = Pending(request, structured, future, reasons)
        structured.grammar = DeferredGrammar(future)
        request.status = RequestStatus.WAITING
        return True

    def _may_run_ahead(self, request: Request, structured: StructuredOutputRequest) -> bool:
        """Whether ``request``, which vLLM keeps waiting, is one of ours that may run without its grammar.

        vLLM has just registered a failed compile, if there is one, so a future that has no result yet means that the
        compile was pending. If it has ended since, the next step sends the request back, which is harmless."""
        return (
            self._runs_ahead
            and structured.params._backend == BACKEND
            and isinstance(structured._grammar, Future)
            and not request.num_preemptions
            and _may_lose_a_step(request)
            and (self._may_run_again(request) or self._reasons_first(request, structured))
        )

    def _may_run_again(self, request: Request) -> bool:
        # V1 draws from the request's own generator, which a dropped token would advance. (V2 draws by position.)
        draws_by_position = request.sampling_params.seed is None or self.scheduler.vllm_config.use_v2_model_runner
        return not request.has_encoder_inputs and draws_by_position

    def may_drop(self, request: Request) -> bool:
        """Whether the results in flight for ``request`` may be dropped."""
        return self._may_run_again(request) and _may_lose_a_step(request)

    def _reasons_first(self, request: Request, structured: StructuredOutputRequest) -> bool:
        """Whether the constraint of ``request`` begins after a reasoning that its prompt has not ended. (False if a
        token of the answer itself may end the reasoning: the grammar is asked about such tokens beforehand.)"""
        if not self._lets_reason or structured.reasoning_ended or answer_tokens(request.sampling_params) is not None:
            return False  # (the grammar of an answer that must end in time says when its reasoning must)
        reasoner = self.scheduler.structured_output_manager._get_reasoner(request)
        if reasoner is None or implicit_ends(reasoner):
            return False
        return not reasoner.is_reasoning_end(request.prompt_token_ids or [])

    def ended(self, request: Request) -> None:
        """``request`` no longer needs its grammar."""
        pending = self.requests.pop(request.request_id, None)
        if pending is not None:
            pending.future.cancel()


def _may_lose_a_step(request: Request) -> bool:
    return not request.resumable and not any(beyond(_MAY_BE_DROPPED, request.sampling_params))


def let_wait(scheduler: Scheduler, request: Request, future: Future[Any]) -> None:
    """Let ``request`` wait for its grammar as in vLLM. From then on, vLLM drops the results in flight for it, no step
    asks for its mask or drafts, and vLLM sees the future itself, so it registers a failed compile."""
    from vllm.v1.request import RequestStatus

    if request.status == RequestStatus.RUNNING:  # (else vLLM has preempted it)
        scheduler.running.remove(request)
        scheduler._preempt_request(request, time.monotonic(), drop_stale_output=True)  # as `reset_prefix_cache` does
        scheduler.prev_step_scheduled_req_ids.discard(request.request_id)
    request.status = RequestStatus.WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR
    request.is_prefill_chunk = True  # so no step asks for its mask or drafts
    assert request.structured_output_request is not None
    request.structured_output_request.grammar = future


def why_not(scheduler: Scheduler) -> str:
    """Why prefill cannot overlap with compilation in this engine; "" if it can. The cases below have not been tried."""
    config = scheduler.vllm_config
    checks = (
        (scheduler.connector is not None, "a KV connector is in use"),
        (scheduler.ec_connector is not None, "an encoder cache connector is in use"),
        (scheduler.is_encoder_decoder, "the model is an encoder-decoder"),
        (scheduler.need_mamba_block_aligned_split, "the model's state is cached at block borders"),
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline stages"),
        (config.model_config.is_diffusion, "the model is a diffusion model"),
        (config.parallel_config.distributed_executor_backend == "external_launcher", "each rank has its own scheduler"),
    )
    return next((reason for applies, reason in checks if applies), "")


HOOK = Hook(
    summary="a request processes its prompt, and reasons, while its specification compiles",
    apply=takes_part(PENDING, PendingGrammars),
    without_it="a constrained request begins with its prompt only after its specification is compiled, as in vLLM",
)
