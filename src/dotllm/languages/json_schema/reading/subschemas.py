"""The sub-schemas and keywords of a schema by their places, and the schema without some of them.

If nothing satisfies a schema, or if it forbids a document, leaving keywords out shows which is at fault (`smallest`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from dotllm.errors import SpecError, escaped
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect, detect

MAPS_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"}
)
LISTS_OF_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
SCHEMAS = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "items", "additionalItems", "unevaluatedItems"}
    | {"contains", "not", "if", "then", "else", "contentSchema"}
)
HOLDING = MAPS_OF_SCHEMAS | LISTS_OF_SCHEMAS | SCHEMAS

ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)

_POSITION = re.compile("0|[1-9][0-9]{0,8}")  # of an item, RFC 6901 §4

Path = tuple[str | int, ...]
"""The reference tokens of a JSON Pointer; a position in a list is an int."""


def pointer(path: Path) -> str:
    """``path`` as a JSON Pointer (RFC 6901)."""
    return "".join(f"/{escaped(str(token))}" for token in path)


def below(value: Any, token: str) -> tuple[Any] | None:
    """One step of a JSON Pointer: what ``token`` names in ``value``; None if it names nothing."""
    if isinstance(value, list):
        return (value[int(token)],) if _POSITION.fullmatch(token) and int(token) < len(value) else None
    name = token.replace("~1", "/").replace("~0", "~") if "~" in token else token
    return (value[name],) if isinstance(value, dict) and name in value else None


def reached(value: Any, pointer: str) -> tuple[Any] | None:
    """What a JSON Pointer names in ``value``; None if it names nothing."""
    for token in pointer.split("/")[1:]:
        child = below(value, token)
        if child is None:
            return None
        (value,) = child
    return (value,)


def values_in(root: Any) -> Iterator[Any]:
    """``root`` and every value inside it, each after the one that holds it; without recursion, as it may be deep."""
    pending = [root]
    for value in pending:  # bounded: by the document, once
        yield value
        pending += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def children(node: dict[str, Any]) -> list[tuple[Any, Path]]:
    """The sub-schemas directly inside ``node``, each with its place there."""
    result: list[tuple[Any, Path]] = []
    if HOLDING.isdisjoint(node):
        return result
    for keyword, value in node.items():
        if keyword in MAPS_OF_SCHEMAS and isinstance(value, dict):
            result += [(child, (keyword, name)) for name, child in value.items()]
        elif keyword in LISTS_OF_SCHEMAS and isinstance(value, list):
            result += [(child, (keyword, number)) for number, child in enumerate(value)]
        elif keyword in SCHEMAS:
            result.append((value, (keyword,)))
    return result


def subschemas(
    schema: Any, dialect: Dialect, passes_over: Callable[[Any, Dialect], bool] = lambda *_: False
) -> Iterator[tuple[dict[str, Any], Path, Dialect]]:
    """Find the schemas in ``schema``.

    ``passes_over``: whether to leave out a sub-schema, inside a schema of this dialect, and everything it holds.

    Yields:
        Each object that is a schema, including ``schema``, in the order of the text; its path, and its dialect.
    """
    pending: list[tuple[Any, Path, Dialect]] = [(schema, (), dialect)]
    while pending:  # bounded: by the document, once
        node, path, inner = pending.pop()
        if not isinstance(node, dict):
            continue
        if "$schema" in node:
            try:
                inner = detect(node, inner)
            except SpecError:  # the compiler refuses it, with its place
                continue
        yield node, path, inner
        inside = [(child, path + place, inner) for child, place in children(node) if not passes_over(child, inner)]
        inside.reverse()
        pending += inside


def assertions(schema: Any, dialect: Dialect) -> list[Path]:
    """The places of all keywords and all ``false`` sub-schemas in ``schema``, which can make a document invalid; outer
    places first."""
    result: dict[Path, None] = {}
    for node, path, inner in subschemas(schema, dialect):
        result |= {(*path, keyword): None for keyword in node if keyword in ASSERTIONS[inner]}
        result |= {(*path, *place): None for child, place in children(node) if child is False}
    return sorted(result, key=len)


def equal_branches(branches: Sequence[Any]) -> tuple[int, int] | None:
    """The positions of the first two schemas that say the same, whatever their annotations; None if there are none."""
    seen: dict[str, int] = {}
    for at, branch in enumerate(branches):
        said = {k: v for k, v in branch.items() if k not in ANNOTATIONS} if isinstance(branch, dict) else branch
        try:
            first = seen.setdefault(json.dumps(said, sort_keys=True, default=str), at)
        except (TypeError, ValueError, RecursionError):  # cyclic, keys of two types, too deep: refused elsewhere
            return None
        if first != at:
            return first, at
    return None


def without(schema: Any, paths: Iterable[Path]) -> Any:
    """A copy of ``schema`` without the keywords at ``paths``; parts that are not on the way to these are shared.

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
    """A subset of ``parts`` that suffices and has no smaller subset that does; None if not even all parts suffice.

    From first to last, a part is dropped if the others still suffice. After ``limit`` questions the rest is kept.
    """
    kept = list(parts)
    if not suffices(kept):
        return None
    for part in parts[: limit - 1]:
        fewer = [other for other in kept if other != part]
        if suffices(fewer):
            kept = fewer
    return kept
