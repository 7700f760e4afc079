"""The tokens of a step are accepted by all grammars in one call.

vLLM asks each request's grammar to accept its token, in Python, one after another: at 256 requests that is 0.6 ms of a
step, most of it the way into the engine and back. Here `advance_guides` moves them all (0.1 ms) before vLLM looks at
the results, and vLLM's own calls find that done (`RequestGrammar.accepted_ahead`). The special cases are left to vLLM's
calls: several tokens at once, stop tokens, tokens that a grammar does not allow, tokens after its end, and results that
were in flight when their request was preempted (these may not count).
"""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from dotllm.automata.machine.layout import FINISHED
from dotllm.index import advance_guides
from dotllm.vllm_plugin.engine_core import scheduler_mixins
from dotllm.vllm_plugin.vllm_types import (
    ModelRunnerOutput,
    Request,
    Scheduler,
    SchedulerMixin,
    SchedulerOutput,
    StructuredOutputManager,
)

if TYPE_CHECKING:
    from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

MIN_BATCH = 8  # requests; fewer are not worth it


class BatchAcceptScheduler(SchedulerMixin):
    """Goes before vLLM's scheduler, behind those of ours that change the results of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._accepts_batches = not why_not(self)

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        """The results of a step."""
        accepted = self._accept(model_runner_output) if self._accepts_batches else []
        try:
            return super().update_from_output(scheduler_output, model_runner_output)
        finally:
            for grammar in accepted:
                grammar.accepted_ahead = False

    def _accept(self, output: ModelRunnerOutput) -> list[RequestGrammar]:
        """Let grammars accept the tokens of a step; return the grammars that did, with ``accepted_ahead`` set."""
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

        find, running = self.requests.get, RequestStatus.RUNNING
        grammars, tokens = [], []
        for name, sampled in zip(output.req_ids, output.sampled_token_ids, strict=False):
            request = find(name)
            structured = None if request is None else request.structured_output_request
            if request is None or structured is None or len(sampled) != 1:
                continue
            grammar = structured._grammar
            if (
                type(grammar) is RequestGrammar
                and not grammar.failed
                and not grammar.stopped
                and grammar.guide.config != FINISHED
                and request.status is running
                and not request.num_stale_output_tokens
                and not request.resumable
            ):
                grammars.append(grammar)
                tokens.append(sampled[0])
        return accept(grammars, tokens) if len(grammars) >= MIN_BATCH else []


def accept(grammars: list[RequestGrammar], tokens: list[int]) -> list[RequestGrammar]:
    """Let each of them accept its token; those that have, marked as such."""
    try:
        accepted, failures = advance_guides([grammar.guide for grammar in grammars], tokens)
    except Exception as error:  # nothing may cross into vLLM's loop; who has moved and who has not is not known
        for grammar in grammars:
            grammar.fail("accept", error)
        return []
    for position, failure in failures.items():
        grammars[position].fail("accept", failure)
    found = list(compress(grammars, accepted))
    for grammar in found:
        grammar.accepted_ahead = True
    return found


def why_not(scheduler: Scheduler) -> str:
    """Why vLLM's calls are the only ones in this engine; "" if they are not."""
    config = scheduler.vllm_config
    checks = (
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (scheduler.connector is not None, "a KV connector may fail, then results do not count"),
        (scheduler.structured_output_manager.reasoner_cls is not None, "a reasoning parser decides what counts"),
        (config.model_config.is_diffusion, "the model is a diffusion model"),
    )
    return next((reason for applies, reason in checks if applies), "")


HOOK = scheduler_mixins.hook(
    BatchAcceptScheduler,
    name="batch-accept",
    summary="the tokens of a step are accepted by all grammars in one call",
    without_it="grammars are asked one after another",
)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.accept_tokens")
def _accept_tokens_with(original: Any) -> Any:
    """vLLM asks this for every request and token, and it takes several calls to come to a grammar (2 of 20 us a request
    and step): the answer is known where `accept` has been there before, and for free requests."""

    def accept_tokens(self: StructuredOutputManager, request: Request, new_token_ids: list[int]) -> bool:
        structured = request.structured_output_request
        if structured is None:
            return True
        grammar = structured._grammar
        if getattr(grammar, "accepted_ahead", False) and not grammar.failed:
            return True
        return bool(original(self, request, new_token_ids))

    return accept_tokens
