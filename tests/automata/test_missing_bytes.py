"""Vocabularies in which some bytes occur in no token: what needs such a byte is refused by name, the rest is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm import Index, InvalidSpecError, UnsupportedError, Vocabulary

ASCII = st.characters(min_codepoint=0x20, max_codepoint=0x7E)
CLASSES = st.one_of(
    st.tuples(ASCII, ASCII).map(lambda pair: f"[{re.escape(min(pair))}-{re.escape(max(pair))}]"),
    ASCII.map(lambda c: f"[^{re.escape(c)}]"),
    ASCII.map(re.escape),
)
PARTS = st.lists(st.tuples(CLASSES, st.sampled_from(["", "?", "*", "{2}"])), min_size=1, max_size=4)


def of_characters(characters: str) -> Vocabulary:
    return Vocabulary.from_bytes([*(c.encode() for c in characters), None], eos_token_ids=len(characters))


@given(st.text(ASCII, min_size=1, max_size=4), PARTS)
def test_refused_if_and_only_if_no_text_of_the_tokens_satisfies_it(
    characters: str, parts: list[tuple[str, str]]
) -> None:
    """``re`` decides which characters each part matches."""
    characters = "".join(sorted(set(characters)))
    pattern = "".join(part + times for part, times in parts)
    satisfiable = all(times in ("?", "*") or any(re.fullmatch(part, c) for c in characters) for part, times in parts)
    try:
        guide = Index.from_regex(pattern, of_characters(characters)).guide()
    except UnsupportedError as refusal:
        assert "0x" in refusal.message and refusal.keyword == "vocabulary"
        assert not satisfiable
        return
    assert satisfiable
    ways, seen = [("", guide)], {guide.config}
    for text, place in ways:  # follow the masks breadth-first: a single token may loop for ever
        if place.can_finish:
            break
        allowed = set(place.allowed_tokens())
        assert allowed, (pattern, characters, text)
        for token, character in enumerate(characters):
            after = place.fork()
            assert after.advance(token) == (token in allowed)
            if token in allowed and after.config not in seen:
                seen.add(after.config)
                ways.append((text + character, after))
    assert place.can_finish
    assert re.fullmatch(pattern, text)


@pytest.mark.parametrize(
    ("characters", "pattern", "bytes_named"),
    [
        ("ac", "[a-c]b", "0x62 ('b')"),
        ("ac", "b[a-c]e\x01", "0x01, 0x62 ('b'), 0x65 ('e')"),
        ("a", "é", "0xA9, 0xC3"),
        ("a", "vwxyz", "0x76 ('v'), 0x77 ('w'), 0x78 ('x'), 0x79 ('y'), …"),
        ("a", "a(x|y)", "0x79 ('y')"),
    ],
)
def test_the_bytes_are_named(characters: str, pattern: str, bytes_named: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        Index.from_regex(pattern, of_characters(characters))
    assert caught.value.message.endswith(f"contains, such as {bytes_named}")


def test_what_can_be_had_without_is_not_refused() -> None:
    """A vocabulary without upper-case letters and braces, like T5's, allows words, and JSON that needs no brace."""
    vocabulary = of_characters(' "[],:abcdefghijklmnopqrstuvwxyz0123456789\\-.')
    assert set(Index.from_regex(r"\w", vocabulary).guide().allowed_tokens()) == set(range(6, 42)), (
        "all letters and digits"
    )
    Index.from_json_schema({"type": ["array", "object"]}, vocabulary)
    with pytest.raises(UnsupportedError, match=r"0x7B \('\{'\), 0x7D \('\}'\)"):
        Index.from_json_schema({"type": "object"}, vocabulary)


def test_what_nothing_satisfies_is_not_blamed_on_the_vocabulary() -> None:
    with pytest.raises(InvalidSpecError, match="no text matches"):
        Index.from_regex("[^\\s\\S]", of_characters("a"))
