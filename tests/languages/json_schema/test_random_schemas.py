"""Random schemas with `jsonschema` as the judge: with keys in any order, all verdicts agree; in declared order, no
invalid document is accepted. (Longer runs found the cases in `test_found_by_random_schemas`.)"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from dotllm.errors import InvalidSpecError, UnsupportedError
from tests.cases import few
from tests.languages.json_schema.random_schemas import random_document, random_schema
from tests.languages.json_schema.verdicts import Acceptor

REFUSED = {"uniqueItems", "$ref", "oneOf", "not", "anyOf", "properties"}


def compare(schema: Any, documents: list[Any]) -> bool:
    """Compare the verdicts on ``documents``; False if the schema is refused."""
    judge = Draft202012Validator(schema)
    expected = [judge.is_valid(document) for document in documents]
    try:
        any_order, declared = Acceptor(schema, order="any"), Acceptor(schema)
    except UnsupportedError as error:
        assert error.keyword in REFUSED, error
        assert error.location is not None
        return False
    except InvalidSpecError as error:
        assert error.keyword == "$ref" or "nothing satisfies" in error.message, error
        assert error.keyword == "$ref" or not any(expected)
        return False
    for document, valid in zip(documents, expected, strict=True):
        assert any_order.value(document) == valid, json.dumps(document)
        compact = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        assert any_order.text(compact) == valid
        assert valid or not declared.value(document), json.dumps(document)
    return True


@pytest.mark.parametrize("block", range(few(10)))
def test_all_verdicts(block: int) -> None:
    compared = 0
    for number in range(12):
        random = Random(f"schema/{block}/{number}")
        schema = random_schema(random, random.choice([1, 2, 2, 3]))
        try:
            Draft202012Validator.check_schema(schema)
            compared += compare(schema, [random_document(random) for _ in range(40)])
        except (SchemaError, RecursionError):
            continue
    assert compared > 5


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({"contains": {"enum": ["x"]}, "minContains": 0, "maxContains": 1}, [1, 2]),
        ({"oneOf": [True, {"type": "array", "contains": {"const": True}}], "type": "array"}, ["ab", 3]),
        (
            {
                "if": {
                    "additionalProperties": {"type": "array"},
                    "dependentSchemas": {"c": {"properties": {"a": {"$ref": "#"}}}},
                },
                "then": False,
            },
            {"b": True},
        ),
    ],
)
def test_found_by_random_schemas(schema: Any, document: Any) -> None:
    assert compare(schema, [document, [], {}, 1])
