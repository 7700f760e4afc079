"""Objects with many alternatives and keys in any order: the key that tells the alternatives apart may come last.

An automaton would need a state for each subset of the keys; `jsonschema` judges what is done instead.
"""

from __future__ import annotations

import json
from itertools import permutations
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm.errors import BudgetExceededError, SpecError
from dotllm.languages.json_schema import json_schema_to_grammar
from dotllm.languages.json_schema.objects import expansion
from tests.cases import few
from tests.effort import at_most
from tests.languages.json_schema.verdicts import Acceptor

SECONDS = 15  # of CPU time
KINDS = ["p", "q", "r", "s", "t"]
KEYS = ["kind", "a", "b", "c", "d", "e", "f", "g", "h"]


def value(random: Random) -> Any:
    return random.choice([{"type": "string"}, {"type": "integer"}, {"enum": [1, "x"]}, True, {"type": "array"}])


def alternative(random: Random, kind: str) -> dict[str, Any]:
    names = random.sample(KEYS[1:], random.randint(1, 5))
    properties = {"kind": {"const": kind}, **{name: value(random) for name in names}}
    required = ["kind", *random.sample(names, random.randint(0, len(names) - 1))]
    random.shuffle(required)
    out: dict[str, Any] = {"properties": properties, "required": required[: random.randint(0, len(required))]}
    if random.random() < 0.4:
        out["additionalProperties"] = False
    return out


def told_apart_by_a_key(random: Random) -> dict[str, Any]:
    kinds = random.sample(KINDS, random.randint(3, 5))
    return {"type": "object", random.choice(["oneOf", "oneOf", "anyOf"]): [alternative(random, k) for k in kinds]}


def one_key_of_many(random: Random) -> dict[str, Any]:
    """An object like those of expression languages: {"and": […]} or {"not": …} or …"""
    names = random.sample(KEYS, random.randint(4, 7))
    branches = [{"required": [name], "properties": {name: value(random)}} for name in names]
    return {"type": "object", "oneOf": branches}


def allowed_beside(random: Random) -> dict[str, Any]:
    """An object with keys that are allowed only with some values of another key."""
    rules = [
        {
            "if": {"required": [name]},
            "then": {"required": ["kind"], "properties": {"kind": {"enum": random.sample(KINDS, 2)}}},
        }
        for name in random.sample(KEYS[1:], random.randint(3, 8))
    ]
    return {
        "type": "object",
        "properties": {name: value(random) for name in KEYS},
        "allOf": rules,
        "additionalProperties": random.random() < 0.5,
    }


def document(random: Random) -> dict[str, Any]:
    names = random.sample([*KEYS, "z"], random.randint(0, 5))
    out = {name: random.choice([1, "x", "y", [], 7]) for name in names}
    if random.random() < 0.7:
        out["kind"] = random.choice(KINDS)
    items = list(out.items())
    random.shuffle(items)
    return dict(items)


@pytest.mark.parametrize("make", [told_apart_by_a_key, one_key_of_many, allowed_beside])
@pytest.mark.parametrize("seed", range(few(12)))
@pytest.mark.parametrize("most", [expansion.MAX_EXPANDED, 9])
def test_verdicts(make: Any, seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """If ``most`` is small, excluded shapes are broken one by one, or an automaton is made."""
    monkeypatch.setattr(expansion, "MAX_EXPANDED", most)
    random = Random(f"{make.__name__}/{seed}")
    schema = make(random)
    judge = Draft202012Validator(schema)
    documents = [document(random) for _ in range(150)]
    try:
        acceptor = Acceptor(schema, order="any")
    except SpecError as error:
        if "an object needs an automaton" in error.message and most == 9:
            return
        assert "nothing satisfies" in error.message, (schema, error)
        assert not any(map(judge.is_valid, documents))
        return
    assert sum(map(judge.is_valid, documents)) > 3
    for one in documents:
        assert acceptor.value(one) == judge.is_valid(one), (schema, json.dumps(one))


def test_automata_that_tell_alternatives_apart_are_counted() -> None:
    """Each automaton is within its own budget, but every pair needs some: 200 alternatives once took a minute and a
    half. Cached automata count, too, so whether a schema is refused does not depend on what was compiled before."""
    overlapping = [
        {"type": "object", "properties": {"a": {"type": "string", "pattern": f"x{i}z.*"}, "b": {"type": "integer"}}}
        for i in range(60)
    ]
    json_schema_to_grammar(json.dumps({"oneOf": overlapping[:15]}))
    messages = set()
    for _ in range(2):
        with pytest.raises(BudgetExceededError, match="more than 300000 steps") as caught:
            json_schema_to_grammar(json.dumps({"oneOf": overlapping}))
        messages.add(str(caught.value))
    assert len(messages) == 1


def neighbours(number: int) -> dict[str, Any]:
    """Alternatives, each of which shares keys with its neighbours."""
    keys = [[f"k{n:02}" for n in range(i, i + 5)] for i in range(number)]
    return {
        "oneOf": [{"properties": {key: {"type": "string"} for key in names}, "required": names[:1]} for names in keys]
    }


def test_the_time_of_neighbours() -> None:
    """Every place of the automaton knows all excluded shapes, each with its clauses. Searching all of them at every key
    once took half a minute."""
    with at_most(SECONDS):
        json_schema_to_grammar(neighbours(30))


def test_the_verdicts_of_neighbours() -> None:
    schema = neighbours(15)
    acceptor, judge, random = Acceptor(schema), Draft202012Validator(schema), Random(0)
    for _ in range(200):
        numbers = sorted(random.sample(range(20), random.randint(0, 4)))
        one = {f"k{n:02}": random.choice(["x", "x", 1]) for n in numbers}
        orders = map(dict, permutations(one.items()))  # the keys of an alternative come first
        assert any(map(acceptor.value, orders)) == judge.is_valid(one), one
