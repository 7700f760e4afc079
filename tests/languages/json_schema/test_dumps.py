"""What docs/json-schema.md says about documents as `json.dumps` writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.languages.json_schema.verdicts import Acceptor


@pytest.mark.parametrize(
    ("schema", "document"),
    [
        ({}, {"é\x7f": 'é😀\x7f/\n\\"\x01', "x": [1e-8, 1e22, -0.0, 10**30], "": {}}),
        ({"pattern": "a"}, 'aé😀\x7f/\n\\"\b\f\t\x1f'),
        ({"enum": ['é\x7f/\n\\"\b']}, 'é\x7f/\n\\"\b'),
        ({"properties": {"é\n": {}}, "additionalProperties": {"type": "integer"}}, {"é\n": 1, "ü\x1f/": 1}),
        ({"minimum": 1e-9}, 1e-8),
        ({"enum": [1e-8, 1e22]}, 1e22),
        ({"multipleOf": 0.5}, 2.0),
        ({"type": "number", "maximum": 0}, -0.0),
        ({"const": 1}, 1.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("indent", [None, 0, 4])
def test_written_raw(schema: Any, document: Any, indent: int | None) -> None:
    assert Acceptor(schema).text(json.dumps(document, ensure_ascii=False, indent=indent))


@pytest.mark.parametrize(
    ("schema", "document"),
    [({"type": "integer"}, 1.0), ({"multipleOf": 1e-9}, 1e-8), ({"type": "number", "minimum": 0}, -0.0)],
    ids=str,
)
def test_floats_that_are_written_otherwise(schema: Any, document: float) -> None:
    assert not Acceptor(schema).text(json.dumps(document))


@pytest.mark.parametrize(
    ("schema", "document", "allowed"),
    [
        ({"type": "string", "maxLength": 3}, "é😀\x7f", True),
        ({"pattern": "a"}, 'a\n\\"\x01~', True),
        ({"pattern": "é"}, "é", False),
        ({"pattern": "a"}, "a\x7f", False),
        ({"enum": ["é"]}, "é", False),
        ({}, {"a\n": "é"}, True),
        ({}, {"é": 1}, False),
        ({"properties": {"é": {}}}, {"é": 1}, False),
    ],
    ids=str,
)
def test_written_in_ascii(schema: Any, document: Any, allowed: bool) -> None:
    assert Acceptor(schema).text(json.dumps(document)) == allowed
