"""If a constraint ends its request with an error, the client gets the reason.

The engine core compiles every specification of a server, so it also ends the requests that cannot continue: their
specification is refused, a budget is exceeded, the queue is full, other parameters forbid every token that the
constraint allows, or we have a bug. vLLM only remembers that there was an error, and the client gets "Internal server
error". (Since 0.33 a failed compile is HTTP 400, even for a full queue or a bug.) So the scheduler puts the reason into
the output's ``stop_reason``, which is sent anyway, and the front end turns it into an error (`request_errors`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache, wraps
from importlib.metadata import entry_points
from typing import Any, NamedTuple, TypeVar, cast

from dotllm.compilation.errors import Unavailable
from dotllm.diagnosis.openai_error import beside
from dotllm.errors import InvalidSpecError, SpecError, without_frames
from dotllm.vllm_plugin.vllm_types import ModelConfig, Request, Scheduler

logger = logging.getLogger(__name__)

# Every stop_reason of ours begins with this. (A user's stop string may look like it, but has another finish reason.)
_MARK = "\0dotllm "
# Parameters of a request that can forbid every token that its constraint allows.
_FORBIDDING = ("allowed_token_ids", "bad_words")

Method = TypeVar("Method", bound=Callable[..., object])


def contained(otherwise: Callable[[], object]) -> Callable[[Method], Method]:
    """A decorator of functions of a `RequestGrammar`: an error ends its request, and this and all later calls return
    ``otherwise()``. If the guide moves because its index is full, the function begins again."""

    def decorate(function: Method) -> Method:
        @wraps(function)
        def contained_function(grammar: Any, *args: object) -> object:
            while not grammar.failed and (grammar.has_begun or grammar.begin()):
                try:
                    return function(grammar, *args)
                except Exception as error:
                    if not grammar.survives(error):
                        grammar.fail(function.__name__, error)
            return otherwise()

        return cast(Method, contained_function)

    return decorate


class TokenNotAllowed(RuntimeError):
    """The sampled token is not one that the constraint allows. Either other parameters forbade every token that the
    mask allows, or the model's logits were NaN, so any token could be sampled."""

    def __init__(self, token: int) -> None:
        super().__init__(
            f"token {token} was sampled, which the constraint does not allow here (did the model return NaN?)"
        )


class Failure(NamedTuple):
    """Why a request was ended: HTTP status, message, and the code of a refusal (`dotllm.errors.CODES`)."""

    status: int
    message: str
    code: str = ""
    field: str | None = None
    """The field that is refused, if it is not the constraint."""


def encode(error: Exception, what: str = "the specification could not be compiled") -> str:
    """An error as a ``stop_reason``. ``what``: what went wrong, if it is not a refusal."""
    status = 400 if isinstance(error, SpecError) else 503 if isinstance(error, Unavailable) else 500
    text = str(error) if status != 500 else f"{what}: {error}"
    field = beside(error) if isinstance(error, SpecError) else None
    return _MARK + json.dumps(Failure(status, text, getattr(error, "code", ""), field)._asdict())


def decode(stop_reason: object) -> Failure | None:
    """The error in a ``stop_reason`` that dotllm wrote; None for any other."""
    if not isinstance(stop_reason, str) or not stop_reason.startswith(_MARK):
        return None
    return Failure(**json.loads(stop_reason.removeprefix(_MARK)))


class Failures:
    """Makes the outputs of requests that ended with an error of ours say why."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._processors = logits_processors(scheduler.vllm_config.model_config)  # (looking them up takes 0.2 s)
        self._ended: dict[str, Request] | None = None
        """The requests that have ended since `watch`: the scheduler forgets them."""

    def watch(self) -> None:
        """The results of a step are read next."""
        self._ended = {}

    def ended(self, request: Request) -> None:
        """``request`` has ended."""
        if self._ended is not None:
            self._ended[request.request_id] = request

    def explain(self, outputs: Mapping[int, Any]) -> None:
        """Put the reasons into vLLM's ``outputs``, by client."""
        ended, self._ended = self._ended or {}, None
        for client in outputs.values():
            for output in client.outputs:
                if output.finish_reason is None:
                    continue
                request = ended.get(output.request_id) or self._scheduler.requests[output.request_id]
                grammar, how = getattr(request.structured_output_request, "_grammar", None), str(output.finish_reason)
                if how == "stop" and (limit := getattr(grammar, "limit", None)) is not None:
                    limit.tell(request, output, self._scheduler)
                elif how == "error" and (reason := _reason(request, grammar, self._processors)) is not None:
                    # (If the forbidden token is one of the request's stop tokens, vLLM has put it here.)
                    output.stop_reason = reason
                    if getattr(output, "error", None) is not None:  # since 0.33, of a compile that failed
                        output.error = _in_our_words(output.error, reason)


def _in_our_words(error: Any, reason: str) -> Any:
    """vLLM's ``RequestError``, which every front end understands, with the status and the message of ``reason``."""
    status, message, *_ = decode(reason) or Failure(500, "")
    code = "validation_error" if status == 400 else "structured_outputs"
    return type(error)(code=code, message=message, retryable=status == 503)


def logits_processors(model_config: ModelConfig | None) -> tuple[str, ...]:
    """Names of the logits processors that the server's operator has added to vLLM's."""
    named = getattr(model_config, "logits_processors", None) or ()
    return (
        *(processor if isinstance(processor, str) else processor.__qualname__ for processor in named),
        *_installed_processors(),
    )


@cache
def _installed_processors() -> tuple[str, ...]:
    return tuple(point.value for point in entry_points(group="vllm.logits_processors"))


def _reason(request: Request, grammar: object, processors: tuple[str, ...]) -> str | None:
    """Why ``request`` was ended, if dotllm ended it. ``processors``: see `logits_processors`."""
    if isinstance(grammar, Exception):
        return encode(without_frames(grammar))  # vLLM caught it in a frame that holds the request
    error = getattr(grammar, "error", None)  # another backend's grammar has none
    if not isinstance(error, Exception):
        return None
    forbidding = [name for name in _FORBIDDING if getattr(request.sampling_params, name, None)]
    if processors and not forbidding:
        forbidding.append(f"the server's logits processors ({', '.join(processors)})")
    if isinstance(error, TokenNotAllowed) and forbidding:
        message = f"{' and '.join(forbidding)} forbid every token with which the constraint allows the text to continue"
        error = InvalidSpecError(message, keyword=forbidding[0], code="conflict")
    logger.warning("request %s was ended: %s", request.request_id, error)
    return encode(error, "the constraint could not be followed")
