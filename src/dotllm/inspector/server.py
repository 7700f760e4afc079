"""The inspector's server on this machine: the page, and a path for each of its questions.

It listens on 127.0.0.1 alone. Other pages in the same browser could send requests there, and other users of the machine
too: so all paths begin with a random secret, which is in the URL that is printed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dotllm.inspector.inspector import MOST_BYTES, BadQuestion, Inspector
from dotllm.inspector.page import POLICY, page


class InspectorServer(ThreadingHTTPServer):
    """Serves until `shutdown`; ``url`` is where the page is."""

    daemon_threads = True

    def __init__(self, inspector: Inspector, start: dict[str, Any] | None = None, port: int = 0) -> None:
        """``port`` 0: one that is free. Raises OSError for one that is not."""
        super().__init__(("127.0.0.1", port), _Handler)
        self.inspector = inspector
        self.start = start
        self.path = f"/{secrets.token_urlsafe(16)}/"
        self.url = f"http://127.0.0.1:{self.server_port}{self.path}"


class _Handler(BaseHTTPRequestHandler):
    server: InspectorServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send(self._page, "")

    def do_POST(self) -> None:
        self._send(self._answered, "api/")

    def _page(self, name: str) -> tuple[str, str]:
        if name:
            raise BadQuestion("there is one page only")
        return "text/html; charset=utf-8", page(self.server.inspector, self.server.start)

    def _answered(self, question: str) -> tuple[str, str]:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            raise BadQuestion(f"a body of at most {MOST_BYTES} bytes, and its Content-Length, are wanted")
        return "application/json", self.server.inspector.answer_text(question, self.rfile.read(int(length)))

    def _send(self, answer: Callable[[str], tuple[str, str]], prefix: str) -> None:
        """``answer`` to what stands after ``prefix`` in the path, as a response."""
        status, (kind, text) = 200, ("text/plain", "")
        base = self.server.path + prefix
        if not secrets.compare_digest(self.path[: len(base)].encode(), base.encode()):
            status, self.close_connection = 404, True
        else:
            try:
                kind, text = answer(self.path[len(base) :])
            except BadQuestion as error:
                status, text = 400, str(error)
        data = text.encode()
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(data)), "Content-Security-Policy": POLICY}
        for name, value in (headers | {"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the page shows what goes wrong."""
