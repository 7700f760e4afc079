"""A vocabulary without a token for each byte may be unable to spell what a constraint asks for; this is an error."""

from __future__ import annotations

import numpy as np
import pytest

from dotllm import Guide, Index, UnsupportedError, Vocabulary
from dotllm.index import advance_guides, fill_masks, mask_rows
from dotllm.index.draft_rows import NO_MASK, mask_rows_along

NOTHING = "no tokens of the vocabulary spell"


def of(*tokens: bytes) -> Vocabulary:
    """These tokens, followed by an end token."""
    return Vocabulary.from_bytes([*tokens, b""], eos_token_ids=[len(tokens)])


def write(guide: Guide) -> np.ndarray:
    bitmask = np.full((1, guide.index.vocabulary.words), -1, np.int32)
    guide.write_mask(bitmask)
    return bitmask


@pytest.mark.parametrize(
    ("pattern", "tokens"), [(".", [b"abc"]), ("[^a-y]", [b"zc"]), ("a", [b"ab", b"b"]), ("ab?", [b"abc", b"\xff"])]
)
def test_what_cannot_begin_is_refused(pattern: str, tokens: list[bytes]) -> None:
    with pytest.raises(UnsupportedError, match=NOTHING) as caught:
        Index.from_regex(pattern, of(*tokens))
    assert caught.value.keyword == "vocabulary"


def test_other_languages() -> None:
    with pytest.raises(UnsupportedError, match=NOTHING):
        Index.from_choice(["a"], of(b"ab"))
    with pytest.raises(UnsupportedError, match=NOTHING):
        Index.from_json_schema({"type": "null"}, of(b"nx", b"ul", b"l"))
    unique = {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 2}
    with pytest.raises(UnsupportedError, match=NOTHING):
        Index.from_json_schema(unique, of(*(bytes([b, b]) for b in range(0x20, 0x7F))))


def test_what_can_begin_or_end_is_not() -> None:
    assert Index.from_regex("(abc)?", of(b"ab")).guide().allowed_tokens() == [1]
    assert Index.from_regex("abc", of(b"ab", b"c")).guide().allowed_tokens() == [0]
    with pytest.raises(UnsupportedError, match="no token of the vocabulary contains, such as 0x78"):
        Index.from_regex("x", of(b"a"))


def test_a_text_that_cannot_go_on_fails_alone() -> None:
    """Every way to ask for a mask says so each time, and the other guides of a batch get their masks."""
    vocabulary = of(b"a", b"bx", b"c")
    index = Index.from_regex("ab|ac", vocabulary)
    dead = Index.from_regex("ab", vocabulary).guide()
    assert dead.advance(0)
    good = index.guide()
    assert good.advance(0) and good.allowed_tokens() == [2]
    for _ in range(2):
        for ask in (lambda: dead.mask_row, lambda: write(dead), dead.allowed_tokens):
            with pytest.raises(UnsupportedError, match=NOTHING):
                ask()
    guides = [good, dead, dead.fork(), good.fork()]
    bitmask = np.full((4, vocabulary.words), -1, np.int32)
    failures = fill_masks(guides, bitmask)
    assert {*failures} == {1, 2} and all(NOTHING in str(error) for error in failures.values())
    assert bitmask[:, 0].tolist() == [4, 0, 0, 4]
    rows, failures = mask_rows(guides)
    assert {*failures} == {1, 2} and rows[0] == rows[3] >= 0 > rows[1]
    rows, _, failures = mask_rows_along([good, dead], [[2], []])
    assert {*failures} == {1} and rows[2] == NO_MASK and (rows[:2] >= 0).all()
    assert advance_guides(guides, [2, 0, 0, 2]) == ([True, False, False, True], {})


def test_an_index_with_an_empty_row_is_not_loaded() -> None:
    index = Index.from_regex("[ab]c*", of(b"a", b"b", b"c"))
    guide = index.guide()
    row = guide.mask_row
    data = index.to_bytes()
    assert Index.from_bytes(data, index.vocabulary).guide().allowed_tokens() == [0, 1]
    index.masks[row] = 0
    with pytest.raises(ValueError, match="mask rows"):
        Index.from_bytes(index.to_bytes(), index.vocabulary)


def test_forced_text_may_end_inside_a_token() -> None:
    """No tokens spell exactly the forced "ab"; the allowed tokens go beyond it."""
    guide = Index.from_regex("ab[cd]", of(b"abc", b"abd")).guide()
    assert guide.forced_bytes() == b"ab" and guide.forced_tokens() == []
    assert guide.allowed_tokens() == [0, 1]
