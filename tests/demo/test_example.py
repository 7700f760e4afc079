"""`dotllm demo` shows exactly what it runs."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dotllm.demo import example

pytest.importorskip("openai")
README = Path(__file__).parents[2] / "README.md"
WEATHER = {"city": "Osaka", "celsius": 19, "sky": "rain"}


class Played(HTTPServer):
    """Keeps the bodies that it receives; answers like a model that is always right."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bodies: list[dict[str, Any]] = []
        self.weather = WEATHER
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Played

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(asked)
        message: dict[str, Any] = {"role": "assistant", "content": "It rains."}
        if "tools" in asked:
            function = {"name": "note_weather", "arguments": json.dumps(self.server.weather)}
            message = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
        elif "response_format" in asked:
            message["content"] = json.dumps(self.server.weather)
        elif "structured_outputs" in asked:
            message["content"] = "1945"
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def played() -> Iterator[Played]:
    with Played() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_each_request_is_constrained_and_its_right_answer_known(played: Played) -> None:
    names: dict[str, Any] = {}
    for asked in example.EXAMPLES:
        assert example.ask(asked, played.url, "m", names) == asked.expected
        assert example.ask_freely(asked, played.url, "m") == "It rains."
    constrained, free = played.bodies[::2], played.bodies[1::2]
    assert [b["messages"] for b in constrained] == [b["messages"] for b in free]
    assert all({"response_format", "tools", "structured_outputs"} & set(body) for body in constrained)
    assert not any({"response_format", "tools", "structured_outputs"} & set(body) for body in free)
    regex = constrained[2]["structured_outputs"]["regex"]
    assert re.fullmatch(regex, example.EXAMPLES[2].expected)


def test_an_answer_that_is_not_valid_raises(played: Played) -> None:
    played.weather = WEATHER | {"sky": "fog"}
    names: dict[str, Any] = {}
    with pytest.raises(ValueError, match="sky"):
        example.ask(example.EXAMPLES[0], played.url, "m", names)
    with pytest.raises(ValueError, match="sky"):
        example.ask(example.EXAMPLES[1], played.url, "m", names)


def test_the_first_is_the_readmes() -> None:
    readme = " ".join(README.read_text().split())
    code = example.code(example.EXAMPLES[0], "http://localhost:8000", "Qwen/Qwen3-8B")
    for line in code.splitlines()[:10]:
        assert " ".join(line.split()) in readme
    assert example.EXAMPLES[0].question in readme
