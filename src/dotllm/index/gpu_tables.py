"""An index as a table that a GPU can walk: one row per configuration, one column per byte class.

A machine's transitions are found by closures, stacks and hash tables; none of that suits a GPU. But configurations are
dense numbers, so what has been visited *is* a finite automaton over bytes, and walking that is one load per byte. A
`ByteTable` is this automaton as int32 rows:

    [mask row or UNKNOWN_ROW, flags, next configuration per byte class (0: not allowed)]

Rows are filled on demand, whole. A row that is not there yet (flag EXPANDED missing, or beyond the table) is a miss:
who walks must ask the index. `follow` is the index's side of that: it moves a batch of guides in one kernel call and
says which of them a table could not have led to the same place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba as nb
import numpy as np
from numpy.typing import NDArray

from dotllm.arrays import Bool, Int32, Int64, UInt8
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
from dotllm.automata.machine.run import advance, configuration, run_bytes
from dotllm.index.index import Index
from dotllm.index.kernels import B1, I1, I2, L1, U8, I, _pointer
from dotllm.index.token_space import TokenSpace
from dotllm.jit import kernel

UNKNOWN_ROW = -2  # the mask has not been computed, or is not there
ROW, FLAGS, NEXT = 0, 1, 2  # columns
EXPANDED, CAN_FINISH, TAKES_TOKENS = 1, 2, 4  # flags

MAX_CONFIGS = 1 << 14  # rows of a table at most: 4 MB at 60 byte classes
CLASS_TABLE = 256  # ints: byte → class
NEVER = 2**31 - 1
NO_ROW = -1  # in a place: everything is allowed

LINKS = 9  # of a slot: arena (address, ints), token rows (address, rows), table (rows, since, class_of; rows, columns)
P_LENGTH, P_CONFIG, P_MASK = 1, 4, 5  # columns of a place


@kernel(I(nb.int32[::1], U8, I1, I2, I))
def expand_rows(mem: Int32, class_bytes: UInt8, configs: Int32, table: Int32, fuel: int) -> int:
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
def walks(
    table: Int32, since: Int32, class_of: Int32, now: int, config: int, after: int, data: UInt8, start: int, end: int
) -> bool:
    """Whether the table, as it was at ``now``, leads from config to ``after`` by data[start:end], and has its mask."""
    for i in range(start, end):
        if config <= 0 or config >= table.shape[0] or since[config] > now or table[config, FLAGS] & EXPANDED == 0:
            return False
        config = I(table[config, NEXT + class_of[data[i]]])
    return (
        config == after and start < end and 0 < config < table.shape[0] and since[config] <= now
        and table[config, ROW] != UNKNOWN_ROW
    )  # fmt: skip


@kernel(I(L1, I1, I1, I, U8, I1, B1, I, I1, I1))
def follow(
    context: Int64,
    slots: Int32,
    tokens: Int32,
    now: int,
    token_data: UInt8,
    token_offset: Int32,
    ends: Bool,
    words: int,
    after: Int32,
    slow: Int32,
) -> int:
    """Move the guides in ``slots`` by one token each, where the GPU has come to the same place; returns how many are
    left.

    context [5]: addresses of the arrays of a `Batch` and how many slots it has. By position: slots, tokens, after (the
    configuration, -1: not allowed, or an error of a kernel). A slot whose table, as it was at time ``now``, leads to
    the same configuration and knows its mask gets its new place in ``configs`` and ``places``; the positions of the
    others are listed in ``slow``, and nothing else is done about them.
    """
    count = context[4]
    links = nb.carray(_pointer(context[0]), (count, LINKS), nb.int64)
    configs = nb.carray(_pointer(context[1]), (count,), nb.int32)
    places = nb.carray(_pointer(context[2]), (count, context[3]), nb.int32)
    behind = 0
    for i in range(slots.shape[0]):
        s = slots[i]
        link = links[s]
        mem = nb.carray(_pointer(link[0]), (link[1],), nb.int32)
        token_rows = nb.carray(_pointer(link[2]), (link[3], words), nb.int32)
        mem[H_FUEL] = FUEL
        config = advance(mem, configs[s], tokens[i], token_data, token_offset, ends, token_rows)
        after[i] = config
        row = NO_ROW
        known = config == FINISHED
        if config > 0 and link[7] > 0:
            table = nb.carray(_pointer(link[4]), (link[7], link[8]), nb.int32)
            since = nb.carray(_pointer(link[5]), (link[7],), nb.int32)
            class_of = nb.carray(_pointer(link[6]), (CLASS_TABLE,), nb.int32)
            start, end = token_offset[tokens[i]], token_offset[tokens[i] + 1]
            if walks(table, since, class_of, now, configs[s], config, token_data, start, end):
                known = True
                row = table[config, ROW]
        if known:
            configs[s] = config
            places[s, P_LENGTH] += 1
            places[s, P_CONFIG] = config
            places[s, P_MASK] = row
        else:
            slow[behind] = i
            behind += 1
    return behind


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
        self.rows = self._blank(64)
        """int32 [capacity, 2 + classes]; grows up to MAX_CONFIGS"""
        self.since: Int32 = np.full(64, NEVER, np.int32)
        """int32 [capacity], the time from which on a row is where it is walked (the caller's clock), or NEVER"""

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
            since = np.full(len(grown), NEVER, np.int32)
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


def link_of(index: Index, table: ByteTable) -> Int64:
    """int64 [LINKS], where an index and its table lie, until one of them moves."""
    link: Int64 = np.zeros(LINKS, np.int64)
    link[:4] = np.frombuffer(index.machine, np.int64)
    link[4:7] = (table.rows.ctypes.data, table.since.ctypes.data, table.class_of.ctypes.data)
    link[7:9] = table.rows.shape
    return link


class Batch:
    """What `follow` needs of each slot: where its arena and its table lie, its configuration, and its place.

    places: int32 [slots, columns], of which only P_LENGTH, P_CONFIG and P_MASK mean anything here.
    """

    def __init__(self, slots: int, columns: int) -> None:
        self.links: NDArray[np.int64] = np.zeros((slots, LINKS), np.int64)
        self.configs: Int32 = np.zeros(slots, np.int32)
        self.places: Int32 = np.zeros((slots, columns), np.int32)
        self._point()

    def _point(self) -> None:
        self._after: Int32 = np.empty(len(self.configs), np.int32)
        self._slow: Int32 = np.empty(len(self.configs), np.int32)
        arrays = (self.links, self.configs, self.places)
        self._context = np.array([*(a.ctypes.data for a in arrays), self.places.shape[1], len(self.configs)], np.int64)

    def grow(self, slots: int) -> None:
        """Room for ``slots`` slots; what there was stays."""
        old = len(self.configs)
        for name in ("links", "configs", "places"):
            before = getattr(self, name)
            after = np.zeros((slots, *before.shape[1:]), before.dtype)
            after[:old] = before
            setattr(self, name, after)
        self._point()

    def follow(self, space: TokenSpace, slots: list[int], tokens: list[int], now: int) -> list[tuple[int, int]]:
        """`follow` for distinct slots, whose indexes' locks must be held: (position, after) of those left behind."""
        after, slow = self._after, self._slow
        behind = follow(
            self._context, np.array(slots, np.int32), np.array(tokens, np.int32), now, space.token_data,
            space.token_offset, space.ends, space.words, after, slow,
        )  # fmt: skip
        if not behind:
            return []
        return [(i, int(after[i])) for i in slow[:behind].tolist()]
