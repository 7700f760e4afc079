"""From what `storage.save` wrote to an arena that works, in three kernels.

They run without the interpreter's lock: an index is loaded on a thread beside an engine's loop, often while a request
waits for it (`compilation.process`), and what is Python here is taken from the loop.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.intern import rehash_lists
from dotllm.automata.machine.kinds import MEM, I
from dotllm.automata.machine.layout import (
    BUFFER,
    CONFIG,
    DELTA,
    H_CLASSES,
    H_END,
    H_FIRST,
    H_LIMIT,
    HEADER,
    LISTS,
    LOCAL,
    MEMO,
    REGIONS,
    S_MEMO,
    STATE,
    TRIPLES,
    R,
)
from dotllm.automata.machine.memory import fill_triples
from dotllm.jit import kernel

TABLES = (LISTS, TRIPLES)
"""Regions that are hash tables: not saved (of TRIPLES its entries are), filled again."""
SCRATCH = (BUFFER, LOCAL)
"""Regions that mean nothing between two calls."""

_WIDTH = np.array(at.WIDTH, np.int64)
_FREE = 64  # units of room in every region, besides a half of what is in it


@kernel(I(I))
def table_size(entries: int) -> int:
    """Slots of a hash table that is to be at most half full for some time."""
    size = 512
    while size < 4 * entries + 1:
        size *= 2
    return size


@kernel(MEM(nb.types.Array(nb.int32, 1, "C", readonly=True), nb.int64[::1], MEM, I))
def thaw(saved: Int32, lengths: Int64, slots: Int32, limit: int) -> Int32:
    """The arena again, with room to grow and its hash tables rebuilt.

    saved: the parts `storage.save` wrote back to back (all but the rows of masks), lengths: ints in each of them; slots
    [HEADER]: the arena's header then; limit: ints that it may grow to. Empty if they do not fit one another.
    """
    if lengths.sum() != saved.shape[0] or lengths.shape[0] != 2 + REGIONS - 4 or slots.shape[0] != HEADER:
        return np.zeros(0, np.int32)
    first = HEADER + lengths[0]
    triples = lengths[1] // 5
    capacity = np.zeros(REGIONS, np.int64)
    for r in range(REGIONS):
        count = I(slots[R + 3 * r + 2])
        capacity[r] = count + count // 2 + _FREE
    capacity[DELTA] = capacity[STATE] * I(slots[H_CLASSES])
    capacity[LISTS] = table_size(I(slots[R + 3 * LISTS + 2]))
    capacity[TRIPLES] = table_size(triples)
    capacity[BUFFER], capacity[LOCAL] = slots[R + 3 * BUFFER + 1], slots[R + 3 * LOCAL + 1]
    size = first
    for r in range(REGIONS):
        size += capacity[r] * _WIDTH[r]
    mem = np.zeros(size, np.int32)
    mem[:HEADER] = slots
    mem[HEADER:first] = saved[: lengths[0]]
    start, source, part = first, lengths[0] + lengths[1], 2
    for r in range(REGIONS):
        mem[R + 3 * r], mem[R + 3 * r + 1] = start, capacity[r]
        if r != LISTS and r != TRIPLES and r != BUFFER and r != LOCAL:
            if lengths[part] > capacity[r] * _WIDTH[r]:
                return np.zeros(0, np.int32)
            mem[start : start + lengths[part]] = saved[source : source + lengths[part]]
            source += lengths[part]
            part += 1
        start += capacity[r] * _WIDTH[r]
    mem[H_FIRST], mem[H_END], mem[H_LIMIT] = first, size, limit
    entries = saved[lengths[0] : lengths[0] + lengths[1]].copy().reshape((triples, 5))
    fill_triples(mem, entries)
    rehash_lists(mem)
    return mem


@kernel(nb.boolean(nb.types.Array(nb.int32, 1, "C", readonly=True), nb.int32[:, ::1]))
def unpack_rows(packed: Int32, rows: Int32) -> bool:
    """Rows of masks (zeroed) from their differences, see `storage`. False: they are damaged."""
    count, words = rows.shape
    position = 0
    for i in range(count):
        if position + 2 > packed.shape[0]:
            return False
        reference, n = packed[position], packed[position + 1]
        position += 2
        if reference < -1 or reference >= i or n < 0 or n > words or position + 2 * n > packed.shape[0]:
            return False
        if reference >= 0:
            rows[i] = rows[reference]
        for k in range(n):
            word = packed[position + k]
            if word < 0 or word >= words:
                return False
            rows[i, word] = packed[position + n + k]
        position += 2 * n
    return True


@kernel(nb.void(MEM, MEM, I))
def renumber_rows(mem: Int32, renumber: Int32, end_row: int) -> None:
    """Give the rows that an arena knows (see `storage.row_places`) the numbers they have here; end_row: that of the
    configuration behind the end."""
    configs, states, memos = mem[R + 3 * CONFIG], mem[R + 3 * STATE], mem[R + 3 * MEMO]
    for i in range(mem[R + 3 * CONFIG + 2]):
        row = mem[configs + 3 * i + 2]
        if row >= 0:
            mem[configs + 3 * i + 2] = renumber[row]
    for i in range(mem[R + 3 * STATE + 2]):
        row = mem[states + 8 * i + S_MEMO]
        if row >= 0:
            mem[states + 8 * i + S_MEMO] = renumber[row]
    for i in range(mem[R + 3 * MEMO + 2]):
        row = mem[memos + i]
        if row >= 0:
            mem[memos + i] = renumber[row]
    mem[configs + 2] = end_row
