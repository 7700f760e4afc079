"""The keywords of objects."""

from __future__ import annotations

from typing import Any

from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_NAMED,
    ANY_KEY_CLASSES,
    ANY_OBJECT,
    ANY_STRING,
    FALSE,
    NO_KEY_CLASSES,
    NO_STRING,
    TRUE,
    Clause,
    KeyClass,
    Named,
    Node,
    ObjectConstraint,
    key_class_value,
)
from dotllm.languages.json_schema.reading.dialect import Dialect
from dotllm.languages.json_schema.reading.document import Scope
from dotllm.languages.json_schema.reading.keyword_values import check_text, count, mapping, name_list
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader
from dotllm.languages.json_schema.strings.string_language import StringLanguage


def object_constraint(reader: SchemaReader, schema: dict[str, Any], scope: Scope) -> ObjectConstraint | None:
    """What the keywords of objects say; None if no object satisfies them. Raises `InvalidSpecError`."""
    declared = mapping(schema, "properties")
    properties = {name: reader.node(child, scope) for name, child in declared.items()} if declared else {}
    key_classes = _key_classes(reader, schema, scope, properties)
    required: frozenset[str] = frozenset()
    if "required" in schema:
        names = name_list("required", schema["required"])
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
    """The keys that a schema names, for objects that are to have no others (`objects.closed`)."""
    if "additionalProperties" in schema:
        return ALL_NAMED
    if "properties" not in schema and "patternProperties" not in schema:
        return None
    keys = NO_STRING
    for pattern in mapping(schema, "patternProperties"):
        keys = keys | StringLanguage.pattern(pattern)
    return Named(frozenset(declared), keys)


def _key_classes(
    reader: SchemaReader, schema: dict[str, Any], scope: Scope, properties: dict[str, Node]
) -> tuple[KeyClass, ...]:
    """The partition of the keys that ``properties`` does not name; patterns and propertyNames also constrain
    those it does name."""
    patterns = mapping(schema, "patternProperties")
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
        matched = StringLanguage.nothing()
        split: tuple[KeyClass, ...] = ANY_KEY_CLASSES
        for language, node in by_pattern:
            matched = matched | language
            split = objects.meet_key_classes(reader.algebra, split, ((language, node), (~language, TRUE)))
            for name in properties:
                if language.contains(name):
                    named[name] = both(named[name], node)
        if additional != TRUE:
            rest: tuple[KeyClass, ...] = ((matched, TRUE), (~matched, additional))
            split = objects.meet_key_classes(reader.algebra, split, rest)
        key_classes = split
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
        check_text(mapping(schema, "dependentRequired"), "dependentRequired")
        for name, needed in mapping(schema, "dependentRequired").items():
            names = name_list("dependentRequired", needed)
            clauses.update(frozenset([(name, False), (other, True)]) for other in names if other != name)
    check_text(mapping(schema, "dependencies"), "dependencies")
    for name, dependency in mapping(schema, "dependencies").items():
        if isinstance(dependency, list):
            names = name_list("dependencies", dependency)
            clauses.update(frozenset([(name, False), (other, True)]) for other in names if other != name)
    return frozenset(clauses)
