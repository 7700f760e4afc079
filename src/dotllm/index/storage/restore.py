"""Kernels: restore an arena from a saved index, without the GIL.

An index is loaded on a thread beside an engine's loop, often while a request waits for it
(`compilation.workers.process`). Each moment of Python here would be taken from that loop.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import rehash_lists
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.memory import fill_triples
from dotllm.index.mask_table import is_empty
from dotllm.index.storage.verify_arena import ALL_VALID, WAY_ARRAYS, first_invalid_region
from dotllm.jit import I, kernel

TABLES = (L.LISTS, L.TRIPLES)
"""Regions that are hash tables: not saved (of TRIPLES its entries are), filled again."""
SCRATCH = (L.BUFFER, L.LOCAL)
"""Regions that mean nothing between two calls."""
FOUND_AGAIN = (L.PLACES, L.TAILS)
"""Regions that are filled when they are first needed."""
UNSAVED = TABLES + SCRATCH + FOUND_AGAIN

_WIDTH = np.array(L.WIDTH, np.int64)

DOES_NOT_FIT = -2


@kernel(I(MEM, MEM, nb.int64[::1], I))
def restore(mem: Int32, saved: Int32, lengths: Int64, rows: int) -> int:
    """Fill the regions of an arena and its hash tables. Returns ALL_VALID, or the first region whose numbers cannot be
    used (`verify_arena`), or DOES_NOT_FIT if the lengths are not those of regions with enough capacity.

    saved: the parts that `file.dump` wrote between the automaton and the rows of masks, back to back: the entries of
    TRIPLES, the shortest ways (or nothing), then the regions that are saved; lengths int64 [parts]: ints in each; rows:
    how many rows there are.
    """
    source, part = lengths[0] + lengths[1], 2
    if lengths[1] != 0:
        if lengths[1] != WAY_ARRAYS * mem[L.H_NODES]:
            return DOES_NOT_FIT
        mem[mem[L.H_WAY_COST] : mem[L.H_WAY_COST] + lengths[1]] = saved[lengths[0] : source]
        mem[L.H_HAS_WAYS] = 1
    mem[L.USED_PLACES] = mem[L.USED_TAILS] = 1
    for r in range(L.REGIONS):
        if r in UNSAVED:
            continue
        start, count = mem[L.R + 3 * r], lengths[part]
        if count % _WIDTH[r] != 0 or count > mem[L.R + 3 * r + 1] * _WIDTH[r]:
            return DOES_NOT_FIT
        for i in range(count):
            mem[start + i] = saved[source + i]
        if r != L.DELTA:
            mem[L.R + 3 * r + 2] = count // _WIDTH[r]
        source += count
        part += 1
    triples = allocate.copied_ints(saved[: lengths[0]]).reshape((lengths[0] // 5, 5))
    region = first_invalid_region(mem, triples, rows)
    if region == ALL_VALID:
        fill_triples(mem, triples)
        rehash_lists(mem)
    return region


@kernel(nb.boolean(MEM, nb.int32[:, ::1]))
def unpack_rows(packed: Int32, rows: Int32) -> bool:
    """Fill rows of masks int32 [n, words] (zeroed) from their differences (see `file`). False: these are damaged, or a
    row allows no token."""
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
            for k in range(words):
                rows[i, k] = rows[reference, k]
        for k in range(n):
            word = packed[position + k]
            if word < 0 or word >= words:
                return False
            rows[i, word] = packed[position + n + k]
        position += 2 * n
        if is_empty(rows[i]):
            return False
    return True


@kernel(nb.void(MEM, MEM, I))
def renumber_rows(mem: Int32, renumber: Int32, end_row: int) -> None:
    """Give the rows that an arena knows (see `file.row_numbers`) the numbers they have here; end_row: that of the
    configuration behind the end."""
    configs, states, memos = mem[L.AT_CONFIG], mem[L.AT_STATE], mem[L.AT_MEMO]
    for i in range(mem[L.USED_CONFIG]):
        row = mem[configs + 3 * i + 2]
        if row >= 0:
            mem[configs + 3 * i + 2] = renumber[row]
    for i in range(mem[L.USED_STATE]):
        row = mem[states + L.S_WIDTH * i + L.S_MEMO]
        if row >= 0:
            mem[states + L.S_WIDTH * i + L.S_MEMO] = renumber[row]
    for i in range(mem[L.USED_MEMO]):
        row = mem[memos + i]
        if row >= 0:
            mem[memos + i] = renumber[row]
    mem[configs + 2] = end_row
