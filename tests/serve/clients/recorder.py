"""Stands between a client and a server, and records what each sends.

Libraries show what they make of an answer, not what they asked for. So the test judges the wire: what a request asks,
and whether its answer obeys. A stream is passed on as it arrives, and put together afterwards.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import urlsplit

OF_A_CONNECTION = frozenset(
    {"host", "connection", "keep-alive", "transfer-encoding", "content-length", "accept-encoding"}
)


class Exchange(NamedTuple):
    """A request with a body, and its answer."""

    path: str
    body: dict[str, Any]
    status: int
    text: str

    def answer(self) -> dict[str, Any] | None:
        """The answer as it would be without a stream; None if the client left before its end."""
        if not self.body.get("stream"):
            return json.loads(self.text)  # type: ignore[no-any-return]
        return whole(self.path, [json.loads(data) for data in _data(self.text)])


def whole(path: str, events: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The body that a stream's events add up to; None if the stream is incomplete."""
    if path == "/v1/responses":
        last = events[-1] if events else {}
        return last.get("response") if last.get("type") in ("response.completed", "response.incomplete") else None
    return _message(events) if path == "/v1/messages" else _completion(events)


def _data(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield line.removeprefix("data: ")


def _completion(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    content, calls, reason = "", dict[int, dict[str, Any]](), None
    for choice in (choice for event in events for choice in event.get("choices", ())):
        content += choice["delta"].get("content") or ""
        reason = choice.get("finish_reason") or reason
        for part in choice["delta"].get("tool_calls") or ():
            call = calls.setdefault(part["index"], {"type": part.get("type") or "function"})
            inner = call.setdefault(call["type"], {})
            for name, value in part[call["type"]].items():
                inner[name] = (inner.get(name) or "") + (value or "")
    message = {"content": content, "tool_calls": [*calls.values()]}
    return {"choices": [{"finish_reason": reason, "message": message}]} if reason else None


def _message(events: list[dict[str, Any]]) -> dict[str, Any] | None:
    blocks, reason = dict[int, dict[str, Any]](), None
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = {**event["content_block"], "json": ""}
        elif event["type"] == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            block["json"] += delta.get("partial_json", "")
            block["text"] = block.get("text", "") + delta.get("text", "")
        elif event["type"] == "message_delta":
            reason = event["delta"]["stop_reason"]
    for block in blocks.values():
        if block["type"] == "tool_use" and reason != "max_tokens":
            block["input"] = json.loads(block["json"] or "{}")
    return {"stop_reason": reason, "content": [*blocks.values()]} if reason else None


class Recorder(ThreadingHTTPServer):
    """A proxy of ``upstream``, used as a context manager."""

    daemon_threads = True

    def __init__(self, upstream: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream = urlsplit(upstream).netloc
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.exchanges: list[Exchange] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def __exit__(self, *exception: object) -> None:
        self.shutdown()
        super().__exit__(*exception)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback when a client leaves in the middle of a stream."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Recorder

    def _pass(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_A_CONNECTION}
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=900)
        upstream.request(self.command, self.path, body or None, headers)
        answer = upstream.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in OF_A_CONNECTION:
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        said = bytearray()
        try:
            while part := answer.read1(65536):
                said += part
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n")
        finally:
            upstream.close()
            if body:
                path = self.path.partition("?")[0]
                self.server.exchanges.append(Exchange(path, json.loads(body), answer.status, said.decode()))

    do_GET = do_POST = do_DELETE = do_HEAD = _pass

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the exchanges say more."""
