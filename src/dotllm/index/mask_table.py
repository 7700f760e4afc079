"""Kernels that keep the table of mask rows, int32 [rows, words], without duplicates.

Its arrays, as kernels take them:

* ``rows`` int32 [rows, words]: 32 tokens a word, token t at bit t % 32 of word t // 32;
* ``used`` int64 [4]: how many rows were ever used, how many are free again, the epoch, how many contents so far;
* ``table`` int64 [slots, 2]: (hash, row + 1), an open-addressing hash table, slots a power of two, at most half full;
* ``meta`` int64 [rows, 3]: the hash of a row (-1: free), the epoch it was last interned in, its version;
* ``free`` int32 [rows]: a stack of the row numbers that are free again.

`token_space` says who holds the lock of the table, and when rows are freed.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.machine.layout import FULL
from dotllm.index.helper_pool import load
from dotllm.jit import inner_kernel, kernel

END_ROW = 0  # the row that allows only the end tokens
ROWS_FULL, EMPTY_ROW = FULL - 64, FULL - 65
"""Errors of kernels: the table is full; a mask allows no token."""
USED, FREE, EPOCH, CONTENTS = range(4)  # of ``used``
META_HASH, META_EPOCH, META_VERSION = range(3)
_PROBES = 64  # steps of a look-up at most, because it may see the table half rebuilt


@kernel(nb.int64(nb.int32[::1]))
def row_hash(row: Int32) -> int:
    """A hash >= 0 of a row int32 [words]: NH (Black et al., UMAC, 1999), which compiles to vector instructions.

    It sums products of a word of the first half and a word of the second, after adding to each a key of its position.
    """
    low = np.uint64(0xFFFFFFFF)
    half = row.shape[0] // 2
    second = row[half:]
    total = np.uint64(0x243F6A8885A308D3)
    for i in range(half):
        key = (np.uint64(i + 1) * np.uint64(0x9E3779B1)) & low
        key *= key  # not linear in the position, or neighbours would have related keys
        factor = (np.uint64(np.uint32(row[i])) + (key >> np.uint64(7))) & low
        two = (np.uint64(np.uint32(second[i])) + (key >> np.uint64(23))) & low
        total += factor * two
    if row.shape[0] % 2:
        total += np.uint64(np.uint32(row[row.shape[0] - 1])) * np.uint64(0x9E3779B97F4A7C15)
    total ^= total >> np.uint64(32)
    total *= np.uint64(0x9E3779B97F4A7C15)
    total ^= total >> np.uint64(29)
    return nb.int64(total >> np.uint64(1))


@inner_kernel(nb.boolean(nb.int32[::1]))
def is_empty(row: Int32) -> bool:
    """Whether a row allows no token."""
    for i in range(row.shape[0]):
        if row[i] != 0:
            return False
    return True


@kernel(nb.boolean(nb.int32[::1], nb.int32[::1]))
def equal_rows(row: Int32, other: Int32) -> bool:
    """Whether two rows are equal."""
    n = row.shape[0]
    for start in range(0, n - 63, 64):  # a block at a time: a loop that may end at each word is not vectorised
        a, b = row[start : start + 64], other[start : start + 64]
        differ = nb.int32(0)
        for i in range(64):
            differ |= a[i] ^ b[i]
        if differ != 0:
            return False
    for i in range(n - n % 64, n):
        if row[i] != other[i]:
            return False
    return True


@kernel(nb.int64(nb.int32[:, ::1], nb.int64[:, ::1], nb.int64, nb.int32[::1]))
def likely_row(rows: Int32, table: Int64, tag: int, row: Int32) -> int:
    """The number of the row with this content and hash, or -1. Other threads may change the table in the meantime.

    So without the lock the result is a guess, which `confirm_row` checks: the row may have been freed, and its number
    reused.
    """
    slots = table.shape[0]
    slot = tag & (slots - 1)
    address = nb.int64(table.ctypes.data)
    for _ in range(_PROBES):
        number = load(address + 16 * slot + 8) - 1
        if number < 0:
            return -1
        if load(address + 16 * slot) == tag and equal_rows(rows[number], row):
            return number
        slot = (slot + 1) & (slots - 1)
    return -1


@kernel(nb.boolean(nb.int64[::1], nb.int64[:, ::1], nb.int64, nb.int64, nb.int64))
def confirm_row(used: Int64, meta: Int64, number: int, tag: int, since: int) -> bool:
    """Whether a guess of `likely_row` holds: row ``number`` still has the hash ``tag``, and has had its content since
    before the guess, when there were ``since`` contents (`CONTENTS`). If so, it counts as interned now. Hold the lock.
    """
    if number < 0 or meta[number, META_HASH] != tag or meta[number, META_VERSION] > since:
        return False
    meta[number, META_EPOCH] = used[EPOCH]
    return True


@kernel(
    nb.int64(
        nb.int32[:, ::1], nb.int64[::1], nb.int64[:, ::1], nb.int64[:, ::1], nb.int32[::1], nb.int64, nb.int32[::1]
    )
)  # fmt: skip
def intern_row(rows: Int32, used: Int64, table: Int64, meta: Int64, free: Int32, tag: int, row: Int32) -> int:
    """The number of the row with this content and hash, stored if it is new; -1: the table is full. Hold the lock.

    See the module for the arrays. tag: `row_hash` of ``row`` int32 [words].
    """
    slots = table.shape[0]
    slot = tag & (slots - 1)
    while table[slot, 1] != 0:
        if table[slot, 0] == tag:
            number = table[slot, 1] - 1
            if equal_rows(rows[number], row):
                meta[number, META_EPOCH] = used[EPOCH]
                return number
        slot = (slot + 1) & (slots - 1)
    if used[FREE] > 0:
        used[FREE] -= 1
        number = nb.int64(free[used[FREE]])
    else:
        number = used[USED]
        if number >= rows.shape[0]:
            return -1
        used[USED] = number + 1
    used[CONTENTS] += 1
    for i in range(row.shape[0]):  # (Numba takes two seconds to compile an assignment to a slice)
        rows[number, i] = row[i]
    meta[number, META_HASH] = tag
    meta[number, META_EPOCH] = used[EPOCH]
    meta[number, META_VERSION] = used[CONTENTS]
    table[slot, 0] = tag
    table[slot, 1] = number + 1
    return number


@kernel(
    nb.boolean(
        nb.int32[:, ::1], nb.int64[::1], nb.int64[:, ::1], nb.int64[:, ::1], nb.int32[::1], nb.int32[:, ::1],
        nb.int32[::1],
    )
)  # fmt: skip
def intern_rows(rows: Int32, used: Int64, table: Int64, meta: Int64, free: Int32, masks: Int32, numbers: Int32) -> bool:
    """`intern_row` for all of ``masks`` int32 [n, words]: their numbers go to ``numbers`` int32 [n]. False: the table
    is full, and ``numbers`` is incomplete. Hold the lock."""
    for i in range(masks.shape[0]):
        number = intern_row(rows, used, table, meta, free, row_hash(masks[i]), masks[i])
        if number < 0:
            return False
        numbers[i] = number
    return True


@kernel(nb.int64(nb.int64[::1], nb.int64[:, ::1], nb.int64[:, ::1], nb.int32[::1], nb.boolean[::1]))
def free_rows(used: Int64, table: Int64, meta: Int64, free: Int32, known: Bool) -> int:
    """Free the rows that are neither ``known`` (bool [rows]) nor interned in this epoch or the last. Returns how many.

    Rebuilds the hash table. Hold the lock.
    """
    already = allocate.zero_flags(meta.shape[0])
    for i in range(used[FREE]):
        already[free[i]] = True
    table[:] = 0
    slots = table.shape[0]
    freed = 0
    for number in range(used[USED]):
        if already[number]:
            continue
        if not known[number] and meta[number, META_EPOCH] < used[EPOCH] - 1:
            meta[number, META_HASH] = -1
            free[used[FREE]] = number
            used[FREE] += 1
            freed += 1
            continue
        slot = meta[number, META_HASH] & (slots - 1)
        while table[slot, 1] != 0:
            slot = (slot + 1) & (slots - 1)
        table[slot, 0] = meta[number, META_HASH]
        table[slot, 1] = number + 1
    return freed


@kernel(nb.boolean(nb.int32[::1], nb.int64[::1], nb.int64[:]))
def all_sent(rows: Int32, taken: Int64, versions: Int64) -> bool:
    """Whether `unsent_rows` would list none."""
    for row in rows:
        if row >= taken.shape[0] or (row >= 0 and taken[row] != versions[row]):
            return False
    return True


@kernel(nb.int64(nb.int32[::1], nb.int64[::1], nb.int64[:], nb.int32[::1], nb.int32[::1], nb.int32[:, ::1]))
def unsent_rows(rows: Int32, taken: Int64, versions: Int64, slots: Int32, fresh: Int32, unsent: Int32) -> int:
    """List in unsent[0] those of ``rows`` (below 0: no row) that a copy of the table's first rows needs: their version
    is not the one ``taken``, or they are beyond the copy. Returns how many there are.

    slots[i], and unsent[1] for those listed, is the place of a row in the copy: its number, or a place after the copy
    for rows beyond it. fresh[i]: the position of rows[i] in ``unsent``, or -1.
    """
    count, beyond = 0, 0
    for i in range(rows.shape[0]):
        row = rows[i]
        slots[i], fresh[i] = row, -1
        if row < 0 or (row < taken.shape[0] and taken[row] == versions[row]):
            continue
        for j in range(count):
            if unsent[0, j] == row:
                fresh[i] = j
                break
        if fresh[i] < 0:
            fresh[i] = count
            unsent[0, count] = unsent[1, count] = row
            if row >= taken.shape[0]:
                unsent[1, count] = taken.shape[0] + beyond
                beyond += 1
            count += 1
        slots[i] = unsent[1, fresh[i]]
    return count
