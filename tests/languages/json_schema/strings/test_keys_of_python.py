"""Schemas as Python objects may contain what JSON cannot express, which is refused with its place."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.languages.json_schema.verdicts import Acceptor


@pytest.mark.parametrize(
    ("schema", "pointer", "keyword"),
    [
        ({"properties": {1: {}}}, "/properties", "properties"),
        ({"items": {"properties": {"a": {}, None: {}}}}, "/items/properties", "properties"),
        ({"patternProperties": {1: {}}}, "/patternProperties", "patternProperties"),
        ({"patternProperties": {b"a": {}}}, "/patternProperties", "patternProperties"),
        ({"dependentRequired": {1: ["a"]}}, "/dependentRequired", "dependentRequired"),
        ({"dependentRequired": {"a": [1]}}, "/dependentRequired/a", "dependentRequired"),
        ({"dependentSchemas": {1: {}}}, "/dependentSchemas", "dependentSchemas"),
        ({"dependencies": {1: ["a"]}}, "/dependencies", "dependencies"),
        ({"enum": [{1: 2}]}, "/enum", "enum"),
        ({"enum": [[{"a": {1: 2}}]]}, "/enum", "enum"),
        ({"properties": {"a/b": {"const": {True: 2}}}}, "/properties/a~1b/const", "const"),
        ({"const": {1, 2}}, "/const", "const"),
        ({"properties": {1: {}}, "unevaluatedProperties": False}, "/properties", "properties"),
        ({"allOf": [{"properties": {("a", "b"): {}}}]}, "/allOf/0/properties", "properties"),
        ({1: 2, "type": "object"}, "", ""),
        ({"allOf": [{None: {}, "type": "object"}]}, "/allOf/0", ""),
        ({"properties": {"a": {2: 3}}}, "/properties/a", ""),
    ],
    ids=str,
)
@pytest.mark.parametrize("closed", ["open", "closed", False])
def test_refused_with_its_place(schema: Any, pointer: str, keyword: str, closed: bool | None) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema, additional_properties=closed)
    assert (refusal.value.pointer, refusal.value.keyword) == (pointer, keyword)


def test_what_is_no_keyword_is_not_looked_at() -> None:
    json_schema_to_grammar({"x": {3: 4}, "type": "object", "allOf": [{"y": [{None: {}}], "properties": {"a": {}}}]})


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize("name", ["b", "é"])
def test_a_forbidden_key_that_is_no_text(name: str, order: str) -> None:
    """Nobody can write a lone surrogate; the other keys are those that the schema does not name."""
    for forbidden in (["\ud800"], ["\ud800", name]):
        schema = {"properties": dict.fromkeys(forbidden, False), "additionalProperties": {"type": "integer"}}
        acceptor = Acceptor({"type": "object", **schema}, order=order)
        for key in ("a", "", "b", "é", "ab"):
            assert acceptor.value({key: 1}) == (key not in forbidden)
            assert not acceptor.value({key: "x"})
        assert not acceptor.text('{"\\ud800": 1}')
