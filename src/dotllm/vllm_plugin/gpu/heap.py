"""Engine core: where the byte tables lie on the device, and what of them must be sent.

The device keeps one array of ints, the heap (`kernels`). A table there is [byte classes, how many rows there are, the
rows], with room for more of them; one that outgrows its room moves to the end and is sent again. When the heap is full
it begins anew with the tables that somebody stands on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

import numpy as np

from dotllm.index.gpu_tables import CLASS_TABLE, FLAGS, ROW
from dotllm.vllm_plugin.gpu.claim import Claims
from dotllm.vllm_plugin.gpu.entry import Entry
from dotllm.vllm_plugin.gpu_masks.message import Int32

logger = logging.getLogger(__name__)

HEADER = CLASS_TABLE + 1  # ints before the rows of a table
FIRST_ROWS = 256  # that a table has room for, until it outgrows them
HEAP_LIMIT = 1 << 26  # ints: 256 MiB of tables

NOTHING: Int32 = np.zeros(0, np.int32)
NO_RUNS: Int32 = np.zeros((0, 2), np.int32)


class Patches(NamedTuple):
    """What is new on the heap: ``runs`` and ``patch`` of a `WalkStep`, the tables that have moved, and the masks that
    the new rows name."""

    runs: Int32
    patch: Int32
    moved: Sequence[Entry]
    masks: Set[int]


_NONE = Patches(NO_RUNS, NOTHING, (), frozenset())


class Heap:
    """See the module."""

    def __init__(self, claims: Claims) -> None:
        self.used = 0
        self.changed: dict[Entry, None] = {}
        """tables with something to send, in the order in which it came"""
        self._claims = claims

    def is_full(self) -> bool:
        """Whether there is no room for what has changed."""
        grown = (entry for entry in self.changed if len(entry.table.rows) > entry.capacity)
        return self.used + sum(HEADER + _room(entry) * entry.table.columns for entry in grown) > HEAP_LIMIT

    def begin_anew(self, stays: Iterable[Entry]) -> None:
        """Forget where all tables lie; those that stay are sent again. All others must be `gone`."""
        logger.info("the byte tables on the device begin anew (%d MiB)", self.used >> 18)
        self.used = 0
        self.changed.clear()
        for entry in stays:
            entry.base = entry.capacity = entry.sent = 0
            self.changed[entry] = None

    def patches(self, now: int) -> Patches:
        """What the message of time ``now`` brings."""
        if not self.changed:
            return _NONE
        runs: list[tuple[int, int]] = []
        values: list[Int32] = []
        moved: list[Entry] = []
        masks: set[int] = set()
        for entry in self.changed:
            if entry.gone:
                continue
            with self._claims.on(entry.index.lock):
                grown = len(entry.table.rows) > entry.capacity
                if grown:  # all of it is sent again
                    entry.changed.update(np.nonzero(entry.table.rows[:, FLAGS])[0].tolist())
                if not entry.changed:  # a blank table gets no place, where its header would be that of another one
                    continue
                if grown:
                    self._make_room(entry)
                    moved.append(entry)
                self._patches_of(entry, now, runs, values, masks)
        self.changed.clear()
        if not runs:
            return Patches(NO_RUNS, NOTHING, moved, masks)
        return Patches(np.array(runs, np.int32), np.concatenate(values, dtype=np.int32), moved, masks)

    def _make_room(self, entry: Entry) -> None:
        """A place for a table that has none, or has outgrown it."""
        entry.base, entry.capacity, entry.sent = self.used, _room(entry), 0
        self.used += HEADER + entry.capacity * entry.table.columns

    def _patches_of(
        self, entry: Entry, now: int, runs: list[tuple[int, int]], values: list[Int32], masks: set[int]
    ) -> None:
        # Copies, made under the lock: `prefetch` may find a mask before the message has all its pieces, and the device
        # must not be told of one that is not sent with it.
        table, columns = entry.table, entry.table.columns
        known, end = entry.sent, max(entry.changed) + 1
        again = [config for config in entry.changed if config < known]
        entry.changed.clear()
        for config in again:
            runs.append((entry.base + HEADER + config * columns, columns))
            values.append(table.rows[config].copy())
        if end > known:
            # Blank rows in between, too: what lies there on the device may be left from another table.
            if known:
                runs += [
                    (entry.base + CLASS_TABLE, 1),
                    (entry.base + HEADER + known * columns, (end - known) * columns),
                ]
                values += [np.array([end], np.int32), table.rows[known:end].flatten()]
            else:
                runs.append((entry.base, HEADER + end * columns))
                values += [table.class_of, np.array([end], np.int32), table.rows[:end].flatten()]
            again += (known + np.nonzero(table.rows[known:end, FLAGS])[0]).tolist()
            entry.sent = end
        table.since[again] = now
        masks.update(row for row in table.rows[again, ROW].tolist() if row >= 0)


def _room(entry: Entry) -> int:
    """Rows that a table gets on the heap."""
    return max(FIRST_ROWS, len(entry.table.rows))
