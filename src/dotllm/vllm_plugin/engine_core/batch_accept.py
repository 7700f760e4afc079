"""The tokens of a step are accepted by all grammars in one call, and drafts validated.

vLLM asks each request's grammar to accept its token, one after another: 0.6 ms of a step of 256 requests, most of it
the way into the engine and back. Here `advance_along` moves them all (0.1 ms) before vLLM looks at the results, and
vLLM's own calls find that done (`RequestGrammar.accepted_ahead`). With speculation a step has several tokens for a
request, and vLLM asks before which drafts the grammar allows: `RequestGrammar.allowed_ahead`. vLLM's calls are left
the special cases: stop tokens, tokens that a grammar does not allow or that come after its end, guides that remember,
requests that reason, and results that were in flight when their request was preempted (these may not count).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import compress
from typing import TYPE_CHECKING, Any

from dotllm.automata.machine.layout import FINISHED
from dotllm.index.draft_rows import advance_along, allowed_drafts
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.engine_core import scheduler_mixins
from dotllm.vllm_plugin.hook import Original
from dotllm.vllm_plugin.vllm_types import DraftTokenIds, ModelRunnerOutput, SchedulerMixin, SchedulerOutput

if TYPE_CHECKING:
    from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

MIN_BATCH = 8  # requests; fewer are not worth it


class BatchAcceptScheduler(SchedulerMixin):
    """Goes before vLLM's scheduler and `jump_forward`'s, which asks grammars what is forced behind what they took."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._accepts_batches = not why_not(self)
        manager = self.structured_output_manager
        self._may_reason = manager.reasoner_cls is not None and not manager.enable_in_reasoning

    def update_from_output(self, scheduler_output: SchedulerOutput, model_runner_output: ModelRunnerOutput) -> Any:
        """The results of a step."""
        is_read = [True]
        accept(*self._ready(model_runner_output.req_ids, model_runner_output.sampled_token_ids), is_read)
        try:
            return super().update_from_output(scheduler_output, model_runner_output)
        finally:
            is_read[0] = False

    def update_draft_token_ids(self, draft_token_ids: DraftTokenIds) -> None:
        """The drafts for the next step have come."""
        with self._validated(draft_token_ids):
            super().update_draft_token_ids(draft_token_ids)

    def update_draft_token_ids_in_output(self, draft_token_ids: DraftTokenIds, scheduler_output: Any) -> None:
        """The drafts have come of a step that runs already."""
        with self._validated(draft_token_ids):
            super().update_draft_token_ids_in_output(draft_token_ids, scheduler_output)

    @contextmanager
    def _validated(self, drafts: DraftTokenIds) -> Iterator[None]:
        grammars, tokens = self._ready(drafts.req_ids, drafts.draft_token_ids)
        with suppress(Exception):  # vLLM's calls meet it again, one by one
            allowed = allowed_drafts([grammar.guide for grammar in grammars], tokens)
            for grammar, count in zip(grammars, allowed, strict=True):
                grammar.allowed_ahead = -1 if grammar.stops else count
        try:
            yield
        finally:
            for grammar in grammars:
                grammar.allowed_ahead = -1

    def _ready(self, names: list[str], tokens: list[list[int]]) -> tuple[list[RequestGrammar], list[list[int]]]:
        """The grammars that may take tokens now, and the tokens of each; nothing if these are few."""
        from vllm.v1.request import RequestStatus

        from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

        find, running = self.requests.get, RequestStatus.RUNNING
        grammars, found = [], []
        for name, own in zip(names, tokens, strict=False) if self._accepts_batches else ():
            request = find(name)
            if request is None or not own or (structured := request.structured_output_request) is None:
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
                and (structured.reasoning_ended or not self._may_reason)
            ):
                grammars.append(grammar)
                found.append(own)
        return (grammars, found) if len(found) >= MIN_BATCH else ([], [])


def accept(grammars: list[RequestGrammar], tokens: list[list[int]], is_read: list[bool]) -> None:
    """Let grammars accept their tokens, one or more; those that did are ``accepted_ahead`` while ``is_read[0]``."""
    try:
        for grammar in compress(grammars, advance_along([grammar.guide for grammar in grammars], tokens)):
            grammar.accepted_in = is_read
    except Exception as error:  # nothing may cross into vLLM's loop; who has moved and who has not is not known
        for grammar in grammars:
            grammar.fail("accept", error)


def why_not(scheduler: vllm_types.Scheduler) -> str:
    """Why vLLM's calls are the only ones in this engine; "" if they are not."""
    config = scheduler.vllm_config
    checks = (
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (scheduler.connector is not None, "a KV connector may fail, then results do not count"),
        (config.model_config.is_diffusion, "the model is a diffusion model"),
    )
    return next((reason for applies, reason in checks if applies), "")


HOOK = scheduler_mixins.hook(
    BatchAcceptScheduler,
    name="batch-accept",
    summary="the tokens of a step are accepted by all grammars in one call, and drafts validated",
    without_it="grammars are asked one after another",
)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.accept_tokens")
def _accept_tokens(
    self: vllm_types.StructuredOutputManager,
    request: vllm_types.Request,
    new_token_ids: list[int],
    *,
    original: Original,
) -> bool:
    """Several calls lead to a grammar, for every token: the answer is known where `accept` has been, and if free."""
    structured = request.structured_output_request
    if structured is None:
        return True
    grammar = structured._grammar
    if getattr(grammar, "accepted_ahead", False) and not grammar.failed:
        return True
    return bool(original(self, request, new_token_ids))
