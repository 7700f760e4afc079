"""Properties of a JSON Schema without references: for a reader of arguments that follows none.

A property has whatever type one of the schema's alternatives gives it, and so has what is not named: it may be what
``patternProperties`` and ``additionalProperties`` say. Each schema lists all its possible types in ``type``, and has
``properties``, ``items`` and ``additionalProperties`` if only one of its alternatives has them. One that says nothing
of types is True, not ``{}``: vLLM takes ``{}`` for a string, and makes one even of a number that was read as JSON. A
recursive schema becomes a cyclic object. Schemas that name all types themselves, and very large ones, are left as they
are.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from dotllm.languages.json_schema.reading.document import below

_ALL = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_NOT_OF_EVERY_STRING = {"pattern", "minLength", "maxLength", "format", "not", "if", "oneOf"}
"""A schema that says nothing of types holds for every string if it has none of these."""
_IN_PLACE = ("anyOf", "oneOf", "allOf")
_CONDITIONAL = ("then", "else")
# Of schemas visited: milliseconds. Servers do it in an event loop.
_MOST_STEPS = 20_000


class Properties(dict[str, Any]):
    """Schemas of properties by name; `get` knows those that are not named, too."""

    def __init__(self, named: dict[str, Any], others: Any) -> None:
        # Readers take an empty dict for no schema, and these two, if they are not named, for a wrapper of arguments.
        super().__init__(named or dict.fromkeys(("arguments", "input"), others))
        self.others = others

    def get(self, name: str, default: Any = None) -> Any:
        """The schema of a property."""
        return super().get(name, self.others)


def properties(schema: dict[str, Any], types_of: Callable[[Any], list[str]]) -> dict[str, Any]:
    """The ``properties`` of a schema, without references. ``types_of``: the types that ``type`` or ``enum`` name."""
    return _Reader(schema, types_of).properties()


class _Reader:
    """One schema, read anew."""

    def __init__(self, root: dict[str, Any], types_of: Callable[[Any], list[str]]) -> None:
        self.root = root
        self.types_of = types_of
        self.steps = 0
        self.follows = False
        """Whether there was something to follow."""
        self.nodes: dict[int, dict[str, Any]] = {}
        self.made: list[dict[str, Any]] = []
        """Schemas that are not in ``root``; `nodes` has their identities."""

    def properties(self) -> dict[str, Any]:
        named: defaultdict[str, list[Any]] = defaultdict(list)
        others: list[Any] = []
        try:
            parts = list(self._parts(self.root, conditional=True))
            self.follows = len(parts) > 1
            for part in parts:
                for name, value in _object(part.get("properties")).items():
                    named[name].append(value)
                others += _object(part.get("patternProperties")).values()
                others += [part[name] for name in ("additionalProperties", "unevaluatedProperties") if name in part]
            others = [other for other in others if isinstance(other, dict)]
            found = {name: self._any_of(schemas) for name, schemas in named.items()}
            if others:
                return Properties(found, self._any_of(others))
        except RecursionError:  # too large, or too deep
            self.follows = False
        return found if self.follows else _object(self.root.get("properties"))

    def _any_of(self, schemas: list[Any]) -> Any:
        """What stands for several schemas of one property: those of them that say something."""
        if len(schemas) == 1:
            return self._node(schemas[0])
        self.follows = True
        self.made.append({"anyOf": [schema for schema in schemas if self._types(schema)] or schemas})
        return self._node(self.made[-1])

    def _node(self, schema: Any) -> Any:
        """What stands for ``schema``, which may be within it; True for one that says nothing of types."""
        if not isinstance(schema, dict):
            return schema
        if id(schema) in self.nodes:
            return self.nodes[id(schema)]
        types = self._types(schema)
        self.follows |= types != frozenset(self.types_of(schema))
        if types is None:
            return True
        node = self.nodes[id(schema)] = {"type": sorted(types)}
        parts = list(self._parts(schema))
        self.follows |= any("$ref" in part for part in parts)
        for keyword in ("properties", "items", "additionalProperties"):
            having = [part[keyword] for part in parts if keyword in part]
            if len(having) != 1:
                continue
            if keyword != "properties":
                node[keyword] = self._node(having[0])
            elif isinstance(having[0], dict):
                node[keyword] = {name: self._node(value) for name, value in having[0].items()}
        return node

    def _types(self, schema: Any, within: tuple[int, ...] = ()) -> frozenset[str] | None:
        """What type a value of ``schema`` can have; None: it says nothing of types, and holds for every string.

        ``within``: the schemas that this one is a part of, in place.
        """
        if not isinstance(schema, dict) or id(schema) in within:
            return frozenset() if schema is False else None
        self._step()
        within = (*within, id(schema))
        said = [frozenset(self.types_of({"type": schema["type"]}))] if "type" in schema else []
        for keyword, values in (("enum", schema.get("enum")), ("const", [schema.get("const")])):
            if keyword in schema:
                of_values = frozenset(self.types_of({"enum": values}))
                said.append(of_values | {"number"} if "integer" in of_values else of_values)  # 1.0 is 1
        together = [part for part in schema.get("allOf", ()) if isinstance(schema["allOf"], list)]
        if isinstance(schema.get("$ref"), str):
            together.append(self._target(schema["$ref"]))
        said += [types for part in together if (types := self._types(part, within)) is not None]
        for keyword in ("anyOf", "oneOf"):
            if isinstance(schema.get(keyword), list):
                of_each = [self._types(part, within) for part in schema[keyword]]
                if of_each and None not in of_each:
                    said.append(frozenset().union(*filter(None, of_each)))
        if not said:
            return _ALL if schema.keys() & _NOT_OF_EVERY_STRING else None
        return functools.reduce(_both, said) or said[0]

    def _step(self) -> None:
        """Raises RecursionError after too many."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise RecursionError

    def _parts(self, schema: dict[str, Any], *, conditional: bool = False) -> Iterator[dict[str, Any]]:
        """The schema and all that it consists of in place: what it refers to, and its alternatives."""
        seen, todo = set(), [schema]
        while todo:
            one = todo.pop()
            if not isinstance(one, dict) or id(one) in seen:
                continue
            self._step()
            seen.add(id(one))
            yield one
            if isinstance(one.get("$ref"), str):
                todo.append(self._target(one["$ref"]))
            for keyword in _IN_PLACE:
                if isinstance(one.get(keyword), list):
                    todo.extend(one[keyword])
            if conditional:
                todo.extend(one[keyword] for keyword in _CONDITIONAL if keyword in one)
                todo.extend(_object(one.get("dependentSchemas")).values())

    def _target(self, reference: str) -> Any:
        """What a JSON Pointer leads to; other references are left."""
        found: Any = self.root
        if reference != "#" and not reference.startswith("#/"):
            return None
        for token in unquote(reference).split("/")[1:]:
            step = below(found, token)
            if step is None:
                return None
            (found,) = step
        return found


def _both(types: frozenset[str], others: frozenset[str]) -> frozenset[str]:
    """The types that both have; an integer is a number."""
    found = {one for one in types if one in others or (one == "integer" and "number" in others)}
    return frozenset(found | {one for one in others if one == "integer" and "number" in types})


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
