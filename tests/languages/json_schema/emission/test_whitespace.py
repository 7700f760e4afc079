"""``whitespace_pattern``: JSON white space in any amount that the pattern allows, and nothing else."""

from __future__ import annotations

import pytest

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema import json_object_to_grammar, json_schema_to_grammar
from tests.languages.json_schema.verdicts import Acceptor

SCHEMA = {"properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("pattern", "allowed", "refused"),
    [
        (r"[\n ]?", ['{"a":1}', '{ "a" :\n1 }'], ['{  "a":1}', '{\t"a":1}']),
        ("[ ]{0,3}", ['{"a":   1}'], ['{"a":    1}']),
        (" ?", ['{"a": 1}'], ['{"a":\n1}']),
        ("", ['{"a":1}'], ['{"a": 1}']),
        (r"(\r?\n *|\t)?", ['{\r\n  "a":\t1\n}'], ['{\r"a":1}']),
        (r"[ \t\n\r]{0,1000000}", ['{"a":1}', '{"a": 1}'], []),
        (r"(?=[ \n])\s", ['{ "a"\n:\n1 }'], ['{"a":1}']),
        # characters that are white space elsewhere, but not in JSON, are left out
        (r"\s*", ['{"a":1}', '{\n\t"a" : 1\r}'], ['{\f"a":1}', '{\u00a0"a":1}']),
        (r"[ \u00a0]", ['{ "a" : 1 }'], ['{"a":1}', '{\u00a0"a" : 1 }']),
        ("( |\u3000){0,4}", ['{"a":    1}'], ['{"a":     1}', '{\u3000"a":1}']),
    ],
)
def test_allowed(pattern: str, allowed: list[str], refused: list[str]) -> None:
    acceptor = Acceptor(SCHEMA, whitespace_pattern=pattern)
    assert [text for text in allowed if not acceptor.text(text)] == []
    assert [text for text in refused if acceptor.text(text)] == []


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("x", "'x' (U+0078)"),
        ("_*", "'_' (U+005F)"),
        ("[ ,]?", "',' (U+002C)"),
        (r"\u00a0", r"'\xa0' (U+00A0)"),
        (r"\f{1,2}", r"'\x0c' (U+000C)"),
        (r"\s*,?", "',' (U+002C) is not JSON white space ([ \\t\\n\\r])"),
    ],
)
def test_what_is_no_white_space_is_refused_by_name(pattern: str, named: str) -> None:
    for _ in range(2):
        with pytest.raises(InvalidSpecError) as refusal:
            json_schema_to_grammar(SCHEMA, whitespace_pattern=pattern)
        assert refusal.value.keyword == "whitespace_pattern"
        assert str(refusal.value).startswith("whitespace_pattern: ")
        assert named in str(refusal.value)
    with pytest.raises(InvalidSpecError, match="whitespace_pattern"):
        json_object_to_grammar(whitespace_pattern=pattern)
