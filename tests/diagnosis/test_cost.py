"""What an answer costs, where the cost grows, and advice."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm import Index
from dotllm.diagnosis.cost import advice, growth, is_unbounded, prefixes, shortest
from dotllm.diagnosis.why import byte_vocabulary

CLOSED = {"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "string", "maxLength": 3}}, "required": ["a"], "additionalProperties": False}  # fmt: skip


def test_the_shortest_answer() -> None:
    assert shortest(Index.from_json_schema(CLOSED, byte_vocabulary())) == (10, 9)
    assert shortest(Index.from_regex("a{30}|b{4}", byte_vocabulary())) == (5, 4)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda v: Index.from_json_schema(CLOSED, v), False),
        (lambda v: Index.from_json_schema({"type": "array", "items": CLOSED, "maxItems": 90}, v), False),
        (lambda v: Index.from_json_schema({"type": "array", "items": CLOSED}, v), True),
        (lambda v: Index.from_json_schema({"type": "string", "pattern": "^(ab|c){2,40}$"}, v), False),
        (lambda v: Index.from_json_schema({"type": "string"}, v), True),
        (lambda v: Index.from_json_schema(CLOSED, v, property_order="any"), False),
        (lambda v: Index.from_json_schema({"type": "object"}, v, property_order="any"), True),
        (lambda v: Index.from_regex("a{3,}", v), True),
        (lambda v: Index.from_regex("(a|bc){3,500}", v), False),
        (lambda v: Index.from_grammar('root ::= "(" root ")" | "x"\n', v), True),
        (lambda v: Index.from_grammar('root ::= a a\na ::= "(" b ")"\nb ::= "x"?\n', v), False),
    ],
)
def test_whether_there_is_a_longest_answer(make: Any, expected: bool) -> None:
    assert is_unbounded(make(byte_vocabulary())) is expected


def test_where_answers_grow() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a/b": {"type": "string"},
            "c": {"type": "array", "items": {"$ref": "#/$defs/t"}},
            "d": {"type": "string", "pattern": "^a{2,3}$"},
            "e": True,
        },
        "additionalProperties": False,
        "$defs": {"t": {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}, "additionalProperties": False}},
    }
    assert [tuple(place) for place in growth(schema, {})] == [
        ("/properties/a~1b", "a string without maxLength"),
        ("/properties/c", "an array without maxItems"),
        ("/$defs/t/properties/t", "refers to itself"),
        ("/properties/e", "any value"),
    ]


@pytest.mark.parametrize("name", ["integer", "number"])
@pytest.mark.parametrize("low", [{}, {"minimum": 0}, {"exclusiveMinimum": 0}], ids=str)
@pytest.mark.parametrize("high", [{}, {"maximum": 9}, {"exclusiveMaximum": 9}], ids=str)
def test_numbers_grow_if_they_may_have_any_digits(name: str, low: dict[str, Any], high: dict[str, Any]) -> None:
    schema = {"type": name, **low, **high}
    index = Index.from_json_schema(schema, byte_vocabulary(), number_digits="any")
    assert bool([*growth(schema, {"number_digits": "any"})]) == is_unbounded(index)
    assert not [*growth(schema)] and not is_unbounded(Index.from_json_schema(schema, byte_vocabulary()))


def test_objects_grow_where_they_are_open() -> None:
    listed, maps = {"type": "object", "properties": {"a": {"type": "null"}}}, {"type": "object", "patternProperties": {"^x": {"type": "null"}}}  # fmt: skip
    says_so = {**listed, "additionalProperties": {"type": "null"}}
    for options, open_ones in (
        ({}, [maps, says_so]),
        ({"additional_properties": "open"}, [listed, maps, says_so]),
        ({"additional_properties": False}, [says_so]),
    ):
        found = [one for one in (listed, maps, says_so) if [*growth(one, options)]]
        assert found == open_ones, options


def test_a_long_chain_of_references_ends_somewhere() -> None:
    """A long chain caused a RecursionError in `dotllm check`."""
    links = {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}, "required": ["a"]} for i in range(5000)}
    found = [
        place.pointer
        for place in growth({"$ref": "#/$defs/d0", "$defs": links | {"d5000": {}}}, {"additional_properties": "open"})
    ]
    assert found[0] == "/$defs/d0" and 50 < len(found) < 1000


def test_what_hurts_answers() -> None:
    schema = {"type": "object", "properties": {"answer": {"enum": ["new", "new york", "b"]}, "reasoning": {"type": "string"}}}  # fmt: skip
    assert next(piece.pointer for piece in advice(schema, {"any_whitespace": False})) != "", "closed by default"
    found = [*advice(schema, {"any_whitespace": False, "additional_properties": "open"})]
    assert [piece.pointer for piece in found] == ["", "/properties/reasoning", "/properties/answer/enum"]
    assert [piece.page.partition("#")[2] for piece in found] == [
        "compact-output-and-open-objects", "reasoning-first", "members-that-begin-others",
    ]  # fmt: skip
    assert not [*advice({**schema, "properties": {"reasoning": {}, "answer": {"enum": ["a", "b"]}}}, {})]
    assert not [*advice({**schema, "properties": {"answer": {}, "reasoning": {}}}, {"order": "any"})]
    assert [*prefixes("", ["yes", "yes, but"])] and not [*prefixes("", ["yes", "no"])]
