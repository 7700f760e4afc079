"""A request that its constraint ends with an error is answered with the reason.

The engine core compiles every specification of a server, so it also ends the requests that cannot go on: their
specification is refused, a budget is exceeded, the queue is full, other parameters forbid all that the constraint
allows, or we have a bug. vLLM only remembers that there was an error, and the client gets "Internal server error".
(Since 0.33 a failed compile is HTTP 400, even for a full queue or a bug.) So the scheduler's mixin puts the reason into
the output's ``stop_reason``, which travels anyway, and the front end turns such an output into an exception: a refusal
is HTTP 400, a full queue or no compile process 503, anything else 500, each with its message.

Offline, vLLM raises nothing, so the outputs of other requests are not lost. The failed request has one with the finish
reason "error"; we put the message into its ``stop_reason``, and log it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from http import HTTPStatus
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from dotllm.compilation.errors import Unavailable
from dotllm.errors import InvalidSpecError, SpecError, without_frames
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.answer_limit import CLOSED, tokens_left
from dotllm.vllm_plugin.engine_core import scheduler_mixins
from dotllm.vllm_plugin.hook import Original, Target
from dotllm.vllm_plugin.vllm_types import EngineCoreOutput, ModelConfig, Request, RequestOutput

logger = logging.getLogger(__name__)

# Begins every stop_reason of ours. (A user's stop string may look like it, but comes with another finish reason.)
_MARK = "\0dotllm "
# Parameters of a request that can leave none of the tokens that its constraint allows.
_FORBIDDING = ("allowed_token_ids", "bad_words")


class TokenNotAllowed(RuntimeError):
    """A token was sampled that the constraint does not allow. Either other parameters forbade all that the mask allows,
    or the model's logits were NaN, so that any token may be sampled.
    """

    def __init__(self, token: int) -> None:
        super().__init__(
            f"token {token} was sampled, which the constraint does not allow here (did the model return NaN?)"
        )


class Failure(NamedTuple):
    """Why a request was ended: HTTP status, message, and of a refusal its code (`dotllm.errors.CODES`)."""

    status: int
    message: str
    code: str = ""


def encode(error: Exception, what: str = "the specification could not be compiled") -> str:
    """An error as a ``stop_reason``; ``what`` it has done, if it is no refusal."""
    status = 400 if isinstance(error, SpecError) else 503 if isinstance(error, Unavailable) else 500
    text = str(error) if status != 500 else f"{what}: {error}"
    return _MARK + json.dumps(Failure(status, text, getattr(error, "code", ""))._asdict())


def decode(stop_reason: object) -> Failure | None:
    """What a ``stop_reason`` of ours says; None for any other."""
    if not isinstance(stop_reason, str) or not stop_reason.startswith(_MARK):
        return None
    return Failure(**json.loads(stop_reason.removeprefix(_MARK)))


class FailureScheduler(vllm_types.SchedulerMixin):
    """Goes before vLLM's scheduler class: outputs of requests that ended with an error of ours say why."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._processors = logits_processors(self.vllm_config.model_config)

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, plus the reasons."""
        requests = self.requests.copy()  # (those that end in this step are gone after it)
        outputs = super().update_from_output(*args, **kwargs)
        for client in outputs.values():
            for output in client.outputs:
                if output.finish_reason is not None and str(output.finish_reason) == "stop":
                    self._tell_if_closed(requests[output.request_id], output)
                if output.finish_reason is None or str(output.finish_reason) != "error":
                    continue
                reason = _reason(requests[output.request_id], self._processors)
                if reason is None:
                    continue
                # (Where the token that is not allowed is one of the request's stop tokens, vLLM has said so here.)
                output.stop_reason = reason
                if getattr(output, "error", None) is not None:  # since 0.33, of a compile that failed
                    output.error = _in_our_words(output.error, reason)
        return outputs

    def _tell_if_closed(self, request: Request, output: EngineCoreOutput) -> None:
        """Say of an answer that has ended if it did so on account of its limit."""
        limit = getattr(getattr(request.structured_output_request, "_grammar", None), "limit", None)
        if limit is not None and limit.was_needed(tokens_left(request, self.max_model_len)):
            output.stop_reason = CLOSED
            backend: Any = self.structured_output_manager.backend  # ours, as the grammar is
            backend.compiler.metrics.add("dotllm_answers_closed")


def _in_our_words(error: Any, reason: str) -> Any:
    """vLLM's ``RequestError``, which every front end understands, with the status and the message of ``reason``."""
    status, message, _ = decode(reason) or Failure(500, "")
    code = "validation_error" if status == 400 else "structured_outputs"
    return type(error)(code=code, message=message, retryable=status == 503)


