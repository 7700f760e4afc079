"""The tokens of a step are taken by all grammars in one call.

vLLM asks each request's grammar to accept its token, in Python, one after another: at 256 requests that is 0.6 ms of a
step, most of it the way into the engine and back. Here `advance_guides` takes them all (0.1 ms) before vLLM looks at
the results, and vLLM's own calls find them taken (`RequestGrammar.followed`; `gpu_masks` looks at it on the way
to a grammar). Tokens that are no matter of course are left to vLLM's calls: several at once, stop tokens, those that a
grammar does not allow, those after its end.

With asynchronous scheduling a result may come that does not count, or counts elsewhere: it was in flight when its
request was preempted. vLLM keeps the number of those with each request, and while there are any, the
request is left to vLLM, too.

Who takes tokens here is looked up once for each request, and again when it has been preempted: to find out for hundreds
in each step would take as long as to move their grammars.
"""

from __future__ import annotations

from itertools import compress
from operator import attrgetter
from typing import Any

from dotllm.automata.machine.layout import FINISHED
from dotllm.index import advance_guides
from dotllm.vllm_plugin.engine_core import scheduler_mixins

MIN_BATCH = 8  # requests; fewer are not worth it

_NOBODY: Any = object()
_FAILED, _STOPPED, _CONFIG = map(attrgetter, ("failed", "stopped", "config"))


class BatchAcceptScheduler:
    """Goes before vLLM's scheduler, behind those of ours that change the results of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._takes_batches = not why_not(self)
        self._counts_in_flight = bool(self.vllm_config.scheduler_config.async_scheduling)  # type: ignore[attr-defined]
        self._takers: dict[str, Any] = {}
        """by request the grammar that takes its tokens here, or _NOBODY; so until it ends or is preempted"""

    def idles(self) -> bool:
        """Whether vLLM's calls are the only ones in this engine (see `scheduler_mixins`)."""
        return not self._takes_batches

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The results of a step."""
        if not self._takes_batches:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        taken = self._take(model_runner_output)
        try:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        finally:
            for grammar in taken:
                grammar.followed = False

    def _take(self, output: Any) -> list[Any]:
        """Let grammars accept the tokens of vLLM's ``ModelRunnerOutput``; those that have, marked as such."""
        names, drawn = output.req_ids, output.sampled_token_ids
        if len(drawn) < max(MIN_BATCH, len(names)):  # (or there are none: not the last pipeline stage)
            return []
        takers = list(map(self._takers.get, names))
        if None in takers:
            takers = [self._taker(name) if taker is None else taker for name, taker in zip(names, takers, strict=True)]
        if _NOBODY in takers:
            takes = [taker is not _NOBODY for taker in takers]
            takers, drawn = list(compress(takers, takes)), list(compress(drawn, takes))
        return take(takers, drawn)

    def _taker(self, name: str) -> Any:
        """The grammar that takes the token of a request in this step, or _NOBODY; remembered if that lasts."""
        from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar

        request = self.requests.get(name)  # type: ignore[attr-defined]
        if request is None:
            return _NOBODY
        taker = _NOBODY
        if request.structured_output_request is not None:
            taker = request.structured_output_request._grammar
            if type(taker) is not RequestGrammar or not counts(request, self._counts_in_flight):
                return _NOBODY
        self._takers[name] = taker
        return taker

    def _preempt_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._takers.pop(request.request_id, None)
        return super()._preempt_request(request, *args, **kwargs)  # type: ignore[misc]

    def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        self._takers.pop(request.request_id, None)
        return super()._free_request(request, *args, **kwargs)  # type: ignore[misc]


def counts(request: Any, asynchronous: bool) -> bool:
    """Whether the result that has come for ``request`` counts. asynchronous: it may have been on its way when the
    request was preempted."""
    from vllm.v1.request import RequestStatus

    if request.status is not RequestStatus.RUNNING or request.resumable:
        return False
    return not asynchronous or request.num_stale_output_tokens == 0


def take(grammars: list[Any], drawn: list[list[int]]) -> list[Any]:
    """Let grammars accept what was ``drawn``, by position; those that have, marked as such."""
    guides = [grammar.guide for grammar in grammars]
    if (
        set(map(len, drawn)) != {1}
        or any(map(_FAILED, grammars))
        or any(map(_STOPPED, grammars))
        or FINISHED in map(_CONFIG, guides)
    ):
        kept = [
            i
            for i, (grammar, guide, tokens) in enumerate(zip(grammars, guides, drawn, strict=True))
            if len(tokens) == 1 and not grammar.failed and not grammar.stopped and guide.config != FINISHED
        ]
        grammars, guides, drawn = ([of[i] for i in kept] for of in (grammars, guides, drawn))
    if len(guides) < MIN_BATCH:
        return []
    try:
        accepted, failures = advance_guides(guides, [token for (token,) in drawn])
    except Exception as error:  # nothing may cross into vLLM's loop; who has moved and who has not is not known
        for grammar in grammars:
            grammar.fail("accept", error)
        return []
    for position, failure in failures.items():
        grammars[position].fail("accept", failure)
    taken = list(compress(grammars, accepted))
    for grammar in taken:
        grammar.followed = True
    return taken


def why_not(scheduler: Any) -> str:
    """Why vLLM's calls are the only ones in this engine; "" if they are not."""
    config = scheduler.vllm_config
    checks = (
        (config.parallel_config.pipeline_parallel_size > 1, "pipeline parallelism"),
        (getattr(scheduler, "connector", None) is not None, "a KV connector may fail, then results do not count"),
        (scheduler.structured_output_manager.reasoner_cls is not None, "a reasoning parser decides what counts"),
        (bool(getattr(config.model_config, "is_diffusion", False)), "the model is a diffusion model"),
    )
    return next((reason for applies, reason in checks if applies), "")


HOOK = scheduler_mixins.hook(
    BatchAcceptScheduler,
    name="batch-accept",
    summary="the tokens of a step are taken by all grammars in one call",
    without_it="grammars are asked one after another",
    overrides="update_from_output _preempt_request _free_request",
)


@HOOK.replaces("vllm.v1.structured_output:StructuredOutputManager.accept_tokens")
def _accept_tokens_with(original: Any) -> Any:
    """vLLM asks this for every request and token, and it takes several calls to come to a grammar (2 of 20 us a request
    and step): the answer is known where `take` has taken the token already, and for free requests."""

    def accept_tokens(self: Any, request: Any, new_token_ids: list[int]) -> bool:
        structured = request.structured_output_request
        if structured is None:
            return True
        grammar = structured._grammar
        if getattr(grammar, "followed", False) and not grammar.failed:
            return True
        return bool(original(self, request, new_token_ids))

    return accept_tokens
