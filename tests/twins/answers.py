"""Compares two answers to one request: without identifiers and times, streams event by event."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NamedTuple

_ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|(?<![0-9a-zA-Z])[0-9a-f]{8,}(?![0-9a-zA-Z])"
)
TIMES = frozenset({"created", "created_at", "completed_at", "started_at"})
BY_LOT = frozenset({"VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME"})
UNTOLD = frozenset({"date", "content-length"})
"""Headers that vary, or follow from the body. (Identifiers may differ in length.)"""
_MARK = re.compile(r"# (HELP|TYPE) (\S+)")
_LABELS = re.compile(r'(\w+)="')


class Answer(NamedTuple):
    """What a client sees."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def is_stream(self) -> bool:
        """Whether it is a stream of events."""
        return "event-stream" in self.headers.get("content-type", "")

    @property
    def body(self) -> Any:
        """Parsed JSON; for a stream the list of its events, each a name and its data; otherwise the text."""
        if self.is_stream:
            return [_event(block) for block in self.text.split("\n\n") if block]
        return parsed(self.text)


def parsed(text: str) -> Any:
    """The value of a JSON text, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _event(block: str) -> list[Any]:
    lines = [line.partition(": ")[::2] for line in block.split("\n")]
    return [[name, parsed(value)] for name, value in lines]


def settled(value: Any) -> Any:
    """``value`` with its N-th identifier as ``<id N>``, times as ``<time>``, and random values replaced."""
    seen: dict[str, str] = {}

    def text(found: str) -> str:
        return _ID.sub(lambda match: seen.setdefault(match[0], f"<id {len(seen) + 1}>"), found)

    def walk(found: Any) -> Any:
        if isinstance(found, dict):
            return {
                text(name): "<time>"
                if name in BY_LOT or (name in TIMES and isinstance(inner, int | float))
                else walk(inner)
                for name, inner in found.items()
            }
        if isinstance(found, list):
            return [walk(inner) for inner in found]
        return text(found) if isinstance(found, str) else found

    return walk(value)


def difference(plain: Answer, ours: Answer, *, by_event: bool = True) -> str:
    """The first place where they differ, and both values there: ``body.choices.0.text: "a" | "b"``; "" if they match.

    Streams are compared event by event, or, without ``by_event``, as `joined`.
    """
    if plain.status != ours.status:
        return f"status: {plain.status} | {ours.status} {ours.text[:300]}"
    headers = [{name: value for name, value in one.headers.items() if name not in UNTOLD} for one in (plain, ours)]
    bodies = [plain.body, ours.body]
    if plain.is_stream and ours.is_stream and not by_event:
        bodies = [joined(body) for body in bodies]
    return between(settled(headers[0]), settled(headers[1]), "headers") or between(
        settled(bodies[0]), settled(bodies[1]), "body"
    )


_DELTAS = frozenset({
    "content", "text", "delta", "reasoning", "reasoning_content", "arguments", "partial_json", "thinking", "token_ids",
    "logprobs", "tokens", "token_logprobs", "top_logprobs", "text_offset",
})  # fmt: skip
"""Texts and lists that grow along a stream."""


def joined(events: list[Any]) -> list[Any]:
    """A stream without its division into events, and without the order of its choices.

    vLLM joins the tokens that have come before the last event was sent. So both depend on timing, and so does the order
    of keys.
    """
    found: dict[str, Any] = {}
    for event in events:
        data = next((value for name, value in event if name == "data"), None)
        choices = data.get("choices") if isinstance(data, dict) else None
        if choices and len(choices) == 1:
            key = f"choice {choices[0].get('index')}"
        elif isinstance(data, dict) and "type" in data:
            data = {name: value for name, value in data.items() if name != "sequence_number"}
            last = next(reversed(found), "")
            key = last if last.partition(": ")[2] == data["type"] else f"{len(found)}: {data['type']}"
        else:
            key = f"{len(found)}"
        found[key] = _grown(found.get(key, {}), data)
    parts = [found[key] for key in sorted(found, key=lambda key: (key.startswith("choice"), key))]
    return [json.loads(json.dumps(part, sort_keys=True)) for part in parts]


def _grown(before: Any, more: Any, name: str = "") -> Any:
    """``before`` plus another event of the same kind."""
    if isinstance(more, dict):
        before = before if isinstance(before, dict) else {}
        return before | {key: _grown(before.get(key), value, key) for key, value in more.items()}
    if name in ("choices", "tool_calls") and isinstance(more, list):
        parts: dict[Any, Any] = {}
        for part in (*(before or ()), *more):
            parts[part.get("index")] = _grown(parts.get(part.get("index"), {}), part)
        return [*parts.values()]
    if name in _DELTAS and type(before) is type(more) and isinstance(before, str | list):
        return before + more
    return before if more is None else more


def between(plain: Any, ours: Any, place: str) -> str:
    """As `difference`, for two values at ``place``."""
    if isinstance(plain, dict) and isinstance(ours, dict):
        if list(plain) != list(ours):
            return _said(place, list(plain), list(ours)) if set(plain) == set(ours) else _said(
                place, {name: plain[name] for name in plain if name not in ours},
                {name: ours[name] for name in ours if name not in plain},
            )  # fmt: skip
        pairs = [(f"{place}.{name}", plain[name], ours[name]) for name in plain]
    elif isinstance(plain, list) and isinstance(ours, list):
        pairs = [(f"{place}.{number}", a, b) for number, (a, b) in enumerate(zip(plain, ours, strict=False))]
        if len(plain) != len(ours):
            pairs.append((f"{place}.length", len(plain), len(ours)))
    elif isinstance(plain, float) and isinstance(ours, float):
        alike = math.isclose(plain, ours, rel_tol=1e-5, abs_tol=1e-6) or (math.isnan(plain) and math.isnan(ours))
        return "" if alike else _said(place, plain, ours)
    else:
        return "" if type(plain) is type(ours) and plain == ours else _said(place, plain, ours)
    return next(filter(None, (between(a, b, where) for where, a, b in pairs)), "")


def _said(place: str, plain: Any, ours: Any) -> str:
    return f"{place}: {json.dumps(plain)[:400]} | {json.dumps(ours)[:400]}"


def metric_names(text: str) -> dict[str, list[str]]:
    """The type and the label names of each metric in the text of ``/metrics``."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if match := _MARK.match(line):
            found.setdefault(match[2], set()).add(line.split(" ", 3)[3] if match[1] == "TYPE" else "")
        elif line:
            found.setdefault(re.split(r"[{ ]", line)[0], set()).update(_LABELS.findall(line.rpartition(" ")[0]))
    return {name: sorted(about - {""}) for name, about in sorted(found.items())}
