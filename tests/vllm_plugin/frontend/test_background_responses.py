"""A background response that ends with an error has the status "failed", and its events end."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.entrypoints.openai.responses.protocol import ResponsesRequest, ResponsesResponse
from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
from vllm.exceptions import GenerationError
from vllm.sampling_params import SamplingParams

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.enforce import engine_info, request_errors
from tests.vllm_plugin.frontend.test_unsupported_fields import serve

ERRORS = [
    (
        request_errors.as_http(400, "the shortest answer takes 20 tokens"),
        "invalid_prompt",
        "the shortest answer takes 20 tokens",
    ),
    (request_errors.as_http(503, "too many wait"), "server_error", "too many wait"),
    (
        request_errors.as_http(500, "the constraint could not be followed"),
        "server_error",
        "the constraint could not be followed",
    ),
    (RuntimeError("a path of the server"), "server_error", "Internal server error"),
]


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    yield
    engine_info.remember(None)


def serving(ends: Any) -> Any:
    """vLLM's serving class with one queued response; the generation is played and ends with ``ends``."""
    one: Any = object.__new__(OpenAIServingResponses)
    request = ResponsesRequest(input="?", background=True, store=True)
    response = ResponsesResponse.from_request(
        request, SamplingParams(max_tokens=3), "m", 0, output=[], status="queued", usage=None
    )
    one.response_store, one.response_store_lock = {response.id: response}, asyncio.Lock()
    one.event_store, one.background_tasks, one.request, one.response = {}, {}, request, response

    async def full(request: Any, *_: Any, **__: Any) -> Any:
        if isinstance(ends, Exception):
            raise ends
        response.status = "completed"
        return response

    async def stream(request: Any, *_: Any, **__: Any) -> Any:
        yield SimpleNamespace(type="response.created")
        if isinstance(ends, Exception):
            raise ends
        if ends == "an event of an error":
            yield SimpleNamespace(type="error")
        else:
            response.status = "completed"
            yield SimpleNamespace(type="response.completed")

    one.responses_full_generator, one.responses_stream_generator = full, stream
    return one


async def followed(one: Any) -> list[Any]:
    """All events, read by a client that came before the first event and by one that came after the last."""
    name = one.request.request_id
    one.event_store[name] = deque(), asyncio.Event()
    task = asyncio.ensure_future(one._run_background_request_stream(one.request))
    await asyncio.sleep(0)

    async def read() -> list[Any]:
        return [event async for event in one.responses_background_stream_generator(name)]

    events = await asyncio.wait_for(read(), 20)
    await task
    assert await asyncio.wait_for(read(), 20) == events
    return events


@pytest.mark.parametrize(("error", "code", "message"), ERRORS)
def test_it_has_failed_with_the_error(error: Exception, code: str, message: str) -> None:
    one = serving(error)
    asyncio.run(one._run_background_request(one.request))
    said = json.loads(one.response.model_dump_json())
    assert said["status"] == "failed" and said["error"] == {"code": code, "message": message}


@pytest.mark.parametrize(("error", "code", "message"), ERRORS)
def test_its_last_event_says_so(error: Exception, code: str, message: str) -> None:
    one = serving(error)
    *_, last = asyncio.run(followed(one))
    said = json.loads(last.model_dump_json(indent=None, by_alias=True))
    assert said["type"] == "response.failed" and said["sequence_number"] == 1
    assert said["response"]["status"] == one.response.status == "failed"
    assert said["response"]["error"] == {"code": code, "message": message}
    from openai.types.responses import ResponseFailedEvent

    ResponseFailedEvent.model_validate(said)


def test_a_stream_that_vllm_ends_with_an_event_of_an_error_has_failed() -> None:
    one = serving("an event of an error")
    kinds = [event.type for event in asyncio.run(followed(one))]
    assert kinds == ["response.created", "error", "response.failed"] and one.response.status == "failed"


def test_what_ends_well_is_as_ever() -> None:
    asyncio.run((one := serving(None))._run_background_request(one.request))
    assert one.response.status == "completed" and "error" not in one.response.model_dump()
    kinds = [event.type for event in asyncio.run(followed(serving(None)))]
    assert kinds == ["response.created", "response.completed"]


def test_what_was_cancelled_stays_so() -> None:
    one = serving(GenerationError("ended"))
    one.response.status = "cancelled"
    asyncio.run(one._run_background_request(one.request))
    assert one.response.status == "cancelled"


def test_a_server_of_another_backend_is_left_alone() -> None:
    serve("xgrammar")
    one = serving(RuntimeError("theirs"))
    with pytest.raises(RuntimeError, match="theirs"):
        asyncio.run(one._run_background_request(one.request))
    assert one.response.status == "queued"
