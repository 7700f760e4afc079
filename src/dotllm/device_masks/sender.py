"""What workers are sent of the masks of a step: rows for a table on a device, or a bitmask."""

from __future__ import annotations

import secrets

import numpy as np

from dotllm.arrays import Int32
from dotllm.device_masks.message import TABLE_SLOTS, MaskRows, positions
from dotllm.index.draft_rows import NO_MASK
from dotllm.index.token_space import TokenSpace

_MEMO = 1 << 12  # rows that are remembered


class StepMasks:
    """The rows that no index knows, and what is sent (`message`)."""

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self._known: dict[tuple[int, bool, tuple[int, ...]], int] = {}

    def message(self, counts: Int32, rows: Int32) -> MaskRows | Int32:
        """What is sent for ``rows`` int32 [positions], row numbers or NO_MASK; ``counts`` int32 [requests]: how many of
        them each request has."""
        raise NotImplementedError

    def row(self, tokens: tuple[int, ...], *, allowed: bool) -> int:
        """The row that allows ``tokens`` alone, or everything but them (NO_MASK without any). A server has a few of
        them. No index knows them, so their numbers are good for an epoch (see `TokenSpace`). Raises BudgetExceededError
        when there is no room for it."""
        if not tokens:
            return NO_MASK
        space = self.space
        key = (space.epoch, allowed, tokens)
        row = self._known.get(key)
        if row is None:
            if len(self._known) >= _MEMO:
                self._known.clear()
            mask = np.zeros(space.words, np.uint32)
            for token in tokens:
                if token >> 5 < space.words:
                    mask[token >> 5] |= np.uint32(1 << (token & 31))
            row = self._known[key] = space.intern((mask if allowed else ~mask).view(np.int32))
        return row


class RowSender(StepMasks):
    """Where workers keep a table: knows which rows they have; one for the lifetime of an engine core and its workers.

    Row r has slot r while r < TABLE_SLOTS. Rows beyond are put behind the table for one step only, and sent whenever
    they are needed.
    """

    def __init__(self, space: TokenSpace) -> None:
        super().__init__(space)
        self.sender = secrets.randbits(62)
        # The version of each row that the workers have: row numbers are used again (see `TokenSpace`).
        self._sent = np.zeros(TABLE_SLOTS, np.int64)

    def message(self, counts: Int32, rows: Int32) -> MaskRows:
        """The message for ``rows`` (int32 [positions], row numbers or NO_MASK)."""
        space, slots = self.space, rows
        kept = rows[(rows >= 0) & (rows < TABLE_SLOTS)]
        new = kept[self._sent[kept] != space.versions[kept]]
        if len(new):
            new = np.unique(new)
            self._sent[new] = space.versions[new]
        new_rows = space.rows[new]
        beyond = rows >= TABLE_SLOTS
        if beyond.any():
            passing, place = np.unique(rows[beyond], return_inverse=True)
            slots = rows.copy()
            slots[beyond] = TABLE_SLOTS + place
            new = np.concatenate([new, TABLE_SLOTS + np.arange(len(passing), dtype=np.int32)])
            new_rows = np.concatenate([new_rows, space.rows[passing]])
        return MaskRows(self.sender, counts, slots, new, new_rows)


class Bitmasks(StepMasks):
    """Where workers keep no table: vLLM's bitmask."""

    def __init__(self, space: TokenSpace, block: int = 0) -> None:
        """``block``: rows of the bitmask that each request has; 0: one for each of its positions."""
        super().__init__(space)
        self._block = block

    def message(self, counts: Int32, rows: Int32) -> Int32:
        """int32 [requests * block or positions, words]."""
        firsts = self._block * np.arange(len(counts)) if self._block else np.cumsum(counts) - counts
        bitmask = np.full((self._block * len(counts) or len(rows), self.space.words), -1, np.int32)
        masked = rows >= 0
        bitmask[positions(counts, firsts)[masked]] = self.space.rows[rows[masked]]
        return bitmask
