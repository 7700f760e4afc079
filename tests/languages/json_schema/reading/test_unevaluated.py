"""``unevaluatedProperties`` next to many conditions, as in the schema of OpenAPI 3.1; the judge is `jsonschema`."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm.errors import SpecError
from tests.cases import few
from tests.languages.json_schema.verdicts import Acceptor

KINDS = "abcdefgh"
KEYS = ("a", "ab", "c", "d")
VALUES = [
    {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
    for values in product((None, 1, "x"), repeat=len(KEYS))
]


def test_a_condition_on_keys_that_are_declared_is_not_another_case() -> None:
    """Eight conditions would be 256 cases. What ``if`` and ``then`` evaluate is evaluated already."""
    conditions = [
        {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {"size": {"minimum": at}}}}
        for at, kind in enumerate(KINDS)
    ]
    schema = {
        "properties": {"kind": {"enum": [*KINDS]}, "size": {"type": "integer"}},
        "required": ["kind"],
        "allOf": conditions,
        "unevaluatedProperties": False,
    }
    judge, acceptor = Draft202012Validator(schema), Acceptor(schema, order="any")
    for kind, size, more in product(KINDS, range(9), ({}, {"other": 1})):
        value = {"kind": kind, "size": size, **more}
        assert acceptor.value(value) == judge.is_valid(value), value


def test_the_parameter_of_openapi_has_few_cases() -> None:
    """The keys of the root are known in a dependent schema, and those of a dependent schema in its conditions."""
    styles = [
        {
            "if": {"properties": {"in": {"const": kind}}, "required": ["in"]},
            "then": {"properties": {"style": {"enum": [kind, "simple"]}}},
        }
        for kind in KINDS
    ]
    schema = {
        "properties": {"in": {"enum": [*KINDS]}, "schema": {"type": "boolean"}},
        "dependentSchemas": {"schema": {"properties": {"style": {"type": "string"}}, "allOf": styles}},
        "unevaluatedProperties": False,
    }
    judge, acceptor = Draft202012Validator(schema), Acceptor(schema, order="any")
    for kind, style in product("ab", ("a", "b", "simple", "other")):
        for value in ({"in": kind, "schema": True, "style": style}, {"in": kind, "style": style}, {"in": kind}):
            assert acceptor.value(value) == judge.is_valid(value), value


@pytest.mark.parametrize("seed", range(few(160)))
def test_random_applicators_next_to_unevaluated_properties(seed: int) -> None:
    """A key that one part evaluates may be declared above it, in another alternative, or nowhere."""
    random = Random(seed)
    schema = {**_schema(random, 2), "unevaluatedProperties": random.choice([False, {"type": "integer"}])}
    judge = Draft202012Validator(schema)
    try:
        acceptor = Acceptor(schema, order="any")
    except SpecError as error:
        assert error.code in ("unsatisfiable", "too_large"), error
        return
    for value in VALUES:
        assert acceptor.value(value) == judge.is_valid(value), (schema, value)


def _schema(random: Random, depth: int) -> dict[str, Any]:
    def child() -> dict[str, Any]:
        return _schema(random, depth - 1)

    schema: dict[str, Any] = {}
    if random.random() < 0.6:
        schema["properties"] = {
            key: random.choice([True, {"type": "integer"}]) for key in KEYS if random.random() < 0.5
        }
    if random.random() < 0.2:
        schema["patternProperties"] = {random.choice(["^a", "b|c"]): True}
    if random.random() < 0.2:
        schema["required"] = [random.choice(KEYS)]
    if depth:
        for keyword in ("allOf", "anyOf", "oneOf"):
            if random.random() < 0.3:
                schema[keyword] = [child() for _ in range(random.randint(1, 2))]
        if random.random() < 0.4:
            schema |= {
                keyword: child() for keyword in ("if", "then", "else") if keyword == "if" or random.random() < 0.7
            }
        if random.random() < 0.3:
            schema["dependentSchemas"] = {random.choice(KEYS): child()}
    return schema
