"""The tokens of a step are taken by all grammars in one call, where the GPU does not follow them anyway.

vLLM asks each request's grammar to accept its token, in Python, one after another: at 256 requests that is 0.6 ms of a
step, most of it the way into the engine and back. Here `advance_guides` takes them all (0.1 ms) before vLLM looks at
the results, and vLLM's own calls find them taken (`RequestGrammar.followed`; `gpu.manager_hook` looks at it on the way
to a grammar). Tokens that are no matter of course are left to vLLM's calls: several at once, stop tokens, those that a
grammar does not allow, those after its end.

With asynchronous scheduling a result may come that does not count, or counts elsewhere: it was in flight when its
request was preempted. vLLM keeps a number of those with each request (`IN_FLIGHT`), and while there are any, the
request is left to vLLM, too.
"""

from __future__ import annotations

from typing import Any

from dotllm.index import advance_guides
from dotllm.index.index import FINISHED
from dotllm.vllm_plugin import scheduler_class
from dotllm.vllm_plugin.hook import Hook, Target

LEAST = 8  # requests; fewer are not worth it
IN_FLIGHT = ("async_tokens_to_discard", "num_stale_output_tokens")
"""The attribute of vLLM's ``Request`` that says how many tokens were in flight when it was preempted: until 0.27, and
since."""


class BatchAcceptScheduler:
    """Goes before vLLM's scheduler, behind those of ours that change the results of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._takes_batches = not why_not(self)
        self._counts_in_flight = bool(self.vllm_config.scheduler_config.async_scheduling)  # type: ignore[attr-defined]

    def idles(self) -> bool:
        """Whether vLLM's calls are the only ones in this engine (see `scheduler_class`)."""
        return not self._takes_batches

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The results of a step."""
        if not self._takes_batches or getattr(self, "_walk", None) is not None:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        taken = take(self.requests, model_runner_output, self._counts_in_flight)  # type: ignore[attr-defined]
        try:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        finally:
            for grammar in taken:
                grammar.followed = False


def take(requests: dict[str, Any], output: Any, count_in_flight: bool = False) -> list[Any]:
    """Let grammars accept the tokens of ``output``, vLLM's ``ModelRunnerOutput``; those that have, marked as such.
    ``count_in_flight``: results may have been on their way when their request was preempted."""
    from vllm.v1.request import RequestStatus

    from dotllm.vllm_plugin.request_grammar import RequestGrammar

    in_flight = ""
    if count_in_flight:
        in_flight = in_flight_attribute(requests)
        if not in_flight:
            return []
    running, find = RequestStatus.RUNNING, requests.get
    grammars, guides, drawn = [], [], []
    for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=False):
        if len(tokens) != 1 or (request := find(name)) is None:
            continue
        structured = request.structured_output_request
        if structured is None or request.status is not running or request.resumable:
            continue
        if in_flight and getattr(request, in_flight) > 0:
            continue
        grammar = structured._grammar
        # (attributes, and no property that says whether the text goes on: there are hundreds in each step)
        if type(grammar) is not RequestGrammar or grammar.failed or grammar.stopped or grammar.followed:
            continue
        guide = grammar.guide
        if guide.config != FINISHED:
            grammars.append(grammar)
            guides.append(guide)
            drawn.append(tokens[0])
    if len(guides) < LEAST:
        return []
    try:
        accepted, failures = advance_guides(guides, drawn)
    except Exception as error:  # nothing may cross into vLLM's loop; who has moved and who has not is not known
        for grammar in grammars:
            grammar.fail("accept", error)
        return []
    for position, failure in failures.items():
        grammars[position].fail("accept", failure)
    taken = [grammar for grammar, moved in zip(grammars, accepted, strict=True) if moved]
    for grammar in taken:
        grammar.followed = True
    return taken


def in_flight_attribute(requests: dict[str, Any]) -> str:
    """That of `IN_FLIGHT` which this vLLM has; "" if it has neither, or no ``requests``."""
    anyone = next(iter(requests.values()), None)
    return next((name for name in IN_FLIGHT if hasattr(anyone, name)), "")


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


def _apply() -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    if not hasattr(Scheduler, "update_from_output"):
        raise AttributeError("Scheduler has no update_from_output")
    scheduler_class.add(BatchAcceptScheduler)


_SCHEDULER = "vllm.v1.core.sched.scheduler"

HOOK = Hook(
    name="batch-accept",
    summary="the tokens of a step are taken by all grammars in one call",
    targets=(
        *scheduler_class.TARGETS,
        Target(_SCHEDULER, "Scheduler.update_from_output", ("self", "scheduler_output", "model_runner_output")),
        Target(_SCHEDULER, "Scheduler.__init__@requests"),
        Target("vllm.v1.request", "Request.__init__@status"),
        Target("vllm.v1.request", "Request.__init__@resumable"),
        Target("vllm.v1.outputs", "ModelRunnerOutput.req_ids:"),
        Target("vllm.v1.outputs", "ModelRunnerOutput.sampled_token_ids:"),
    ),
    apply=_apply,
    required=False,
    without_it="grammars are asked one after another",
)
