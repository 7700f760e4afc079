"""Functions for bitmasks and logits as NumPy arrays, under the names that xgrammar and llguidance use.

    bitmask = allocate_token_bitmask(len(guides), vocabulary.size)
    fill_next_token_bitmask_par([(guide, row) for row, guide in enumerate(guides)], bitmask)
    apply_token_bitmask_inplace(logits, bitmask)

A bitmask has one bit for each token, 32 in an int32, the lowest bit first: 1 means allowed. (Masks that many sequences
share need no bitmask at all: see `Guide.mask_row` and `Index.masks`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.arrays import Int32
from dotllm.index import Guide, advance_guides, fill_masks
from dotllm.index.batch import THREADS

__all__ = [
    "advance_guides",
    "allocate_token_bitmask",
    "apply_token_bitmask_inplace",
    "fill_next_token_bitmask",
    "fill_next_token_bitmask_par",
]


def allocate_token_bitmask(batch_size: int, vocab_size: int) -> Int32:
    """A bitmask int32 [batch_size, ceil(vocab_size / 32)] that allows every token."""
    return np.full((batch_size, -(-vocab_size // 32)), -1, np.int32)


def fill_next_token_bitmask(guide: Guide, bitmask: Int32, index: int = 0) -> None:
    """Write the tokens that ``guide`` allows next into ``bitmask[index]``.

    Raises:
        TypeError: the bitmask is not an int32 array.
        ValueError: the bitmask has another shape or is read-only.
        IndexError: the bitmask has no such row.
        BudgetExceededError: the mask takes too much work or memory.
    """
    guide.write_mask(bitmask, index)


def fill_next_token_bitmask_par(guides: Sequence[tuple[Guide, int]], bitmask: Int32, *, threads: int = THREADS) -> None:
    """`fill_next_token_bitmask` for many guides of one vocabulary, each with its row, on ``threads`` cores (default: a
    few). Nothing is written if the arguments are wrong; if a mask cannot be found, all others are written.

    Raises:
        BudgetExceededError: a mask takes too much work or memory.
    """
    failures = fill_masks([guide for guide, _ in guides], bitmask, [row for _, row in guides], threads)
    for failure in failures.values():
        raise failure


def apply_token_bitmask_inplace(logits: NDArray[Any], bitmask: Int32) -> None:
    """Set the logits, floats [batch, tokens] or [tokens], of all tokens that are not allowed to minus infinity. Tokens
    beyond the bitmask are not allowed.

    Raises:
        TypeError: the logits are not floats, or the bitmask is not int32.
        ValueError: the numbers of rows differ.
    """
    kinds = [getattr(array, "dtype", type(array).__name__) for array in (logits, bitmask)]
    if getattr(kinds[0], "kind", "") != "f" or kinds[1] != np.int32:
        raise TypeError(f"expected float logits and an int32 bitmask, got {kinds[0]} and {kinds[1]}")
    if logits.shape[:-1] != bitmask.shape[:-1] and (logits.ndim, bitmask.shape[:-1]) != (1, (1,)):
        raise ValueError(
            f"expected one bitmask row for each row of logits, got shapes {bitmask.shape} and {logits.shape}"
        )
    tokens = logits.shape[-1]
    bits = np.unpackbits(np.ascontiguousarray(bitmask).view(np.uint8), axis=-1, bitorder="little")[..., :tokens]
    logits[..., : bits.shape[-1]][bits.reshape(*logits.shape[:-1], -1) == 0] = -np.inf
    logits[..., bits.shape[-1] :] = -np.inf
