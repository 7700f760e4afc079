"""Finds where a schema refers to itself in place, as ``{"allOf": [{"$ref": "#"}]}`` does.

Such a schema means nothing (JSON Schema Core 2020-12 §9.4.1). The algebra meets the schema again while reading it, but
does not know through which reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dotllm import cancellation
from dotllm.errors import Pointer, SpecError
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, REFERENCES
from dotllm.languages.json_schema.reading.document import Document, ScopedSchema

REMEDY = "refer to it from a property or from items instead, so that documents can end"
_LISTS, _MAPS, _SINGLE = (
    ("allOf", "anyOf", "oneOf"),
    ("dependentSchemas", "dependencies"),
    ("not", "if", "then", "else"),
)

_Step = tuple[ScopedSchema, Pointer, bool]
"""A schema that applies to the same value, its place, and whether a reference led to it."""


def closing_reference(document: Document, schema: dict[str, Any]) -> Pointer | None:
    """The place of the reference through which ``schema``, of ``document``, leads in place to a schema around it; None
    if there is none."""
    around, done = {id(schema)}, set[int]()
    start = ((schema, document.scope), document.pointer(schema), False)
    stack = [(start, _steps(document, start))]
    while stack:
        cancellation.check()
        for following in stack[-1][1]:
            (inner, _), pointer, _ = following
            if not isinstance(inner, dict) or id(inner) in done:
                continue
            if id(inner) in around:
                return pointer
            around.add(id(inner))
            stack.append((following, _steps(document, following)))
            break
        else:
            (left, _), _, _ = stack.pop()[0]
            around.discard(id(left))
            done.add(id(left))
    return None


def _steps(document: Document, step: _Step) -> Iterator[_Step]:
    (schema, scope), place, is_referred = step
    pointer = document.pointer(schema) if is_referred else place
    scope = document.enter(schema, scope)
    for keyword, value in schema.items():
        if keyword not in ASSERTIONS[scope.dialect]:
            continue
        if keyword in REFERENCES:
            try:
                yield document.follow(keyword, value, scope), pointer / keyword, True
            except SpecError:  # its reader refuses it
                continue
        elif keyword in _LISTS:
            yield from (((child, scope), pointer / keyword / at, False) for at, child in enumerate(value))
        elif keyword in _MAPS:
            yield from (((child, scope), pointer / keyword / name, False) for name, child in value.items())
        elif keyword in _SINGLE:
            yield (value, scope), pointer / keyword, False
