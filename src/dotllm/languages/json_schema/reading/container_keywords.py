"""Reads the keywords of arrays and objects into an `ArrayConstraint` or an `ObjectConstraint`."""

from __future__ import annotations

import json
from typing import Any

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema.algebra import arrays, objects
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_NAMED,
    ANY_ARRAY,
    ANY_KEY_CLASSES,
    ANY_OBJECT,
    ANY_STRING,
    FALSE,
    NO_KEY_CLASSES,
    NO_STRING,
    TRUE,
    ArrayConstraint,
    Clause,
    Contains,
    KeyClass,
    Named,
    Node,
    ObjectConstraint,
    key_class_value,
    matching,
)
from dotllm.languages.json_schema.reading.dialect import Dialect
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.scalar_keywords import check_text, count
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader
from dotllm.languages.json_schema.strings.string_language import StringLanguage


def array_constraint(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> ArrayConstraint | None:
    """The constraint that a schema's keywords of arrays make; None if no array satisfies them."""
    items = schema.get("items", True)
    tuples = schema.get("prefixItems", ()) if scope.dialect >= Dialect.DRAFT2020 else ()
    if isinstance(items, list):  # of an earlier draft; those who write for several drafts write both keywords
        if tuples and json.dumps(tuples, sort_keys=True) != json.dumps(items, sort_keys=True):  # (1 == True in Python)
            wrong = "prefixItems and a list in items must be the same list"
            raise InvalidSpecError(wrong, keyword="items", help="leave one of them out")
        tuples, items = items, schema.get("additionalItems", True)
    prefix = tuple(reader.nodes(tuples, scope))
    rest = reader.node(items, scope)
    contains: tuple[Contains, ...] = ()
    if "contains" in schema and scope.dialect >= Dialect.DRAFT6:
        low, high = 1, None
        if scope.dialect >= Dialect.DRAFT2019:
            least = count(schema, "minContains")
            low, high = 1 if least is None else least, count(schema, "maxContains")
        contains = (Contains(reader.node(schema["contains"], scope), low, high),)
    low, high = count(schema, "minItems") or 0, count(schema, "maxItems")
    constraint = ArrayConstraint(prefix, rest, low, high, contains, schema.get("uniqueItems", False))
    return ANY_ARRAY if constraint == ANY_ARRAY else arrays.simplified(reader.algebra, constraint)


def object_constraint(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> ObjectConstraint | None:
    """The constraint that a schema's keywords of objects make; None if no object satisfies them. Raises
    `InvalidSpecError`."""
    declared = schema.get("properties", {})
    properties = {name: reader.node(child, scope) for name, child in declared.items()} if declared else {}
    key_classes = _key_classes(reader, schema, scope, properties)
    required: frozenset[str] = frozenset()
    if "required" in schema:
        names = schema["required"]
        check_text(names, "required")
        required = frozenset(names)
        for name in names:
            if name not in properties:
                properties[name] = key_class_value(key_classes, name)
    clauses: frozenset[Clause] = frozenset()
    if "dependentRequired" in schema or "dependencies" in schema:
        clauses = _dependent_required(schema, scope)
        for name in sorted({name for clause in clauses for name, _ in clause}):
            if name not in properties:
                properties[name] = key_class_value(key_classes, name)
    constraint = ObjectConstraint(
        properties,
        key_classes,
        required,
        clauses,
        count(schema, "minProperties") or 0,
        count(schema, "maxProperties"),
        (),
        frozenset(properties.keys() - declared.keys()) if len(properties) > len(declared) else frozenset(),
        _named(schema, declared) if scope.closes else None,
    )
    return ANY_OBJECT if constraint == ANY_OBJECT else objects.simplified(reader.algebra, constraint)


def _named(schema: dict[str, Any], declared: dict[str, Any]) -> Named | None:
    """The keys that a schema names, for objects that must have no others (`objects.closed`)."""
    if "additionalProperties" in schema:
        return ALL_NAMED
    if "properties" not in schema and "patternProperties" not in schema:
        return None
    keys = StringLanguage.union(map(StringLanguage.pattern, schema.get("patternProperties", {})))
    return Named(frozenset(declared), keys, "properties" in schema)


def _key_classes(
    reader: SchemaReader, schema: dict[str, Any], scope: Scope, properties: dict[str, Node]
) -> tuple[KeyClass, ...]:
    """The partition of the keys that ``properties`` does not name. Patterns and propertyNames also constrain the values
    in ``properties``, which is updated."""
    patterns = schema.get("patternProperties", {})
    additional = TRUE
    if "additionalProperties" in schema:
        additional = reader.node(schema["additionalProperties"], scope)
    key_classes = (
        ANY_KEY_CLASSES
        if additional == TRUE
        else NO_KEY_CLASSES
        if additional == FALSE
        else ((ANY_STRING, additional),)
    )
    named = dict(properties)
    if patterns:
        both = reader.algebra.both
        by_pattern = [(StringLanguage.pattern(p), reader.node(child, scope)) for p, child in patterns.items()]
        nodes_of = matching(by_pattern)
        for name in properties:
            for node in nodes_of(name):
                named[name] = both(named[name], node)
        key_classes = objects.key_classes_of(reader.algebra, by_pattern, additional)
    if "propertyNames" in schema and scope.dialect >= Dialect.DRAFT6:
        allowed = reader.algebra.form(reader.node(schema["propertyNames"], scope)).string
        if allowed != ANY_STRING:
            for name in named:
                if not allowed.contains(name):
                    named[name] = FALSE
            limits: tuple[KeyClass, ...] = ((allowed, TRUE), (~allowed, FALSE))
            key_classes = (
                objects.meet_key_classes(reader.algebra, key_classes, limits)
                if allowed is not NO_STRING
                else NO_KEY_CLASSES
            )
    properties.update(named)
    return key_classes


def _dependent_required(schema: dict[str, Any], scope: Scope) -> frozenset[Clause]:
    clauses: set[Clause] = set()
    if scope.dialect >= Dialect.DRAFT2019:
        check_text(schema.get("dependentRequired", {}), "dependentRequired")
        for name, names in schema.get("dependentRequired", {}).items():
            check_text(names, "dependentRequired")
            clauses.update(frozenset([(name, False), (other, True)]) for other in names if other != name)
    check_text(schema.get("dependencies", {}), "dependencies")
    for name, dependency in schema.get("dependencies", {}).items():
        if isinstance(dependency, list):
            check_text(dependency, "dependencies")
            clauses.update(frozenset([(name, False), (other, True)]) for other in dependency if other != name)
    return frozenset(clauses)
