"""What `dotllm demo` shows is what it runs."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from dotllm.demo import example

pytest.importorskip("openai")
DOCUMENT = {"city": "Osaka", "date": "2027-01-01", "celsius": 9, "sky": ["rain"]}


def test_asks_with_and_without_the_constraint() -> None:
    asked: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            message = {"role": "assistant", "content": json.dumps(DOCUMENT)}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        assert example.ask(url, "m") == (json.dumps(DOCUMENT), "stop")
        example.ask(url, "m", constrained=False)
        server.shutdown()
    constrained, free = asked
    assert constrained["response_format"]["json_schema"]["schema"] == example.SCHEMA
    assert "response_format" not in free and free["messages"] == constrained["messages"]
    assert len(example.code(url, "m").splitlines()) <= 10


def test_verdicts() -> None:
    good = example.verdict(json.dumps(DOCUMENT), "stop")
    assert "\nvalid" in good and '\n  "city": "Osaka"' in good and "stop" in good
    for bad in ("{}", "{"):
        assert "NOT valid" in example.verdict(bad, "length")
