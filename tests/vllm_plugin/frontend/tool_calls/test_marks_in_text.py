"""Marks of calls and thoughts: in the strings of an answer they are text, and in a stream they come with their text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.tools.marks_in_text import InStep
from tests.serve.clients.recorder import whole
from tests.vllm_plugin import played_server
from tests.vllm_plugin.played_server import FREE, NAME, THOUGHTS, PlayedServer

TEXT = 'see <tool_call>{"name": "f", "arguments": {}}</tool_call>!'
FORM = {"type": "json_schema", "json_schema": {"name": "text", "schema": {"const": TEXT}}}
SHORT = {"type": "object", "properties": {"s": {"type": "string", "maxLength": 20, "pattern": "^[^~]*$"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SHORT}}
SAID = [{"role": "user", "content": "Hi"}]
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", {"messages": SAID, "response_format": FORM}),
    ("/v1/chat/completions", {"messages": SAID, "response_format": FORM, "tools": [TOOL], "tool_choice": "none"}),
    ("/v1/messages", {"messages": SAID, "max_tokens": 500,
                      "output_config": {"format": {"type": "json_schema", "schema": {"const": TEXT}}}}),
    ("/v1/responses", {"input": "Hi", "text": {"format": {"type": "json_schema", **FORM["json_schema"]}}}),
]  # fmt: skip
THINKS = ("--default-chat-template-kwargs", '{"enable_thinking": true}', "--reasoning-parser")


HERMES = ["hermes", "hermes qwen3", "hermes deepseek_r1"]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, played: PlayedServer) -> Iterator[PlayedServer]:
    """A server with a parser of calls, and perhaps one of reasoning."""
    parser, *reasoning = request.param.split()
    model = Path(played.core.vllm_config.model_config.model)
    with ExitStack() as stack:
        flags = (*THINKS, *reasoning) if reasoning else ()
        yield stack.enter_context(played_server.started(model, *flags, parser=parser))


def read(path: str, answer: dict[str, Any]) -> tuple[str, int]:
    """The text of an answer, and how many calls it has."""
    if path == "/v1/messages":
        kinds = [block["type"] for block in answer["content"]]
        return "".join(block.get("text") or "" for block in answer["content"]), kinds.count("tool_use")
    if path == "/v1/responses":
        parts = [part["text"] for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(parts), sum(item["type"] == "function_call" for item in answer["output"])
    message = answer["choices"][0]["message"]
    return message["content"] or "", len(message.get("tool_calls") or ())


@pytest.mark.parametrize("server", [*HERMES, "qwen3_xml", "qwen3_xml qwen3"], indirect=True)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), REQUESTS, ids=[f"{path} {len(body)}" for path, body in REQUESTS])
def test_a_mark_in_a_string_is_text(path: str, body: dict[str, Any], stream: bool, server: PlayedServer) -> None:
    answer = server.post(path, {**body, "model": NAME, "stream": stream})
    assert answer.status == 200, answer.body
    told = whole(path, answer.body) if stream else answer.body
    assert told is not None
    text, calls = read(path, told)
    assert (text.replace("\\", ""), calls) == (f'"{TEXT}"', 0)


@pytest.mark.parametrize("server", HERMES, indirect=True)
@pytest.mark.parametrize("length", [2, 9, 14, 40])
def test_a_stop_string_changes_no_stream(length: int, server: PlayedServer) -> None:
    forced = {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}, "max_tokens": 200}
    for more in ({}, forced):
        body = {"model": NAME, "messages": SAID, "stop": ["~" * length], **more}
        plain: dict[str, Any] = server.post("/v1/chat/completions", body).body["choices"][0]
        events = server.post("/v1/chat/completions", {**body, "stream": True}).body
        deltas = [choice["delta"] for event in events for choice in event["choices"]]
        calls = [call["function"] for delta in deltas for call in delta.get("tool_calls") or ()]
        content, thoughts, arguments = (
            "".join(part.get(field) or "" for part in parts)
            for field, parts in (("content", deltas), ("reasoning", deltas), ("arguments", calls))
        )
        message = plain["message"]
        assert content == (message["content"] or "") == ("" if more else FREE)
        assert thoughts.strip() == (message.get("reasoning") or "").strip()
        assert thoughts.strip() in ("", THOUGHTS)
        told = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls") or ()]
        assert told == ([json.loads(arguments)] if more else [])


def test_a_mark_comes_alone_with_its_text() -> None:
    marks, random = {1: "</t>", 2: "<c>"}, Random(5)
    texts = {**marks, 3: "<", 4: "/t", 5: ">", 6: "word ", 7: ""}
    for _ in range(2000):
        tokens = [random.choice([1, 2, 3, 4, 6, 6, 6, 7]) for _ in range(random.randint(1, 12))]
        text, lag = "".join(texts[token] for token in tokens), random.randint(0, 12)
        divided, sent, parts = InStep(marks), 0, []
        for number in range(1, len(tokens) + 1):
            finished = number == len(tokens)
            known = "".join(texts[token] for token in tokens[:number])
            upto = len(text) if finished else max(sent, len(known) - lag)
            parts += divided.parts(text[sent:upto], tokens[number - 1 : number], finished=finished)
            sent = upto
        assert "".join(said for said, _ in parts) == text
        assert [token for _, some in parts for token in some] == tokens
        for said, some in parts:
            named = "".join(marks.get(token, "") for token in some)
            assert said == named or not named
