"""How `benchmarks.walks` judges numbers of any size and ECMA-262 patterns."""

from __future__ import annotations

import re

import pytest

from benchmarks.walks import parse, python_pattern, validator


@pytest.mark.parametrize(
    ("pattern", "matched", "not_matched"),
    [
        ("^.$", ["a", "."], ["\n", "\r", "\u2028", "a\n"]),
        (r"^\.$", ["."], ["a", ".\n"]),
        ("^[.$]$", [".", "$"], ["a"]),
        (r"^[\].]$", ["]", "."], ["a"]),
        (r"^\d[\d_]$", ["01", "1_"], ["\u0660\u0660", "1\u0660"]),
        (r"^\S\s\W$", ["a\ufeff\xe4", "\x85 -"], ["a\x85-", "\ufeff -", "a a"]),
    ],
)
def test_patterns(pattern: str, matched: list[str], not_matched: list[str]) -> None:
    translated = re.compile(python_pattern(pattern))
    assert all(translated.search(text) for text in matched)
    assert not any(translated.search(text) for text in not_matched)


def test_judge() -> None:
    judge = validator({"patternProperties": {"^a$": {"type": "array"}}, "properties": {"n": {"pattern": "b."}}})
    assert judge.is_valid({"a\n": 1, "n": "bc"})
    assert not judge.is_valid({"a": 1}) and not judge.is_valid({"n": "b\r"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1.0", 1), ("1e2", 100), ("0E99999999999999999999", 0), ("-1e-999", -5e-324), ("1e999", 10**400)],
)
def test_numbers(text: str, value: float) -> None:
    assert parse(text) == value
