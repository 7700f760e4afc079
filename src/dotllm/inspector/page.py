"""The page as one file: what the server sends, and what ``--snapshot`` writes with all answers in it."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from dotllm.inspector.inspector import Inspector

MOST_POSITIONS = 400
"""Of a snapshot; a position is about 2 KB."""
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:"
"""Content-Security-Policy: what the page may load and send, which is nothing but its questions."""


def page(inspector: Inspector, start: dict[str, Any] | None, **more: Any) -> str:
    """The page, which begins with the question ``start`` (kind, text, options, document) or an example.

    ``more``: ``questions``, the URL that they are asked at; ``live``, whether there are requests to follow;
    ``answers``, of a snapshot.
    """
    static = files("dotllm.inspector") / "static"
    examples = json.loads((static / "examples.json").read_text(encoding="utf-8"))
    data = {"tokenizer": inspector.tokenizer, "size": inspector.vocabulary.size, "start": start, "examples": examples}
    text = (static / "index.html").read_text(encoding="utf-8")
    for name in ("inspector.css", "codemirror/codemirror.min.js", "inspector.js"):
        text = text.replace(f"/* {name} */", (static / name).read_text(encoding="utf-8"))
    # as JSON, "<" may stand in strings only; so no text ends the element early
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
