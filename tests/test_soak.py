"""The load of `make soak`, against a server that gives every request the same answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("vllm")

from benchmarks import soak
from tests.fuzz.requests import PATHS


class Handler(BaseHTTPRequestHandler):
    """Answers 200 to all, and counts the paths."""

    def answer(self, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def do_GET(self) -> None:
        self.answer({"data": [{"id": "m"}]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.add(self.path)  # type: ignore[attr-defined]
        self.answer({"choices": [{"text": "", "finish_reason": "length"}]})

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        one.paths = set()  # type: ignore[attr-defined]
        threading.Thread(target=one.serve_forever, daemon=True).start()
        yield one
        one.shutdown()


def test_every_request_reaches_the_server(server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    load = soak.Soak(f"http://127.0.0.1:{server.server_port}", None)
    asked = 0
    ask = soak.Soak.ask

    def counted(self: soak.Soak, chance: Any) -> str:
        nonlocal asked
        asked += 1
        if asked == 300:
            self.stop.set()
        return ask(self, chance)

    monkeypatch.setattr(soak.Soak, "ask", counted)
    load.client(1)
    assert not load.wrong
    assert load.statuses == {"200": 300}
    assert server.paths == {*PATHS.values()} - {PATHS["batch"]}  # type: ignore[attr-defined]
