"""A schema that nothing satisfies is refused with the reason and the smallest part that is at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema import json_schema_to_grammar

NAME = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["nmae"],
    "additionalProperties": False,
}
ID = {"type": "object", "properties": {"id": {"type": "string", "minLength": 5}}, "required": ["id"]}
RANGE = {"type": "integer", "minimum": 3, "maximum": 2}


def within(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"user": schema}, "required": ["user"]}


@pytest.mark.parametrize(
    ("schema", "message", "keyword"),
    [
        (NAME, '"nmae" is required, and additionalProperties allows no such property; did you mean "name"? (at /required)', "required"),
        (within(NAME), '"nmae" is required, and additionalProperties allows no such property; did you mean "name"? (at /properties/user/required)', "required"),
        ({**within({"$ref": "#/$defs/u~v"}), "$defs": {"u~v": NAME}}, "(at /$defs/u~0v/required)", "required"),
        (within(within(RANGE)), '"minimum": 3 and "maximum": 2 together; every document needs "user": it is in "required" (at /properties/user/properties/user/minimum)', "minimum"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, '"minLength": 3 and "maxLength": 2 together (at /minLength)', "minLength"),
        ({"enum": []}, 'no value satisfies "enum": [] (at /enum)', "enum"),
        (within({"type": "string", "enum": [1, 2]}), '"type": "string" and "enum": [1, 2] together; every document needs "user": it is in "required" (at /properties/user/enum)', "enum"),
        ({"type": "string", "minLength": 2, "const": "a"}, '"minLength": 2 and "const": "a" together (at /minLength)', "minLength"),
        (False, "false allows no value", ""),
        (within(False), "false allows no value (at /properties/user)", "properties"),
        ({"not": {}}, 'no value satisfies "not": {} (at /not)', "not"),
        (within({"$ref": "#"}), "a schema requires itself, directly or indirectly, so no finite document satisfies it", "$ref"),
        ({"allOf": [{"type": "string"}, RANGE]}, '(at /allOf/1/minimum)', "minimum"),
        ({"allOf": [{"type": "string"}, {"type": "null"}]}, '"type": "string" (at /allOf/0/type) and "type": "null" (at /allOf/1/type) exclude each other', "allOf"),
        (within({"allOf": [ID, {**ID, "properties": {"id": {"maxLength": 3}}}]}), '"minLength": 5 (at /properties/user/allOf/0/properties/id/minLength) and "maxLength": 3 (at /properties/user/allOf/1/properties/id/maxLength) exclude each other', "allOf"),
        ({"anyOf": [RANGE, False]}, '/anyOf/0/minimum allows none: no value satisfies "minimum": 3 and "maximum": 2 together; /anyOf/1 allows none: false allows no value', "anyOf"),
        ({"anyOf": [RANGE]}, "(at /anyOf/0/minimum)", "minimum"),
        ({"type": "array", "items": NAME, "minItems": 1}, "(at /items/required)", "required"),
        ({"type": "array", "prefixItems": [True, RANGE], "minItems": 2}, "(at /prefixItems/1/minimum)", "minimum"),
        ({"type": "array", "contains": RANGE}, "(at /contains/minimum)", "minimum"),
        ({"type": "array", "minItems": 2, "maxItems": 1}, '"minItems": 2 and "maxItems": 1 together', "minItems"),
        # two reasons at one place
        ({"type": "integer", "minimum": 3, "maximum": 2, "enum": []}, '"enum": []', "enum"),
        ({"type": "integer", "minimum": 2, "maximum": 4, "not": {"anyOf": [{"multipleOf": 2}, {"multipleOf": 3}]}}, '"minimum": 2, "maximum": 4 and "not": ', "minimum"),
        ({"enum": [], "not": {}}, 'no value satisfies "enum": [] (at /enum)', "enum"),
        ({"allOf": [{"minimum": 2}, {"maximum": 1}], "type": "integer", "oneOf": [{"minimum": 2}, {"maximum": 1}], "maximum": 1, "minimum": 2}, "nothing satisfies the schema", ""),
        ('{"type": "number", "exclusiveMinimum": 0.5, "maximum": 5e-1}', '"exclusiveMinimum": 0.5 and "maximum": 0.5 together', "exclusiveMinimum"),
        ({"type": "string", "required": ["a"], "enum": []}, "\"enum\": []", "enum"),
        ({"$id": "http://x.example/", "type": "object", "properties": {"a": {"$ref": "#/$defs/r"}}, "required": ["a"], "$defs": {"r": RANGE}}, "(at /$defs/r/minimum)", "minimum"),
    ],
    ids=lambda value: json.dumps(value)[:60],
)  # fmt: skip
def test_place_and_reason(schema: Any, message: str, keyword: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema)
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("nothing satisfies the schema")
    assert refusal.value.keyword == keyword


def test_a_key_that_an_option_forbids() -> None:
    schema = within({"type": "object", "properties": {"name": {}}, "required": ["nmae"]})
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema, additional_properties=False)
    assert (
        '"nmae" is required, and the schema names no such property; did you mean "name"? (at /properties/user/required)'
        in str(refusal.value)
    )


def test_a_large_schema_is_searched_within_its_budgets() -> None:
    schema: Any = RANGE
    for _ in range(70):
        schema = {**within(schema), "required": ["user", *(f"k{i}" for i in range(150))]}
    with pytest.raises(InvalidSpecError, match="nothing satisfies the schema"):
        json_schema_to_grammar(schema)
