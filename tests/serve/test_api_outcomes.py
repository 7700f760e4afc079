"""What an answer contains besides its text, live: warnings in a header, background responses that fail, and answers
without their reasoning."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from dotllm.demo.server import Server
from tests.serve.conftest import NAME
from tests.serve.test_api import END_OF_THINKING, MESSAGES, RESPONSE_FORMAT, judge

pytestmark = pytest.mark.serve

MISSPELT = {
    "type": "object",
    "requierd": ["a"],
    "properties": {"a": {"type": "boolean"}},
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "x", "schema": MISSPELT}
CHAT = {"messages": MESSAGES, "max_tokens": 5, "response_format": {"type": "json_schema", "json_schema": FORMAT}}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": CHAT,
    "/v1/chat/completions/batch": {**CHAT, "messages": [MESSAGES, MESSAGES]},
    "/v1/completions": {"prompt": "?", "max_tokens": 5, "structured_outputs": {"json": MISSPELT}},
    "/v1/responses": {"input": "?", "max_output_tokens": 20, "text": {"format": FORMAT}},
    "/v1/messages": {"messages": MESSAGES, "max_tokens": 5, "output_config": {"format": {"type": "json_schema", "schema": MISSPELT}}},
}  # fmt: skip
CONSTRAINTS = ("response_format", "structured_outputs", "text", "output_config")


def post(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json={"model": NAME, **body}, timeout=120)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("stream", [False, True])
def test_every_api_warns_in_a_header(api_server: Server, path: str, stream: bool) -> None:
    if stream and path.endswith("batch"):
        pytest.skip("batches are not streamed")
    body = {**BODIES[path], **({"stream": True} if stream else {})}
    answer = post(api_server, path, body)
    assert answer.status_code == 200, answer.text
    [text] = json.loads(answer.headers["x-dotllm-warnings"])
    assert "'requierd'" in text and text.endswith("(at /requierd)")
    free = post(api_server, path, {name: value for name, value in body.items() if name not in CONSTRAINTS})
    assert free.status_code == 200 and "x-dotllm-warnings" not in free.headers


@pytest.mark.parametrize("stream", [False, True])
def test_a_tools_schema_is_warned_of_by_its_place_in_the_request(api_server: Server, stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": MISSPELT}}
    body = {"messages": MESSAGES, "max_tokens": 30, "tools": [tool], "tool_choice": "required", "stream": stream}
    answer = post(api_server, "/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    texts = json.loads(answer.headers["x-dotllm-warnings"])
    assert any("tool 'f'" in text and "/tools/0/function/parameters/requierd" in text for text in texts), texts


@pytest.mark.parametrize("stream", [False, True])
def test_a_reasoning_that_is_left_out_leaves_the_answer(api_server: Server, stream: bool) -> None:
    body = {
        "messages": MESSAGES, "max_tokens": 400, "include_reasoning": False, "response_format": RESPONSE_FORMAT,
        "chat_template_kwargs": {"enable_thinking": True}, "logit_bias": {str(END_OF_THINKING): 100}, "stream": stream,
    }  # fmt: skip
    answer = post(api_server, "/v1/chat/completions", body)
    assert answer.status_code == 200, answer.text
    if stream:
        chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
        deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        assert not any(delta.get("reasoning") for delta in deltas)
        judge("".join(delta.get("content") or "" for delta in deltas))
    else:
        message = answer.json()["choices"][0]["message"]
        assert not message.get("reasoning")
        judge(message["content"])


BACKGROUND = {"input": "?", "background": True, "store": True, "max_output_tokens": 2}
TOO_LONG = {
    "text": {"format": {"type": "json_schema", "name": "x", "schema": {"const": "a long text that takes many tokens"}}},
    "vllm_xargs": {"dotllm_finish": True},
}


def test_a_response_in_the_background_that_the_engine_refuses_has_failed(api_server: Server) -> None:
    begun = post(api_server, "/v1/responses", {**BACKGROUND, **TOO_LONG})
    assert begun.status_code == 200, begun.text
    end = time.monotonic() + 60
    while (found := httpx.get(f"{api_server.url}/v1/responses/{begun.json()['id']}", timeout=60).json())[
        "status"
    ] == "queued":
        assert time.monotonic() < end, found
        time.sleep(0.1)
    assert found["status"] == "failed" and found["error"]["code"] == "invalid_prompt"
    assert "the shortest answer takes" in found["error"]["message"]


def test_its_events_end_with_the_error(api_server: Server) -> None:
    answer = post(api_server, "/v1/responses", {**BACKGROUND, **TOO_LONG, "stream": True})
    assert answer.status_code == 200
    *_, last = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert last["type"] == "response.failed" and "the shortest answer takes" in last["response"]["error"]["message"]


def test_what_the_front_end_sees_is_refused_before_it_is_queued(api_server: Server) -> None:
    answer = post(api_server, "/v1/responses", {**BACKGROUND, "structured_outputs": {"regex": "("}})
    assert answer.status_code == 400, answer.text
