"""Requests as data: those in ``cases/``, and requests made from a server's ``/openapi.json``.

A line of a file is a request: a name, a path, and a body if it is a POST. ``${name.place}`` stands for the value at
that place of an earlier request's answer, ``${folder}`` for the folder of models. A request with ``"varied": false``
changes the server or is slow, so no variations of it are made.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

FOLDER = Path(__file__).parent / "cases"
Case = dict[str, Any]
_REFERENCE = re.compile(r"\$\{([^}]+)\}")
VALUES: tuple[Any, ...] = (
    None, "", "x", "\ud800", 0, -1, 1, 1.5, 2**63, 10**400, float("nan"), True, [], {}, [""], [0], [None], {"a": None},
)  # fmt: skip
"""Values for a field. (Python's JSON has NaN; half of a surrogate pair is written as its escape.)"""
WRONG_BODIES = ("", "null", "[]", "1", '"x"', "{", '{"model": }', "\xff", '{"model": "twin"', '{"model": "other"}')


def of_file(name: str) -> list[Case]:
    """The requests of a file, in order."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line]


def filled(value: Any, known: Mapping[str, Any]) -> Any:
    """``value`` with its references replaced by what they refer to."""
    if isinstance(value, dict):
        return {name: filled(inner, known) for name, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, known) for inner in value]
    if not isinstance(value, str):
        return value
    if (match := _REFERENCE.fullmatch(value)) is not None:
        return _found(match[1], known)
    return _REFERENCE.sub(lambda part: str(_found(part[1], known)), value)


def _found(place: str, known: Mapping[str, Any]) -> Any:
    name, *steps = place.split(".")
    found = known.get(name)
    for step in steps:
        found = found[int(step) if isinstance(found, list) else step] if found else None
    return found


def varied(openapi: dict[str, Any], asked: list[Case], most: int) -> Iterator[Case]:
    """Vary the first request to each path that the server describes: each field of its body is missing, or has another
    type or a value beyond its limits (``most`` of these per path, drawn at random), or the whole body is wrong.

    Yields:
        A request.
    """
    seen: set[str] = set()
    for case in asked:
        path = case["path"]
        operation = openapi["paths"].get(path, {}).get("post")
        if path in seen or operation is None or not case.get("varied", True) or "body" not in case:
            continue
        seen.add(path)
        body, random = case["body"], Random(path)
        rows = [
            (f"{field} = {json.dumps(value)[:30]}", {**body, field: value})
            for field in sorted({*_fields(openapi, operation), *body, "unknown_field"})
            for value in VALUES
        ]
        rows += _within(body)
        without = [(f"no {field}", {name: body[name] for name in body if name != field}) for field in body]
        for what, changed in [*without, *random.sample(rows, min(most, len(rows)))]:
            yield {"name": f"{path}: {what}", "path": path, "body": changed}
        for text in WRONG_BODIES:
            yield {"name": f"{path}: body {text!r}", "path": path, "text": text}
        yield {"name": f"{path}: text/plain", "path": path, "text": json.dumps(body), "type": "text/plain"}
        yield {"name": f"{path}: GET", "path": path}


def _fields(openapi: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    """The names of a body's fields, also behind references and alternatives."""
    content = operation.get("requestBody", {}).get("content", {})
    todo = [content.get("application/json", {}).get("schema", {})]
    for schema in todo:
        if "$ref" in schema:
            todo.append(openapi["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
        yield from schema.get("properties", ())
        for way in ("anyOf", "oneOf", "allOf"):
            todo += schema.get(way, ())


def _within(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """``body`` with one value left out or replaced, in an object of one of its fields."""
    for field, value in body.items():
        is_list = isinstance(value, list)
        for number, item in enumerate(value if is_list else [value]):
            for key in item if isinstance(item, dict) else ():
                left = {name: item[name] for name in item if name != key}
                for what, inner in [("missing", left), *((json.dumps(one)[:30], {**left, key: one}) for one in VALUES)]:
                    changed = [*value[:number], inner, *value[number + 1 :]] if is_list else inner
                    yield f"{field}.{number}.{key} = {what}", {**body, field: changed}
