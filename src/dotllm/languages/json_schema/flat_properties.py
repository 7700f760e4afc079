"""Properties of a JSON Schema without references: for a reader of arguments that follows none.

A property has whatever type one of the schema's alternatives gives it, and so has what is not named: it may be what
``patternProperties`` and ``additionalProperties`` say. Each schema lists all its possible types in ``type``, and has
``properties``, ``items`` and ``additionalProperties`` if only one of its alternatives has them. A recursive schema
becomes a cyclic object. Schemas that name all types themselves, and very large ones, are left as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from dotllm.languages.json_schema.reading.document import below

_OF_TYPE = {"type", "enum"}
_IN_PLACE = ("anyOf", "oneOf", "allOf")
_CONDITIONAL = ("then", "else")
# Of schemas visited: milliseconds. Servers do it in an event loop.
_MOST_STEPS = 10_000


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
    """The ``properties`` of a schema, without references. ``types_of``: the types that the keywords `_OF_TYPE` name."""
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
        if len(schemas) == 1:
            return self._node(schemas[0])
        self.follows = True
        self.made.append({"anyOf": schemas})
        return self._node(self.made[-1])

    def _node(self, schema: Any) -> Any:
        """What stands for ``schema``, which may be within it."""
        if not isinstance(schema, dict):
            return schema
        if id(schema) in self.nodes:
            return self.nodes[id(schema)]
        node = self.nodes[id(schema)] = {}
        parts = list(self._parts(schema))
        self.follows |= any("$ref" in part or "const" in part for part in parts)
        told = [
            {"enum": [part["const"]]} if "const" in part else {key: part[key] for key in _OF_TYPE & part.keys()}
            for part in parts
            if part.keys() & {"const", *_OF_TYPE} or not part.keys() & {"$ref", *_IN_PLACE}
        ]  # (what says nothing is a string, as vLLM has it)
        node["type"] = sorted(self.types_of({"anyOf": told})) if told else "string"
        for keyword in ("properties", "items", "additionalProperties"):
            having = [part[keyword] for part in parts if keyword in part]
            if len(having) != 1:
                continue
            if keyword != "properties":
                node[keyword] = self._node(having[0])
            elif isinstance(having[0], dict):
                node[keyword] = {name: self._node(value) for name, value in having[0].items()}
        return node

    def _parts(self, schema: dict[str, Any], *, conditional: bool = False) -> Iterator[dict[str, Any]]:
        """The schema and all that it consists of in place: what it refers to, and its alternatives."""
        seen, todo = set(), [schema]
        while todo:
            one = todo.pop()
            if not isinstance(one, dict) or id(one) in seen:
                continue
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise RecursionError
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


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
