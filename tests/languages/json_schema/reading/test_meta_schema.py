"""Malformed keywords are refused with their place, wherever it is; judged by `jsonschema` and the meta-schemas."""

from __future__ import annotations

import gzip
import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.reading import meta_schema
from dotllm.languages.json_schema.reading.dialect import Dialect
from tests.effort import at_most
from tests.languages.json_schema.reading.meta_schemas import disagreement, spoilt

MALFORMED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "object", "properties": {"x": {"type": "string", "required": True}}}, "/properties/x/required", "lists its name"),
    ({"type": "string", "minimum": "abc"}, "/minimum", "must be a number"),
    ({"type": "integer", "minimum": "3"}, "/minimum", "without quotes"),
    ({"type": "string", "items": 5}, "/items", "must be an object or a boolean"),
    ({"type": "string", "properties": [1]}, "/properties", "must be an object"),
    ({"type": "string", "properties": {"a/b": {"not": 1}}}, "/properties/a~1b/not", "must be an object or a boolean"),
    ({"type": "string", "$defs": {"unused": {"maxLength": -1}}}, "/$defs/unused/maxLength", "non-negative"),
    ({"type": "string", "definitions": {"unused": {"allOf": []}}}, "/definitions/unused/allOf", "non-empty list"),
    ({"$ref": "#/components/A", "components": {"A": {"minLength": "x"}}}, "/components/A/minLength", "a number"),
    ({"type": "null", "if": {"enum": 1}}, "/if/enum", "must be a list"),
    ({"type": "integer", "pattern": "("}, "/pattern", "missing ')'"),
    ({"type": "array", "patternProperties": {"[": {}}}, "/patternProperties/[", "missing ']'"),
    ({"type": "string", "uniqueItems": "yes"}, "/uniqueItems", "must be a boolean"),
    ({"const": 1, "multipleOf": 0}, "/multipleOf", "greater than 0"),
    ({"type": "string", "contains": {"type": "strnig"}}, "/contains/type", 'did you mean "string"'),
    ({"type": "string", "dependentRequired": {"a": "b"}}, "/dependentRequired/a", "list of strings"),
    ({"type": "string", "dependencies": {"a": [1]}}, "/dependencies/a", "list of strings"),
    ({"type": "string", "maxItems": 1.5}, "/maxItems", "non-negative integer"),
    ({"type": "string", "format": 3}, "/format", "must be a string"),
    ({"type": "array", "prefixItems": {}}, "/prefixItems", "must be a list"),
    ({"type": "array", "prefixItems": [1]}, "/prefixItems/0", "must be an object or a boolean"),
    ({"type": "string", "maximum": float("inf")}, "/maximum", "not a JSON number"),
    ({"type": "string", "maximum": Decimal("NaN")}, "/maximum", "not a JSON number"),
    ({"type": "string", "$recursiveAnchor": True}, "/$recursiveAnchor", "must be a plain name"),
    ({"type": "array", "items": {"type": "string", "$schema": 5}}, "/items/$schema", "must be a string"),
]  # fmt: skip
FINE: list[Any] = [
    True, {}, {"description": "anything"}, {"$comment": "c"}, {"x-order": 5}, {"title": "t", "x-a": {"type": 5}},
    {"$schema": "http://json-schema.org/draft-07/schema#"}, {"$schema": "http://json-schema.org/draft-07/schema#", "minContains": "x"},
    {"prefixItems": [], "items": False}, {"items": [], "maxItems": 0},  # zod's empty tuple, in its two dialects
    {"type": "string", "maxLength": 5.0}, {"items": [True, {"type": "string"}], "additionalItems": False},
    {"minimum": 1, "exclusiveMinimum": True}, {"properties": {"required": True, "type": {"type": "string"}}},
    {"default": {"type": 5}, "examples": [{"type": 5}], "const": {"minimum": "x"}}, {"enum": [{"items": 5}]},
    {"$schema": "http://json-schema.org/draft-04/schema#", "type": "string", "$defs": 5, "const": 1, "examples": 3},
    {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveAnchor": True, "type": "string"},
    {"type": "string", "foo": {"items": 5}}, {"maximum": Decimal("1e300"), "maxLength": Decimal("1e900")},
    {"type": "integer", "pattern": r"(a)\1"},  # it could not be enforced, and need not be
    {"type": "string", "description": ["a", "b"], "title": 3, "examples": "x", "deprecated": "yes", "$comment": {"type": 5}},
    {"type": "string", "readOnly": None, "writeOnly": 1, "contentEncoding": ["base64"], "contentMediaType": {}, "contentSchema": 5},
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointer", "message"), MALFORMED)
def test_malformed(schema: dict[str, Any], pointer: str, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema)
    assert refusal.value.pointer == pointer and message in str(refusal.value)


@pytest.mark.parametrize("schema", FINE)
def test_fine(schema: Any) -> None:
    json_schema_to_grammar(schema)


def test_mutated_schemas(shared_data: Path | None) -> None:
    """Real schemas with one value changed are refused if and only if the meta-schema refuses them."""
    if shared_data is None:
        pytest.skip("the schemas are not at hand")
    chance = random.Random(3)
    with gzip.open(shared_data / "maskbench-open.jsonl.gz", "rt") as lines:
        schemas = [json.loads(line)["schema"] for line in lines if len(line) < 6_000]
    refused = 0
    for _ in range(600):
        dialect = chance.choice(list(Dialect))
        schema = spoilt(chance, chance.choice(schemas), dialect)
        assert disagreement(schema, dialect) == "", json.dumps(schema)
        try:
            meta_schema.check(schema, dialect)
        except InvalidSpecError:
            refused += 1
    assert 150 < refused < 450


def test_a_pass_over_a_large_document_is_quick() -> None:
    part = {"type": "object", "properties": {f"p{i}": {"type": "string", "maxLength": 9} for i in range(20)}}
    schema = {"$defs": {f"d{i}": part | {"title": str(i)} for i in range(1000)}, "type": "string"}
    schema = json.loads(json.dumps(schema))  # no object is shared
    with at_most(1.0):
        meta_schema.check(schema, Dialect.DRAFT2020)


def test_deep_documents_take_no_stack() -> None:
    deep: dict[str, Any] = {"minimum": "x"}
    for _ in range(100_000):
        deep = {"not": deep}
    with pytest.raises(InvalidSpecError, match="must be a number"):
        meta_schema.check(deep, Dialect.DRAFT2020)


BEHIND_REFERENCES: list[tuple[Any, str, str]] = [
    ({"$ref": "#/x/a", "x": {"a": {"minLength": "x"}}}, "/x/a/minLength", "a number"),
    ({"type": "object", "$ref": "#/x/a", "x": {"a": {"required": "a"}}}, "/x/a/required", "list of strings"),
    ({"$ref": "#/x/0/y", "x": [{"y": {"properties": {"a": {"enum": 1}}}}]}, "/x/0/y/properties/a/enum", "a list"),
    ({"$ref": "#/title", "title": "a"}, "/$ref", "leads to something that is not a schema"),
    ({"items": {"$ref": "#/allOf", "type": "string"}, "allOf": [{}]}, "/items/$ref", "leads to something that is not a schema"),
    ({"$ref": "b#/x/y", "$defs": {"b": {"$id": "b", "x": {"y": {"uniqueItems": 1}}}}}, "/$defs/b/x/y/uniqueItems", "boolean"),
    ({"$dynamicRef": "#/x/a", "x": {"a": {"allOf": {}}}}, "/x/a/allOf", "non-empty list"),
    ({"$ref": "#/x/a", "x": {"a": {"$ref": "#/x/b"}, "b": {"pattern": 5}}}, "/x/b/pattern", "a string"),
    ({"unevaluatedProperties": False, "$ref": "#/x/a", "x": {"a": {"properties": []}}}, "/x/a/properties", "an object"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointer", "message"), BEHIND_REFERENCES)
def test_what_a_reference_leads_to_is_looked_at(schema: Any, pointer: str, message: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema)
    assert refusal.value.pointer == pointer and message in refusal.value.message


@pytest.mark.parametrize(
    "schema",
    [  # keywords that the dialect of their place does not know; without an identifier, $schema does not change it
        {"$schema": "http://json-schema.org/draft-07/schema#", "contains": {}, "minContains": "x"},
        {"unevaluatedProperties": False, "$ref": "b", "$defs": {"b": {
            "$id": "b", "$schema": "http://json-schema.org/draft-07/schema#", "dependentSchemas": [1]}}},
        {"unevaluatedItems": False, "$ref": "b", "$defs": {"b": {
            "$id": "b", "id": "b", "$schema": "http://json-schema.org/draft-04/schema#", "if": 5, "prefixItems": 3, "contains": 5}}},
    ],
)  # fmt: skip
def test_what_a_dialect_does_not_know_is_not_read(schema: Any) -> None:
    json_schema_to_grammar(schema)


def test_a_dialect_counts_where_a_resource_begins() -> None:
    inner = {"$schema": "http://json-schema.org/draft-04/schema#", "contains": {}, "minContains": "x"}
    with pytest.raises(InvalidSpecError, match="minContains must be a number"):
        json_schema_to_grammar({"items": inner})
    json_schema_to_grammar({"items": {"$id": "https://example.org/a"} | inner, "minItems": 1})


def test_what_is_wrong_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema is compiled again with open objects if closing may be at fault, which it never is for these."""
    reads = []
    real = meta_schema.check
    monkeypatch.setattr(meta_schema, "check", lambda *arguments: (reads.append(1), real(*arguments)))
    for schema in ({"properties": {"a": {"type": "strnig"}}}, {"$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#"}]}):
        reads.clear()
        with pytest.raises(InvalidSpecError):
            json_schema_to_grammar(schema)
        assert len(reads) == 1
