"""Texts that no string may contain: judged by Python's JSON reader and by a search in the written text."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dotllm import BudgetExceededError, Index, Vocabulary
from dotllm.errors import SpecError
from dotllm.grammar import Grammar
from dotllm.languages.json_schema.build import schema_expression
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.strings.forbidden_substrings import forbidden_substrings
from dotllm.languages.json_schema.strings.spelling import quoted
from tests.cases import EVERY, few, sample
from tests.grammar.reference import accepts

BYTES = Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [None], eos_token_ids=[256])
_LETTERS = 'ab<>/n"\\\n\x01u0'
_TEXTS = st.lists(st.text("ab<>/n\\u01", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


def grammar_of(schema: Any, texts: tuple[str, ...]) -> Grammar:
    grammar = Grammar()
    grammar.start = schema_expression(schema, grammar, Options(any_whitespace=False, excludes=texts))
    return grammar


@settings(max_examples=few(200))
@given(texts=_TEXTS, value=st.text(_LETTERS, max_size=6))
def test_a_value_is_left_out_if_a_spelling_of_it_holds_a_text(texts: tuple[str, ...], value: str) -> None:
    spellings = [""]
    for char in value:
        ways = [quoted(char).decode()[1:-1]]
        if char < " ":
            ways += [f"\\u{ord(char):04x}", f"\\u{ord(char):04X}"]
        spellings = [before + way for before in spellings for way in ways]
    expected = not any(text in spelling for text in texts for spelling in spellings)
    assert forbidden_substrings(texts).strings.contains(value) == expected


@settings(max_examples=few(200))
@given(
    texts=_TEXTS,
    inside=st.lists(
        st.sampled_from(["a", "b", "<", "/", "\\/", "\\u003c", "\\n", "n", "\\\\", "\\ud83d\\ude00", "u0", '\\"'])
    ).map("".join),
)
def test_a_string_without_a_condition_has_all_spellings_that_hold_none(texts: tuple[str, ...], inside: str) -> None:
    length = len(json.loads(f'"{inside}"'))
    holds = any(text in inside for text in texts)
    for low, high in ((0, None), (length, length), (length + 1, None), (0, max(0, length - 1)), (1, 3)):
        grammar = grammar_of({"type": "string", "minLength": low, "maxLength": 99 if high is None else high}, texts)
        fits = low <= length <= (99 if high is None else high)
        assert accepts(grammar, f'"{inside}"'.encode()) == (fits and not holds)
    assert accepts(grammar_of({"type": "string"}, texts), f'"{inside}"'.encode()) == (not holds)


SCHEMAS: list[Any] = [
    True,
    {"type": "string", "maxLength": 3},
    {"type": "string", "pattern": "^a*<"},
    {"enum": ["a", "<a", {"<a": "a"}, 1, ["<", "a\n"]]},
    {"type": "object", "properties": {"<a": {}, "b": {"type": "string"}, "n\n": {"const": 1}}},
    {"type": "object", "patternProperties": {"^<": True}, "additionalProperties": False},
    {"type": "object", "propertyNames": {"maxLength": 2}, "minProperties": 1},
    {"type": "array", "items": {"type": "string", "format": "uri-reference"}, "uniqueItems": True},
]
DOCUMENTS = [
    "a", "<a", "<", "a<", "aa<", "/a", "a\n", 1, None, ["<", "a\n"], ["<a"], ["/a", "a"], ["a", "a"], {}, {"<a": "a"}, {"<": 1}, {"b": "<a"}, {"b": "<"},
    {"n\n": 1}, {"<b": 1}, {"<a": 1, "b": "a", "n\n": 1},
]  # fmt: skip


FORBIDDEN: list[tuple[str, ...]] = [("<a",), ("zz",), ("/", "<<"), ("\\n", "b")]
PAIRS = [*(itertools.product(SCHEMAS, FORBIDDEN) if EVERY else zip(SCHEMAS, itertools.cycle(FORBIDDEN), strict=False))]


@pytest.mark.parametrize(("schema", "texts"), PAIRS, ids=str)
def test_documents(schema: Any, texts: tuple[str, ...]) -> None:
    """The documents that a schema allows, without those whose strings contain one of the texts."""
    plain, left = Grammar(), grammar_of(schema, texts)
    plain.start = schema_expression(schema, plain, Options(any_whitespace=False))
    some = 0
    for document in DOCUMENTS:
        written = json.dumps(document, separators=(",", ":"))
        holds = any(text in inside for inside in _STRING.findall(written) for text in texts)
        # (if a string has a condition, the other spelling of a control character counts, too; no text is in one)
        expected = accepts(plain, written.encode()) and not holds
        assert accepts(left, written.encode()) == expected, written
        some += expected
    assert some


def test_different_items_are_only_promised_where_that_is_sure() -> None:
    """(`test_unique` has more.)"""
    schema = {"type": "array", "items": {"type": "string", "pattern": "^[ab]$"}, "uniqueItems": True, "minItems": 2}
    grammar_of(schema, ("c",))
    with pytest.raises(SpecError):
        grammar_of(schema, ("a",))


def test_too_many_texts_are_a_named_error() -> None:
    with pytest.raises(BudgetExceededError, match="too many excluded texts"):
        forbidden_substrings(tuple(chr(0x4E00 + i) * 3 for i in range(300)))
    with pytest.raises(BudgetExceededError, match="excluded texts"):
        forbidden_substrings(("ab" * 1_000,))
    with pytest.raises(BudgetExceededError):
        forbidden_substrings(tuple(f"{i:x}" * 200 for i in range(500)))


@pytest.mark.parametrize("texts", sample([["<<t", "<t"], ["</t>"], ["u003c", "a", "//"]]), ids=str)
def test_as_xgrammar_reads_them(texts: list[str]) -> None:
    """(Next to a pattern, a format or lengths, xgrammar does not enforce them.)"""
    xgrammar = pytest.importorskip("xgrammar")
    from xgrammar.testing import _is_grammar_accept_string

    format_ = {"type": "json_schema", "json_schema": {"type": "object"}, "excludes": texts}
    theirs = xgrammar.Grammar.from_structural_tag({"type": "structural_tag", "format": format_})
    index = Index.from_structural_tag({"format": format_}, BYTES)
    found = set()
    for key, value in itertools.product(
        ("b", "</t>", "<t", "<</t>", "//", "<<t>"), ("", "</t>", r"<\/t>", r"\u003c/t>", "<<t", "a")
    ):
        text = f'{{"{key}": [{{"{key}": "{value}"}}]}}'
        found.add(verdict := reads(index, text))
        assert verdict == _is_grammar_accept_string(theirs, text), text
    assert found == {True, False}


def reads(index: Index, text: str) -> bool:
    guide = index.guide()
    return all(guide.advance(byte) for byte in text.encode()) and guide.can_finish


def test_an_index_of_them() -> None:
    spec = {"format": {"type": "json_schema", "json_schema": {}, "excludes": ["</tool_call>"]}}
    index = Index.from_structural_tag(spec, BYTES)
    assert reads(index, '{"x":["</tool_call"]}')
    assert not reads(index, '{"x":["</tool_call>"]}')
