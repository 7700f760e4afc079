"""The bytes of every id, compared with the tokenizer's own decoding in the middle of a text."""

from __future__ import annotations

import pytest

from tests.tokenizers.real import Real


def test_every_token_adds_its_bytes(real: Real) -> None:
    """With text before and after it, since a leading space would be lost otherwise."""
    vocabulary = real.vocabulary
    x, y = real.continued("xx")[-1], real.continued("yy")[-1]
    before, after = real.token(x), real.token(y)
    wrong = []
    for i in range(vocabulary.size):
        text = vocabulary.token_bytes(i)
        if text is None:
            continue
        expected = before + text + after
        decoded = real.decode([x, i, y])
        if decoded != expected.decode(errors="replace"):
            wrong.append((i, text, decoded))
    assert not wrong, f"{len(wrong)} tokens, {wrong[:5]}"


def test_only_special_tokens_have_no_bytes(real: Real) -> None:
    vocabulary = real.vocabulary
    silent = {i for i in range(vocabulary.size) if vocabulary.token_bytes(i) is None}
    named = {*vocabulary.special_tokens.values(), *vocabulary.eos_token_ids}
    assert silent - named == {i for i in silent - named if not real.decode([i])}, "they are decoded to nothing"
    assert len(silent) < vocabulary.size / 10


@pytest.mark.parametrize(
    "text", ["naïve café", "日本語 and 한국어", "🎉👩‍👩‍👧", "a\tb\r\n  c\n\n\n\td", "    x        y"]
)
def test_spelling(real: Real, text: str) -> None:
    """`Vocabulary.encode` returns tokens whose bytes, and whose decoding, equal the text."""
    ids = real.vocabulary.encode(text.encode())
    assert b"".join(map(real.token, ids)) == text.encode()
    assert real.said(ids) == text
