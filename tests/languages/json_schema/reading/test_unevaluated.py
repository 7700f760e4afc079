"""``unevaluatedProperties`` next to many conditions, as in the schema of OpenAPI 3.1; the judge is `jsonschema`."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm.errors import SpecError
from dotllm.languages.json_schema.reading.schema_reader import SchemaReader
from dotllm.languages.json_schema.reading.unevaluated import Unevaluated
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


@pytest.mark.parametrize("seed", range(few(160)))
def test_cases_that_are_left_out_change_no_verdict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left out only where there are too many; here always."""
    make = Unevaluated.__init__

    def made(unevaluated: Unevaluated, reader: SchemaReader) -> None:
        make(unevaluated, reader)
        unevaluated.is_thorough = True

    monkeypatch.setattr(Unevaluated, "__init__", made)
    test_random_applicators_next_to_unevaluated_properties(1_000 + seed)


def test_conditionals_and_choices_as_in_odcs() -> None:
    """Kinds that exclude each other, and a choice of one key in two of them, are 380 cases; 34 are needed."""
    operators = {
        "type": "object",
        "oneOf": [{"properties": {f"op{i}": {"type": "integer"}}, "required": [f"op{i}"]} for i in range(8)],
    }
    library = {
        "allOf": [{"$ref": "#/$defs/operators"}],
        "properties": {"metric": {"enum": ["m"]}},
        "required": ["metric"],
    }
    sql = {"allOf": [{"$ref": "#/$defs/operators"}], "properties": {"query": {"type": "string"}}, "required": ["query"]}
    custom = {"properties": {"engine": {"type": "string"}}, "required": ["engine"]}

    def of_kind(kind: str) -> dict[str, Any]:
        return {"properties": {"type": {"const": kind}}, "required": ["type"]}

    either = {"anyOf": [of_kind("library"), {"properties": {"metric": {"type": "string"}}, "required": ["metric"]}]}
    schema = {
        "type": "object",
        "properties": {"type": {"enum": ["text", "library", "sql", "custom"]}},
        "allOf": [
            {"if": either, "then": library}, {"if": of_kind("sql"), "then": sql}, {"if": of_kind("custom"), "then": custom},
        ],
        "unevaluatedProperties": False,
        "$defs": {"operators": operators},
    }  # fmt: skip
    judge, acceptor = Draft202012Validator(schema), Acceptor(schema, order="any")
    others: list[dict[str, Any]] = [{}, {"op0": 1}, {"op7": 1}, {"op0": 1, "op1": 1}, {"op0": "x"}]
    seen = set()
    for kind, metric, query, engine, more in product((None, "text", "library", "sql", "custom"), *3 * [(0, 1)], others):
        value = {"type": kind} if kind else {}
        value |= {"metric": "m"} if metric else {}
        value |= {"query": "q"} if query else {}
        value |= {"engine": "e", **more} if engine else more
        seen.add(judge.is_valid(value))
        assert acceptor.value(value) == judge.is_valid(value), value
    assert seen == {True, False}


def test_tuples_of_which_one_is_the_longest() -> None:
    """Seven choices would be 128 cases; each says nothing more than that of its longest tuple."""
    tuples = [{"anyOf": [{"prefixItems": [{}] * length}]} for length in range(1, 8)]
    schema = {"unevaluatedItems": False, "allOf": tuples}
    judge, acceptor = Draft202012Validator(schema), Acceptor(schema)
    for value in (*([1] * length for length in range(10)), {"a": 1}, "x", None):
        assert acceptor.value(value) == judge.is_valid(value), value


def test_many_kinds_with_keys_of_their_own() -> None:
    """As the servers of ODCS: 44 conditionals on one key would be 2**44 cases."""
    kinds = [f"kind{i}" for i in range(44)]
    schema = {
        "type": "object",
        "properties": {"type": {"enum": kinds}},
        "required": ["type"],
        "allOf": [
            {
                "if": {"properties": {"type": {"const": kind}}, "required": ["type"]},
                "then": {"properties": {kind: {"type": "integer"}, "port": {"type": "integer"}}, "required": [kind]},
            }
            for kind in kinds
        ],
        "unevaluatedProperties": False,
    }
    acceptor = Acceptor(schema)
    for kind, other in product(kinds[::7], kinds[::7]):
        assert acceptor.value({"type": kind, other: 1, "port": 1}) == (kind == other)
    assert not acceptor.value({"type": "kind0", "kind0": 1, "kind1": 1})


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
