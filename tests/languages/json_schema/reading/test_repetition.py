"""Sub-schemas that say the same are read once; those that differ in something that matters are not confused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.reading import schema_reader
from tests.languages.json_schema.random_schemas import random_document, random_schema
from tests.languages.json_schema.test_random_schemas import compare
from tests.languages.json_schema.verdicts import Acceptor


def size(schema: Any) -> int:
    return len(json_schema_to_grammar(schema))


def test_what_differs_in_descriptions_is_one() -> None:
    def part(text: str) -> dict[str, Any]:
        inner = {f"k{i}": {"type": "string", "maxLength": i} for i in range(20)}
        return {"type": "object", "description": text, "properties": inner}

    many = {"properties": {f"p{i}": part(f"number {i}") for i in range(100)}}
    referring = {"$defs": {"part": part("")}, "properties": {f"p{i}": {"$ref": "#/$defs/part"} for i in range(100)}}
    # (until the document is found to be large, sub-schemas are read one by one)
    assert size(many) < 3 * size(referring)


@pytest.mark.parametrize(
    ("one", "other", "document"),
    [
        ({"const": {"description": "a"}}, {"const": {"description": "b"}}, {"description": "a"}),
        ({"enum": [{"title": "a"}]}, {"enum": [{"title": "b"}]}, {"title": "a"}),
        ({"const": 1}, {"const": True}, 1),
        ({"properties": {"title": {"type": "string"}}}, {"properties": {"title": {"type": "null"}}}, {"title": "x"}),
        ({"properties": {"id": {"type": "string"}}}, {"properties": {"id": {"type": "null"}}}, {"id": "x"}),
        ({"prefixItems": [{"type": "null"}, True]}, {"prefixItems": [True, {"type": "null"}]}, [None, 1]),
    ],
)
def test_what_differs_otherwise_is_not(monkeypatch: pytest.MonkeyPatch, one: Any, other: Any, document: Any) -> None:
    monkeypatch.setattr(schema_reader, "FEW_NODES", 0)
    acceptor = Acceptor({"properties": {"one": one, "other": other}})
    assert acceptor.value({"one": document})
    assert not acceptor.value({"other": document})


def test_order_of_properties_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_reader, "FEW_NODES", 0)
    a, b = {"type": "integer"}, {"type": "string"}
    acceptor = Acceptor(
        {"properties": {"one": {"properties": {"a": a, "b": b}}, "other": {"properties": {"b": b, "a": a}}}}
    )
    assert acceptor.text('{"one":{"a":1,"b":""},"other":{"b":"","a":1}}')
    assert not acceptor.text('{"one":{"b":"","a":1}}')
    assert not acceptor.text('{"other":{"a":1,"b":""}}')


@pytest.mark.parametrize("block", range(2))
def test_random_schemas(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(schema_reader, "FEW_NODES", 0)
    compared = 0
    for number in range(15):
        random = Random(f"repetition/{block}/{number}")
        part = random_schema(random, 2, recursive=False)
        schema = {
            "properties": {"a": part, "b": {"not": part}, "c": random_schema(random, 2, recursive=False)},
            "items": part,
        }
        try:
            Draft202012Validator.check_schema(schema)
            compared += compare(schema, [random_document(random) for _ in range(30)])
        except (SchemaError, RecursionError):
            continue
    assert compared > 5
