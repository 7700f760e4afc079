"""An index as a table that a GPU can walk: one row per configuration, one column per byte class.

A machine's transitions are found by closures, stacks and hash tables; none of that suits a GPU. But configurations are
dense numbers, so what has been visited *is* a finite automaton over bytes, and walking that is one load per byte. A
`ByteTable` is this automaton as int32 rows:

    [mask row or UNKNOWN_ROW, flags, next configuration per byte class (0: not allowed)]

Rows are filled on demand, whole. A row that is not there yet (flag EXPANDED missing, or beyond the table) is a miss: who
walks must ask the index. `Follower` is that other side: it moves a batch of guides in one kernel call and says for each
whether the place it came to is in its table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

from dotllm.arrays import Int32
from dotllm.automata.machine.arena import FUEL
from dotllm.automata.machine.layout import (
    ACCEPTS,
    CONFIG,
    FINISHED,
    H_CLASS_BYTE,
    H_CLASS_OF,
    H_CLASSES,
    H_FUEL,
    H_OUT,
    HAS_TOKENS,
    S_FLAGS,
    STATE,
    R,
)
from dotllm.automata.machine.masks import known_row
from dotllm.automata.machine.run import advance, configuration, run_bytes
from dotllm.index.index import Index
from dotllm.index.kernels import B1, I1, I2, L1, U8, I, _pointer
from dotllm.jit import kernel

UNKNOWN_ROW = -2  # the mask has not been computed, or is not there
ROW, FLAGS, NEXT = 0, 1, 2  # columns
EXPANDED, CAN_FINISH, TAKES_TOKENS = 1, 2, 4  # flags

MAX_CONFIGS = 1 << 14  # rows of a table at most: 4 MB at 60 byte classes
CLASS_TABLE = 256  # ints: byte → class


@kernel(I(nb.int32[::1], U8, I1, I2, I))
def expand_rows(mem, class_bytes, configs, table, fuel):
    """Fill the rows of ``configs`` (all below table.shape[0]). Returns how many are done, or an error of a kernel."""
    classes = mem[H_CLASSES]
    for i in range(configs.shape[0]):
        config = configs[i]
        at = mem[R + 3 * CONFIG] + 3 * config
        state, stack = I(mem[at]), I(mem[at + 1])
        flags = mem[mem[R + 3 * STATE] + 8 * state + S_FLAGS]
        for cls in range(classes):
            mem[H_FUEL] = fuel
            after = run_bytes(mem, state, stack, class_bytes, cls, cls + 1)
            if after > 0:
                after = configuration(mem, after, mem[H_OUT])
            if after < 0:
                return after
            table[config, NEXT + cls] = after
        table[config, FLAGS] = (
            EXPANDED | (CAN_FINISH if flags & ACCEPTS else 0) | (TAKES_TOKENS if flags & HAS_TOKENS else 0)
        )
    return configs.shape[0]


@kernel(nb.boolean(I2, I1, I1, I, I, I, U8, I, I))
def walks(table, since, class_of, now, config, after, data, start, end):
    """Whether the table, as it was at time ``now``, leads from config to ``after`` by data[start:end], and has its mask."""
    for i in range(start, end):
        if config <= 0 or config >= table.shape[0] or since[config] > now or table[config, FLAGS] & EXPANDED == 0:
            return False
        config = I(table[config, NEXT + class_of[data[i]]])
    return (
        config == after and start < end and 0 < config < table.shape[0] and since[config] <= now
        and table[config, ROW] != UNKNOWN_ROW
    )  # fmt: skip


@kernel(nb.void(L1, L1, L1, I1, I1, I1, I, U8, I1, B1, I, I, I1, I1, B1))
def follow(
    machines, token_row_addresses, tables, configs, slots, tokens, now, token_data, token_offset, ends, words, fuel, after,
    rows, in_table
):  # fmt: skip
    """Move the guides in ``slots`` by one token each; write what comes of it, leave ``configs`` as they are.

    By slot: machines, token_row_addresses [slots * 2]: address and size; tables [slots * 5]: addresses of the ByteTable's
    rows, since and class_of, its rows and columns (rows 0: none); configs. By position: slots, tokens, and the results
    after (configuration, -1: not allowed, or an error of a kernel), rows (that of the table, else mask row, -1: not
    known) and in_table: whether whoever walks the table as it was at time ``now`` comes to the same place and mask.
    """
    for i in range(slots.shape[0]):
        s = slots[i]
        mem = nb.carray(_pointer(machines[2 * s]), (machines[2 * s + 1],), nb.int32)
        token_rows = nb.carray(_pointer(token_row_addresses[2 * s]), (token_row_addresses[2 * s + 1], words), nb.int32)
        mem[H_FUEL] = fuel
        config = advance(mem, configs[s], tokens[i], token_data, token_offset, ends, token_rows)
        after[i] = config
        rows[i] = -1
        in_table[i] = False
        if config == FINISHED:
            in_table[i] = True
        elif config > 0:
            count = tables[5 * s + 3]
            if count > 0:
                table = nb.carray(_pointer(tables[5 * s]), (count, tables[5 * s + 4]), nb.int32)
                since = nb.carray(_pointer(tables[5 * s + 1]), (count,), nb.int32)
                class_of = nb.carray(_pointer(tables[5 * s + 2]), (CLASS_TABLE,), nb.int32)
                start, end = token_offset[tokens[i]], token_offset[tokens[i] + 1]
                in_table[i] = walks(table, since, class_of, now, configs[s], config, token_data, start, end)
                if config < count:
                    rows[i] = table[config, ROW]
            if rows[i] < 0:
                rows[i] = known_row(mem, config)


class ByteTable:
    """See the module. The index's lock must be held by whoever calls; rows only ever change from unknown to known."""

    def __init__(self, index: Index) -> None:
        mem = index.mem
        self.index = index
        self.classes = int(mem[H_CLASSES])
        first = int(mem[H_CLASS_BYTE])
        self._class_bytes = mem[first : first + self.classes].astype(np.uint8)
        first = int(mem[H_CLASS_OF])
        self.class_of: Int32 = mem[first : first + CLASS_TABLE].copy()
        """int32 [256], the class of each byte"""
        self.rows = self._blank(256)
        """int32 [capacity, 2 + classes]; grows up to MAX_CONFIGS"""
        self.since: Int32 = np.zeros(256, np.int32)
        """int32 [capacity], the time from which on a row is where it is walked (the caller's clock)"""

    def _blank(self, count: int) -> Int32:
        rows = np.zeros((count, NEXT + self.classes), np.int32)
        rows[:, ROW] = UNKNOWN_ROW
        return rows

    @property
    def columns(self) -> int:
        """Ints in a row."""
        return NEXT + self.classes

    def is_expanded(self, config: int) -> bool:
        """Whether the row of ``config`` holds its transitions."""
        return config < len(self.rows) and bool(self.rows[config, FLAGS] & EXPANDED)

    def expand(self, configs: Sequence[int]) -> list[int]:
        """Fill the rows of ``configs``; those that were not filled before and fit. Raises BudgetExceeded."""
        new = [c for c in configs if 0 < c < MAX_CONFIGS and not self.is_expanded(c)]
        if not new:
            return new
        highest = max(new)
        if highest >= len(self.rows):
            grown = self._blank(min(MAX_CONFIGS, max(2 * len(self.rows), highest + 1)))
            grown[: len(self.rows)] = self.rows
            self.rows = grown
            since = np.zeros(len(grown), np.int32)
            since[: len(self.since)] = self.since
            self.since = since
        wanted = np.array(new, np.int32)
        index = self.index
        index.run(lambda mem: int(expand_rows(mem, self._class_bytes, wanted, self.rows, FUEL)))
        return new

    def path(self, config: int, token: int) -> list[int]:
        """``config`` and the configurations between the bytes of ``token``, expanded; the one it ends in is not."""
        space = self.index.space
        passed: list[int] = []
        for byte in space.token_data[space.token_offset[token] : space.token_offset[token + 1]].tolist():
            passed.append(config)
            if config <= 0 or config >= MAX_CONFIGS:
                break
            self.expand([config])
            config = int(self.rows[config, NEXT + self.class_of[byte]])
        return passed

    def set_row(self, config: int, row: int) -> None:
        """Enter the mask row of a configuration."""
        if config < len(self.rows):
            self.rows[config, ROW] = row


