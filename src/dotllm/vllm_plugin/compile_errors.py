"""A request whose specification could not be compiled is answered with the reason.

Validation in the front end refuses nearly everything that is refused, with HTTP 400. What is left (a budget exceeded
while compiling, a full queue, a bug of ours) ends a request in the engine core, where vLLM before 0.33 only remembers
that there was an error: the client gets "Internal server error". So the scheduler's mixin puts the reason into the
output's ``stop_reason``, which travels anyway, and the front end turns such an output into an exception: a refusal is
HTTP 400, a full queue 503, anything else 500, each with its message.
"""

from __future__ import annotations

import json
import logging
from functools import wraps
from typing import Any

from dotllm.compilation.errors import QueueFull
from dotllm.errors import SpecError
from dotllm.vllm_plugin import scheduler_class
from dotllm.vllm_plugin.hook import Hook, Target

logger = logging.getLogger(__name__)

# Begins every stop_reason of ours. (A user's stop string may look like it, but comes with another finish reason.)
_MARK = "\0dotllm "


def encode(error: Exception) -> str:
    """The failure of a compile as a ``stop_reason``."""
    status = 400 if isinstance(error, SpecError) else 503 if isinstance(error, QueueFull) else 500
    text = str(error) if status != 500 else f"the specification could not be compiled: {error}"
    return _MARK + json.dumps({"status": status, "message": text})


def decode(stop_reason: Any) -> tuple[int, str] | None:
    """(HTTP status, message) of a ``stop_reason`` of ours; None for any other."""
    if not isinstance(stop_reason, str) or not stop_reason.startswith(_MARK):
        return None
    data = json.loads(stop_reason.removeprefix(_MARK))
    return data["status"], data["message"]


class FailureScheduler:
    """Goes before vLLM's scheduler class: outputs of requests that failed to compile say why."""

    def update_from_output(self, *args: Any, **kwargs: Any) -> Any:
        """vLLM's, plus the reasons."""
        scheduler: Any = self
        if not scheduler.grammar_compile_error_reqs:
            return super().update_from_output(*args, **kwargs)  # type: ignore[misc]
        reasons = {name: _failure(scheduler.requests.get(name)) for name in scheduler.grammar_compile_error_reqs}
        outputs = super().update_from_output(*args, **kwargs)  # type: ignore[misc]  # the class after us has it
        for client in outputs.values():
            for output in client.outputs:
                error = reasons.get(output.request_id)
                if error is not None and output.stop_reason is None:
                    output.stop_reason = encode(error)
        return outputs


def _failure(request: Any) -> Exception | None:
    grammar = getattr(getattr(request, "structured_output_request", None), "grammar", None)
    error = grammar if isinstance(grammar, Exception) else getattr(grammar, "error", None)
    return error if isinstance(error, Exception) else None


def as_exception(output: Any) -> Exception | None:
    """What to raise in place of ``output`` (a ``RequestOutput``), or None if it is an ordinary one."""
    completions = getattr(output, "outputs", None)
    if not isinstance(completions, list):
        return None
    for completion in completions:
        if completion.finish_reason != "error":
            continue
        failure = decode(completion.stop_reason)
        if failure is not None:
            return _exception(*failure)
    return None


def _exception(status: int, message: str) -> Exception:
    from vllm import exceptions

    if status == 400:
        return exceptions.VLLMValidationError(message)  # type: ignore[no-any-return]
    graceful = getattr(exceptions, "GracefulHTTPError", None)
    if graceful is None:  # before 0.30 vLLM makes a 500 without a message of everything else
        return RuntimeError(message)
    from http import HTTPStatus

    return graceful(message, HTTPStatus(status))  # type: ignore[no-any-return]


def _apply() -> None:
    from vllm.v1.engine import EngineCoreOutput
    from vllm.v1.engine.output_processor import RequestOutputCollector

    if "error" in EngineCoreOutput.__struct_fields__:
        return  # 0.33 and later carry the reason themselves
    scheduler_class.add(FailureScheduler)
    original = RequestOutputCollector.put
    if getattr(original, "is_dotllm", False):
        return

    @wraps(original)
    def put(self: Any, output: Any) -> None:
        if getattr(output, "finished", False):
            output = as_exception(output) or output
        original(self, output)

    put.is_dotllm = True  # type: ignore[attr-defined]  # marks the wrapper
    RequestOutputCollector.put = put


HOOK = Hook(
    name="compile-errors",
    summary="a request whose specification could not be compiled is told why",
    targets=(
        *scheduler_class.TARGETS,
        Target("vllm.v1.engine.output_processor", "RequestOutputCollector.put", ("self", "output")),
        Target("vllm.v1.core.sched.scheduler", "Scheduler.update_from_output", ("self",)),
        Target("vllm.v1.core.sched.scheduler", "Scheduler.__init__@grammar_compile_error_reqs"),
        Target("vllm.v1.engine", "EngineCoreOutput.stop_reason:"),
    ),
    apply=_apply,
    required=False,
    without_it='the client is only told "Internal server error"',
)
