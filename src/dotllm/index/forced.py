"""Forced text as tokens.

When only one text can follow, its canonical tokenisation is a good draft. The last tokens are another matter: the
tokenizer would have seen what comes after them, and might have merged it in (`"name` + `":`). So tokens at the end
are left out while some longer token could replace them: the draft stops before the first token from which the rest of
the forced text is a proper prefix of another token.
"""

from __future__ import annotations

import numpy as np

from dotllm.index.guide import Guide
from dotllm.vocabulary import Vocabulary

MAX_FORCED = 512  # bytes looked ahead


def is_token_prefix(vocabulary: Vocabulary, text: bytes) -> bool:
    """Whether some token is longer than ``text`` and starts with it."""
    trie = vocabulary.trie
    low, high = 0, len(trie.byte)
    for depth, byte in enumerate(text, 1):
        node = low
        while node < high and trie.byte[node] != byte:
            node = int(trie.end[node])
        if node >= high:
            return False
        low, high = node + 1, int(trie.end[node])
        if depth == len(text):
            return high > low
    return bool(len(trie.byte))


def stable_tokens(vocabulary: Vocabulary, text: bytes, tokens: list[int]) -> list[int]:
    """The leading tokens of a canonical tokenisation of ``text`` that stay as they are whatever follows."""
    ends = np.cumsum([len(vocabulary.token_bytes(t) or b"") for t in tokens]).tolist()
    start = 0
    for i, end in enumerate(ends):
        if is_token_prefix(vocabulary, text[start:]):
            return tokens[:i]
        start = end
    return tokens


def forced_tokens(guide: Guide) -> list[int]:
    """Tokens that spell the bytes that must come next (see the module). Each is allowed when it is reached."""
    # of several configurations one alone forces nothing
    text = b"" if guide.is_ambiguous else guide.index.forced_bytes(guide.config, MAX_FORCED)
    if not text:
        return []
    vocabulary = guide.index.vocabulary
    tokens = vocabulary.encode(text)
    return stable_tokens(vocabulary, text, tokens)
