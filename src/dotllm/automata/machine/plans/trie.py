"""The token trie, as kernels take it."""

from __future__ import annotations

from typing import NamedTuple

import numba as nb

from dotllm.arrays import Int32, UInt8
from dotllm.jit import I1, U1, I


class Trie(NamedTuple):
    """The store of tries (see `vocabulary.trie`): its nodes in depth-first order."""

    byte: UInt8
    """[nodes]: the last byte on the way to each."""
    depth: Int32
    """[nodes]: the number of bytes on the way to each, from 1 on."""
    end: Int32
    """[nodes]: where the subtree of each ends."""
    token_start: Int32
    """[nodes + 1]: where the tokens of each begin in ``tokens``."""
    tokens: Int32
    main_end: int
    """The trie of all tokens is the nodes [0, main_end)."""


TRIE = nb.types.NamedTuple((U1, I1, I1, I1, I1, I), Trie)
