"""``minProperties`` and ``maxProperties`` with keys in any order: states are sets of that many keys, not all sets."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema import json_schema_to_grammar
from tests.languages.json_schema.verdicts import Acceptor

INTEGER = {"type": "integer"}


def counted(names: int, minimum: int, **more: Any) -> dict[str, Any]:
    properties = {f"p{i:02}": INTEGER for i in range(names)}
    return {"type": "object", "properties": properties, "minProperties": minimum, **more}


@pytest.mark.parametrize(
    "schema",
    [
        counted(15, 3),
        counted(15, 3, additionalProperties=False),
        counted(20, 3),
        counted(20, 2, additionalProperties=INTEGER),
        counted(40, 2),
        counted(18, 3, required=["p03", "p11"], additionalProperties=False),
        counted(15, 0, maxProperties=3),
        counted(15, 2, maxProperties=3, additionalProperties=False),
        {"allOf": [counted(16, 2), {"anyOf": [{"required": ["p01"]}, {"required": ["p02"]}]}]},
    ],
    ids=lambda schema: json.dumps({k: v for k, v in schema.items() if k != "properties"})[:60],
)  # fmt: skip
def test_verdicts(schema: dict[str, Any]) -> None:
    judge, documents, random = Draft202012Validator(schema), Acceptor(schema, order="any"), Random(0)
    names = [f"p{i:02}" for i in range(18)]
    said = [0, 0]
    for _ in range(150):
        chosen = {*random.sample(names, random.randint(0, 5)), *schema.get("required", ())[: random.randint(0, 9)]}
        document = {name: random.choice([1, 1, 1, 1, "x"]) for name in sorted(chosen, key=lambda _: random.random())}
        is_valid = judge.is_valid(document)
        said[is_valid] += 1
        assert documents.value(document) == is_valid, document
    assert min(said) > 5, said
    text = "{" + ", ".join(f'"p{i:02}": 1' for i in (1, 2, 1, 2)) + "}"
    assert not documents.text(text), "a key twice"


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [(counted(60, 4), "minProperties"), (counted(20, 0, maxProperties=18), "maxProperties")],
    ids=("minProperties", "maxProperties"),
)  # fmt: skip
def test_what_takes_too_many_states_names_the_way_out(schema: dict[str, Any], keyword: str) -> None:
    with pytest.raises(BudgetExceededError, match=r"dotllm_property_order.*declared") as refusal:
        json_schema_to_grammar(schema, order="any")
    assert refusal.value.keyword == keyword
    json_schema_to_grammar(schema)


def test_what_is_too_large_in_declared_order_does_not_name_it() -> None:
    """``multipleOf`` takes too many states whatever the order of keys."""
    schema = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 123457}}}
    with pytest.raises(BudgetExceededError) as refusal:
        json_schema_to_grammar(schema, order="any")
    assert "declared" not in refusal.value.help
