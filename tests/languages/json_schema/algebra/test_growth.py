"""Schemas with many parts: compile time grows with their length, not with its square."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from typing import Any, Literal

import jsonschema
import pytest

from dotllm import Index
from dotllm.diagnosis.why import byte_vocabulary
from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.cases import few
from tests.effort import at_most


def branch(number: int, **more: Any) -> dict[str, Any]:
    properties = {"kind": {"const": f"k{number}"}, f"v{number}": {"type": "integer"}, **more}
    return {"type": "object", "properties": properties, "required": ["kind"]}


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
def test_alternatives_that_a_property_tells_apart(keyword: str) -> None:
    """1,024 in `oneOf` once took five seconds, since all pairs were compared."""
    with at_most(1.5):
        json_schema_to_grammar({keyword: [branch(number) for number in range(1024)]})


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf"])
@pytest.mark.parametrize(
    "value", [lambda n: f"v{n}", lambda n: 3 * n, lambda n: n + 0.5, lambda n: [n, f"v{n}"][n % 2]]
)
def test_many_constants(keyword: str, value: Callable[[int], Any]) -> None:
    """3,000 in `oneOf`, each with a title, once took 40 seconds and no steps; in `anyOf` they took up to ten."""
    with at_most(2):
        json_schema_to_grammar({keyword: [{"const": value(number), "title": f"t{number}"} for number in range(3000)]})


@pytest.mark.parametrize(
    "branch",
    [
        lambda n: {"type": "array", "prefixItems": [{"const": f"t{n}"}, {"type": "number"}], "minItems": 2},
        lambda n: {"type": "object", "properties": {"kind": {"const": n}}, "required": ["kind"]},
        lambda n: {"type": "object", "properties": {"kind": {"enum": [n, str(n)]}}, "required": ["kind"]},
    ],
)
def test_alternatives_that_a_value_tells_apart(branch: Callable[[int], Any]) -> None:
    with at_most(2):
        json_schema_to_grammar({"oneOf": [branch(number) for number in range(1000)]})


def test_properties_of_alternatives_may_be_nested_deeply() -> None:
    """Looking for a value that tells alternatives apart does not look into all levels below."""
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(120):
        deeper = {"type": "object", "properties": {"next": schema}, "required": ["next"]}
        schema = {"oneOf": [deeper, *({"const": f"v{number}"} for number in range(8))]}
    json_schema_to_grammar(schema)


def test_comparing_all_pairs_takes_steps() -> None:
    """It was not counted: 3,000 took a minute and a half before they were refused."""
    names = [f"p{number}" for number in range(3000)]
    branches = [{"properties": {name: True}, "required": [name]} for name in names]
    with at_most(10), pytest.raises(BudgetExceededError, match="steps"):
        json_schema_to_grammar({"type": "object", "oneOf": branches})


@pytest.mark.parametrize("additional", ["closed", "open"])
def test_conjunctions_of_a_property_each(additional: Any) -> None:
    """1,000 once exceeded the budget, since each was added to a copy of all before it."""
    parts = [{"properties": {f"p{number}": {"type": "integer"}}} for number in range(2000)]
    with at_most(2):
        json_schema_to_grammar({"type": "object", "allOf": parts}, additional_properties=additional)


def _about(names: list[str], draw: random.Random) -> dict[str, Any]:
    """A schema of objects that says something of one or two of ``names``."""
    some = draw.sample(names, draw.randint(1, 2))
    values = {name: {"const": draw.randint(0, 1)} for name in some}
    return draw.choice(
        [{"required": some}, {"properties": values}, {"not": {"required": some}}, {"minProperties": draw.randint(1, 4)},
         {"not": {"properties": values, "required": some[:1]}}, {"additionalProperties": {"const": 1}}]
    )  # fmt: skip


@pytest.mark.parametrize("required", [["p0"], []])
@pytest.mark.parametrize("turned", [False, True])
def test_chains_of_keys_that_need_each_other(required: list[str], turned: bool) -> None:
    """2,000 once took 2.3 s and 256 MB: each state held all clauses still to come."""
    names = [f"p{number}" for number in range(2000)]
    needs = {name: [other] for name, other in itertools.pairwise(names[::-1] if turned else names)}
    properties: dict[str, Any] = dict.fromkeys(names, True)
    with at_most(1.5):
        json_schema_to_grammar({"properties": properties, "required": required, "dependentRequired": needs})


@pytest.mark.parametrize(
    "then", [lambda name: {"required": [name]}, lambda name: {"properties": {name: {"minimum": 1}}}]
)
def test_schemas_that_keys_bring(then: Callable[[str], Any]) -> None:
    """1,000 once took 4 s, since each state held all conditions still to come."""
    names = [f"p{number}" for number in range(1000)]
    chain = {name: then(other) for name, other in itertools.pairwise(names)}
    with at_most(1.5):
        json_schema_to_grammar({"properties": {name: {} for name in names}, "dependentSchemas": chain})


@pytest.mark.parametrize(
    "needs", [lambda names: {names[0]: names[1:]}, lambda names: dict.fromkeys(names[1:], names[:1])]
)
@pytest.mark.parametrize("number", [6000, 1000])
def test_a_key_that_needs_all_others_or_that_all_others_need(needs: Callable[[list[str]], Any], number: int) -> None:
    """4,000 once took 5 s; 12,000 took a minute, and were then refused."""
    names = [f"p{number}" for number in range(number)]
    schema = {"properties": dict.fromkeys(names, True), "dependentRequired": needs(names)}
    with at_most(8):
        if number > 1000:
            with pytest.raises(BudgetExceededError, match="steps"):
                json_schema_to_grammar(schema)
        else:
            json_schema_to_grammar(schema)


def test_pairs_of_alternatives_are_counted_while_they_are_found() -> None:
    """4,000 once took 23 s, and were then refused."""
    required = [{"required": [f"p{number}"]} for number in range(4000)]
    with at_most(3), pytest.raises(BudgetExceededError, match="steps"):
        json_schema_to_grammar({"type": "object", "oneOf": required})


def test_many_contains() -> None:
    """500 once took 22 s, and were then refused: each combination of them was met one after another."""
    contains = [{"contains": {"const": number}} for number in range(300)]
    with at_most(3), pytest.raises(BudgetExceededError, match="steps"):
        json_schema_to_grammar({"type": "array", "allOf": contains})


def test_keys_that_many_patterns_match() -> None:
    """For each key, all patterns were looked at before their automaton was asked: 1,000 took 7 s."""
    names = [f"k{number}_" for number in range(1000)]
    patterns = {f"^{name}": {"maxLength": number} for number, name in enumerate(names)}
    with at_most(4):
        json_schema_to_grammar({"properties": {f"{name}x": {} for name in names}, "patternProperties": patterns})


@pytest.mark.parametrize("seed", range(few(30)))
def test_keys_that_need_each_other_against_jsonschema(seed: int) -> None:
    """Also below `not`, and if some of the keys are not declared."""
    draw = random.Random(seed)
    names = [f"p{number}" for number in range(7)]
    needs = {name: draw.sample(names, draw.randint(1, 2)) for name in draw.sample(names, draw.randint(1, 5))}
    schema: dict[str, Any] = {
        "type": "object",
        "properties": dict.fromkeys(draw.sample(names, draw.randint(3, 7)), True),
        "dependentRequired": needs,
        "minProperties": draw.randint(0, 2),
    }
    if draw.random() < 0.5:
        schema["not"] = {"required": draw.sample(names, draw.randint(1, 3))}
    if draw.random() < 0.4:
        schema["anyOf"] = [{"required": [name]} for name in draw.sample(names, 2)]
    if draw.random() < 0.7:
        schema["dependentSchemas"] = {name: _about(names, draw) for name in draw.sample(names, draw.randint(1, 3))}
    judge = jsonschema.Draft202012Validator(schema)
    subsets = [[name for i, name in enumerate(names) if bits >> i & 1] for bits in range(1 << len(names))]
    orders: tuple[Literal["declared", "any"], ...] = ("declared", "any")
    for order in orders:
        index = Index.from_json_schema(schema, byte_vocabulary(), additional_properties="open", property_order=order)
        for subset in subsets:
            if order == "declared" and not schema["properties"].keys() >= set(subset):
                continue
            subset = [name for name in schema["properties"] if name in subset] + [
                name for name in subset if name not in schema["properties"]
            ]
            document = {name: draw.randint(0, 1) for name in subset}
            guide = index.guide()
            accepted = guide.accept_string(json.dumps(document)) and guide.can_finish
            assert accepted == judge.is_valid(document), (schema, document, order)


KINDS: list[Any] = ["x", "y", 1, True]
TUPLES = [["x"], ["x", 1], [1, 2], []]


def random_branch(random_: random.Random) -> Any:
    """A schema of objects with one, two or no discriminators, of several types, or of other types only."""
    pick = random_.random()
    if pick < 0.15:
        return random_.choice([{"type": "string"}, {"type": ["object", "null"]}, True, {"const": {"kind": "x"}}])
    if pick < 0.35:
        return random_.choice([{"const": random_.choice(KINDS)}, {"enum": [*random_.sample(KINDS, 2), {}]}, {"type": "integer"}])  # fmt: skip
    if pick < 0.5:
        first = random_.choice([{"const": random_.choice(KINDS)}, {"type": ["string", "null"]}])
        return {"type": ["array", "null"], "prefixItems": [first], "minItems": random_.randint(0, 2)}
    properties: dict[str, Any] = {}
    for name in random_.sample(["kind", "form"], random_.randint(1, 2)):
        chosen = random_.sample(KINDS, random_.randint(1, 2))
        properties[name] = random_.choice([{"enum": chosen}, {"const": chosen[0]}, {"type": "string"}])
    required = random_.sample(sorted(properties), random_.randint(0, len(properties)))
    return {"type": random_.choice(["object", ["object", "string"]]), "properties": properties, "required": required}


@pytest.mark.parametrize("seed", range(few(40)))
def test_one_of_many_branches_against_jsonschema(seed: int) -> None:
    """Eight or more branches are sorted by a property that tells them apart; some of them share its values."""
    random_ = random.Random(seed)
    schema = {"oneOf": [random_branch(random_) for _ in range(random_.randint(8, 11))]}
    documents: list[Any] = [None, "s", {}, 2, *KINDS, *TUPLES]
    for kind, form in itertools.product([None, *KINDS, "w"], repeat=2):
        documents.append({name: value for name, value in (("form", form), ("kind", kind)) if value is not None})
    judge = jsonschema.Draft202012Validator(schema)
    if not any(map(judge.is_valid, documents)):
        return
    index = Index.from_json_schema(schema, byte_vocabulary(), additional_properties="open", property_order="any")
    for document in documents:
        guide = index.guide()
        accepted = all(guide.advance(byte) for byte in json.dumps(document).encode()) and guide.can_finish
        assert accepted == judge.is_valid(document), (schema, document)


def test_what_is_refused_is_refused_soon() -> None:
    """Overlapping tuples took 13 seconds, and 60 kinds with a choice of 20 keys each eight, before their refusal."""
    tuples = [{"type": "array", "prefixItems": [{"enum": [*range(i, i + 30)]}] * 6} for i in range(60)]
    choices = [
        {
            "if": {"properties": {"kind": {"const": i}}},
            "then": {
                "properties": {f"q{i}_{k}": {"const": 2} for k in range(40)},
                "oneOf": [{"required": [f"q{i}_{k}"]} for k in range(20)],
            },
        }
        for i in range(60)
    ]
    kinds = {"type": "object", "properties": {"kind": {}}, "required": ["kind"], "allOf": choices}
    for schema in ({"oneOf": tuples}, kinds, {**kinds, "unevaluatedProperties": False}):
        with at_most(3), pytest.raises(BudgetExceededError):
            json_schema_to_grammar(schema)
