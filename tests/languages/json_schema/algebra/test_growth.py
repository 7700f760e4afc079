"""Schemas with many parts: compile time grows with their length, not with its square."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any, Literal

import jsonschema
import pytest

from dotllm import Index
from dotllm.diagnosis.why import byte_vocabulary
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


@pytest.mark.parametrize("additional", ["closed", "open"])
def test_conjunctions_of_a_property_each(additional: Any) -> None:
    """1,000 once exceeded the budget, since each was added to a copy of all before it."""
    parts = [{"properties": {f"p{number}": {"type": "integer"}}} for number in range(2000)]
    with at_most(2):
        json_schema_to_grammar({"type": "object", "allOf": parts}, additional_properties=additional)


@pytest.mark.parametrize("required", [["p0"], []])
@pytest.mark.parametrize("turned", [False, True])
def test_chains_of_keys_that_need_each_other(required: list[str], turned: bool) -> None:
    """2,000 once took 2.3 s and 256 MB: each state held all clauses still to come."""
    names = [f"p{number}" for number in range(2000)]
    needs = {name: [other] for name, other in itertools.pairwise(names[::-1] if turned else names)}
    properties: dict[str, Any] = dict.fromkeys(names, True)
    with at_most(1.5):
        json_schema_to_grammar({"properties": properties, "required": required, "dependentRequired": needs})


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
            document = dict.fromkeys(subset, 1)
            guide = index.guide()
            accepted = guide.accept_string(json.dumps(document)) and guide.can_finish
            assert accepted == judge.is_valid(document), (schema, document, order)


VALUES = [None, "a", 3]
KINDS = ["x", "y", "z"]


def random_branch(random_: random.Random) -> Any:
    """A schema of objects with one, two or no discriminators, of several types, or of other types only."""
    if random_.random() < 0.15:
        return random_.choice([{"type": "string"}, {"type": ["object", "null"]}, True, {"const": {"kind": "x"}}])
    properties: dict[str, Any] = {}
    for name in random_.sample(["kind", "form"], random_.randint(1, 2)):
        chosen = random_.sample(KINDS, random_.randint(1, 2))
        properties[name] = random_.choice([{"enum": chosen}, {"const": chosen[0]}, {"type": "string"}])
    required = random_.sample(sorted(properties), random_.randint(0, len(properties)))
    return {"type": "object", "properties": properties, "required": required}


@pytest.mark.parametrize("seed", range(few(40)))
def test_one_of_many_branches_against_jsonschema(seed: int) -> None:
    """Eight or more branches are sorted by a property that tells them apart; some of them share its values."""
    random_ = random.Random(seed)
    schema = {"oneOf": [random_branch(random_) for _ in range(random_.randint(8, 11))]}
    documents: list[Any] = [None, "s", {}]
    for kind, form in itertools.product([None, *KINDS, "w"], repeat=2):
        documents.append({name: value for name, value in (("form", form), ("kind", kind)) if value is not None})
    valid = [document for document in documents if jsonschema.Draft202012Validator(schema).is_valid(document)]
    if not valid:
        return
    index = Index.from_json_schema(schema, byte_vocabulary(), additional_properties="open", property_order="any")
    for document in documents:
        guide = index.guide()
        accepted = all(guide.advance(byte) for byte in json.dumps(document).encode()) and guide.can_finish
        assert accepted == (document in valid), (schema, document)
