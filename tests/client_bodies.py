"""Requests that 30 client libraries sent, and what an answer to each must be.

``corpus/client_bodies.jsonl`` holds the recorded requests with other texts. Each is answered with what it asks for
enforced, or refused with a remedy: never with a server error, with free text, or with keys that nobody has named.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema

CORPUS = Path(__file__).parent / "corpus" / "client_bodies.jsonl"
BODIES: list[dict[str, Any]] = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
COUNTS_TOKENS = "/v1/messages/count_tokens"


def sample(*, fields: bool) -> list[dict[str, Any]]:
    """Few short bodies that together have every kind of request (and every client and field); all with BODIES=all."""
    if os.environ.get("BODIES") == "all":
        return BODIES
    rows = [(row, {_kind(row), *((row["client"], *_fields(row["body"])) if fields else ())}) for row in BODIES]
    left, found = set[Any]().union(*(new for _, new in rows)), []
    while left:
        row, new = max(rows, key=lambda one: (len(one[1] & left), -len(json.dumps(one[0]["body"]))))
        found.append(row)
        left -= new
    return found


def _kind(row: dict[str, Any]) -> tuple[Any, ...]:
    """The API, the form, the choice and the tools that a body asks for."""
    body, form = row["body"], asked(row["body"]).form
    choice = body.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return row["path"], form is None or min(form), kind, bool(body.get("tools"))


def _fields(value: Any) -> Iterator[str]:
    """The names in a body and in its schemas, except those of properties and definitions."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield name
        is_named = name in ("properties", "$defs") and isinstance(inner, dict)
        yield from _fields([*inner.values()] if is_named else inner)
    for inner in value if isinstance(value, list) else ():
        yield from _fields(inner)


class Asked(NamedTuple):
    """What a request asks of its answer."""

    form: dict[str, Any] | None
    """``structured_outputs``, or the equivalent of the format."""
    tools: dict[str, dict[str, Any] | None]
    """The schema of each tool's arguments by the name in calls; None if vLLM leaves the arguments free."""
    is_forced: bool
    """Whether the answer must be a call."""

    @property
    def is_constrained(self) -> bool:
        """Whether anything must be enforced."""
        return self.form is not None or self.is_forced or any(schema is not None for schema in self.tools.values())


class Verdict(NamedTuple):
    """The judgement of an answer with HTTP 200."""

    finished: bool
    valid: bool
    """If the answer has finished, everything in it is what was asked for."""
    invented: bool
    """The answer has keys that no schema names, in an object that lists its keys."""
    what: Any
    """The text and calls that were judged; None if nothing was."""


def asked(body: dict[str, Any]) -> Asked:
    """What a request to any API asks for."""
    text, config = body.get("text") or {}, body.get("output_config") or {}
    form = body.get("response_format") or text.get("format") or config.get("format") or {}
    structured = body.get("structured_outputs")
    if form.get("type") == "json_schema":
        structured = {"json": form.get("schema") or form["json_schema"].get("schema")}
    elif form.get("type") == "json_object":
        structured = {"json": {"type": "object"}}
    choice = body.get("tool_choice") or "auto"
    mode, offered = choice.get("type") if isinstance(choice, dict) else choice, body.get("tools") or ()
    if mode == "allowed_tools":
        inner = choice.get(mode, choice)  # a chat has one more object around it
        mode, names = inner["mode"], {_named(tool)["name"] for tool in inner["tools"]}
        offered = [tool for tool in offered if _named(tool)["name"] in names]
    is_forced = mode not in ("auto", "none") and bool(offered)
    tools = dict(_tools(offered, is_forced)) if mode != "none" else {}
    return Asked(structured, tools, is_forced)


_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def _tools(tools: Any, is_forced: bool) -> Iterator[tuple[str, dict[str, Any] | None]]:
    for tool in tools:
        if tool.get("type") == "custom":  # (other tests cover their grammars)
            custom = tool.get("custom") or tool
            yield custom["name"], _INPUT if (custom.get("format") or {}).get("type") == "grammar" else None
            continue
        function = _named(tool)
        strict = function.get("strict")
        schema = function.get("parameters") or function.get("input_schema")
        yield function.get("name", ""), schema if strict or (is_forced and strict is None) else None


def _named(tool: dict[str, Any]) -> dict[str, Any]:
    """The part of a function tool that has its name."""
    part: dict[str, Any] = tool.get("function") or tool
    return part


def judge(path: str, body: dict[str, Any], answer: dict[str, Any]) -> Verdict:
    """Judge an answer, the body of HTTP 200."""
    wanted = asked(body)
    text, calls, finished = _read(path, answer)
    if not wanted.is_constrained:
        return Verdict(finished, True, False, None)
    if not finished:
        return Verdict(False, True, False, (text, calls))
    schemas, valid = list[tuple[Any, Any]](), bool(calls) or not wanted.is_forced
    for name, arguments in calls:
        valid &= name in wanted.tools
        if wanted.tools.get(name) is not None:
            schemas.append((wanted.tools[name], arguments))
    if wanted.form is not None and not calls:
        said = _form(wanted.form, text)
        valid &= said is not None
        if wanted.form.get("json") and said is not None:
            schemas.append((wanted.form["json"], said))
    valid &= all(_validator(schema).is_valid(value) for schema, value in schemas)
    invented = valid and not all(_validator(_closed(_parsed(schema))).is_valid(value) for schema, value in schemas)
    return Verdict(finished, valid, invented, (text, calls))


def _read(path: str, answer: dict[str, Any]) -> tuple[str, list[tuple[str, Any]], bool]:
    """The text, the calls with their parsed arguments, and whether the answer is complete."""
    if path == "/v1/messages":
        calls = [(block["name"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"]
        text = "".join(block["text"] for block in answer["content"] if block["type"] == "text")
        return text, calls, answer["stop_reason"] != "max_tokens"
    if path == "/v1/responses":
        items, finished = answer["output"], answer["status"] == "completed"
        calls = [(item["name"], item["arguments"]) for item in items if item["type"] == "function_call"]
        parts = [part for item in items if item["type"] == "message" for part in item["content"]]
        text = "".join(part["text"] for part in parts)
    else:
        choice = answer["choices"][0]
        finished, text = choice["finish_reason"] != "length", choice["message"]["content"] or ""
        functions = [call[call["type"]] for call in choice["message"].get("tool_calls") or ()]
        calls = [(one["name"], one.get("arguments") or json.dumps({"input": one["input"]})) for one in functions]
    return text, [(name, json.loads(arguments)) for name, arguments in calls] if finished else [], finished


def _form(form: dict[str, Any], text: str) -> Any:
    """The value of ``text`` in the form that was asked for; None if it does not have this form."""
    if form.get("json") or form.get("json_object"):
        try:
            return json.loads(text)
        except ValueError:
            return None
    if form.get("regex"):
        return text if re.fullmatch(form["regex"], text) else None
    return text if form.get("choice") is None or text in form["choice"] else None


def _parsed(schema: Any) -> Any:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return json.loads(text.replace('"$ref": "/$defs/', '"$ref": "#/$defs/'))  # (LiteLLM leaves the # out)


def _validator(schema: Any) -> Any:
    parsed = _parsed(schema)
    return jsonschema.validators.validator_for(parsed, jsonschema.Draft202012Validator)(parsed)


def _closed(schema: Any) -> Any:
    """``schema`` without unnamed keys. (No schema here has properties in two parts of an ``allOf``.)"""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    is_open = isinstance(schema.get("properties"), dict) and schema["properties"] and "type" in schema
    return {"additionalProperties": False, **closed} if is_open else closed
