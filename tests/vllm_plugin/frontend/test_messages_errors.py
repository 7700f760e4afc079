"""Errors of the Messages API over HTTP: vLLM's router, exception handlers and serving class, with our hooks.

Everything after the parameters is played. Anthropic's client reads the bodies.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin import registry, releases
from dotllm.vllm_plugin.enforce import engine_info, request_errors
from tests.fuzz.requests import with_tools
from tests.vllm_plugin.frontend.test_unsupported_fields import serve

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
BAD = {"type": "object", "properties": {"a": {"type": "strin"}}}
ASKED = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "?"}]}
TOOL = {"name": "f", "input_schema": SCHEMA}


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    yield
    engine_info.remember(None)


def said(last: Any) -> list[Any]:
    """The chunks of a chat that says "yes", followed by the error ``last`` if it is not None."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionStreamResponse

    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    begin = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
    word = {"index": 0, "delta": {"content": "yes"}, "finish_reason": None if last else "stop"}
    choices = [[begin], [word], *([] if last else [[]])]
    chunks = [ChatCompletionStreamResponse(model="m", choices=one, usage=usage) for one in choices]
    return [*chunks, *([last] if last else [])]


async def as_text(chunks: list[Any]) -> AsyncGenerator[str, None]:
    """A chat's stream as in 0.32."""
    for chunk in chunks:
        yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
    yield "data: [DONE]\n\n"


async def no_effort(request: Any) -> str:
    return "none"


def client(breaks: Any = None) -> Any:
    """A client of an application that serves Messages. ``breaks``: an error of the engine, or a stream's last chunk."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from vllm.entrypoints.anthropic import api_router
    from vllm.entrypoints.anthropic.serving import AnthropicServingMessages
    from vllm.entrypoints.serve.exception_handling.register import init_exception_handler

    class Serving(AnthropicServingMessages):
        def __init__(self) -> None:
            self._merge_inline_system = False
            self.engine_client = None  # type: ignore[assignment]
            self.has_kv_connector = False
            self.disabled_thinking_effort_resolver = SimpleNamespace(resolve_for=no_effort)

        async def _create_chat_completion(self, request: Any, raw_request: Any = None) -> Any:
            with_tools(request).to_sampling_params(8, {})
            if isinstance(breaks, Exception):
                raise breaks
            return self.chat_completion_stream_generator() if releases.is_since("0.33") else as_text(said(breaks))

        async def chat_completion_stream_generator_raw(self) -> AsyncGenerator[Any, None]:
            """0.33's name: its chats stream objects."""
            for chunk in said(breaks):
                yield chunk

    Serving.__module__ = AnthropicServingMessages.__module__
    app = FastAPI()
    app.state.args = SimpleNamespace(log_error_stack=False)
    app.state.anthropic_serving_messages = Serving()
    api_router.attach_router(app)
    init_exception_handler(app)
    return TestClient(app, raise_server_exceptions=False)


def refused(fields: dict[str, Any], breaks: Any = None) -> dict[str, Any]:
    response = client(breaks).post("/v1/messages", json={**ASKED, **fields})
    assert response.status_code == 400
    body = response.json()
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    return dict(body["error"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "param", "code", "word"),
    [
        ({"guided_json": SCHEMA}, "guided_json", "unknown_field", "use 'output_config.format'"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs", "unknown_field", "use 'output_config.format'"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema", "invalid_value", "missing"),
        ({"tool_choice": {"type": "any"}}, "tool_choice", "invalid_value", "no 'tools'"),
        ({"tool_choice": {"type": "tool", "name": "f"}}, "tool_choice", "invalid_value", "no 'tools'"),
        ({"tool_choice": {"type": "tool", "name": "g"}, "tools": [TOOL]}, "tool_choice", "invalid_value", "'g'"),
        ({"vllm_xargs": {"dotllm_x": 1}}, "vllm_xargs.dotllm_x", "unknown_field", "dotllm_x"),
    ],
)  # fmt: skip
def test_refusals(fields: dict[str, Any], param: str, code: str, word: str, stream: bool) -> None:
    error = refused({**fields, "stream": stream})
    assert (error["param"], error["code"]) == (param, f"dotllm.{code}")
    assert word in error["message"] and "parameter=" not in error["message"]
    assert "url" not in error, "no documentation lies anywhere"


