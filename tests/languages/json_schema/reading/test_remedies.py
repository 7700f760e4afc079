"""Common mistakes in JSON Schema: the refusal says where the mistake is, what is wrong, and what to write."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dotllm.errors import SpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.reading import remedies
from dotllm.languages.json_schema.reading.ineffective import ineffective_keywords

_S: dict[str, Any] = {"type": "string"}
_FOO = {"Foo": _S}
_NUMBER = "must be a number"
_NO_SCHEMA = "a schema must be an object or a boolean"

REFUSED: list[tuple[dict[str, Any], str, str, str]] = [
    # Values in quotes, names from other languages, nulls of generators
    ({"minLength": "3"}, "/minLength", _NUMBER, 'without quotes: "minLength": 3'),
    ({"properties": {"a": {"maximum": "1.5"}}}, "/properties/a/maximum", _NUMBER, '"maximum": 1.5'),
    ({"multipleOf": "2"}, "/multipleOf", _NUMBER, '"multipleOf": 2'),
    ({"minItems": None}, "/minItems", _NUMBER, "leave it out"),
    ({"additionalProperties": "false"}, "/additionalProperties", _NO_SCHEMA, "write false without quotes"),
    ({"additionalProperties": "False"}, "/additionalProperties", _NO_SCHEMA, "write false without quotes"),
    ({"additionalProperties": 0}, "/additionalProperties", _NO_SCHEMA, "write false"),
    ({"additionalProperties": None}, "/additionalProperties", _NO_SCHEMA, "leave it out"),
    ({"additionalProperties": "string"}, "/additionalProperties", _NO_SCHEMA, 'write {"type": "string"}'),
    ({"uniqueItems": "true"}, "/uniqueItems", "must be a boolean", "write true without quotes"),
    ({"type": "string", "nullable": "true"}, "/nullable", "must be a boolean", "write true without quotes"),
    ({"properties": {"a": {"type": "string", "nullable": 1}}}, "/properties/a/nullable", "a boolean", "write true"),
    ({"type": "string", "pattern": None}, "/pattern", "must be a string", "leave it out"),
    ({"type": "string", "enum": None}, "/enum", "must be a list", "leave it out"),
    ({"type": "object", "properties": None}, "/properties", "must be an object", "leave it out"),
    ({"type": "object", "required": None}, "/required", "must be a list of strings", "leave it out"),
    # type
    ({"type": None}, "/type", "a name or a non-empty list of names", 'type of null is "null"'),
    ({"type": ["string", None]}, "/type/1", "must contain names, not null", 'write "null"'),
    ({"type": []}, "/type", "non-empty list", "leave it out to allow any value"),
    ({"type": {"type": "string"}}, "/type", "non-empty list", "in the place of the object that holds type"),
    ({"type": "string|null"}, "/type", "unknown type 'string|null'", '"type": ["string", "null"]'),
    ({"type": "string | integer | null"}, "/type", "unknown type", '"type": ["string", "integer", "null"]'),
    ({"type": "string or null"}, "/type", "unknown type", '"type": ["string", "null"]'),
    ({"type": "string,null"}, "/type", "unknown type", '"type": ["string", "null"]'),
    ({"type": "string?"}, "/type", "unknown type", '"type": ["string", "null"]'),
    ({"type": "Optional[int]"}, "/type", "unknown type", '"type": ["integer", "null"]'),
    ({"type": "list[str]"}, "/type", "unknown type", '"type": "array", "items": {"type": "string"}'),
    ({"type": "string[]"}, "/type", "unknown type", '"items": {"type": "string"}'),
    ({"type": "Array<number>"}, "/type", "unknown type", '"items": {"type": "number"}'),
    ({"type": "list[quaternion]"}, "/type", "unknown type", "the types are null"),
    ({"type": "date"}, "/type", "unknown type 'date'", '"type": "string", "format": "date"'),
    ({"type": "datetime"}, "/type", "unknown type", '"format": "date-time"'),
    ({"type": "uuid"}, "/type", "unknown type", '"format": "uuid"'),
    ({"type": "email"}, "/type", "unknown type", '"format": "email"'),
    ({"type": "url"}, "/type", "unknown type", '"format": "uri"'),
    ({"type": "enum", "enum": ["a"]}, "/type", "unknown type", '"enum" is itself a keyword'),
    ({"type": ["strnig"]}, "/type/0", "unknown type 'strnig'", 'did you mean "string"'),
    ({"type": "String"}, "/type", "unknown type", '"type": "string"'),
    ({"type": "any"}, "/type", "unknown type", "leave type out"),
    ({"type": "quaternion"}, "/type", "unknown type", "the types are null"),
    # Lists of names, lists of schemas, maps of schemas
    ({"required": "a"}, "/required", "must be a list of strings", 'write a list: ["a"]'),
    ({"dependentRequired": {"a": None}}, "/dependentRequired/a", "must be a list of strings", "leave it out"),
    ({"required": {"a": True, "b": False}}, "/required", "must be a list of strings", 'write a list: ["a"]'),
    ({"dependentRequired": {"a": "b"}}, "/dependentRequired/a", "must be a list of strings", '["b"]'),
    ({"dependentRequired": {"a/b": _S}}, "/dependentRequired/a~1b", "must be a list of strings", "dependentSchemas"),
    ({"dependentRequired": ["a"]}, "/dependentRequired", "must be an object", 'write {"a": ["b"]}'),
    ({"dependentSchemas": {"a": ["b"]}}, "/dependentSchemas/a", _NO_SCHEMA, "dependentRequired"),
    ({"dependencies": {"a": "b"}}, "/dependencies/a", _NO_SCHEMA, 'write {"const": "b"}'),
    ({"anyOf": _S}, "/anyOf", "must be a non-empty list of schemas", 'write a list: [{"type": "string"}]'),
    ({"oneOf": []}, "/oneOf", "must be a non-empty list of schemas", "leave it out"),
    ({"anyOf": ["string", "null"]}, "/anyOf/0", _NO_SCHEMA, 'write {"type": "string"}'),
    ({"properties": ["a"]}, "/properties", "must be an object", 'write {"a": {…}'),
    ({"properties": [{"name": "a", "type": "string"}]}, "/properties", "must be an object", 'write {"a": {…}'),
    ({"properties": {"a": "string"}}, "/properties/a", _NO_SCHEMA, 'write {"type": "string"}'),
    ({"properties": {"a": "date"}}, "/properties/a", _NO_SCHEMA, '"format": "date"'),
    ({"properties": {"a": "the name of it"}}, "/properties/a", _NO_SCHEMA, '"description"'),
    ({"properties": {"a": ["string", "null"]}}, "/properties/a", _NO_SCHEMA, 'write {"type": ["string", "null"]}'),
    ({"items": "string"}, "/items", _NO_SCHEMA, 'write {"type": "string"}'),
    ({"items": "#/$defs/a"}, "/items", _NO_SCHEMA, 'write {"$ref": "#/$defs/a"}'),
    ({"enum": "a"}, "/enum", "must be a list", 'write a list: ["a"]'),
    ({"pattern": ["a"]}, "/pattern", "must be a string", "write anyOf"),
    # References and dialects
    ({"$ref": "Foo", "$defs": _FOO}, "/$ref", "another document", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "Foo.json", "$defs": _FOO}, "/$ref", "another document", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "$defs/Foo", "$defs": _FOO}, "/$ref", "another document", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "/schemas/Foo", "$defs": _FOO}, "/$ref", "another document", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#Foo", "$defs": _FOO}, "/$ref", "points to nothing", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#/Foo", "$defs": _FOO}, "/$ref", "points to nothing", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#$defs/Foo", "$defs": _FOO}, "/$ref", "points to nothing", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#/definitions/Foo", "$defs": _FOO}, "/$ref", "points to nothing", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#/components/schemas/Foo", "$defs": _FOO}, "/$ref", "to nothing", 'did you mean "#/$defs/Foo"?'),
    ({"$ref": "#/components/schemas/Foo"}, "/$ref", "points to nothing", 'put the component under "$defs"'),
    ({"items": {"$ref": "Foo"}}, "/items/$ref", "another document", 'write "#/$defs/Foo"'),
    ({"items": {"$id": "bar", "$ref": "#/$defs/Foo"}, "$defs": _FOO}, "/items/$ref", "points to nothing",
     """leave out the "$id" around it, which makes it relative to 'bar', and write "#/$defs/Foo\""""),
    ({"items": {"$id": "http://b.c/d", "items": {"$ref": "Foo"}}, "$defs": _FOO}, "/items/items/$ref", "another document",
     """leave out the "$id" around it, which makes it relative to 'http://b.c/d', and write "#/$defs/Foo\""""),
    ({"items": {"$id": "bar", "items": {"$ref": "#foo"}}, "$defs": {"a": _S | {"$anchor": "foo"}}}, "/items/items/$ref",
     "points to nothing", """relative to 'bar', and write "#foo\""""),
    ({"$ref": "https://example.org/a"}, "/$ref", "another document", "bundle it under $defs"),
    ({"items": {"$ref": "1"}}, "/items/$ref", "another document", "a relative JSON Pointer is not a reference"),
    ({"items": {"$ref": "2/a/0"}}, "/items/$ref", "another document", 'write the pointer from the root, "#/…"'),
    ({"$ref": _S}, "/$ref", "must be a string", "the schema itself"),
    ({"$schema": None}, "/$schema", "must be a string", "leave it out"),
    ({"$schema": "draft-07"}, "/$schema", "not a dialect", 'write "http://json-schema.org/draft-07/schema#"'),
    ({"$schema": "2020-12"}, "/$schema", "not a dialect", 'write "https://json-schema.org/draft/2020-12/schema"'),
    ({"$schema": "https://spec.openapis.org/oas/3.0/schema"}, "/$schema", "not a dialect", "leave it out"),
    # References to themselves, and alternatives that do not differ
    ({"$ref": "#"}, "/$ref", "without end", "refer to it from a property or from items"),
    ({"allOf": [{"$ref": "#"}]}, "/allOf/0/$ref", "without end", "refer to it from a property or from items"),
    ({"properties": {"a": {"not": {"$ref": "#/properties/a"}}}}, "/properties/a/not/$ref", "without end", "refer to it from"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [_S, {"$ref": "#/$defs/b"}]}, "b": {"oneOf": [{"$ref": "#/$defs/a"}]}}},
     "/$defs/a/anyOf/1/$ref", "without end", "refer to it from a property"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
     "/properties/a/$ref", "a schema requires itself", 'take "a" out of required'),
    ({"type": "array", "items": {"$ref": "#"}, "minItems": 1}, "/items/$ref", "a schema requires itself", "let the list be empty"),
    ({"oneOf": [_S, _S]}, "/oneOf", "branches 0 and 1 are equivalent", "write anyOf"),
    ({"oneOf": [_S | {"title": "a"}, _S | {"title": "b"}]}, "/oneOf", "branches 0 and 1 are equivalent", "write anyOf"),
    ({"oneOf": [{"$ref": "#/$defs/Foo"}, {"$ref": "#/$defs/Foo"}], "$defs": _FOO}, "/oneOf", "are equivalent", "write anyOf"),
    ({"oneOf": [{"type": ["string", "null"]}, {"type": ["null", "string"]}]}, "/oneOf", "also fits another", "write anyOf"),
    ({"type": "object", "properties": {"a": {"oneOf": [_S, _S]}}, "required": ["a"]},
     "/properties/a/oneOf", "are equivalent", "write anyOf"),
]  # fmt: skip

