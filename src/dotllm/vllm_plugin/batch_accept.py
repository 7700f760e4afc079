"""The tokens of a step are taken by all grammars in one call, where the GPU does not follow them anyway.

vLLM asks each request's grammar to accept its token, in Python, one after another: at 256 requests that is 0.6 ms of a
step, most of it the way into the engine and back. Here `advance_guides` takes them all (0.1 ms) before vLLM looks at
the results, and vLLM's own calls find them taken (`RequestGrammar.followed`). Tokens that are no matter of course are
left to vLLM's calls: several at once, stop tokens, those that a grammar does not allow, those after its end.
"""

from __future__ import annotations

from typing import Any

from dotllm.index import advance_guides
from dotllm.vllm_plugin import scheduler_class
from dotllm.vllm_plugin.hook import Hook, Target

LEAST = 8  # requests; fewer are not worth it


class BatchAcceptScheduler:
    """Goes before vLLM's scheduler, behind those of ours that change the results of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._takes_batches = not why_not(self)

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """The results of a step."""
        taken = take(self.requests, model_runner_output) if self._takes_batches else []  # type: ignore[attr-defined]
        try:
            return super().update_from_output(scheduler_output, model_runner_output)  # type: ignore[misc]
        finally:
            for grammar in taken:
                grammar.followed = False


def take(requests: dict[str, Any], output: Any) -> list[Any]:
    """Let grammars accept the tokens of ``output``, vLLM's ``ModelRunnerOutput``; those that have, marked as such."""
    from vllm.v1.request import RequestStatus

    from dotllm.vllm_plugin.request_grammar import RequestGrammar

    grammars, drawn = [], []
    for name, tokens in zip(output.req_ids, output.sampled_token_ids, strict=False):
        if len(tokens) != 1 or (request := requests.get(name)) is None:
            continue
        structured = request.structured_output_request
        if structured is None or request.status != RequestStatus.RUNNING or request.resumable:
            continue
        grammar = structured._grammar
        if type(grammar) is RequestGrammar and grammar.goes_on and not grammar.followed:
            grammars.append(grammar)
            drawn.append(tokens[0])
    if len(grammars) < LEAST:
        return []
    try:
        accepted, failures = advance_guides([grammar.guide for grammar in grammars], drawn)
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


def why_not(scheduler: Any) -> str:
    """Why vLLM's calls are the only ones in this engine; "" if they are not."""
    config = scheduler.vllm_config
    checks = (
        (bool(config.scheduler_config.async_scheduling), "scheduling is asynchronous: results may not count"),
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
