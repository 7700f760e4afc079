"""Boolean combinations: two automata run side by side."""

from __future__ import annotations

import numpy as np

from dotllm import allocate
from dotllm.automata.dfa.kernels.arrays import Array, Int, longer, longer_table
from dotllm.jit import kernel

_MIX = np.int64(-7046029254386353131)  # of the hash table of pairs


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64))"
    "(int32[:, ::1], boolean[::1], int64, int32[:, ::1], boolean[::1], int64, int32[::1], int32[::1],"
    " int64, int64, int64)",
)
def product(
    delta_a: Array,
    final_a: Array,
    start_a: Int,
    delta_b: Array,
    final_b: Array,
    start_b: Int,
    class_a: Array,
    class_b: Array,
    truth: Int,
    max_states: Int,
    fuel: Int,
) -> tuple[Array, Array, Int]:
    """A boolean combination of two canonical automata, not yet minimal; see the package for what is returned.

    class_a, class_b: int32[k] map the joint classes to those of each operand. ``truth`` has bit (2·a + b) set when a
    word with these two verdicts is in the language; bit 0 must be 0.
    """
    k = len(class_a)
    nb = np.int64(len(delta_b))
    a_alone = truth & 0b0100 != 0  # a word only a accepts counts, so pairs with a dead b live on
    b_alone = truth & 0b0010 != 0
    capacity = np.int64(64)
    table = allocate.zero_int_rows(capacity, k)
    pairs = allocate.zero_longs(capacity)
    mask = np.int64(127)
    keys = allocate.zero_longs(mask + 1)
    used = allocate.filled_longs(mask + 1, -1)
    used[0] = 0  # the pair (dead, dead) is state 0
    total = np.int64(1)
    first = np.int64(start_a) * nb + start_b
    if (start_a == 0 and not b_alone) or (start_b == 0 and not a_alone):
        first = np.int64(0)
    if first != 0:
        slot = (first * _MIX >> 17) & mask
        if used[slot] >= 0:
            slot = (slot + 1) & mask
        keys[slot], used[slot], pairs[1] = first, 1, first
        total = np.int64(2)
    at = np.int64(1)
    steps = np.int64(0)
    while at < total and steps <= fuel:
        p, q = pairs[at] // nb, pairs[at] % nb
        steps += k
        last_key, last = np.int64(0), np.int64(0)  # neighbours often lead to the same pair
        for c in range(k):
            s, t = delta_a[p, class_a[c]], delta_b[q, class_b[c]]
            if (s == 0 and not b_alone) or (t == 0 and not a_alone):
                continue
            key = np.int64(s) * nb + t
            if key == last_key:
                table[at, c] = last
                continue
            # The hash table is looked into right here: handing arrays to a function takes longer than this.
            slot = (key * _MIX >> 17) & mask
            while used[slot] >= 0 and keys[slot] != key:
                slot = (slot + 1) & mask
            if used[slot] < 0:
                if total == max_states:
                    steps = fuel + 1
                    break
                if total == capacity:
                    capacity *= 2
                    table = longer_table(table, total, capacity)
                    pairs = longer(pairs, total, capacity)
                    mask = 2 * capacity - 1
                    keys = allocate.zero_longs(mask + 1)
                    used = allocate.filled_longs(mask + 1, -1)
                    for i in range(total):
                        where = (pairs[i] * _MIX >> 17) & mask
                        while used[where] >= 0:
                            where = (where + 1) & mask
                        keys[where], used[where] = pairs[i], i
                    slot = (key * _MIX >> 17) & mask
                    while used[slot] >= 0:
                        slot = (slot + 1) & mask
                keys[slot], used[slot], pairs[total] = key, total, key
                total += 1
            last_key, last = key, used[slot]
            table[at, c] = last
        at += 1
    final = allocate.zero_flags(total)
    for i in range(1, total):
        verdict = 2 * np.int64(final_a[pairs[i] // nb]) + np.int64(final_b[pairs[i] % nb])
        final[i] = (truth >> verdict) & 1 != 0
    return table[:total], final, steps
