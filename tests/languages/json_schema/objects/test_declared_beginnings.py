"""No text spells a declared key where it cannot be written: additional keys never begin with a declared key."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm import Guide
from tests.cases import few
from tests.languages.json_schema.verdicts import Acceptor

TITLE = {"type": "string"}
OPTIONAL_FIRST = {"type": "object", "properties": {"summary": {}, "title": TITLE}, "required": ["title"]}
NAMES = ["a", "ab", "b", "ba", "x1", "é", "éa", "a\n", 'q"q', "", "😀"]
OTHERS = ["c", "ac", "x", "xb", "bb", "aba", "é1", "ü"]


@pytest.mark.parametrize("order", ["declared", "any"])
@pytest.mark.parametrize(
    "opening",
    [{"additionalProperties": True}, {"additionalProperties": {"type": "integer"}}, {"patternProperties": {"^s": {}}}, {}],
    ids=json.dumps,
)  # fmt: skip
def test_the_key_that_was_passed(order: str, opening: dict[str, Any]) -> None:
    schema = {**OPTIONAL_FIRST, **opening}
    documents = Acceptor(schema, order=order)
    assert documents.prefix('{"title":"x","summar')
    assert documents.prefix('{"title":"x","summary') == documents.prefix('{"title":"x","summary"') == (order == "any")
    # a key that is there already
    assert documents.prefix('{"title":"x","titl')
    assert documents.prefix('{"title":"x","title') == (order == "any")
    assert not documents.prefix(r'{"title":"x","\u0074itle') and not documents.prefix(r'{"title":"x","\u0073ummary')
    # other keys are as before
    assert documents.text('{"title":"x","sum":1}') and documents.text('{"summary":1,"title":"x","sun":1}')


def test_deeper_in_a_document() -> None:
    inner = {**OPTIONAL_FIRST, "additionalProperties": True}
    documents = Acceptor({"type": "array", "items": {"type": "object", "properties": {"x": inner}}})
    assert documents.prefix('[{"x":{"title":"","summar')
    assert not documents.prefix('[{"x":{"title":"","summary')


def test_what_is_asked_for_by_a_pattern() -> None:
    """The keys of a pattern are allowed although all of them begin with a declared key; if a pattern also has other
    keys, only those are left."""
    extensions = Acceptor({"properties": {"x": {}}, "patternProperties": {"^x-": {"type": "integer"}}, "type": "object", "additionalProperties": False})  # fmt: skip
    assert extensions.text('{"x":1,"x-a":2}')
    lower_case = Acceptor({"properties": {"x": {}}, "patternProperties": {"^[a-z-]+$": {"type": "integer"}}, "type": "object", "additionalProperties": False})  # fmt: skip
    assert lower_case.text('{"x":1,"y-a":2}') and not lower_case.prefix('{"x":1,"x')


def test_what_is_not_declared_may_begin_a_key() -> None:
    for schema in (
        {"type": "object", "properties": {"b": {}}, "not": {"required": ["a"]}},
        {"type": "object", "properties": {"b": {}}, "propertyNames": {"not": {"const": "a"}}},
        {"type": "object", "properties": {"b": {}}, "required": ["a"]},
    ):
        text = '{"b":1,"a":1,"ab":1}' if "required" in schema else '{"b":1,"ab":1}'
        assert Acceptor(schema).text(text), schema


@pytest.mark.parametrize("block", range(few(8)))
def test_by_brute_force(block: int) -> None:
    """In declared order, every prefix that spells a declared key can be closed, or only declared keys continue it."""
    spelt = closed = 0
    for number in range(12):
        random = Random(f"{block}/{number}")
        names = random.sample(NAMES, random.randint(1, 5))
        schema = _schema(random, names)
        documents = Acceptor(schema, any_whitespace=False)
        for _ in range(12):
            members = random.sample(names, random.randint(0, len(names)))
            members = (sorted(members, key=names.index) if random.random() < 0.7 else members) + random.sample(
                OTHERS, random.randint(0, 2)
            )
            begun = "{" + "".join(f"{json.dumps(name, ensure_ascii=False)}:1," for name in members)
            guide = documents.index.guide()
            if not all(guide.advance(byte) for byte in begun.encode()):
                continue
            assert guide.advance(ord('"'))
            for name in names:
                at, text = guide.fork(), json.dumps(name, ensure_ascii=False)[1:-1]
                if not all(at.advance(byte) for byte in text.encode()):
                    continue
                spelt += 1
                further = {
                    longer[len(text.encode())]
                    for longer in _spelt(names)
                    if longer.startswith(text.encode()) and len(longer) > len(text.encode())
                }
                allowed = _bytes(at)
                closed += ord('"') in allowed
                # (every name begins with the empty name)
                assert ord('"') in allowed or allowed <= further or not name, (schema, begun, name)
    assert closed > 20
    assert spelt >= closed


@pytest.mark.parametrize("block", range(few(4)))
def test_verdicts(block: int) -> None:
    """In any order, the verdicts are those of `jsonschema`; in declared order, a valid document is rejected only for
    its order or for such a key."""
    lost = kept = 0
    for number in range(15):
        random = Random(f"verdicts/{block}/{number}")
        names = random.sample(NAMES, random.randint(1, 4))
        schema = _schema(random, names)
        judge, declared, documents = Draft202012Validator(schema), Acceptor(schema), Acceptor(schema, order="any")
        for _ in range(40):
            keys = random.sample([*names, *OTHERS], random.randint(0, 5))
            document = {key: random.choice([1, "x"]) for key in keys}
            is_valid = judge.is_valid(document)
            assert documents.value(document) == is_valid, (schema, document)
            says = declared.value(document)
            begins = any(key.startswith(name) for key in keys if key not in names for name in names if name)
            placed = sorted((key for key in keys if key in names), key=names.index)
            in_order = keys[: len(placed)] == placed
            assert says <= is_valid, (schema, document)
            assert says or not is_valid or begins or not in_order, (schema, document)
            lost += is_valid and not says
            kept += says
    assert kept > 50
    assert lost > 5


def _schema(random: Random, names: list[str]) -> dict[str, Any]:
    values: list[Any] = [{}, {"type": "integer"}, {"type": ["integer", "string"]}]
    schema: dict[str, Any] = {"type": "object", "properties": {name: random.choice(values) for name in names}}
    schema["required"] = [name for name in names if random.random() < 0.3]
    pick = random.random()
    if pick < 0.5:
        schema["additionalProperties"] = random.choice([True, {"type": "integer"}])
    elif pick < 0.7:
        schema["patternProperties"] = {random.choice(["^[^z]", "b", ".+"]): {"type": "integer"}}
        schema["additionalProperties"] = random.choice([True, False])
    if random.random() < 0.2:
        schema["minProperties"] = random.randint(1, 3)
    return schema


def _spelt(names: list[str]) -> list[bytes]:
    return [json.dumps(name, ensure_ascii=False)[1:-1].encode() for name in names]


def _bytes(guide: Guide) -> set[int]:
    return {*guide.allowed_tokens()}
