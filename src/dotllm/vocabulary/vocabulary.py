"""Vocabulary: the tokens of a model as bytes, and what can be known about them before there is a grammar.

All of it is NumPy arrays: 131,072 Python objects would cost every garbage collection of the process some milliseconds.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dotllm.automata.charset import CharSet
from dotllm.vocabulary.arrays import Bytes, Ints
from dotllm.vocabulary.charset_table import CharsetTable, build_charset_table
from dotllm.vocabulary.content import Content
from dotllm.vocabulary.greedy import spell_greedily
from dotllm.vocabulary.trie import Trie, build_trie


class Vocabulary:
    """Immutable and thread-safe. Made by ``from_tokenizer`` or ``from_bytes``.

    Attributes:
        token_data: uint8[…], the byte strings of all ids one after another.
        token_offset: int32[size + 1]; id t is ``token_data[token_offset[t] : token_offset[t + 1]]`` (special: empty).
        trie: all tokens that have bytes.
        eos_token_ids: ids that end a text; they have no bytes.
        special_tokens: ids by name that stand for no text.
        fingerprint: SHA-256 of the content in hexadecimal.
        max_token_bytes: length of the longest token.
        missing_bytes: byte values that occur in no token: text with them cannot be generated.
        unspellable_bytes: byte values that are no token by themselves.
    """

    def __init__(self, content: Content, encoder: Callable[[str], list[int]] | None = None) -> None:
        self._content = content
        self._encoder = encoder
        self.token_data: Bytes = content.token_data
        self.token_offset: Ints = content.token_offset
        self.eos_token_ids: tuple[int, ...] = content.eos_token_ids
        self.special_tokens: Mapping[str, int] = dict(content.special_tokens)
        self.size = content.size
        self.words = (content.size + 31) // 32
        self.fingerprint = content.fingerprint()
        self.trie = _trie(content)
        self._tables: dict[CharSet, CharsetTable] = {}
        self._lock = threading.Lock()
        lengths = np.diff(self.token_offset)
        self.max_token_bytes = int(lengths.max(initial=0))
        single = self.token_data[self.token_offset[:-1][lengths == 1]]
        self.missing_bytes = frozenset(range(256)) - frozenset(np.unique(self.token_data).tolist())
        self.unspellable_bytes = frozenset(range(256)) - frozenset(np.unique(single).tolist())

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes | None],
        eos_token_ids: Iterable[int] | int,
        special_tokens: Mapping[str, int] | None = None,
        *,
        size: int | None = None,
    ) -> Vocabulary:
        """A vocabulary of byte strings by id; None (or b"") for ids that stand for no text, as EOS and special ids do.

        ``size`` pads with ids that are never allowed (models whose output is wider than their tokenizer).
        Raises ValueError for ids out of range.
        """
        return cls(Content.of(tokens, eos_token_ids, special_tokens, size))

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of a token, None if it stands for no text. Raises IndexError for an id out of range."""
        if not 0 <= token_id < self.size:
            raise IndexError(f"token id {token_id} is outside the vocabulary of size {self.size}")
        start, end = self.token_offset[token_id], self.token_offset[token_id + 1]
        return self.token_data[start:end].tobytes() if start < end else None

    def charset_table(self, charset: CharSet) -> CharsetTable:
        """What every token does to a loop over ``charset``. Thread-safe."""
        table = self._tables.get(charset)
        if table is None:
            with self._lock:
                table = self._tables.get(charset)
                if table is None:
                    table = build_charset_table(charset, self.trie, self.token_data, self.token_offset, self.words)
                    self._tables[charset] = table
        return table

    def encode(self, text: bytes) -> list[int]:
        """Ids of tokens whose bytes are exactly ``text``: the longest matches. ValueError if no tokens spell it."""
        return spell_greedily(text, self.trie)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Vocabulary is not pickled: make it from its tokenizer, the cache on disk makes that quick")

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos_token_ids={self.eos_token_ids}, {self.fingerprint[:12]})"


def _trie(content: Content) -> Trie:
    lengths = np.diff(content.token_offset)
    ids = np.flatnonzero(lengths).astype(np.int32)
    return build_trie(content.token_data, content.token_offset[ids], lengths[ids], ids)
