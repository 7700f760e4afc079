"""How much of a spelling stays the same whatever follows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dotllm import Vocabulary
from dotllm.index.guide import stable_tokens
from dotllm.index.token_space import TokenSpace

PIECES = st.text('ab{"', min_size=1, max_size=4).map(str.encode)


@given(st.lists(PIECES, min_size=1, max_size=12, unique=True), st.lists(PIECES, min_size=1, max_size=6))
def test_it_ends_where_a_longer_token_could_take_over(more: list[bytes], spelling: list[bytes]) -> None:
    tokens: list[bytes | None] = [*dict.fromkeys([*more, *spelling, *(bytes([b]) for b in b'ab{"')]), None]
    vocabulary = Vocabulary.from_bytes(tokens, eos_token_ids=len(tokens) - 1)
    text, ids = b"".join(spelling), [tokens.index(piece) for piece in spelling]
    kept = 0
    for piece in spelling:
        rest = b"".join(spelling[kept:])
        if any(token is not None and token != rest and token.startswith(rest) for token in tokens):
            break
        assert piece
        kept += 1
    assert stable_tokens(TokenSpace.of(vocabulary), text, ids) == ids[:kept]
