"""A bad pattern is refused with its place in the schema."""

from __future__ import annotations

from typing import Any

import pytest

from dotllm.errors import InvalidSpecError, SpecError, UnsupportedError
from dotllm.languages.json_schema import json_schema_to_grammar


@pytest.mark.parametrize(
    ("schema", "error", "pointer", "keyword"),
    [
        ({"pattern": "("}, InvalidSpecError, "/pattern", "pattern"),
        (
            {"properties": {"a/b": {"type": "string", "pattern": "["}}},
            InvalidSpecError,
            "/properties/a~1b/pattern",
            "pattern",
        ),
        ({"anyOf": [{"pattern": "ok"}, {"pattern": "x("}]}, InvalidSpecError, "/anyOf/1/pattern", "pattern"),
        ({"patternProperties": {"~(": {}}}, InvalidSpecError, "/patternProperties/~0(", "patternProperties"),
        ({"items": {"pattern": r"(a)b\1"}}, UnsupportedError, "/items/pattern", "pattern"),
    ],
)
def test_bad_patterns(schema: dict[str, Any], error: type[SpecError], pointer: str, keyword: str) -> None:
    with pytest.raises(error) as refusal:
        json_schema_to_grammar(schema)
    assert (refusal.value.pointer, refusal.value.keyword) == (pointer, keyword)
    assert keyword in str(refusal.value)
    assert "offset" in str(refusal.value)


def test_the_pattern_at_fault_not_another_bad_one() -> None:
    """A definition to which nothing refers is not read, whatever it contains."""
    schema = {"$defs": {"unused": {"pattern": "["}}, "pattern": "("}
    with pytest.raises(InvalidSpecError) as refusal:
        json_schema_to_grammar(schema)
    assert refusal.value.pointer == "/pattern"


def test_a_long_pattern_is_not_repeated_whole() -> None:
    with pytest.raises(SpecError) as refusal:
        json_schema_to_grammar({"pattern": "a" * 5000 + "("})
    assert len(str(refusal.value)) < 300


def test_what_to_do_about_a_format_that_is_not_regular() -> None:
    """As in the schema of GitLab's pipelines."""
    schema = {"properties": {"coverage": {"type": "string", "format": "regex", "pattern": "^/.+/$"}}}
    with pytest.raises(UnsupportedError, match="leave out the format, or the pattern") as refusal:
        json_schema_to_grammar(schema)
    assert (refusal.value.pointer, refusal.value.keyword) == ("/properties/coverage/format", "format")