def logits_processors(model_config: ModelConfig) -> tuple[str, ...]:
    """Names of the logits processors that the server's operator has added to vLLM's."""
    named = model_config.logits_processors or ()
    installed = (point.value for point in entry_points(group="vllm.logits_processors"))
    return (*(one if isinstance(one, str) else one.__qualname__ for one in named), *installed)


def _reason(request: Request, processors: tuple[str, ...]) -> str | None:
    """Why ``request`` was ended, if that is ours to say. ``processors``: see `logits_processors`."""
    grammar = getattr(request.structured_output_request, "_grammar", None)
    if isinstance(grammar, Exception):
        return encode(without_frames(grammar))  # vLLM caught it in a frame that holds the request
    error = getattr(grammar, "error", None)  # of another backend's none
    if not isinstance(error, Exception):
        return None
    forbidding = [name for name in _FORBIDDING if getattr(request.sampling_params, name, None)]
    if processors and not forbidding:
        forbidding.append(f"the server's logits processors ({', '.join(processors)})")
    if isinstance(error, TokenNotAllowed) and forbidding:
        message = f"{' and '.join(forbidding)} forbid every token with which the constraint allows the text to go on"
        error = InvalidSpecError(message, keyword=forbidding[0], code="conflict")
    logger.warning("request %s is ended: %s", request.request_id, error)
    return encode(error, "the constraint could not be followed")


def _failed(output: RequestOutput) -> Iterator[tuple[vllm_types.CompletionOutput, Failure]]:
    """The completions that have ended with an error of ours."""
    completions = getattr(output, "outputs", None)
    for completion in completions if isinstance(completions, list) else ():  # (of a pooling model it is none)
        failure = decode(completion.stop_reason) if completion.finish_reason == "error" else None
        if failure is not None:
            yield completion, failure


def as_exception(output: RequestOutput) -> Exception | None:
    """What to raise in place of ``output``, or None if it is an ordinary one."""
    return next((as_http(*failure) for _, failure in _failed(output)), None)


def as_http(status: int, message: str, code: str = "") -> Exception:
    """What vLLM answers with this status and message; an error of status 400 has the refusal's ``code``."""
    from vllm import exceptions

    if status == 400:
        error: Exception = exceptions.VLLMValidationError(message)
        error.dotllm_code = code  # type: ignore[attr-defined]
        return error
    return exceptions.GracefulHTTPError(message, HTTPStatus(status))  # type: ignore[no-any-return]


def tell(output: RequestOutput) -> None:
    """Put the message alone where ``output`` says how it ended, if that is ours to say."""
    for completion, failure in _failed(output):
        completion.stop_reason = failure.message
        logger.error("request %s was ended: %s", output.request_id, failure.message)


HOOK = scheduler_mixins.hook(
    FailureScheduler,
    name="request-errors",
    summary="a request that its constraint ends with an error says why",
    without_it='the client is only told "Internal server error"',
    targets=[
        Target("vllm.v1.engine.output_processor", "OutputProcessor.abort_requests", ("self", "request_ids", "internal"))
    ],
)


@HOOK.replaces("vllm.v1.engine.output_processor:OutputProcessor.process_outputs")
def _process_outputs(
    self: Any, engine_core_outputs: list[EngineCoreOutput], *args: Any, original: Original, **kwargs: Any
) -> Any:
    siblings = []
    for output in engine_core_outputs:
        if decode(output.stop_reason) is None:
            continue
        if getattr(output, "error", None) is not None:
            # vLLM would make an exception of it, which has no place for the refusal's code; `_put` makes ours.
            output.error = None  # type: ignore[attr-defined]
        state = self.request_states.get(output.request_id)
        parent = None if state is None or state.queue is None else state.parent_req
        if parent is not None and not parent.output_aggregator:
            siblings.append(parent.request_id)
    processed = original(self, engine_core_outputs, *args, **kwargs)
    if siblings:  # An exception ends a stream of n answers. vLLM takes it for a refusal, and aborts none of them.
        processed.reqs_to_abort += self.abort_requests(siblings, internal=True)
    return processed


@HOOK.replaces("vllm.v1.engine.output_processor:RequestOutputCollector.put")
def _put(self: object, output: RequestOutput, *, original: Original) -> None:
    # Of n answers each ends for itself, and an output is finished when the last one is: so all are looked at.
    original(self, as_exception(output) or output)


@HOOK.replaces("vllm.v1.engine.llm_engine:LLMEngine.step")
def _step(self: object, *, original: Original) -> list[RequestOutput]:
    outputs: list[RequestOutput] = original(self)
    for output in outputs:
        if output.finished:
            tell(output)
    return outputs
