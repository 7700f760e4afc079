"""Combined constraints on objects and arrays, on every value of a small world; `jsonschema` is the judge."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema.reading import applicators
from tests.cases import few
from tests.languages.json_schema.verdicts import Acceptor

ABSENT = object()
SCALARS: list[Any] = [1, 2, "x"]
OBJECTS: list[Any] = [
    {key: value for key, value in zip("abc", values, strict=True) if value is not ABSENT}
    for values in product([ABSENT, 1, 2, "x"], repeat=3)
]
ARRAYS: list[Any] = [list(items) for length in range(4) for items in product(SCALARS, repeat=length)]


def scalar(random: Random) -> Any:
    return random.choice([True, False, {"const": 1}, {"enum": [1, "x"]}, {"type": "integer"}, {"type": "string"}])


def objects(random: Random) -> dict[str, Any]:
    """A constraint on objects, of one to three keywords."""
    pick = random.sample("abc", 2)
    keywords = [
        {"required": pick[:1]}, {"required": pick}, {"minProperties": random.randint(1, 3)},
        {"maxProperties": random.randint(0, 3)}, {"properties": {pick[0]: scalar(random), pick[1]: scalar(random)}},
        {"properties": {pick[0]: scalar(random)}, "additionalProperties": scalar(random)},
        {"dependentRequired": {pick[0]: [pick[1]]}}, {"propertyNames": {"enum": pick}},
        {"patternProperties": {f"[{''.join(pick)}]": scalar(random)}},
        {"dependentSchemas": {pick[0]: {"properties": {pick[1]: scalar(random)}, "maxProperties": random.randint(1, 2)}}},
    ]  # fmt: skip
    out: dict[str, Any] = {}
    for keyword in random.sample(keywords, random.randint(1, 3)):
        out |= keyword
    return out


def arrays(random: Random) -> dict[str, Any]:
    """A constraint on arrays, of one to three keywords."""
    keywords = [
        {"minItems": random.randint(1, 3)}, {"maxItems": random.randint(0, 3)}, {"items": scalar(random)},
        {"prefixItems": [scalar(random) for _ in range(random.randint(1, 2))]}, {"contains": scalar(random)},
        {"contains": scalar(random), "minContains": 2}, {"contains": scalar(random), "maxContains": 1},
    ]  # fmt: skip
    out: dict[str, Any] = {}
    for keyword in random.sample(keywords, random.randint(1, 3)):
        out |= keyword
    return out


def combined(random: Random, kind: str) -> dict[str, Any]:
    make = objects if kind == "object" else arrays
    one, two, three = make(random), make(random), make(random)
    return {
        "type": kind,
        **random.choice([
            {"oneOf": [one, two]}, {"oneOf": [one, two, three]}, {"allOf": [one, two, {"not": three}]},
            {"anyOf": [one, two], "not": three}, {"if": one, "then": two, "else": three}, {"not": {"allOf": [one, two]}},
        ]),
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["object", "array"])
@pytest.mark.parametrize("block", range(few(8)))
def test_every_value(kind: str, block: int) -> None:
    for number in range(12):
        schema = combined(Random(f"{kind}/{block}/{number}"), kind)
        judge = Draft202012Validator(schema)
        world = OBJECTS if kind == "object" else ARRAYS
        valid = [judge.is_valid(value) for value in world]
        try:
            acceptor = Acceptor(schema, order="any")
        except InvalidSpecError:
            assert not any(valid), schema
            continue
        assert [acceptor.value(value) for value in world] == valid, schema


@pytest.mark.parametrize("few", [0, 9])
def test_every_object_of_dependent_schemas(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of them become one constraint, and a few become alternatives."""
    monkeypatch.setattr(applicators, "FEW_DEPENDENCIES", few)
    for number in range(20):
        random = Random(f"dependent/{number}")
        schema = {"type": "object", "dependentSchemas": {key: objects(random) for key in "abc"}}
        judge, acceptor = Draft202012Validator(schema), Acceptor(schema, order="any")
        for value in OBJECTS:
            assert acceptor.value(value) == judge.is_valid(value), (schema, value)


BOUNDS = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


@pytest.mark.parametrize("limits", list(product([None, 1, 2], repeat=4)), ids=str)
def test_bounds_of_numbers(limits: tuple[int | None, ...]) -> None:
    """Of two bounds on the same side, the stricter one counts."""
    schema: dict[str, Any] = {"type": "number"}
    schema |= {name: limit for name, limit in zip(BOUNDS, limits, strict=True) if limit is not None}
    numbers = [0, 0.5, 1, 1.5, 2, 2.5, 3]
    valid = [Draft202012Validator(schema).is_valid(number) for number in numbers]
    if not any(valid):
        with pytest.raises(InvalidSpecError, match="nothing satisfies"):
            Acceptor(schema)
    else:
        acceptor = Acceptor(schema)
        assert [acceptor.value(number) for number in numbers] == valid


OF_A_TYPE: dict[str, tuple[Any, dict[str, Any]]] = {
    "string": ("ab", {"minLength": 1}), "number": (2, {"minimum": 1}), "array": ([1], {"maxItems": 2}),
    "object": ({"a": 1}, {"minProperties": 1}),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "other"), list(product(OF_A_TYPE, repeat=2)))
def test_what_is_said_of_another_type_does_not_add_it(kind: str, other: str) -> None:
    acceptor = Acceptor({"type": kind, **OF_A_TYPE[other][1]})
    assert [acceptor.value(value) for value, _ in OF_A_TYPE.values()] == [name == kind for name in OF_A_TYPE]


FEW: dict[str, Any] = {"items": {"enum": [1, "x"]}, "uniqueItems": True}


@pytest.mark.parametrize(
    "schema",
    [
        {"not": FEW},
        {"not": {"type": "array", "minItems": 1, **FEW}},
        {"oneOf": [FEW, {"minItems": 2}]},
        {"if": FEW, "then": {"maxItems": 1}, "else": {"minItems": 3}},
        {
            "maxItems": 3,
            "not": {"prefixItems": [{"enum": [1, 2]}, {"enum": [2, "x"]}], "items": False, "uniqueItems": True},
        },
    ],
    ids=str,
)
def test_not_a_list_of_few_values_that_differ(schema: dict[str, Any]) -> None:
    """Without the items, equal items of any kind would have to be found."""
    judge, acceptor = Draft202012Validator(schema), Acceptor(schema)
    for value in (*ARRAYS, *SCALARS):
        assert acceptor.value(value) == judge.is_valid(value), value
