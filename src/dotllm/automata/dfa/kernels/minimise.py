"""The minimal automaton, canonically numbered."""

from __future__ import annotations

import numpy as np

from dotllm import allocate
from dotllm.automata.dfa.kernels.arrays import Array, Int
from dotllm.jit import inner_kernel, kernel


@inner_kernel("Tuple((int32[::1], int32[::1]))(int32[:, ::1])")
def _predecessors(delta: Array) -> tuple[Array, Array]:
    """(first, source): the states source[first[c * n + t] : first[c * n + t + 1]] go to t under class c."""
    n, k = delta.shape
    first = allocate.zero_ints(n * k + 1)
    for s in range(n):
        for c in range(k):
            first[c * n + delta[s, c] + 1] += 1
    for i in range(n * k):
        first[i + 1] += first[i]
    fill = allocate.copied_ints(first)
    source = allocate.ints(n * k)
    for s in range(n):
        for c in range(k):
            slot = c * n + delta[s, c]
            source[fill[slot]] = s
            fill[slot] += 1
    return first, source


@kernel("Tuple((int32[::1], int64))(int32[:, ::1], boolean[::1])")
def equivalence(delta: Array, accepting: Array) -> tuple[Array, Int]:
    """The block of each state in the coarsest congruence, and the steps taken: Hopcroft (1971), O(n · k · log n).

    Blocks are slices of ``order``; states of a block that reach the splitter are swapped to its front. The new block is
    always the smaller half, which is also the half that must be looked at again, so a (block, class) pair is pushed
    exactly once.
    """
    n, k = delta.shape
    block = allocate.zero_ints(n)
    accepted = 0
    for s in range(n):
        if accepting[s]:
            accepted += 1
    steps = np.int64(n * k)
    if accepted == 0 or accepted == n:
        return block, steps

    first, source = _predecessors(delta)
    order = allocate.ints(n)
    place = allocate.ints(n)
    begin = allocate.zero_ints(n + 1)
    size = allocate.zero_ints(n)
    marked = allocate.zero_ints(n)
    large_is_accepting = accepted * 2 > n  # block 1, the first splitter, is the smaller half
    at, back = 0, n
    for s in range(n):
        if accepting[s] == large_is_accepting:
            order[at] = s
            place[s] = at
            at += 1
        else:
            back -= 1
            order[back] = s
            place[s] = back
            block[s] = 1
    size[0], size[1] = at, n - at
    begin[1] = at
    blocks = 2
    work_block = allocate.ints(n * k + k)
    work_class = allocate.ints(n * k + k)
    todo = 0
    for c in range(k):
        work_block[todo], work_class[todo] = 1, c
        todo += 1

    found = allocate.ints(n)
    touched = allocate.ints(n)
    while todo > 0:
        todo -= 1
        b, c = work_block[todo], work_class[todo]
        count = 0
        for i in range(begin[b], begin[b] + size[b]):
            slot = c * n + order[i]
            for j in range(first[slot], first[slot + 1]):
                found[count] = source[j]
                count += 1
        steps += count + size[b]
        hits = 0
        for i in range(count):
            s = found[i]
            x = block[s]
            if size[x] == 1:
                continue
            to = begin[x] + marked[x]
            if marked[x] == 0:
                touched[hits] = x
                hits += 1
            other = order[to]
            order[place[s]] = other
            place[other] = place[s]
            order[to] = s
            place[s] = to
            marked[x] += 1
        for i in range(hits):
            x = touched[i]
            m = marked[x]
            marked[x] = 0
            if m == size[x]:
                continue
            y = blocks
            blocks += 1
            if m * 2 <= size[x]:
                begin[y], size[y] = begin[x], m
                begin[x] += m
                size[x] -= m
            else:
                begin[y], size[y] = begin[x] + m, size[x] - m
                size[x] = m
            for j in range(begin[y], begin[y] + size[y]):
                block[order[j]] = y
            for d in range(k):
                work_block[todo], work_class[todo] = y, d
                todo += 1
    return block, steps


@kernel("Tuple((int32[:, ::1], boolean[::1], int64, int32[::1]))(int32[:, ::1], boolean[::1], int64, int32[::1])")
def canonical(delta: Array, accepting: Array, start: Int, block: Array) -> tuple[Array, Array, Int, Array]:
    """(table, accepting, start, new class of each class): the canonical form of a total automaton.

    ``block``: int32[states], what `equivalence` found.
    """
    n, k = delta.shape
    # A representative per block; the dead block is the one that rejects and maps to itself under every class.
    sample = allocate.filled_ints(n, -1)
    for s in range(n):
        if sample[block[s]] < 0:
            sample[block[s]] = s
    number = allocate.filled_ints(n, -1)
    for b in range(n):
        s = sample[b]
        if s >= 0 and not accepting[s]:
            dead = True
            for c in range(k):
                if block[delta[s, c]] != b:
                    dead = False
                    break
            if dead:
                number[b] = 0
                break
    queue = allocate.ints(n + 1)
    total = 1
    first = 0
    if number[block[start]] < 0:
        number[block[start]] = 1
        queue[1] = block[start]
        total = 2
        first = 1
    at = 1
    while at < total:
        s = sample[queue[at]]
        for c in range(k):
            b = block[delta[s, c]]
            if number[b] < 0:
                number[b] = total
                queue[total] = b
                total += 1
        at += 1
    table = allocate.zero_int_rows(total, k)
    final = allocate.zero_flags(total)
    mixed = allocate.zero_words(k)  # a hash per column
    for i in range(1, total):
        s = sample[queue[i]]
        final[i] = accepting[s]
        for c in range(k):
            t = number[block[delta[s, c]]]
            table[i, c] = t
            mixed[c] = (mixed[c] ^ np.uint64(t)) * np.uint64(0x9E3779B97F4A7C15)
            mixed[c] ^= mixed[c] >> np.uint64(29)
    column = allocate.ints(k)
    kept = allocate.ints(k)
    columns = 0
    for c in range(k):
        same = -1
        for j in range(columns):
            d = kept[j]
            if mixed[d] == mixed[c]:
                same = j
                for i in range(1, total):
                    if table[i, d] != table[i, c]:
                        same = -1
                        break
                if same >= 0:
                    break
        if same < 0:
            same = columns
            kept[columns] = c
            columns += 1
        column[c] = same
    if columns == k:
        return table, final, first, column
    narrow = allocate.int_rows(total, columns)
    for i in range(total):
        for j in range(columns):
            narrow[i, j] = table[i, kept[j]]
    return narrow, final, first, column
