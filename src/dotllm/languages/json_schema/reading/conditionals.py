"""``if`` with ``then`` and ``else``, and lists of conditionals that tell objects apart by one property.

A conditional is a union: the condition and ``then``, or its negation and ``else``. n conditionals in ``allOf`` mean
their product. It has n + 1 alternatives if the conditions exclude each other, but takes n² steps and more to work out.
Most such lists say for each value of one property what else must hold. They are read as what they mean: an alternative
for each value, and one for all other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from dotllm.languages.json_schema.algebra.normal_form import Node
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader

FEW_CASES = 4
"""Fewer conditionals than this are met one after another."""

_CONDITIONAL = {"if", "then"}
_KINDS_OF_CONDITION = ({"properties"}, {"properties", "type"})
_OTHERS = frozenset({"$id", "id", "nullable"})


class _Property(NamedTuple):
    """The property that a condition examines. ``is_needed``: objects without it do not satisfy the condition;
    ``is_typed``: values that are not objects do not."""

    name: str
    is_needed: bool
    is_typed: bool

    def condition(self, values: list[str]) -> dict[str, Any]:
        """The schema of objects in which the property has one of ``values``."""
        schema: dict[str, Any] = {"properties": {self.name: {"enum": values}}}
        if self.is_needed:
            schema["required"] = [self.name]
        if self.is_typed:
            schema["type"] = "object"
        return schema


def conditional(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> Node:
    """The values that satisfy ``if`` and ``then``, or ``else`` and not ``if``."""
    algebra = reader.algebra
    condition = reader.node(schema["if"], scope)
    then = reader.node(schema.get("then", True), scope)
    otherwise = reader.node(schema.get("else", True), scope)
    if then == otherwise:
        return then
    fails = reader.not_of(schema["if"], scope)
    return algebra.any_of([algebra.both(condition, then), algebra.both(fails, otherwise)])


def conjunction(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> Iterator[Node]:
    """The nodes of ``allOf``; adjacent conditionals that examine the same property are one node."""
    children = schema["allOf"]
    if len(children) < FEW_CASES:
        yield from reader.nodes(children, scope)
        return
    for looked_at, group in groupby(children, lambda child: _looked_at(child, schema, scope)):
        cases = [*group]
        if looked_at is None or len(cases) < FEW_CASES:
            yield from reader.nodes(cases, scope)
        else:
            yield _by_value(reader, looked_at, cases, scope)


def _by_value(reader: SchemaReader, looked_at: _Property, cases: list[dict[str, Any]], scope: Scope) -> Node:
    cases_of: dict[str, list[int]] = {}
    for i, case in enumerate(cases):
        for value in dict.fromkeys(_values(case["if"]["properties"][looked_at.name])):
            cases_of.setdefault(value, []).append(i)
    values_of: dict[tuple[int, ...], list[str]] = {}
    for value, which in cases_of.items():
        values_of.setdefault(tuple(which), []).append(value)
    algebra = reader.algebra
    # Nodes are met in the order in which they are made, so keys that the condition names come first.
    conditions = [reader.node(looked_at.condition(values), scope) for values in values_of.values()]
    then = [reader.node(case["then"], scope) for case in cases]
    branches = [
        algebra.all_of([condition, *(then[i] for i in those)])
        for condition, those in zip(conditions, values_of, strict=True)
    ]
    return algebra.any_of([*branches, reader.not_of(looked_at.condition([*cases_of]), scope)])


def _looked_at(child: Any, schema: dict[str, Any], scope: Scope) -> _Property | None:
    """The only property that the condition of ``child``, a schema in the ``allOf`` of ``schema``, looks at; None if
    ``child`` is not a conditional of this kind.

    Values that are not objects, or do not have the property, satisfy all conditions; either ``schema`` or the condition
    must exclude them.
    """
    known = ASSERTIONS[scope.dialect]
    if not isinstance(child, dict) or known.intersection(child) != _CONDITIONAL or not _OTHERS.isdisjoint(child):
        return None
    condition = child["if"]
    if not isinstance(condition, dict) or not _OTHERS.isdisjoint(condition):
        return None
    keywords = known.intersection(condition)
    properties, required = condition.get("properties"), condition.get("required", [])
    if keywords - {"required"} not in _KINDS_OF_CONDITION or not isinstance(properties, dict) or len(properties) != 1:
        return None
    ((name, values),) = properties.items()
    if required not in ([], [name]) or condition.get("type", "object") != "object" or not _values(values):
        return None
    result = _Property(name, bool(required), "type" in condition)
    needed = schema.get("required")
    is_there = result.is_needed or (isinstance(needed, list) and name in needed)
    return result if is_there and (result.is_typed or schema.get("type") == "object") else None


def _values(schema: Any) -> list[str]:
    """The strings that a schema lists, if it says nothing else."""
    if not isinstance(schema, dict) or len(schema) != 1:
        return []
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    return values if isinstance(values, list) and all(isinstance(value, str) for value in values) else []
