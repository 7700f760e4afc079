"""The sub-schemas and keywords of a schema by their places, and the schema without some of them.

Which keyword is at fault is found by leaving keywords out (`smallest`): of a schema that nothing satisfies, and of one
that forbids a document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dotllm.errors import SpecError, escaped
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect, detect

_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
_LISTS_OF_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SCHEMAS = (
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems", "unevaluatedItems"),
    *("contains", "not", "if", "then", "else", "contentSchema"),
)

Path = tuple[str | int, ...]
"""The reference tokens of a JSON Pointer; a position in a list is an int."""


def pointer(path: Path) -> str:
    """``path`` as a JSON Pointer (RFC 6901)."""
    return "".join(f"/{escaped(str(token))}" for token in path)


def children(node: dict[str, Any]) -> Iterator[tuple[Any, Path]]:
    """The sub-schemas right inside ``node``, each with its place there."""
    for keyword, value in node.items():
        if keyword in _MAPS_OF_SCHEMAS and isinstance(value, dict):
            yield from ((child, (keyword, name)) for name, child in value.items())
        elif keyword in _LISTS_OF_SCHEMAS and isinstance(value, list):
            yield from ((child, (keyword, number)) for number, child in enumerate(value))
        elif keyword in _SCHEMAS:
            yield value, (keyword,)


def subschemas(schema: Any, dialect: Dialect) -> Iterator[tuple[dict[str, Any], Path, Dialect]]:
    """All objects that are schemas in ``schema``, itself included, in the order of the text; with their dialects."""
    pending: list[tuple[Any, Path, Dialect]] = [(schema, (), dialect)]
    while pending:
        node, path, outer = pending.pop()
        if not isinstance(node, dict):
            continue
        try:
            inner = detect(node, outer)
        except SpecError:  # the compiler refuses it, with its place
            continue
        yield node, path, inner
        pending += reversed([(child, (*path, *place), inner) for child, place in children(node)])


def assertions(schema: Any, dialect: Dialect) -> list[Path]:
    """The places of all keywords of ``schema``, and of all its sub-schemas that are false, that can make a document
    invalid; outer ones first."""
    found: dict[Path, None] = {}
    for node, path, inner in subschemas(schema, dialect):
        found |= {(*path, keyword): None for keyword in node if keyword in ASSERTIONS[inner]}
        found |= {(*path, *place): None for child, place in children(node) if child is False}
    return sorted(found, key=len)


def without(schema: Any, paths: Iterable[Path]) -> Any:
    """A copy of ``schema`` without the keywords at ``paths``; what is not on the way to one is shared.

    A sub-schema in a list is replaced by true."""
    by_first: dict[str | int, list[Path]] = {}
    for path in paths:
        by_first.setdefault(path[0], []).append(path[1:])
    if not by_first:
        return schema
    if isinstance(schema, list):
        return [
            True if () in by_first.get(i, ()) else without(child, by_first[i]) if i in by_first else child
            for i, child in enumerate(schema)
        ]
    return {
        name: without(child, by_first[name]) if name in by_first else child
        for name, child in schema.items()
        if () not in by_first.get(name, ())
    }


def smallest(parts: Sequence[Path], suffices: Callable[[list[Path]], bool], limit: int) -> list[Path] | None:
    """A subset of ``parts`` that suffices, and no subset of which does; None if not even all suffice.

    A part is dropped if what is left suffices, the first parts first. After ``limit`` questions the rest is kept.
    """
    kept = list(parts)
    if not suffices(kept):
        return None
    for part in parts[: limit - 1]:
        fewer = [other for other in kept if other != part]
        if suffices(fewer):
            kept = fewer
    return kept
