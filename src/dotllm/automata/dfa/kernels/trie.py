"""Finite languages: the tree of sorted words."""

from __future__ import annotations

import numpy as np

from dotllm import allocate
from dotllm.automata.dfa.kernels.arrays import Array, Int
from dotllm.jit import kernel


@kernel("Tuple((int32[:, ::1], boolean[::1]))(int32[::1], int64[::1], int64)")
def trie(classes: Array, ends: Array, width: Int) -> tuple[Array, Array]:
    """The tree of sorted words, word i being ``classes[ends[i-1] : ends[i]]``: state 0 is dead, 1 the root."""
    count = len(ends)
    longest = np.int64(0)
    nodes = np.int64(2)
    begin = np.int64(0)
    before = np.int64(0)
    shared = allocate.zero_ints(count)
    for i in range(count):
        length = ends[i] - begin
        longest = max(longest, length)
        if i > 0:
            limit = min(length, begin - before)
            j = 0
            while j < limit and classes[before + j] == classes[begin + j]:
                j += 1
            shared[i] = j
        nodes += length - shared[i]
        before = begin
        begin = ends[i]
    table = allocate.zero_int_rows(nodes, width)
    final = allocate.zero_flags(nodes)
    path = allocate.ints(longest + 1)
    path[0] = 1
    total = 2
    begin = np.int64(0)
    for i in range(count):
        length = ends[i] - begin
        for j in range(shared[i], length):
            table[path[j], classes[begin + j]] = total
            path[j + 1] = total
            total += 1
        final[path[length]] = True
        begin = ends[i]
    return table, final