def test_what_the_engine_refuses_is_named_as_in_this_api() -> None:
    said = request_errors.as_http(400, "unknown type 'strin' (at /properties/a/type)", "unknown_type")
    error = refused({"output_config": {"format": {"type": "json_schema", "schema": BAD}}}, said)
    assert (error["param"], error["code"]) == ("output_config.format.schema", "dotllm.unknown_type")


@pytest.mark.parametrize("fields", [{"max_tokens": 0}, {"tools": [{"name": "f"}]}, {"messages": 5}])
def test_vllms_own(fields: dict[str, Any]) -> None:
    assert "code" not in refused(fields)


@pytest.mark.parametrize(("status", "kind"), [(503, "overloaded_error"), (500, "api_error")])
def test_other_errors(status: int, kind: str) -> None:
    response = client(request_errors.as_http(status, "too many")).post("/v1/messages", json=ASKED)
    assert response.status_code == status and response.json()["error"]["type"] == kind


def test_a_thread_that_is_not_kept() -> None:
    """Anthropic's SDK recognises the error (by its own function), and then sends the whole conversation."""
    import anthropic
    from anthropic.lib.threads import _thread_state

    error = refused({"thread": {"type": "continue", "thread_id": "t"}})
    assert error["details"] == {"error_code": "thread_unsupported_request"}
    api = anthropic.Anthropic(api_key="x", base_url="http://testserver", http_client=client(), max_retries=0)
    with pytest.raises(anthropic.BadRequestError) as raised:
        api.messages.create(**ASKED, extra_body={"thread": {"type": "continue", "thread_id": "t"}})
    assert _thread_state._unsupported_features(raised.value) == []
    assert type(raised.value).__name__ == "ThreadUnsupportedRequestError"


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(event.partition("data: ")[2]) for event in text.strip().split("\n\n")]


def test_a_stream() -> None:
    response = client().post("/v1/messages", json={**ASKED, "stream": True})
    said = [event["type"] for event in events(response.text)]
    assert (said[0], said[-1]) == ("message_start", "message_stop") and "error" not in said
    assert '"text":"yes"' in response.text


@pytest.mark.parametrize("backend", ["auto", "xgrammar"])
def test_a_stream_that_breaks_off(backend: str) -> None:
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

    serve(backend)
    broken = create_error_response("no such token", "InternalServerError", HTTPStatus.INTERNAL_SERVER_ERROR)
    response = client(broken).post("/v1/messages", json={**ASKED, "stream": True})
    assert '"text":"yes"' in response.text and "message_stop" not in response.text
    said = [event for event in events(response.text) if event["type"] == "error"]
    if backend == "auto":
        assert said == [{"type": "error", "error": {"type": "api_error", "message": "no such token"}}]
    assert len(said) == 1


def test_a_stream_that_is_refused_after_it_began() -> None:
    """The error takes vLLM's own path, from an exception of the engine to the text in a stream."""
    from vllm.entrypoints.generate.base.serving import GenerateBaseServing

    said = request_errors.as_http(400, "unknown type 'strin' (at /properties/a/type)", "unknown_type")
    written = GenerateBaseServing.create_error_response(said)
    if not releases.is_since("0.33"):
        serving = GenerateBaseServing.__new__(GenerateBaseServing)
        written = SimpleNamespace(model_dump_json=lambda **_: serving.create_streaming_error_response(said))
    response = client(written).post("/v1/messages", json={**ASKED, "stream": True})
    error = events(response.text)[-1]["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "dotllm.unknown_type")


def test_other_apis_and_other_backends_keep_theirs() -> None:
    serve("xgrammar")
    response = client().post("/v1/messages", json={**ASKED, "max_tokens": 0})
    assert response.status_code == 400 and "type" not in response.json()
    serve("auto")
    assert "type" not in client().get("/v1/other").json()
