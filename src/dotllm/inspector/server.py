"""The inspector's server on this machine: the page, and a path for each of its questions.

It listens on 127.0.0.1 only. Other pages in the same browser, and other users of the machine, could still send requests
to it. So all paths begin with a random secret, which is in the printed URL.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any

from dotllm.inspector.inspector import MOST_BYTES, BadQuestion, Inspector

# The page as one file: the server sends it, and ``--snapshot`` writes it with all answers in it.


MOST_POSITIONS = 400
"""The most positions of a snapshot; each takes about 2 KB."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
"""Content-Security-Policy: the page may load nothing, and send only its questions."""


def page(inspector: Inspector, start: dict[str, Any] | None, **more: Any) -> str:
    """The page, which begins with the question ``start`` (kind, text, options, document) or an example.

    ``more``: ``questions``, the URL of the server's answers; ``live``, whether there are requests to follow;
    ``answers``, those of a snapshot.
    """
    static = files("dotllm.inspector") / "static"
    examples = json.loads((static / "examples.json").read_text(encoding="utf-8"))
    data = {"tokenizer": inspector.tokenizer, "size": inspector.vocabulary.size, "start": start, "examples": examples}
    text = (static / "index.html").read_text(encoding="utf-8")
    for name in ("inspector.css", "codemirror/codemirror.min.js", "inspector.js"):
        text = text.replace(f"/* {name} */", (static / name).read_text(encoding="utf-8"))
    # In JSON, "<" occurs only in strings, and is escaped there, so that no text ends the element early.
    return text.replace("/* data */", json.dumps(data | more).replace("<", "\\u003c"))


def snapshot(inspector: Inspector, start: dict[str, Any]) -> str:
    """The page with the answers to all its questions about ``start``, which needs no server."""
    walk = inspector.answer("walk", start)
    answers: dict[str, Any] = {"walk": walk}
    if "error" not in walk:
        known = sum("allowed" in step for step in walk["steps"][:MOST_POSITIONS])
        answers["position"] = [inspector.answer("position", start | {"at": at}) for at in range(known)]
        answers |= {question: inspector.answer(question, start) for question in ("samples", "why")}
    return page(inspector, start, answers=answers)


class InspectorServer(ThreadingHTTPServer):
    """Serves until `shutdown`; ``url`` is the address of the page."""

    daemon_threads = True

    def __init__(self, inspector: Inspector, start: dict[str, Any] | None = None, port: int = 0) -> None:
        """``port``: 0 for a free port. Raises OSError if the port is not free."""
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
            raise BadQuestion("no such page: the inspector is at /")
        return "text/html; charset=utf-8", page(self.server.inspector, self.server.start)

    def _answered(self, question: str) -> tuple[str, str]:
        length = self.headers.get("Content-Length", "")
        if not length.isdigit() or int(length) > MOST_BYTES:
            self.close_connection = True
            raise BadQuestion(f"expected a body of at most {MOST_BYTES} bytes, and its Content-Length")
        return "application/json", self.server.inspector.answer_text(question, self.rfile.read(int(length)))

    def _send(self, answer: Callable[[str], tuple[str, str]], prefix: str) -> None:
        """Respond with the ``answer`` to the part of the path after ``prefix``."""
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
        """Print nothing: the page shows errors."""
