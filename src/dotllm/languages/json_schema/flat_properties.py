"""The properties of a JSON Schema with its references resolved, for an argument parser that follows none.

A property may have any type that one of the schema's alternatives gives it. An unnamed property has the schema of the
first of the ``patternProperties`` that matches its name, or of ``additionalProperties``. Each schema lists all its
possible types in ``type``, and has ``properties``, ``items`` or ``additionalProperties`` if only one of its
alternatives has it. A schema that would have none of these is True, not ``{}``: vLLM reads ``{}`` as the schema of a
string, and turns even a number that it has read as JSON into a string. A recursive schema becomes a cyclic object.
Schemas that name all types themselves, and very large schemas, are left as they are.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from dotllm.languages.json_schema.reading.subschemas import reached

_ALL = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_PARTS = ("properties", "items", "additionalProperties")
_IN_PLACE = ("anyOf", "oneOf", "allOf")
_CONDITIONAL = ("then", "else")
_PLAIN = re.compile(r"\^?(?:[\w -]|\[[\w -]+\]|\.)*[*+]?\$?")
# Schemas to visit at most. This takes tens of milliseconds, and servers do it in an event loop.
_MOST_STEPS = 20_000


class Properties(dict[str, Any]):
    """The schemas of properties by name; `get` also knows those of unnamed properties."""

    def __init__(self, named: dict[str, Any], patterns: list[tuple[str, Any]], others: Any) -> None:
        """``patterns``: plain patterns of names, each with a schema; ``others``: the schema of all other names, True
        for any value."""
        # Readers ignore an empty dict, and take these two keys, if unnamed, for a wrapper around the arguments.
        self.patterns, self.others = patterns, others
        super().__init__(named or {name: self._unnamed(name) for name in ("arguments", "input")})

    def get(self, name: str, default: Any = None) -> Any:
        """The schema of a property."""
        return super().get(name) if name in self else self._unnamed(name)

    def _unnamed(self, name: str) -> Any:
        return next((schema for pattern, schema in self.patterns if re.search(pattern, name)), self.others)


def properties(schema: dict[str, Any], types_of: Callable[[Any], list[str]]) -> dict[str, Any]:
    """The ``properties`` of a schema, with references resolved. ``types_of``: how the caller's parser reads the types
    of a schema (``type``, ``enum``, and the alternatives in place)."""
    return _Reader(schema, types_of).properties()


class _Reader:
    """Reads one schema."""

    def __init__(self, root: dict[str, Any], types_of: Callable[[Any], list[str]]) -> None:
        self.root = root
        self.types_of = types_of
        self.steps = 0
        self.follows = False
        """Whether the caller's parser would miss something in the schema as it is."""
        self.nodes: dict[int, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        """Schemas that are not in ``root``, kept because `nodes` and `types` are keyed by identity."""
        self.types: dict[int, frozenset[str] | None] = {}
        """The results of `_types`."""

    def properties(self) -> dict[str, Any]:
        named: defaultdict[str, list[Any]] = defaultdict(list)
        by_pattern: defaultdict[str, list[Any]] = defaultdict(list)
        others: list[Any] = []
        try:
            parts = list(self._parts(self.root, conditional=True))
            self.follows = len(parts) > 1
            for part in parts:
                for name, value in _object(part.get("properties")).items():
                    named[name].append(value)
                for value in [*_list(part.get("enum")), part.get("const")]:
                    for name, value_of_key in _object(value).items():
                        named[name].append({"const": value_of_key})
                for pattern, value in _object(part.get("patternProperties")).items():
                    (by_pattern[pattern] if _is_plain(pattern) else others).append(value)
                others += [part[name] for name in ("additionalProperties", "unevaluatedProperties") if name in part]
            others = [other for other in others if isinstance(other, dict)]
            result = {name: self._any_of(schemas) for name, schemas in named.items()}
            if others or by_pattern:
                self.follows = True
                patterns = [(pattern, self._any_of(schemas)) for pattern, schemas in by_pattern.items()]
                result = Properties(result, patterns, self._any_of(others) if others else True)
        except RecursionError:  # too large, or too deep
            self.follows = False
        return result if self.follows else _object(self.root.get("properties"))

    def _any_of(self, schemas: list[Any]) -> Any:
        if len(schemas) == 1:
            return self._node(schemas[0])
        self.follows = True
        self.made.append({"anyOf": schemas})
        return self._node(self.made[-1])

    def _node(self, schema: Any) -> Any:
        """The replacement for ``schema``, which may contain itself; True if ``schema`` says nothing."""
        if not isinstance(schema, dict):
            return schema
        if id(schema) in self.nodes:
            return self.nodes[id(schema)]
        types = self._types(schema)
        self.follows |= types != frozenset(self.types_of(schema))
        parts = list(self._parts(schema))
        self.follows |= any("$ref" in part for part in parts)
        if types is None and not any(part.keys() & {*_PARTS} for part in parts):
            return True
        node: dict[str, Any] = {} if types is None else {"type": sorted(types)}
        self.nodes[id(schema)] = node
        for keyword in _PARTS:
            having = [part[keyword] for part in parts if keyword in part]
            if len(having) != 1:
                continue
            if keyword != "properties":
                node[keyword] = self._node(having[0])
            elif isinstance(having[0], dict):
                node[keyword] = {name: self._node(value) for name, value in having[0].items()}
        return node

    def _types(self, schema: Any) -> frozenset[str] | None:
        """The types that a value of ``schema`` can have according to its keywords; None if they name no types."""
        if not isinstance(schema, dict):
            return frozenset() if schema is False else None
        if id(schema) not in self.types:
            self._step()
            self.types[id(schema)] = None  # inside itself, a schema names no types
            self.types[id(schema)] = self._types_of_parts(schema)
        return self.types[id(schema)]

    def _types_of_parts(self, schema: dict[str, Any]) -> frozenset[str] | None:
        told = [frozenset(self.types_of({"type": schema["type"]}))] if "type" in schema else []
        for keyword, values in (("enum", schema.get("enum")), ("const", [schema.get("const")])):
            if keyword in schema:
                of_values = frozenset(self.types_of({"enum": values}))
                strings = [value for value in _list(values) if isinstance(value, str)]
                written = any(value.startswith(tuple("+-.0123456789")) for value in strings)
                # 1.0 equals 1, unless a string of the enum looks like a number
                told.append(of_values | {"number"} if "integer" in of_values and not written else of_values)
        if isinstance(schema.get("not"), dict) and schema["not"].keys() == {"type"}:
            told.append(_ALL.difference(self.types_of(schema["not"])))
        conjuncts = [*_list(schema.get("allOf"))]
        if isinstance(schema.get("$ref"), str):
            conjuncts.append(self._target(schema["$ref"]))
        told += [types for part in conjuncts if (types := self._types(part)) is not None]
        open_unions: list[frozenset[str]] = []
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                of_each = [self._types(part) for part in schema[keyword]]
                if any(of_each):
                    union = frozenset[str]().union(*filter(None, of_each))
                    (open_unions if None in of_each else told).append(union)
        if told:
            return functools.reduce(_intersection, told) or frozenset().union(*told)
        if open_unions:  # an alternative that names no types is read as a string
            return frozenset({"string"}).union(*open_unions)
        return None

    def _step(self) -> None:
        """Count a step. Raises RecursionError after too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise RecursionError

    def _parts(self, schema: dict[str, Any], *, conditional: bool = False) -> Iterator[dict[str, Any]]:
        """The schema and all schemas that apply in its place: the targets of references, and alternatives."""
        seen, todo = set(), [schema]
        while todo:
            part = todo.pop()
            if not isinstance(part, dict) or id(part) in seen:
                continue
            self._step()
            seen.add(id(part))
            yield part
            if isinstance(part.get("$ref"), str):
                todo.append(self._target(part["$ref"]))
            for keyword in _IN_PLACE:
                if isinstance(part.get(keyword), list):
                    todo.extend(part[keyword])
            if conditional:
                todo.extend(part[keyword] for keyword in _CONDITIONAL if keyword in part)
                todo.extend(_object(part.get("dependentSchemas")).values())

    def _target(self, reference: str) -> Any:
        """The target of a JSON Pointer; None for other references."""
        is_pointer = reference == "#" or reference.startswith("#/")
        (target,) = (is_pointer and reached(self.root, unquote(reference))) or (None,)
        return target


def _is_plain(pattern: str) -> bool:
    """Whether `re` reads a pattern as ECMA-262 does, and fast. Which names other patterns match is not known here."""
    with contextlib.suppress(re.error):
        return _PLAIN.fullmatch(pattern) is not None and re.compile(pattern) is not None
    return False


def _intersection(types: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """The types that both have; an integer is a number."""
    result = {kind for kind in types if kind in others or (kind == "integer" and "number" in others)}
    return frozenset(result | {kind for kind in others if kind == "integer" and "number" in types})


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
