"""Closed objects, the default and ``additional_properties=False``: they have no keys that the schema does not name, and
nothing that it forbids."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dotllm import Index
from dotllm.errors import SpecError
from tests.cases import few
from tests.languages.json_schema.random_schemas import random_document, random_schema
from tests.languages.json_schema.verdicts import Acceptor, accepts, byte_vocabulary

INTEGER = {"type": "integer"}
KIND = {"properties": {"kind": {"const": "a"}}, "required": ["kind"]}
NAMED_A = {"type": "object", "properties": {"a": INTEGER}}
NAMED_B = {"type": "object", "properties": {"b": INTEGER}}
OPEN = {"type": "object"}


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        # conditions and exclusions mean what they say
        (
            {"properties": {"kind": {"enum": ["a", "b"]}, "v": INTEGER, "w": INTEGER}, "if": KIND, "then": {"required": ["v"]}},
            ['{"kind":"a","v":1}', '{"kind":"a","v":1,"w":1}', '{"kind":"b","w":1}'],
            ['{"kind":"a","w":1}', '{"kind":"b","z":1}'],
        ),
        (
            {"properties": {"x": INTEGER, "y": INTEGER}, "not": {"properties": {"x": {"const": 1}}, "required": ["x"]}},
            ['{"x":2,"y":2}', '{"y":2}'],
            ['{"x":1,"y":2}', '{"x":1}', '{"x":2,"z":2}'],
        ),
        ({"oneOf": [{**NAMED_A, "required": ["a"]}, NAMED_B]}, ['{"b":1}', "{}"], ['{"a":1}', '{"a":1,"b":1}', '{"c":1}']),
        ({"oneOf": [{**NAMED_A, "required": ["a"]}, {**NAMED_B, "required": ["b"]}]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}', '{"a":1,"c":1}']),
        (
            {"properties": {"x": {"properties": {"y": INTEGER}}}, "not": {"properties": {"x": {"properties": {"y": {"const": 1}}, "required": ["y"]}}, "required": ["x"]}},
            ['{"x":{"y":2}}', '{"x":{}}'],
            ['{"x":{"y":1}}', '{"x":{"y":2,"z":1}}'],
        ),
        # schemas that must hold together name keys together, at any depth
        ({"allOf": [NAMED_A, NAMED_B]}, ['{"a":1,"b":1}', "{}"], ['{"a":1,"c":1}', '{"a":"x"}']),
        ({"$ref": "#/$defs/base", **NAMED_B, "$defs": {"base": NAMED_A}}, ['{"a":1,"b":1}'], ['{"a":1,"c":1}']),
        (
            {"allOf": [{"properties": {"x": NAMED_A}}, {"properties": {"x": NAMED_B}}]},
            ['{"x":{"a":1,"b":1}}'],
            ['{"x":{"a":1,"c":1}}', '{"y":1}'],
        ),
        ({"allOf": [NAMED_A, {"patternProperties": {"^b": INTEGER}}]}, ['{"a":1,"bb":1}'], ['{"a":1,"c":1}', '{"bb":"x"}']),
        (
            {"allOf": [{"properties": {}, "patternProperties": {"^a": INTEGER}}, {"patternProperties": {"^b": INTEGER}}]},
            ['{"aa":1,"bb":1}', '{"b":1}', "{}"],
            ['{"c":1}', '{"aa":"x"}', '{"bb":"x"}'],
        ),
        ({**NAMED_A, "if": {"required": ["a"]}, "then": NAMED_B}, ['{"a":1,"b":1}', "{}"], ['{"b":1}']),
        ({**NAMED_A, "dependentSchemas": {"a": NAMED_B}}, ['{"a":1,"b":1}'], ['{"b":1}', '{"a":1,"c":1}']),
        (
            {"properties": {k: {} for k in "abcdef"}, "dependentSchemas": {k: {"properties": {f"x{k}": {}}} for k in "abcdef"}},
            ['{"a":1,"xa":1}', '{"a":1,"xa":1,"b":1,"xb":1}'],
            ['{"a":1,"xb":1}', '{"xa":1}'],
        ),
        # only one of the alternatives names the keys
        ({"anyOf": [NAMED_A, NAMED_B]}, ['{"a":1}', '{"b":1}'], ['{"a":1,"b":1}', '{"c":1}']),
        # schemas that speak of other keys, or of no keys at all, are taken at their word
        ({**NAMED_A, "additionalProperties": True}, ['{"a":1,"c":1}'], []),
        ({**NAMED_A, "unevaluatedProperties": True}, ['{"a":1,"c":1}'], []),
        ({**NAMED_A, "unevaluatedProperties": {"type": "null"}}, ['{"a":1,"c":null}'], ['{"a":1,"c":1}']),
        ({"allOf": [NAMED_A, {"additionalProperties": INTEGER}]}, ['{"a":1,"c":1}'], ['{"c":"x"}']),
        ({**NAMED_A, "enum": [{"a": 1, "c": 1}, {"a": 2}]}, ['{"a":1,"c":1}', '{"a":2}'], ['{"a":1}']),
        (OPEN, ['{"c":1}'], []),
        ({"properties": {"x": OPEN}}, ['{"x":{"c":1}}'], ['{"c":1}']),
        ({"properties": {}}, ["{}", "1"], ['{"c":1}']),
        ({"properties": {"x": True}}, ['{"x":1}'], ['{"c":1}']),
        # only the values that are left are counted and compared
        ({"type": "array", "items": {"properties": {"a": {"type": "boolean"}}, "type": "object"}, "uniqueItems": True, "minItems": 2}, ['[{},{"a":true}]'], ['[{},{}]', '[{},{"c":1}]']),
        ({"minProperties": 2, "properties": {"a": {}, "b": {}}}, ['{"a":1,"b":1}'], ['{"a":1,"c":1}']),
    ],
    ids=lambda value: json.dumps(value)[:70],
)  # fmt: skip
def test_meaning(schema: Any, allowed: list[str], refused: list[str]) -> None:
    by_default, strictly, stated = (
        Acceptor(schema, order="any", additional_properties=o) for o in ("closed", False, "open")
    )
    for closed in (by_default, strictly):
        assert [text for text in allowed if not closed.text(text)] == []
        assert [text for text in refused if closed.text(text)] == []
    assert all(stated.text(text) for text in allowed)


@pytest.mark.parametrize(
    ("schema", "allowed", "refused"),
    [
        # maps stay maps
        ({"type": "object"}, ['{"c":1}'], []),
        ({"patternProperties": {"^x": INTEGER}}, ['{"c":"x","x1":1}'], ['{"x1":"x"}']),
        ({"propertyNames": {"pattern": "^x"}}, ['{"x":1}'], ['{"c":1}']),
        ({"required": ["a"], "properties": {"a": OPEN}}, ['{"a":{"c":1}}'], ['{"a":{},"c":1}']),
        # required keys
        ({**NAMED_A, "required": ["b"]}, ['{"b":1}', '{"a":1,"b":"x"}'], ['{"b":1,"c":1}', '{"a":1}']),
        ({**NAMED_A, "dependentRequired": {"a": ["b"], "c": ["d"]}}, ['{"a":1,"b":1}', "{}"], ['{"a":1}', '{"d":1}']),
        ({**NAMED_A, "dependentRequired": {"a": ["b"], "b": ["c"]}}, ['{"a":1,"b":1,"c":1}'], ['{"a":1,"b":1}']),
        ({**NAMED_A, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, ['{"a":1}', '{"b":1}'], ["{}", '{"a":1,"c":1}']),
        ({**NAMED_A, "anyOf": [{"required": ["b"]}, {"required": ["c"]}]}, ['{"b":1}', '{"c":1}'], ["{}", '{"a":1}', '{"b":1,"d":1}']),
        ({**NAMED_A, "dependentSchemas": {"a": {"required": ["b"]}}}, ['{"a":1,"b":1}'], ['{"a":1}', '{"c":1}']),
        ({**NAMED_A, "not": {"properties": {"b": {"const": 1}}}}, ['{"b":2}'], ['{"b":1}', "{}", '{"b":2,"c":1}']),
        ({"oneOf": [NAMED_A, NAMED_B]}, ['{"b":"x"}', '{"a":"x"}'], ["{}", '{"a":1}', '{"a":1,"c":1}']),
        ({"oneOf": [{"properties": {"a": INTEGER, "b": INTEGER}}, {"properties": {"a": INTEGER, "c": INTEGER}}]}, ['{"a":1,"c":"x"}'], ['{"a":1}', '{"c":"x","d":1}']),
        # counts
        ({**NAMED_A, "minProperties": 1}, ['{"a":1}'], ["{}", '{"b":1}']),
        ({**NAMED_A, "minProperties": 2}, ['{"a":1,"b":1}', '{"b":1,"c":1}'], ['{"a":1}', '{"a":"x","b":1}']),
        ({**NAMED_A, "minProperties": 2, "required": ["b"]}, ['{"a":1,"b":1}'], ['{"b":1,"c":1}']),
        ({**NAMED_A, "not": {"maxProperties": 1}}, ['{"a":1,"b":1}'], ['{"a":1}']),
        ({"properties": {"a": False}, "minProperties": 1}, ['{"b":1}'], ["{}", '{"a":1}']),
        ({**NAMED_A, "not": {"additionalProperties": INTEGER}}, ['{"b":"x"}'], ['{"a":1}', '{"b":1}']),
        ({**NAMED_A, "patternProperties": {"^b$": INTEGER}, "minProperties": 3}, ['{"a":1,"b":1,"c":1}'], ['{"a":1,"b":1}']),
        # more objects of a kind are needed than there are closed ones
        ({"type": "array", "uniqueItems": True, "minItems": 4, "items": {"type": "object", "properties": {"a": {"type": "boolean"}}}}, ['[{},{"a":true},{"a":false},{"b":1}]'], ['[{},{"a":true},{"a":false}]']),
        # names of keys
        ({**NAMED_A, "propertyNames": {"pattern": "^x"}}, ["{}"], ['{"a":1}', '{"x":1}']),
        ({**NAMED_A, "propertyNames": {"pattern": "^x"}, "minProperties": 1}, ['{"x":1}'], ['{"a":1}', "{}"]),
        # recursion
        (
            {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"v": INTEGER, "next": {"$ref": "#/$defs/n"}}}}},
            ['{"v":1,"next":{"v":2}}'],
            ['{"v":1,"next":{"w":2}}', '{"w":1}'],
        ),
        (
            {"$id": "https://x.test/s", "$dynamicAnchor": "n", "type": "object", "properties": {"kids": {"type": "array", "items": {"$dynamicRef": "#n"}}}},
            ['{"kids":[{},{"kids":[]}]}'],
            ['{"kids":[{"w":1}]}'],
        ),
    ],
    ids=lambda value: json.dumps(value)[:70],
)  # fmt: skip
def test_what_is_needed_is_kept(schema: Any, allowed: list[str], refused: list[str]) -> None:
    closed, stated = (Acceptor(schema, order="any", additional_properties=option) for option in ("closed", "open"))
    assert [text for text in allowed if not closed.text(text)] == []
    assert [text for text in refused if closed.text(text)] == []
    assert all(stated.text(text) for text in allowed)


def test_patterns_alone_close_only_strictly() -> None:
    schema = {"allOf": [{"patternProperties": {"^a": INTEGER}}, {"patternProperties": {"^b": INTEGER}}]}
    assert accepts(schema, {"c": 1}, additional_properties="closed")
    assert not accepts(schema, {"c": 1}, additional_properties=False)
    assert accepts(schema, {"aa": 1, "bb": 1}, additional_properties=False)


def test_the_default_is_closed() -> None:
    guide = Index.from_json_schema(NAMED_A, byte_vocabulary()).guide()
    assert all(guide.advance(byte) for byte in b'{"')
    assert [*guide.allowed_tokens()] == [ord("a")]


def test_an_unknown_value() -> None:
    with pytest.raises(SpecError, match="additional_properties must be one of"):
        accepts(NAMED_A, {}, additional_properties=None)


def test_a_key_that_is_required_and_not_named() -> None:
    with pytest.raises(SpecError, match="nothing satisfies"):
        accepts({**NAMED_A, "required": ["b"]}, {"b": 1}, additional_properties=False)


@pytest.mark.parametrize("option", ["closed", False])
@pytest.mark.parametrize("block", range(few(6)))
def test_nothing_is_allowed_that_is_not_without(block: int, option: Any) -> None:
    """Also, if there is a document with open objects, there is one with closed objects."""
    compared = allowed = 0
    for number in range(40):
        random = Random(f"closed/{block}/{number}")
        schema = random_schema(random, random.choice([1, 2, 2, 3]))
        order = random.choice(["any", "declared"])
        try:
            Draft202012Validator.check_schema(schema)
            judge = Draft202012Validator(schema)
            documents = [random_document(random) for _ in range(40)]
            valid = [judge.is_valid(document) for document in documents]
            opened = Acceptor(schema, order=order)
        except (SchemaError, SpecError, RecursionError):
            continue
        try:
            closed = Acceptor(schema, order=order, additional_properties=option)
        except SpecError:
            assert option is False, json.dumps(schema)
            continue
        compared += 1
        for document, is_valid in zip(documents, valid, strict=True):
            if closed.value(document):
                allowed += isinstance(document, dict)
                assert is_valid and opened.value(document), (json.dumps(schema), json.dumps(document))
    assert compared > 12
    assert allowed


def test_no_more_keys_than_are_named_by_what_holds() -> None:
    """With objects, allOf and if alone, the standard says the same with ``unevaluatedProperties``."""
    compared = allowed = 0
    for number in range(120):
        random = Random(f"named/{number}")
        schema = _conjunction(random, 2)
        try:
            closed = Acceptor(schema, order="any", additional_properties=False)
            by_default = Acceptor(schema, order="any", additional_properties="closed")
        except SpecError as error:
            assert "nothing satisfies" in error.message
            continue
        judge = Draft202012Validator({**schema, "unevaluatedProperties": False})
        for _ in range(40):
            document = {key: random.choice([1, "x"]) for key in random.sample("abcdz", random.randint(0, 4))}
            compared += 1
            allowed += judge.is_valid(document)
            assert closed.value(document) == judge.is_valid(document), (json.dumps(schema), json.dumps(document))
            assert by_default.value(document) >= judge.is_valid(document), (json.dumps(schema), json.dumps(document))
    assert 300 < allowed < compared - 300


def _conjunction(random: Random, depth: int) -> dict[str, Any]:
    values: list[Any] = [True, {"type": "integer"}, {"type": "string"}]
    out: dict[str, Any] = {"properties": {key: random.choice(values) for key in random.sample("abcd", 2)}}
    if random.random() < 0.2:
        out["required"] = random.sample([*out["properties"]], 1)
    if depth:
        pick = random.random()
        if pick < 0.5:
            out["allOf"] = [_conjunction(random, depth - 1) for _ in range(2)]
        elif pick < 0.8:
            out["if"] = {"required": [random.choice("abcd")]}
            out["then"], out["else"] = _conjunction(random, depth - 1), _conjunction(random, depth - 1)
        else:
            out["not"] = {**_conjunction(random, 0), "required": [random.choice("abcd")]}
    return out
