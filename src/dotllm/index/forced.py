"""Forced text as tokens.

If only one text can follow, its canonical tokenisation is a good draft, except for its last tokens. The tokenizer would
have read the text behind them, too, and might have merged it with them (`"name` + `":`). So a token is dropped if a
longer token could replace it: the draft stops before the first token at which the rest of the forced text is a proper
prefix of another token.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64, UInt8
from dotllm.index.token_space import TokenSpace
from dotllm.index.walkable import Walkable
from dotllm.jit import kernel

MAX_FORCED = 512  # bytes looked ahead


@kernel(nb.int64(nb.uint8[::1], nb.int32[::1], nb.int64, nb.uint8[::1], nb.int64[::1]))
def first_open(trie_byte: UInt8, trie_end: Int32, nodes: int, text: UInt8, starts: Int64) -> int:
    """How many of ``starts`` (rising, offsets into ``text``) come before the first one from which the rest of the text
    is the beginning of a longer token."""
    for i in range(starts.shape[0]):
        low, high = nb.int64(0), nb.int64(nodes)
        at = starts[i]
        while at < text.shape[0]:
            node = low
            while node < high and trie_byte[node] != text[at]:
                node = nb.int64(trie_end[node])
            if node >= high:
                break
            low, high = node + 1, nb.int64(trie_end[node])
            at += 1
        if at == text.shape[0] and high > low:
            return i
    return starts.shape[0]


def stable_tokens(space: TokenSpace, text: bytes, tokens: list[int]) -> list[int]:
    """The leading tokens of a canonical tokenisation of ``text`` that stay as they are whatever follows."""
    offset = space.token_offset
    lengths = offset[[token + 1 for token in tokens]] - offset[tokens]
    starts = np.cumsum(lengths) - lengths
    kept = first_open(
        space.trie_byte, space.trie_end, space.main_end, np.frombuffer(text, np.uint8).copy(), starts.astype(np.int64)
    )
    return tokens[:kept]


def forced_tokens(index: Walkable, config: int) -> list[int]:
    """The tokens that must come after ``config``, spelt canonically, as far as they stay whatever follows.

    None where no tokens spell the forced text: with a vocabulary that lacks single bytes it may end inside a token.
    """
    text = index.forced_bytes(config, MAX_FORCED)
    try:
        return stable_tokens(index.space, text, index.vocabulary.encode(text)) if text else []
    except ValueError:
        return []
