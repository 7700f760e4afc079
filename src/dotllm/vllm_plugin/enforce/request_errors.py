"""An output whose ``stop_reason`` says why the engine core ended its request (`errors`) becomes an API error.

A refusal is HTTP 400, a full queue or a lack of compile processes 503, anything else 500, each with its message.
Offline, vLLM raises nothing, so the outputs of other requests are not lost. The failed request has an output with the
finish reason "error"; we put the message into its ``stop_reason``, and log it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from dotllm.vllm_plugin.enforce.errors import Failure, decode
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.vllm_types import CompletionOutput, EngineCoreOutput, RequestOutput

logger = logging.getLogger(__name__)

HOOK = Hook(
    summary="if a constraint ends its request with an error, the client gets the reason",
    targets=(
        Target(
            "vllm.v1.engine.output_processor", "OutputProcessor.abort_requests", ("self", "request_ids", "internal")
        ),
    ),
    without_it='the client is only told "Internal server error"',
)


def _failed(output: RequestOutput) -> Iterator[tuple[CompletionOutput, Failure]]:
    """The completions that have ended with an error of ours."""
    completions = getattr(output, "outputs", None)
    for completion in completions if isinstance(completions, list) else ():  # (a pooling model's is not a list)
        failure = decode(completion.stop_reason) if completion.finish_reason == "error" else None
        if failure is not None:
            yield completion, failure


def as_exception(output: RequestOutput) -> Exception | None:
    """What to raise in place of ``output``, or None if it is an ordinary one."""
    return next((as_http(*failure) for _, failure in _failed(output)), None)


def as_http(status: int, message: str, code: str = "", field: str | None = None) -> Exception:
    """The exception that vLLM answers with this status and message. It has the ``code`` of a refusal, which for a 503
    only marks the error as ours (`endpoints`). ``field``: see `Failure`."""
    from vllm import exceptions

    if status == 400:
        error: Exception = exceptions.VLLMValidationError(message, parameter=field)
    else:
        error = exceptions.GracefulHTTPError(message, HTTPStatus(status))
    if status in (400, 503):
        error.dotllm_code = code  # type: ignore[attr-defined]
    return error


def tell(output: RequestOutput) -> None:
    """Make the message the ``stop_reason`` of each completion of ``output`` that an error of ours ended."""
    for completion, failure in _failed(output):
        completion.stop_reason = failure.message
        logger.error("request %s was ended: %s", output.request_id, failure.message)


@HOOK.replaces("vllm.v1.engine.output_processor:OutputProcessor.process_outputs")
def _process_outputs(
    self: Any, engine_core_outputs: list[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    siblings = []
    for output in engine_core_outputs:
        if decode(output.stop_reason) is None:
            continue
        if getattr(output, "error", None) is not None:
            # vLLM would turn it into an exception, which has no place for the refusal's code; `_put` makes ours.
            output.error = None  # type: ignore[attr-defined]
        state = self.request_states.get(output.request_id)
        parent = None if state is None or state.queue is None else state.parent_req
        if parent is not None and not parent.output_aggregator:
            siblings.append(parent.request_id)
    processed = original(self, engine_core_outputs, *args, **kwargs)
    if siblings:  # An exception ends a stream of n answers. vLLM assumes that it is a refusal, and aborts none of them.
        processed.reqs_to_abort += self.abort_requests(siblings, internal=True)
    return processed


@HOOK.replaces("vllm.v1.engine.output_processor:RequestOutputCollector.put")
def _put(self: object, output: RequestOutput, *, original: Original) -> None:
    # Each of n answers ends separately, and an output is finished when its last answer is, so all are examined.
    original(self, as_exception(output) or output)


@HOOK.replaces("vllm.v1.engine.llm_engine:LLMEngine.step")
def _step(self: object, *, original: Original) -> list[RequestOutput]:
    outputs: list[RequestOutput] = original(self)
    for output in outputs:
        if output.finished:
            tell(output)
    return outputs