class Batch:
    """What `follow` needs, by slot: arrays that only change when a slot does."""

    def __init__(self, slots: int) -> None:
        self.machines: NDArray[np.int64] = np.zeros((slots, 2), np.int64)
        self.token_rows: NDArray[np.int64] = np.zeros((slots, 2), np.int64)
        self.tables: NDArray[np.int64] = np.zeros((slots, 5), np.int64)
        self.configs: Int32 = np.zeros(slots, np.int32)

    def set_index(self, slot: int, index: Index, table: ByteTable | None) -> None:
        """Point a slot at an index (again, after its arena or its table has moved)."""
        self.machines[slot] = index.machine
        self.token_rows[slot] = index.token_rows_machine
        if table is None:
            self.tables[slot] = 0
        else:
            addresses = (table.rows.ctypes.data, table.since.ctypes.data, table.class_of.ctypes.data)
            self.tables[slot] = (*addresses, *table.rows.shape)

    def follow(self, index: Index, slots: Int32, tokens: Int32, now: int) -> tuple[Int32, Int32, NDArray[np.bool_]]:
        """(after, rows, in_table) of `follow`. ``index``: any of the batch. The locks of all of them must be held."""
        space = index.space
        n = len(slots)
        after, rows, in_table = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.bool_)
        follow(
            self.machines.reshape(-1), self.token_rows.reshape(-1), self.tables.reshape(-1), self.configs, slots, tokens,
            now, space.token_data, space.token_offset, space.ends, space.words, FUEL, after, rows, in_table,
        )  # fmt: skip
        return after, rows, in_table
