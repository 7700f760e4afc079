"""Masks with stop tokens: tokens that end one request's text without being part of it.

A stop token is allowed where the text may end. Elsewhere it is allowed only if the grammar itself asks for that very
token and is complete after it, as in a structural tag.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from dotllm.arrays import Int32
from dotllm.index.draft_rows import is_set
from dotllm.index.guide import Guide
from dotllm.index.mask_table import END_ROW
from dotllm.index.walkable import Walkable

_MEMO = 1 << 12  # how many rows are remembered for an index at most
_rows_with_stops: WeakKeyDictionary[Walkable, dict[tuple[tuple[int, ...], int, int, int], int]] = WeakKeyDictionary()


def row_with_stops(guide: Guide, row: int, config: int, stops: tuple[int, ...]) -> int:
    """The row of the mask of ``config``, on the guide's index, with ``stops``; ``row`` is the row without them. END_ROW
    if no token is left."""
    # The memo is shared by all requests of this index, unless masks depend on more than the configuration. No index
    # refers to these rows, so a number is valid for one epoch (see `TokenSpace`); so is ``row``.
    index = guide.index
    known = {} if guide.is_stateful else _rows_with_stops.setdefault(index, {})
    key = (stops, config, row, index.space.epoch)
    result = known.get(key)
    if result is None:
        if len(known) >= _MEMO:
            known.clear()
        if config != guide.config:
            guide = guide.fork()
            guide.config = config
        mask = index.masks[row].copy()
        result = known[key] = index.space.intern(mask) if mask_stops(mask, guide, stops) else END_ROW
    return result


def mask_stops(row: Int32, guide: Guide, stops: tuple[int, ...]) -> bool:
    """Let ``row``, the mask of ``guide``, allow ``stops`` where they may end the text, and forbid them elsewhere.

    False: no token is left. (The guide may be at drafts that are never taken, so this is not an error yet.)
    """
    can_finish = guide.can_finish
    for token in stops:
        set_token(row, token, allowed=can_finish or (is_set(row, token) and _ends_with(token, guide)))
    return bool(row.any())


def can_finish_after(tokens: Sequence[int], guide: Guide) -> bool:
    """Whether the text may end after these tokens."""
    if not tokens:
        return bool(guide.can_finish)
    return any(guide.accepts([*tokens, eos]) > len(tokens) for eos in guide.index.vocabulary.eos_token_ids)


def _ends_with(token: int, guide: Guide) -> bool:
    """Whether the grammar itself asks for this special token, and is complete after it. (The text of an ordinary token
    would be missing from the answer: vLLM removes stop tokens.)"""
    vocabulary = guide.index.vocabulary
    is_special = token < vocabulary.size and vocabulary.token_bytes(token) is None
    return is_special and can_finish_after([token], guide)


def set_token(row: Int32, token: int, *, allowed: bool) -> None:
    """Set the bit of a token, if the mask has one for it."""
    if token >> 5 >= row.size:
        return
    bit = np.uint32(1 << (token & 31)).view(np.int32)
    row[token >> 5] = row[token >> 5] | bit if allowed else row[token >> 5] & ~bit
