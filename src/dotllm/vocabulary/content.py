"""The defining data of a vocabulary: the bytes of every token, the ids that end a text, the names of special tokens.

Kernels are compiled for writable C-contiguous arrays (Numba gives read-only arrays another type), so these arrays are
not flagged read-only. Nothing writes to them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from operator import index as as_integer
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ints = NDArray[Any]
"""int32 arrays in public interfaces, int64 inside kernels."""

U: Any = np.uint64
"""Index type inside kernels: Numba makes every signed index wrap around, which takes a quarter to a half of the time of
these loops. Never mix ``U`` with signed integers in arithmetic: the result is a float."""


_MAX_BYTES = 2**31 - 1
_KINDS_OF_BYTES = frozenset({bytes, bytearray, memoryview, type(None)})


def ids_of(ids: Iterable[int] | int | None) -> tuple[int, ...]:
    """Token ids as configuration files name them (one, several or none), each once, in the order given."""
    if ids is None:
        return ()
    return (int(ids),) if isinstance(ids, (int, np.integer)) else tuple(dict.fromkeys(map(as_integer, ids)))


class Content(NamedTuple):
    """The defining data of a ``Vocabulary``; everything else follows from it."""

    token_data: Bytes
    """uint8[…]: the byte strings of all ids, one after another."""
    token_offset: Ints
    """int32[size + 1]: id t is ``token_data[token_offset[t] : token_offset[t + 1]]``; empty: the id has no bytes."""
    eos_token_ids: tuple[int, ...]
    """Ids that end a text, each once, in the order given."""
    special_tokens: dict[str, int]
    """Ids by name of the tokens that stand for no text (chat markers, padding …)."""
    added_tokens: dict[str, int]
    """Ids by name of tokens that were added to the vocabulary and stand for text (``<tool_call>`` of Qwen 3)."""

    @classmethod
    def of(
        cls,
        tokens: Sequence[bytes | None],
        eos_token_ids: Iterable[int] | int,
        special_tokens: Mapping[str, int] | None = None,
        added_tokens: Mapping[str, int] | None = None,
        size: int | None = None,
    ) -> Content:
        """Content of ``tokens`` by id, padded up to ``size`` with ids that have no bytes.

        EOS ids and special tokens never have bytes: they must not be reachable as text.

        Raises:
            TypeError: a token is something else, such as a string.
            ValueError: an id is out of range, or all tokens together have more than 2 GiB.
        """
        eos = ids_of(eos_token_ids)
        special = {str(name): int(token) for name, token in (special_tokens or {}).items()}
        added = {str(name): int(token) for name, token in (added_tokens or {}).items()}
        if size is None:
            size = len(tokens)
        if size < len(tokens):
            raise ValueError(f"size {size} is less than the {len(tokens)} tokens given")
        for token in (*eos, *special.values(), *added.values()):
            if not 0 <= token < size:
                raise ValueError(f"token id {token} is outside the vocabulary of size {size}")
        texts = list(tokens)
        if not {*map(type, texts)} <= _KINDS_OF_BYTES:
            token, text = next((i, text) for i, text in enumerate(texts) if type(text) not in _KINDS_OF_BYTES)
            raise TypeError(f"token {token} must be bytes or None, not {type(text).__name__}")
        for token in (*eos, *special.values()):
            if token < len(texts):
                texts[token] = None
        strings = [text or b"" for text in texts]
        offset = np.zeros(size + 1, np.int64)
        np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offset[1 : len(strings) + 1])
        offset[len(strings) + 1 :] = offset[len(strings)]
        if offset[-1] > _MAX_BYTES:
            raise ValueError("the tokens hold more than 2 GiB of bytes")
        data = np.frombuffer(bytearray(b"".join(strings)), np.uint8)
        return cls(data, offset.astype(np.int32), eos, special, added)

    @property
    def size(self) -> int:
        """Number of token ids."""
        return len(self.token_offset) - 1

    def fingerprint(self) -> str:
        """SHA-256 of everything above, in hexadecimal; equal for vocabularies that mean the same."""
        digest = hashlib.sha256(b"dotllm vocabulary 1\0")
        names = [sorted(self.special_tokens.items())]
        if self.added_tokens:
            names.append(sorted(self.added_tokens.items()))
        digest.update(json.dumps([self.size, sorted(self.eos_token_ids), *names], ensure_ascii=True).encode())
        digest.update(self.token_offset.astype("<i4").tobytes())
        digest.update(self.token_data.tobytes())
        return digest.hexdigest()
