"""Optional parts that nothing satisfies lead to warnings with the reason; `jsonschema` judges random documents."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

from dotllm.compilation import Kind, Specification, spec_warnings
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.vanishing import vanishing
from tests.cases import few
from tests.effort import at_most
from tests.languages.json_schema.random_schemas import random_document, random_schema

_S = {"type": "string"}
_NEVER = {"type": "integer", "minimum": 5, "maximum": 3}
WARNED: list[tuple[dict[str, Any], list[str], str]] = [
    ({"properties": {"a": _NEVER, "b": _S}}, ["/properties/a"], '"minimum": 5 and "maximum": 3 together'),
    ({"properties": {"a": {"enum": []}}}, ["/properties/a"], "no document has 'a'"),
    ({"properties": {"a": {"type": "string", "const": 5}}}, ["/properties/a"], '"type": "string" and "const": 5'),
    ({"properties": {"a": {"allOf": [_S, {"type": "null"}]}}}, ["/properties/a"], "exclude each other"),
    ({"properties": {"a": {"oneOf": [_S, _S]}}}, ["/properties/a"], "branches 0 and 1 are equivalent"),
    ({"properties": {"a": _S}, "allOf": [{"properties": {"a": {"type": "null"}}}]}, ["/properties/a"], "other keywords of the object forbid it"),
    ({"properties": {"a": {"type": "object", "properties": {"b/c": _NEVER}, "required": ["b/c"]}}},
     ["/properties/a", "/properties/a/properties/b~1c"], "minimum"),
    ({"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1}}},
     ["/properties/a"], "a schema requires itself"),
    ({"type": "array", "items": {"properties": {"a": {"type": "array", "minItems": 3, "maxItems": 2}}}},
     ["/items/properties/a"], '"minItems": 3 and "maxItems": 2'),
    ({"anyOf": [_NEVER, _S]}, ["/anyOf/0"], "no document takes this branch of anyOf"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["/oneOf/0"], "also fits another branch; write anyOf"),
]  # fmt: skip
SILENT: list[Any] = [
    True,
    {"properties": {"a": False, "b": {"not": {}}, "c": {"not": {"type": ["string", "null"]}, "title": "none"}}},
    {"properties": {"a": {"$ref": "#"}}},
    {"properties": {"a": {"type": "array", "items": False}}},
    {"properties": {"k": {"enum": ["a", "b"]}, "x": _S}, "if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"x": False}}},
    {"oneOf": [{"properties": {"a": _S}, "required": ["a"]}, {"properties": {"b": _S}, "required": ["b"]}]},
    {"not": {"properties": {"a": _NEVER}}},
    {"type": "object", "properties": {"a": _NEVER}, "required": ["a"]},  # refused
    {"properties": {"a": 5}},  # refused
]  # fmt: skip


@pytest.mark.parametrize(("schema", "pointers", "message"), WARNED, ids=[json.dumps(row[0]) for row in WARNED])
def test_warned_of(schema: Any, pointers: list[str], message: str) -> None:
    found = [*vanishing(schema, Options())]
    assert [one.pointer for one in found] == pointers
    assert message in found[0].message
    specification = Specification.from_value(Kind.JSON_SCHEMA, schema)
    assert any(f"(at {pointers[0]})" in text for text in spec_warnings.texts(specification))


@pytest.mark.parametrize("schema", SILENT, ids=json.dumps)
def test_silent(schema: Any) -> None:
    assert [*vanishing(schema, Options())] == []


def test_within_a_structural_tag() -> None:
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": {"properties": {"a": _NEVER}}}}
    [text] = spec_warnings.texts(Specification.from_value(Kind.STRUCTURAL_TAG, tag))
    assert text.endswith("(at /format/json_schema/properties/a)")


def test_large_specifications_are_left_to_check() -> None:
    schema = {"description": "d" * spec_warnings.LARGEST, "properties": {"a": _NEVER}}
    specification = Specification.from_value(Kind.JSON_SCHEMA, schema)
    assert spec_warnings.texts(specification) == () and len([*spec_warnings.keywords(specification)]) == 1


def test_what_takes_long_is_left_to_check() -> None:
    """Each property is checked with all conditions on its object; the budget of a waiting answer ends the search."""
    part = {"properties": {f"p{i}": {"type": "string"} for i in range(32)}, "allOf": [{"minProperties": 16}]}
    schema = {"properties": {f"o{i}": part | {"title": str(i)} for i in range(20)} | {"a": _NEVER}}
    specification = Specification.from_value(Kind.JSON_SCHEMA, schema)
    with at_most(1.5):
        assert [*spec_warnings.keywords(specification, spec_warnings.LARGEST)] == []


def test_no_document_has_what_vanishes() -> None:
    chance, judged = Random(11), 0
    for _ in range(few(400)):
        schema = random_schema(chance)
        for found in vanishing(schema, Options(additional_properties="open")):
            *above, keyword, name = found.pointer.split("/")[1:]
            part: Any = schema
            for token in above:
                part = part[int(token)] if isinstance(part, list) else part[token]
            child = part[keyword][int(name)] if isinstance(part[keyword], list) else part[keyword][name]
            if "other keywords of the object forbid it" in found.message:
                asked: Any = {"allOf": [part], "type": "object", "required": [name]}
            elif "every value that fits it" in found.message:
                asked = {"allOf": [child, {"oneOf": part["oneOf"]}]}
            else:
                asked = child
            validator = jsonschema.Draft202012Validator(schema).evolve(schema=asked)
            assert not any(validator.is_valid(random_document(chance)) for _ in range(60)), found
            judged += 1
    assert judged > few(400) / 4
