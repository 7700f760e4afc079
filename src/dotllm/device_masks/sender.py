"""What workers are sent of the masks of a step: rows for a table on a device, or a bitmask."""

from __future__ import annotations

import secrets

import numpy as np

from dotllm.arrays import Int32
from dotllm.device_masks.message import TABLE_SLOTS, MaskRows, positions
from dotllm.index.draft_rows import NO_MASK
from dotllm.index.token_space import TokenSpace


class StepMasks:
    """The rows that no index knows, and what is sent (`message`)."""

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self._all_but: dict[tuple[int, ...], tuple[int, int]] = {}  # (epoch, row)

    def message(self, counts: Int32, rows: Int32) -> MaskRows | Int32:
        """What is sent for ``rows`` int32 [positions], row numbers or NO_MASK; ``counts`` int32 [requests]: how many of
        them each request has."""
        raise NotImplementedError

    def all_but(self, tokens: tuple[int, ...]) -> int:
        """The row that allows everything but ``tokens``, or NO_MASK without any. A server has one or two of them. No
        index knows it, so its number is good for an epoch (see `TokenSpace`). Raises BudgetExceeded when there is no
        room for it."""
        if not tokens:
            return NO_MASK
        space = self.space
        epoch, row = self._all_but.get(tokens, (-1, -1))
        if epoch != space.epoch:
            mask = np.full(space.words, -1, np.int32)
            for token in tokens:
                mask.view(np.uint32)[token >> 5] &= ~np.uint32(1 << (token & 31))
            row = space.intern(mask)
            self._all_but[tokens] = (space.epoch, row)
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
