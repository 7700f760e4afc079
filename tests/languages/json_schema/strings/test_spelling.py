"""How strings are written: any spelling that `json` reads if a string has no condition, otherwise one spelling."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dotllm.charset import ANY_CHAR, CharSet
from dotllm.errors import InvalidSpecError
from dotllm.grammar import Grammar
from dotllm.languages.json_schema.strings import spelling
from dotllm.languages.json_schema.strings.string_language import ANY_STRING, StringLanguage
from tests.cases import few
from tests.grammar.reference import accepts
from tests.languages.json_schema.scalar_texts import acceptor, grammar_of, spelled

ANY = acceptor(ANY_STRING)
KEY = acceptor(ANY_STRING, as_key=True)

PIECES = ["a", "é", "😀", '"', "\\", "/", "\\n", "\\u0041", "\\u00e9", "\\ud7ff", "\\ue000", "\\x", "\n", "\x1f", "\\/"]
PIECES += ["\\uD83D", "\\ude00", "\\uD83D\\uDE00", "\\u12", "\x7f", "\\DBFF", "\\uDBFF\\uDFFF"]
pieces = st.sampled_from(PIECES)


def is_json_string(text: str) -> bool:
    """RFC 8259, according to another reader; unpaired surrogates are not text."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return False
    if not isinstance(value, str) or not (text.startswith('"') and text.endswith('"')):
        return False
    return not any("\ud800" <= char <= "\udfff" for char in value)


@given(st.lists(pieces, max_size=5).map("".join))
@example("\\ud83d\\u0041")
@example("\\uD83D\\uD83D\\uDE00")
@settings(max_examples=few(400))
def test_any_string_is_every_json_string(inside: str) -> None:
    text = f'"{inside}"'
    assert ANY(text) == is_json_string(text)


@given(st.text(max_size=6))
@settings(max_examples=few(200))
def test_what_serialisers_write(value: str) -> None:
    assert ANY(json.dumps(value)) and ANY(spelled(value)) and KEY(spelled(value))
    # Escapes that JSON does not require are not a canonical spelling.
    assert KEY(json.dumps(value)) == (json.dumps(value).lower() == spelled(value).lower())


@pytest.mark.parametrize("point", [*range(0x25), 0x2F, 0x41, 0x5C, 0x7F, 0x80, 0xFFFF, 0x1F600])
def test_canonical_spellings_of_one_character(point: int) -> None:
    grammar = Grammar()
    grammar.start = spelling.character(grammar, CharSet.of(point))
    char = chr(point)
    found = {
        text
        for text in (char, json.dumps(char)[1:-1], f"\\u{point:04x}", f"\\u{point:04X}", f"\\{char}", "\\n", "\\/")
        if accepts(grammar, text.encode())
    }
    expected = {spelled(char)[1:-1]}
    if point < 0x20:
        expected |= {f"\\u{point:04x}", f"\\u{point:04X}"}
    assert found == expected


def test_one_node_where_nothing_needs_an_escape() -> None:
    grammar = Grammar()
    before = len(grammar)
    spelling.character(grammar, CharSet.of((0x61, 0x7A), 0xE9))
    assert len(grammar) == before + 1


@given(
    st.sets(st.one_of(st.integers(0, 0x80), st.sampled_from([0xE9, 0xD7FF, 0xE000, 0x1F600, 0x10FFFF])), max_size=30),
    st.text(max_size=3),
)
@settings(max_examples=few(100))
def test_one_of_is_chars(points: set[int], text: str) -> None:
    characters = CharSet.of(*points) - spelling.MUST_ESCAPE
    for charset in (characters, spelling.RAW - characters):
        assert spelling.spelling(charset).raw == charset
        assert spelling.spelling(charset).ranges == len(charset.ranges)
        grammar = Grammar()
        grammar.start = spelling.one_of(grammar, spelling.spelling(charset))
        for char in {*map(chr, points), *text, "a"}:
            if not "\ud800" <= char <= "\udfff":
                assert accepts(grammar, char.encode()) == (ord(char) in charset)


def test_lone_surrogates_are_refused() -> None:
    with pytest.raises(InvalidSpecError):
        StringLanguage.finite(["a\ud800"])


def test_lengths_count_code_points() -> None:
    two = acceptor(StringLanguage.length(2, 2))
    for text in ['"ab"', '"é😀"', '"\\ud83d\\ude00a"', '"\\n\\""', '"\\u0041b"']:
        assert two(text)
    for text in ['"a"', '"\\ud83d\\ude00"', '"abc"', '"😀"', '"\\u0041"']:
        assert not two(text)


def test_raw_characters_are_one_node_of_the_loop() -> None:
    """For a loop over one large set, the machine has tables of the vocabulary."""
    grammar = grammar_of(ANY_STRING)
    assert spelling.RAW in grammar.charsets
    assert ANY_CHAR - CharSet.of((0, 0x1F), '"', "\\") == spelling.RAW
