"""What the benchmarks ask a server first: which model it serves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

from dotllm.bench.client import first_model
from dotllm.cli import bench_quality, bench_structured

KEY = "sesame"


class Handler(BaseHTTPRequestHandler):
    """A server with a key, as with ``--api-key``; its folder /other serves something else."""

    def do_GET(self) -> None:
        listed = {"data": [{"id": "m"}]} if self.path == "/v1/models" else ["no", "models"]
        may_ask = self.headers.get("authorization") == f"Bearer {KEY}"
        self.send_response(200 if may_ask else 401)
        self.end_headers()
        self.wfile.write(json.dumps(listed if may_ask else {"error": "Unauthorized"}).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_key_is_sent(url: str) -> None:
    """A server with a key was no server: without --model, the benchmarks ended with a KeyError."""
    assert asyncio.run(first_model(url, KEY)) == "m"


@pytest.mark.parametrize("command", [bench_structured, bench_quality], ids=["structured", "quality"])
@pytest.mark.parametrize(
    ("address", "key", "said"),
    [
        ("{}", "wrong", "/v1/models: HTTP 401"),
        ("{}/other", KEY, "/v1/models names no model"),
        ("http://127.0.0.1:1", KEY, "http://127.0.0.1:1/v1/models: Cannot connect"),
        ("nowhere", KEY, "nowhere/v1/models: not an address"),
    ],
)
def test_why_there_is_no_model_is_a_line(
    command: ModuleType, address: str, key: str, said: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--url", address.format(url), "--key", key, "--out", str(tmp_path / "out")]
    assert command.main([*where, *(["--sets", "extractions"] if command is bench_quality else [])]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1


@pytest.mark.parametrize("number", ["", "1,x", "0", "1,"])
def test_numbers_of_requests_at_once(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        bench_structured.parse(["--offline", "--concurrency", number])
    assert end.value.code == 2 and "is not a whole number from 1" in capsys.readouterr().err
    assert bench_structured.parse(["--offline", "--concurrency", "2,16"]).concurrency == [2, 16]
