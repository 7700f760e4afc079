"""Sends the masks of a step to the workers: as rows for a table on a device, or as a bitmask."""

from __future__ import annotations

import secrets
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dotllm.arrays import Int32
from dotllm.device_masks.message import TABLE_SLOTS, MaskRows, positions
from dotllm.index.draft_rows import NO_MASK
from dotllm.index.mask_table import all_sent, unsent_rows
from dotllm.index.token_space import TokenSpace

_MEMO = 1 << 12  # the most rows that are remembered
_IN_FLIGHT = 64  # steps whose results have not arrived; an engine has two, or one for each pipeline stage


class StepMasks:
    """The base of both senders: rows that no index refers to, and the message of a step (`message`)."""

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self._known: dict[tuple[int, bool, tuple[int, ...]], int] = {}

    def message(self, counts: Int32 | None, rows: Int32) -> MaskRows | Int32:
        """The message for ``rows`` (int32 [positions], row numbers or NO_MASK); ``counts`` (int32 [requests]) says how
        many of them each request has; None: one each."""
        raise NotImplementedError

    def sent_with(self, step: object) -> None:
        """The last message goes to the workers with ``step``, which is later passed to `arrived`."""

    def arrived(self, step: object) -> None:
        """The results of ``step`` have arrived, so the workers have taken its message."""

    def row(self, tokens: tuple[int, ...], *, allowed: bool) -> int:
        """The row that allows only ``tokens``, or everything except them (NO_MASK if ``tokens`` is empty). A server has
        a few such rows. No index refers to them, so their numbers are valid for one epoch (see `TokenSpace`). Raises
        BudgetExceededError when there is no room for the row."""
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


class _InFlight(NamedTuple):
    """Rows that went with a step whose results have not arrived."""

    step: object
    slots: Int32
    versions: npt.NDArray[np.int64]


class RowSender(StepMasks):
    """For workers that keep a table: knows which rows they have. Lives as long as an engine core and its workers.

    Row r has slot r if r < TABLE_SLOTS. Other rows get slots after the table for one step only, and are sent whenever
    they are needed.

    A step may fail while the engine continues (vLLM's fault tolerance); then no worker has taken its rows. So rows are
    sent again until the results of a step that brought them have arrived.
    """

    def __init__(self, space: TokenSpace) -> None:
        super().__init__(space)
        self.sender = secrets.randbits(62)
        # The version of each row that the workers have, because row numbers are reused (see `TokenSpace`).
        self._taken = np.zeros(TABLE_SLOTS, np.int64)
        self._last: tuple[Int32, npt.NDArray[np.int64]] | None = None  # slots and versions of the last message
        self._in_flight: deque[_InFlight] = deque(maxlen=_IN_FLIGHT)
        self._nothing = np.empty(0, np.int32), np.empty((0, space.words), np.int32)

    def message(self, counts: Int32 | None, rows: Int32) -> MaskRows:
        """See `StepMasks.message`."""
        space = self.space
        self._last = None
        if all_sent(rows, self._taken, space.versions):
            return MaskRows(self.sender, counts, rows, None, *self._nothing)
        slots, fresh = np.empty((2, len(rows)), np.int32)
        unsent = np.empty((2, len(rows)), np.int32)
        count = unsent_rows(rows, self._taken, space.versions, slots, fresh, unsent)
        sent, new_slots = unsent[:, :count]
        kept = sent[sent < TABLE_SLOTS]
        if len(kept):
            self._last = kept, space.versions[kept]
        return MaskRows(self.sender, counts, slots, fresh, new_slots, space.rows[sent])

    def sent_with(self, step: object) -> None:
        """Remember the rows that are new in ``step``."""
        if self._last is not None:
            self._in_flight.append(_InFlight(step, *self._last))
            self._last = None

    def arrived(self, step: object) -> None:
        """The workers have the rows of ``step``. Rows of earlier steps without results are sent again."""
        if self._in_flight and any(sent.step is step for sent in self._in_flight):
            while (sent := self._in_flight.popleft()).step is not step:
                pass
            self._taken[sent.slots] = sent.versions


class Bitmasks(StepMasks):
    """For workers that keep no table: vLLM's bitmask."""

    def __init__(self, space: TokenSpace, block: int = 0) -> None:
        """``block``: rows of the bitmask that each request has; 0: one for each of its positions."""
        super().__init__(space)
        self._block = block

    def message(self, counts: Int32 | None, rows: Int32) -> Int32:
        """int32 [requests * block or positions, words]."""
        counts = np.ones(len(rows), np.int32) if counts is None else counts
        firsts = self._block * np.arange(len(counts)) if self._block else np.cumsum(counts) - counts
        bitmask = np.full((self._block * len(counts) or len(rows), self.space.words), -1, np.int32)
        masked = rows >= 0
        bitmask[positions(counts, firsts)[masked]] = self.space.rows[rows[masked]]
        return bitmask
