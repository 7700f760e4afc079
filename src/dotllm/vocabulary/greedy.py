"""Spelling bytes with tokens when there is no tokenizer to ask: the longest token first, over the trie."""

from __future__ import annotations

from typing import Any

import numpy as np

from dotllm import allocate
from dotllm.jit import kernel
from dotllm.vocabulary.arrays import Bytes, Ints
from dotllm.vocabulary.trie import Trie


@kernel("Tuple((int32[::1], int64))(uint8[::1], uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def _longest_matches(
    text: Bytes, byte: Bytes, depth: Ints, end: Ints, token_start: Ints, tokens: Ints
) -> tuple[Ints, Any]:
    """Tokens, and the bytes they spell: fewer than ``len(text)`` if no token starts with the byte there."""
    first = allocate.filled_ints(256, -1)  # the node of each first byte
    v = np.int64(0)
    while v < len(byte):
        first[byte[v]] = v
        v = np.int64(end[v])
    out = allocate.ints(len(text))
    count = at = 0
    while at < len(text):
        token, length = np.int64(-1), 0
        v = np.int64(first[text[at]])
        d = 1
        while v >= 0:
            if token_start[v] < token_start[v + 1]:
                token, length = np.int64(tokens[token_start[v]]), d
            if at + d == len(text):
                break
            limit = np.int64(end[v])
            v += 1
            while v < limit and byte[v] < text[at + d]:
                v = np.int64(end[v])
            if v >= limit or byte[v] != text[at + d]:
                break
            d += 1
        if token < 0:
            break
        out[count] = token
        count += 1
        at += length
    return allocate.copied_ints(out[:count]), np.int64(at)


def spell_greedily(text: bytes, trie: Trie) -> list[int]:
    """Ids of tokens whose bytes together are ``text``.

    Raises:
        ValueError: no token starts with the next byte.
    """
    tokens, spelt = _longest_matches(np.frombuffer(bytearray(text), np.uint8), *trie)
    if spelt < len(text):
        raise ValueError(f"no token of the vocabulary spells byte 0x{text[spelt]:02X} at offset {spelt}")
    ids: list[int] = tokens.tolist()
    return ids
