"""Gives errors of the Messages API Anthropic's shape: ``{"type": "error", "error": {"type": …, "message": …}}``.

vLLM uses this shape, with its own types, only for errors in the endpoint. Earlier refusals (of a field, for example)
have OpenAI's shape, and a stream that fails ends with an event about vLLM's own parsing. Here a refusal also has
dotllm's code and the field (as in `refusal_response`), and ``details``, which Anthropic's SDK reads.

https://docs.anthropic.com/en/api/errors
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

from dotllm.compilation.errors import UNAVAILABLE
from dotllm.diagnosis.openai_error import error_fields
from dotllm.vllm_plugin.api.refusal_response import PREFIX, refusal_response
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original

PATH = "/v1/messages"
_TYPES = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 422: "invalid_request_error", 429: "rate_limit_error", 503: "overloaded_error",
    504: "timeout_error",
}  # fmt: skip
_HANDLERS = "vllm.entrypoints.serve.exception_handling.handlers"
_AS_HERE = (
    (re.compile(r"^response_format\.json_schema"), "output_config.format"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters"), r"\1.input_schema"),
    (re.compile(r"^(tools\[\d+\])\.function\."), r"\1."),
)
"""The names that a chat's fields have in this API."""
_BEGIN, _ERROR, _STOPPED = "data:", '{"error"', "event: message_stop"

HOOK = Hook(
    summary="errors of the Messages API have Anthropic's shape, with the code of a refusal and the field",
    without_it="refusals of the Messages API have OpenAI's shape, or no code, and Anthropic's SDK does not send the "
    "conversation of a thread that is not kept",
)


def field(name: str) -> str:
    """The Messages API's name for ``name``, a field of the chat that its request becomes."""
    for pattern, ours in _AS_HERE:
        name = pattern.sub(ours, name)
    return name


def body(status: int, error: dict[str, Any], details: object = None) -> dict[str, Any]:
    """The body of an error with this HTTP status; ``error`` is an error object in OpenAI's shape."""
    fields = {"type": _TYPES.get(status, "api_error"), "message": error["message"]}
    if error.get("param"):
        fields["param"] = field(error["param"])
    if str(error.get("code")).startswith(PREFIX):  # a refusal of ours
        fields |= {name: error[name] for name in ("code", "url") if name in error}
    if details is not None:
        fields["details"] = details
    return {"type": "error", "error": fields}


@HOOK.replaces("vllm.entrypoints.anthropic.api_router:translate_error_response")
def _translate_error_response(response: Any, *, original: Original) -> Any:
    from fastapi.responses import JSONResponse

    if not engine_info.serves():
        return original(response)
    status = response.error.code
    return JSONResponse(status_code=status, content=body(status, response.error.model_dump()))


@HOOK.replaces(
    f"{_HANDLERS}.exception:exception_handler",
    f"{_HANDLERS}.http:http_exception_handler",
    f"{_HANDLERS}.validation:validation_exception_handler",
)
async def _handler(req: Any, exc: Any, *, original: Original) -> Any:
    from fastapi.responses import JSONResponse

    response = await original(req, exc)
    if PATH not in req.url.path or not engine_info.serves():
        return response
    error, code = json.loads(response.body)["error"], getattr(exc, "dotllm_code", "")
    if code:
        error = refusal_response()(error=error_fields(exc.args[0], code, None, exc.parameter)).model_dump()["error"]
    content = body(response.status_code, error, getattr(exc, "details", None))
    return JSONResponse(status_code=response.status_code, content=content)


@HOOK.replaces("vllm.entrypoints.anthropic.serving:AnthropicServingMessages.message_stream_converter")
async def _message_stream_converter(
    self: object, generator: AsyncGenerator[Any, None], *, original: Original
) -> AsyncGenerator[str, None]:
    errors: list[dict[str, Any]] = []

    async def until_error() -> AsyncGenerator[Any, None]:
        async for chunk in generator:
            error = _error_in(chunk) if engine_info.serves() else None
            if error is not None:
                errors.append(error)
                return
            yield chunk

    async for event in original(self, until_error()):
        if not errors or not event.startswith(_STOPPED):
            yield event
    for error in errors:
        yield f"event: error\ndata: {json.dumps(body(_status(error['code']), error))}\n\n"


def _error_in(chunk: Any) -> dict[str, Any] | None:
    """The error, in OpenAI's shape, in a chunk of a chat's stream: a text or, since 0.33, a vLLM object."""
    if isinstance(chunk, str):
        text = chunk.removeprefix(_BEGIN).strip()
        return dict(json.loads(text)["error"]) if text.startswith(_ERROR) else None
    error = getattr(chunk, "error", None)
    return None if error is None else dict(error.model_dump())


def _status(code: object) -> int:
    """The HTTP status of an error with this ``code``; a refusal has our code instead of a status."""
    refused = 503 if code == f"{PREFIX}{UNAVAILABLE}" else 400
    return code if isinstance(code, int) else refused
