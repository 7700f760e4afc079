"""The header ``x-dotllm-warnings``: on answers and streams to requests with a part that has no effect."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.testclient import TestClient

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.api import endpoints, response_headers
from dotllm.vllm_plugin.enforce import engine_info
from tests.vllm_plugin.frontend.test_endpoints import Engine, Serving, sampling
from tests.vllm_plugin.frontend.test_unsupported_fields import serve

SCHEMA = {"type": "object", "requierd": ["a"], "properties": {"a": {"type": "string"}}}


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    yield
    engine_info.remember(None)


def client(*, form: str = "chat", middleware: bool = True) -> TestClient:
    """A server as vLLM makes it: routes, then `attach_endpoint_plugins`, then further middleware. There is a task
    between the middleware and the endpoint (`with_cancellation`)."""
    from vllm.entrypoints.serve.utils.api_utils import with_cancellation
    from vllm.plugins.endpoint_plugins import interface

    app = FastAPI()

    @app.post("/answer")
    @with_cancellation
    async def answer(request: dict[str, Any], raw_request: Request) -> Any:
        params = sampling(**request["constraint"])
        found = await Serving(Engine(), form).create(SimpleNamespace(stream=request["stream"], params=params))
        return StreamingResponse(found) if isinstance(found, AsyncGenerator) else JSONResponse(found)

    if middleware:
        interface.attach_endpoint_plugins(app, ("generate",))

    @app.middleware("http")
    async def a_users_own(request: Request, following: Any) -> Any:
        return await following(request)

    return TestClient(app)


def warnings_of(response: Any) -> list[str] | None:
    assert response.status_code == 200, response.text
    value = response.headers.get(response_headers.HEADER)
    return None if value is None else json.loads(value)  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", ["chat", "responses"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_says_what_has_no_effect(stream: bool, form: str) -> None:
    asking = client(form=form)
    for _ in range(2):
        found = asking.post("/answer", json={"stream": stream, "constraint": {"json": SCHEMA}})
        [text] = warnings_of(found) or []
        assert "requierd" in text and "(at /requierd)" in text
    for constraint in ({"json": {"type": "object"}}, {"regex": "a"}, {}):
        assert warnings_of(asking.post("/answer", json={"stream": stream, "constraint": constraint})) is None


def test_no_header_where_it_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_WARNINGS", "off")
    assert warnings_of(client().post("/answer", json={"stream": False, "constraint": {"json": SCHEMA}})) is None


def test_none_on_a_server_of_another_backend() -> None:
    serve("xgrammar")
    assert warnings_of(client().post("/answer", json={"stream": False, "constraint": {"json": SCHEMA}})) is None


def test_without_http_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    response_headers._log.cache_clear()
    for _ in range(3):
        response_headers.warn("without effect")
    assert [record.getMessage() for record in caplog.records] == ["dotllm: without effect"]


def test_the_header_is_short_printable_and_json() -> None:
    source = random.Random(7)
    for _ in range(500):
        alphabet = source.choice(["ab ", "\n\r\0\x7f\x85\u2028", "ü€😀\ud800", '"\\'])
        lengths = source.choices([0, 5, 299, 300, 301, 900], k=source.choice([1, 2, 9, 40]))
        texts = ["".join(source.choices(alphabet, k=length)) for length in lengths]
        value = response_headers.header(texts)
        assert len(value) <= response_headers.MOST_BYTES and value.isascii() and value.isprintable()
        said = json.loads(value)
        if said[-1] != texts[-1][: len(said[-1])] or len(said) != len(texts):
            said.pop()
        assert all(text.startswith(one.removesuffix("…")) for one, text in zip(said, texts, strict=False))


def test_every_api_has_an_endpoint_that_warns() -> None:
    """These serving classes of vLLM make sampling parameters from requests; the other classes call one of these."""
    from vllm.entrypoints.openai.chat_completion.batch_serving import OpenAIServingChatBatch
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.entrypoints.openai.responses.serving import OpenAIServingResponses
    from vllm.entrypoints.scale_out.token_in_token_out.serving import ServingTokens

    for function in (
        OpenAIServingChat.create_chat_completion,
        OpenAIServingChatBatch.create_batch_chat_completion,
        OpenAIServingCompletion.create_completion,
        OpenAIServingResponses.create_responses,
        ServingTokens.serve_tokens,
    ):
        assert function.__code__ is endpoints._endpoint.__code__, function.__qualname__


WHILE_IT_IS_IMPORTED = """
import asyncio, sys, threading, time
from dotllm.compilation import Specification
from dotllm.vllm_plugin.api import response_headers

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "dotllm.diagnosis.cost":
            begun.set()
            time.sleep(1)

begun = threading.Event()
sys.meta_path.insert(0, Slow())
threading.Thread(target=__import__, args=("dotllm.compilation.spec_warnings",)).start()
begun.wait()
said = []
asyncio.run(response_headers.warn_of(Specification.create("json_schema", '{"type": "string", "maxItems": 3}'), said.append))
print(said)
"""


def test_a_request_waits_for_what_the_background_imports() -> None:
    """A server's first requests got HTTP 500, because they found a half-imported module."""
    done = subprocess.run([sys.executable, "-c", WHILE_IT_IS_IMPORTED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "'maxItems' applies to values of type array" in done.stdout
