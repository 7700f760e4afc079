"""A refusal of what is too large says what to do about it."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema import json_schema_to_grammar

KINDS = [{"properties": {"kind": {"const": i}, f"x{i}": {}}, "required": ["kind"]} for i in range(1100)]
CHOICES = [{"anyOf": [{"properties": {f"k{i}": {"const": j}}} for j in range(4)]} for i in range(12)]


@pytest.mark.parametrize(
    ("schema", "where"),
    [
        (
            {"patternProperties": {f"k{i}_": {"type": "string", "maxLength": i} for i in range(200)}},
            "/patternProperties",
        ),
        (
            {"patternProperties": {f"k{i}_": {"type": "string", "maxLength": i} for i in range(14)}},
            "/patternProperties",
        ),
        ({"type": "object", "anyOf": KINDS}, "/anyOf"),
        ({"allOf": CHOICES}, ""),
        ({"type": "integer", "multipleOf": 1000003 * 999983}, "/multipleOf"),
        ({"type": "array", "contains": {"const": 1}, "minContains": 100_000}, "/contains"),
    ],
)
def test_remedies(schema: Any, where: str) -> None:
    with pytest.raises(BudgetExceededError) as refused:
        json_schema_to_grammar(schema)
    assert refused.value.pointer == where and refused.value.help