TAKEN: list[dict[str, Any]] = [
    {"$schema": "https://spec.openapis.org/oas/3.1/dialect/base", "type": ["string", "null"], "example": "a"},
    {"$schema": "https://spec.openapis.org/oas/3.1/dialect/2024-11-10", "prefixItems": [_S], "minContains": 1,
     "contains": _S, "discriminator": {"propertyName": "a"}, "xml": {}, "externalDocs": {}},
    {"$ref": "#/components/schemas/Foo", "components": {"schemas": _FOO}},
    {"properties": {"a": {"$ref": "#/components/schemas/Foo"}}, "components": {"schemas": _FOO}},
    {"type": "string", "nullable": False},
    {"type": "array", "items": {"$ref": "#"}},
    {"oneOf": [_S, {"type": "null"}]},
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointer", "message", "help"), REFUSED, ids=[json.dumps(row[0]) for row in REFUSED])
def test_refused(schema: dict[str, Any], pointer: str, message: str, help: str) -> None:
    with pytest.raises(SpecError) as refusal:
        json_schema_to_grammar(copy.deepcopy(schema))
    error = refusal.value
    assert error.pointer == pointer
    assert message in error.message and help in error.help
    assert "None" not in str(error) and len(error.message) < 200 and len(error.help) < 200


@pytest.mark.parametrize("around", [{}, {"$id": "http://b.c/d"}])
def test_an_anchor_of_another_resource_is_not_suggested(around: dict[str, Any]) -> None:
    """It would be the text that was just refused."""
    schema = around | {"items": {"$ref": "#foo"}, "$defs": {"a": _S | {"$id": "bar", "$anchor": "foo"}}}
    with pytest.raises(SpecError, match="'#foo' points to nothing") as refusal:
        json_schema_to_grammar(schema)
    assert "#foo" not in refusal.value.help


@pytest.mark.parametrize("schema", TAKEN, ids=json.dumps)
def test_taken_without_a_warning(schema: dict[str, Any]) -> None:
    json_schema_to_grammar(schema)
    assert [*ineffective_keywords(schema)] == []


@pytest.mark.parametrize(
    ("schema", "pointer", "message"),
    [
        ({"oneOf": [_S, _S, {"type": "null"}]}, "/oneOf", "branches 0 and 1 of oneOf are equivalent"),
        ({"items": {"x-guidance": {"whitespace_flexible": False}}}, "/items/x-guidance", "at the root of a schema"),
        ({"$defs": {"a": {"x-guidance": {}}}, "$ref": "#/$defs/a"}, "/$defs/a/x-guidance", "move it there"),
        ({"type": "string", "$schema": "http://json-schema.org/draft-07/schema#", "nullable": "x"}, "/nullable", "OpenAPI"),
    ],
)  # fmt: skip
def test_warned_of(schema: dict[str, Any], pointer: str, message: str) -> None:
    json_schema_to_grammar(schema)
    assert [(found.pointer, message in found.message) for found in ineffective_keywords(schema)] == [(pointer, True)]


@pytest.mark.parametrize("name", ["str", "string|null", "date", "list[int]", "Optional[str]", "int or str", "url"])
def test_what_a_remedy_says_of_a_type_is_a_schema(name: str) -> None:
    said = remedies.type_name(name).removeprefix("write ")
    json_schema_to_grammar(json.loads(f"{{{said}}}"))
