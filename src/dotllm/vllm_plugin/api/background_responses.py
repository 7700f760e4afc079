"""A background response that the engine ends gets the status ``failed``, with the error.

vLLM runs such a response in its own task. An exception ends the task, and nothing reads it: the response stays
``queued`` for ever, and a client that follows its events waits for ever. A refusal by the engine is such an exception,
and so is every other error of a request. Here the response fails with the error, and its last event is
``response.failed`` (https://platform.openai.com/docs/api-reference/responses-streaming/response/failed).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import cache
from typing import Any, Literal

from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original

_SERVING = "vllm.entrypoints.openai.responses.serving:OpenAIServingResponses"
FAILED = "response.failed"

HOOK = Hook(
    summary="a background response that ends with an error has the status failed, and says why",
    without_it="a background response that the engine refuses stays queued for ever",
)


@HOOK.replaces(f"{_SERVING}._run_background_request")
async def _run(self: Any, request: Any, *args: Any, original: Original, **kwargs: Any) -> None:
    try:
        await original(self, request, *args, **kwargs)
    except Exception as error:
        if not engine_info.serves():
            raise
        await fail(self, request.request_id, error)


@HOOK.replaces(f"{_SERVING}._run_background_request_stream")
async def _run_stream(self: Any, request: Any, *args: Any, original: Original, **kwargs: Any) -> None:
    failure = None
    try:
        await original(self, request, *args, **kwargs)
    except Exception as error:
        if not engine_info.serves():
            raise
        failure = error
    if not engine_info.serves():
        return
    # (vLLM ends some streams with an error event, and leaves the response queued.)
    response = await fail(self, request.request_id, failure)
    if response is not None:
        events, has_come = self.event_store[request.request_id]
        events.append(_failed_event()(sequence_number=len(events), response=response))
        has_come.set()


@HOOK.replaces(f"{_SERVING}.responses_background_stream_generator")
async def _events(self: object, *args: Any, original: Original, **kwargs: Any) -> AsyncGenerator[Any, None]:
    async for event in original(self, *args, **kwargs):
        yield event
        if getattr(event, "type", "") == FAILED:
            return


async def fail(serving: Any, name: str, error: Exception | None) -> Any:
    """Mark the response ``name`` as failed with ``error``, unless it has ended. Returns it if it was marked."""
    async with serving.response_store_lock:
        response = serving.response_store.get(name)
        if response is None or response.status not in ("queued", "in_progress"):
            return None
        response.status = "failed"
        response.error = error_of(error)
        return response


def error_of(error: Exception | None) -> dict[str, str]:
    """The field ``error`` of a response, without texts that are not meant for clients."""
    from vllm.exceptions import GracefulHTTPError, VLLMValidationError

    if isinstance(error, VLLMValidationError):
        return {"code": "invalid_prompt", "message": str(error.args[0])}
    text = str(error) if isinstance(error, GracefulHTTPError) else "Internal server error"
    return {"code": "server_error", "message": text}


@cache
def _failed_event() -> Any:
    from pydantic import create_model
    from vllm.entrypoints.openai.responses.protocol import ResponsesResponse

    fields: Any = {
        "type": (Literal["response.failed"], FAILED),
        "sequence_number": (int, ...),
        "response": (ResponsesResponse, ...),
    }
    return create_model("ResponseFailedEvent", **fields)
