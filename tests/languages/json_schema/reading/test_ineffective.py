"""Misspelt keywords are reported with their place; effective keywords never are."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dotllm.compilation import Kind, Specification
from dotllm.compilation.spec_warnings import keywords
from dotllm.errors import InvalidSpecError, SpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.reading.dialect import Dialect, detect
from dotllm.languages.json_schema.reading.ineffective import ineffective_keywords
from dotllm.languages.json_schema.reading.meta_schema import check
from dotllm.languages.json_schema.reading.subschemas import HOLDING
from tests.grammar.reference import accepts

CASES: list[tuple[dict[str, Any], list[tuple[str, str]]]] = [
    ({"type": "string", "maxlength": 5}, [("/maxlength", "did you mean \"maxLength\"?")]),
    ({"requierd": ["name"]}, [("/requierd", "did you mean \"required\"?")]),
    ({"properties": {"a/b": {"min_length": 1}}}, [("/properties/a~1b/min_length", "did you mean \"minLength\"?")]),
    ({"anyOf": [{"nullable": True}, {"items": [{"pattren": "x"}]}]},
     [("/anyOf/0/nullable", "and there is none"), ("/anyOf/1/items/0/pattren", "did you mean \"pattern\"?")]),
    ({"type": "string", "format": "Date-Time"}, [("/format", "did you mean \"date-time\"?")]),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "prefixItems": [True]}, [("/prefixItems", "draft-07")]),
    ({"$defs": {"x": {"zzz": 1}}}, [("/$defs/x/zzz", "not a keyword")]),
    ({"properties": {"requierd": {"type": "string"}}}, []),  # a name, not a keyword
    ({"enum": [{"requierd": 1}], "default": {"maxlength": 2}, "const": {"x": {"y": 1}}}, []),  # values
    ({"x-order": 1, "title": "t", "$comment": "c", "deprecated": True, "contentEncoding": "quoted-printable"}, []),
    ({"type": "array", "maxLength": 3}, [("/maxLength", "has no effect on type array")]),
    ({"type": "string", "minimum": 1, "minItems": 1, "minProperties": 1},
     [("/minimum", "type string"), ("/minItems", "type string"), ("/minProperties", "type string")]),
    ({"type": ["integer", "null"], "minLength": 1, "maximum": 5}, [("/minLength", "type integer or null")]),
    ({"enum": ["a", "b"], "minimum": 1, "maxLength": 1}, [("/minimum", "type string")]),
    ({"const": 5, "format": "date"}, [("/format", "'format' applies to values of type string")]),
    ({"type": "string", "contentEncoding": "base64"}, [("/contentEncoding", "write \"format\": \"base64\"")]),
    ({"type": "string", "contentEncoding": "base64", "format": "base64", "pattern": "^.{8}$"}, []),
    ({"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}, []),
    ({"type": "string", "contentMediaType": "image/png"}, []),
    ({"type": "string", "contentMediaType": "application/json"}, [("/contentMediaType", "is not checked")]),
    ({"type": "string", "contentMediaType": "application/json", "contentSchema": {"typ": 1}},
     [("/contentSchema", "is not checked"), ("/contentSchema/typ", "did you mean \"type\"")]),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "contentEncoding": "base64"}, []),
    ({"type": "string", "format": "starts_with", "pattern": "^ab.*"}, []),
    ({"type": "string", "format": "cuid", "pattern": "^[cC][0-9a-z]{6,}$"}, []),
    ({"type": "string", "format": "ends_with", "allOf": [{"pattern": "^<.*"}, {"pattern": ".*>$"}]}, []),
    ({"type": "string", "format": "cuid"}, [("/format", "write its pattern")]),
    ({"type": "string", "format": "starts_with"}, [("/format", "not known")]),
    ({"type": "string", "format": "jwt", "pattern": "^x"}, [("/format", "not enforced")]),
    ({"type": "string", "format": "multi-host-uri"}, [("/format", "write a pattern")]),
    ({"type": "string", "format": "byte"}, [("/format", "write \"format\": \"base64\"")]),
    ({"type": "string", "format": "byte", "contentEncoding": "base64"}, [("/format", "write \"format\": \"base64\"")]),
    ({"type": "string", "format": "decimal"}, [("/format", "write a pattern")]),
    ({"type": "string", "format": "decimal", "pattern": "^[0-9]+$"}, []),
    ({"type": "integer", "format": "int32"}, [("/format", "write \"minimum\": -2147483648")]),
    ({"type": "string", "format": "int32"}, [("/format", "not known and asserts nothing")]),
    ({"anyOf": [{"type": "string"}, {"type": "array"}], "minLength": 1}, []),  # some values are strings
    ({"then": {}, "minContains": 1}, [("/then", "without 'if'"), ("/minContains", "without 'contains'")]),
    ({"if": {}}, [("/if", "without 'then' or 'else'")]),
    ({"exclusiveMaximum": True, "items": {}, "additionalItems": False},
     [("/exclusiveMaximum", "without 'maximum'"), ("/additionalItems", "list of schemas")]),
    ({"prefixItems": [{}], "items": [{}], "additionalItems": False}, []),
    ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "maxLength": 3, "title": "t",
      "definitions": {"a": {"type": "string"}}}, [("/maxLength", "next to $ref")]),
    ({"type": "string", "nullable": True}, []),
    ({"type": "string", "nullable": True, "enum": ["a"]}, [("/nullable", "must list null")]),
    ({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string", "nullable": True}, [("/nullable", "OpenAPI")]),
    ({"$ref": "/$defs/a", "$defs": {"a": {}}}, [("/$ref", "is read as '#/$defs/a'")]),
    ({"$id": "https://example.org/x", "$defs": {"A": {"$ref": "/$defs/B"}, "B": {}}, "type": "string"}, []),
    ({"$defs": {"A": {"$ref": "/$defs/none"}}, "type": "string"}, []),
    ({"dependencies": {"a": ["b"], "c": {"minimun": 1}}}, [("/dependencies/c/minimun", "did you mean \"minimum\"?")]),
    ({"type": "string", "description": ["a"], "title": None},
     [("/description", "must be a string, and is ignored"), ("/title", "and is ignored; leave it out")]),
    ({"properties": {"a": {"$ref": "#", "examples": "x"}, "b": {"type": "null", "deprecated": "true"}, "c": {"readOnly": 3}}},
     [("/properties/a/examples", "write a list: [\"x\"]"), ("/properties/b/deprecated", "write true without quotes"),
      ("/properties/c/readOnly", "must be a boolean")]),
    ({"$schema": "http://json-schema.org/draft-04/schema#", "type": "string", "examples": 3, "$comment": 1, "title": 1},
     [("/title", "must be a string")]),  # the others are unknown there, and may be anything
    ({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/a", "description": [],
      "definitions": {"a": {"contentEncoding": 1}}},
     [("/description", "must be a string"), ("/definitions/a/contentEncoding", "must be a string")]),
    ({"allOf": [{"const": {"title": 3}}, {"description": "a"}], "default": {"title": 3}}, []),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "expected"), CASES)
def test_cases(schema: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    found = list(ineffective_keywords(schema))
    assert [warning.pointer for warning in found] == [pointer for pointer, _ in expected]
    assert all(part in warning.message for warning, (_, part) in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    "keyword",
    ["$default", "_format", "_uniqueItems", "_id", "@type", "$deprecated", "propertyOrder", "form", "defaultValue", "typeof",
     "uniqueness", "content-type", "requiredWhen", "constraints", "request", "x" * 100],
)  # fmt: skip
def test_a_keyword_of_a_tool_is_not_taken_for_a_misspelling(keyword: str) -> None:
    """Of 1,288 suggestions for the schemas of MaskBench and of some packages, 1,097 were for such keywords."""
    (warning,) = ineffective_keywords({"type": "string", keyword: 1})
    assert warning.message == f"{keyword!r} is not a keyword of JSON Schema"


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [("tpye", "type"), ("enmu", "enum"), ("ref", "$ref"), ("comment", "$comment"), ("onOf", "oneOf"), ("item", "items"),
     ("read_only", "readOnly"), ("additonalProperties", "additionalProperties"), ("required:", "required"), ("$schem", "$schema")],
)  # fmt: skip
def test_a_slip_of_the_pen_is_told_what_is_meant(keyword: str, meant: str) -> None:
    found = [warning.message for warning in ineffective_keywords({"type": "string", keyword: 1})]
    assert found == [f'{keyword!r} is not a keyword of JSON Schema; did you mean "{meant}"?']


def test_the_official_suite_uses_no_unknown_keyword(shared_data: Path | None) -> None:
    """An oracle for the list of keywords, except files about unknown keywords and remote or invented vocabularies."""
    if shared_data is None:
        pytest.skip("the suite is not at hand")
    files = sorted((shared_data / "json-schema-test-suite/tests/draft2020-12").glob("*.json"))
    seen = 0
    for file in files:
        if file.stem in ("unknownKeyword", "vocabulary", "format", "ref", "anchor", "id", "not", "enum", "const"):
            continue
        for group in json.loads(file.read_text()):
            seen += 1
            wrong = [warning for warning in ineffective_keywords(group["schema"]) if "not a keyword" in warning.message]
            assert not wrong, f"{file.name}: {group['description']}"
    assert seen > 200


def _is_clear(schema: Any) -> bool:
    try:
        return check(schema, detect(schema, Dialect.DRAFT2020))
    except SpecError:  # refused, so its warnings do not matter
        return False


def test_what_the_check_calls_clear_has_no_warnings(shared_data: Path | None) -> None:
    """Under each draft and each keyword that holds schemas. The search for warnings skips clear schemas."""
    for dialect in Dialect:
        for schema, _ in CASES:
            for part in (schema, {name: value for name, value in schema.items() if name != "$schema"}):
                held = [{keyword: value} for keyword in sorted(HOLDING) for value in (part, [part], {"a": part})]
                for whole in ({**part, "$schema": dialect.uri}, *({**value, "$schema": dialect.uri} for value in held)):
                    assert not _is_clear(whole) or not [*ineffective_keywords(whole)], whole
    if shared_data is None:
        pytest.skip("no MaskBench")
    with gzip.open(shared_data / "maskbench-open.jsonl.gz", "rt") as file:
        schemas = [json.loads(line)["schema"] for line in file]
    clear = [schema for schema in schemas if _is_clear(schema)]
    assert len(clear) > len(schemas) / 3
    assert not [schema for schema in clear if [*ineffective_keywords(schema)]]


def test_deep_and_wide_schemas_are_walked_in_a_moment(shared_data: Path | None) -> None:
    deep: dict[str, Any] = {}
    for _ in range(50_000):
        deep = {"not": deep}
    assert not list(ineffective_keywords(deep))
    if shared_data is not None:
        with gzip.open(shared_data / "maskbench-open.jsonl.gz", "rt") as lines:
            for _, line in zip(range(300), lines, strict=False):
                list(ineffective_keywords(json.loads(line)["schema"]))


NO_SCHEMAS: list[tuple[dict[str, Any], str]] = [
    ({"name": "string", "age": "number"}, '"name": {"type": "string"}'),
    ({"age": "number", "id": 5, "title": "x"}, '"age": {"type": "number"}'),
    ({"name": "x", "strict": True, "schema": {"type": "object"}}, "what is under /schema"),
    ({"name": "x", "description": "d", "schema": {"properties": {}}}, "what is under /schema"),
    ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}, "under /json_schema/schema"),
    ({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, "under /function/parameters"),
    ({"name": "f", "description": "d", "input_schema": {"type": "object"}}, "under /input_schema"),
    ({"title": "T", "fields": ["a"]}, '"fields"'),
]


@pytest.mark.parametrize(("schema", "remedy"), NO_SCHEMAS)
def test_examples_and_wrappers_are_refused(schema: dict[str, Any], remedy: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema)
    assert remedy in refusal.value.help


@pytest.mark.parametrize("nullable", [True, False])
def test_nullable_of_openapi(nullable: bool) -> None:
    """It adds null to the type, not to enum (OpenAPI 3.0.3), and means nothing in a dialect of JSON Schema."""
    extra: dict[str, Any] = {"nullable": nullable}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    for schema, text, allowed in [
        ({"type": "string"}, "null", nullable), ({"type": "string"}, '"a"', True), ({"type": "string"}, "1", False),
        ({"type": "integer", "minimum": 5}, "null", nullable), ({"type": "integer", "minimum": 5}, "4", False),
        ({"type": "string", "enum": ["a"]}, "null", False), ({"type": "string", "enum": ["a", None]}, "null", nullable),
        ({"type": "object", "properties": {}}, "null", nullable), ({"type": "array"}, "null", nullable),
        ({"type": "string"} | draft, "null", False), ({"enum": [1]}, "null", False), ({"type": ["string", "null"]}, "null", True),
    ]:  # fmt: skip
        assert accepts(json_schema_to_grammar({**schema, **extra}), text.encode()) is allowed, (schema, text)
        inside = {"type": "array", "items": {**schema, **extra}}
        if "$schema" not in schema:
            assert accepts(json_schema_to_grammar(inside), f"[{text}]".encode()) is allowed, (schema, text)


def test_warnings_of_specifications() -> None:
    tag = {"type": "structural_tag", "format": {"type": "sequence", "elements": [
        {"type": "const_string", "value": "x"}, {"type": "json_schema", "json_schema": {"type": "array", "maxLength": 1}},
    ]}}  # fmt: skip
    found = [*keywords(Specification.from_value(Kind.STRUCTURAL_TAG, tag))]
    assert [warning.pointer for warning in found] == ["/format/elements/1/json_schema/maxLength"]
    assert [one.pointer for one in keywords(Specification.from_value(Kind.JSON_SCHEMA, '{"requierd": []}'))] == [
        "/requierd"
    ]
    assert [*keywords(Specification.from_value(Kind.JSON_SCHEMA, "{"))] == []
    assert [*keywords(Specification.from_value(Kind.REGEX, "a"))] == []


@pytest.mark.parametrize(
    "fields, written",
    [
        ({"name": {"type": "string"}, "age": {"type": "integer"}}, '"name": {"type": "string"}'),
        ({"title": {"type": "string"}, "age": {"type": "integer"}}, '"title": {"type": "string"}'),
        ({"age": {"type": "integer"}}, '"age": {"type": "integer"}'),
        ({"schema": {"type": "object", "properties": {"a": {}}}}, "pass what is under /schema"),
    ],
)
def test_a_map_of_fields_is_told_from_a_wrapper(fields: dict[str, Any], written: str) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(fields)
    assert written in refusal.value.help
