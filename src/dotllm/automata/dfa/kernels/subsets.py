"""The subset construction (Rabin and Scott, 1959): a nondeterministic automaton made deterministic.

A set of NFA states is a row of 64-bit words. States that have neither character edges nor accept do not matter and are
left out of it, so that fewer sets are told apart.
"""

from __future__ import annotations

import numpy as np

from dotllm import allocate
from dotllm.automata.dfa.kernels.arrays import Array, Int, longer, longer_table
from dotllm.jit import inner_kernel, kernel


@inner_kernel("Tuple((int32[::1], int32[::1]))(int32[::1], int64)")
def _grouped(sources: Array, n: Int) -> tuple[Array, Array]:
    """(first, order): the edges ``order[first[s] : first[s + 1]]`` leave state s; a counting sort."""
    first = allocate.zero_ints(n + 1)
    for source in sources:
        first[source + 1] += 1
    for s in range(n):
        first[s + 1] += first[s]
    fill = allocate.copied_ints(first)
    order = allocate.ints(len(sources))
    for i in range(len(sources)):
        order[fill[sources[i]]] = i
        fill[sources[i]] += 1
    return first, order


@inner_kernel(
    "Tuple((int64[::1], int64[::1], int64))"
    "(int32[::1], int32[::1], boolean[::1], int32[::1], int32[::1], int32[::1], int64)"
)
def _closures(
    edge_target: Array,
    starts: Array,
    matters: Array,
    epsilon_first: Array,
    epsilon_order: Array,
    epsilon_target: Array,
    fuel: Int,
) -> tuple[Array, Array, Int]:
    """(first, states, steps): ``states[first[s] : first[s + 1]]`` are those that matter of the epsilon closure of s.

    Only of states that a start or an edge leads to; the others have none. More steps than ``fuel``: given up.
    """
    n = len(matters)
    wanted = allocate.zero_flags(n)
    for s in starts:
        wanted[s] = True
    for s in edge_target:
        wanted[s] = True
    first = allocate.zero_longs(n + 1)
    states = allocate.zero_longs(2 * n + 16)
    size = np.int64(0)
    steps = np.int64(n)
    stamp = allocate.filled_ints(n, -1)
    stack = allocate.ints(n)
    for s in range(n):
        if wanted[s] and steps <= fuel:
            stack[0] = s
            top = 1
            stamp[s] = s
            while top > 0:
                top -= 1
                u = stack[top]
                if matters[u]:
                    if size == len(states):
                        states = longer(states, size, 2 * size)
                    states[size] = u
                    size += 1
                for i in range(epsilon_first[u], epsilon_first[u + 1]):
                    v = epsilon_target[epsilon_order[i]]
                    if stamp[v] != s:
                        stamp[v] = s
                        stack[top] = v
                        top += 1
                steps += 1 + epsilon_first[u + 1] - epsilon_first[u]
        first[s + 1] = size
    return first, states, steps


@inner_kernel("int64(uint64)", inlined=True)
def _lowest_bit(word: Int) -> Int:
    """The position of the lowest bit of a word that is not 0."""
    position = np.int64(0)
    for shift in (32, 16, 8, 4, 2, 1):
        if word & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1)) == 0:
            word >>= np.uint64(shift)
            position += shift
    return position


@inner_kernel("int64(uint64[:, ::1], int64)", inlined=True)
def _hash(sets: Array, row: Int) -> Int:
    key = np.uint64(1469598103934665603)
    for w in range(sets.shape[1]):
        key = (key ^ sets[row, w]) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return np.int64(key)


@inner_kernel("int64(int32[::1], int64[::1], int64[::1], uint64[:, ::1], int64, int64)")
def _find(slots: Array, hashes: Array, sets: Array, candidates: Array, row: Int, code: Int) -> Int:
    """The slot of the set ``candidates[row]``, whose hash is ``code``, or the free one where it belongs."""
    words = candidates.shape[1]
    mask = len(slots) - 1
    slot = code & mask
    while slots[slot] >= 0:
        other = np.int64(slots[slot])
        if hashes[other] == code:
            same = True
            for w in range(words):
                if sets[other * words + w] != np.int64(candidates[row, w]):
                    same = False
                    break
            if same:
                break
        slot = (slot + 1) & mask
    return np.int64(slot)


@inner_kernel("int32[::1](int64[::1], int64)")
def _rehashed(hashes: Array, total: Int) -> Array:
    """A hash table, four times as large as there is room for sets, of the sets 1..total - 1."""
    mask = 4 * len(hashes) - 1
    slots = allocate.filled_ints(mask + 1, -1)
    for i in range(1, total):
        slot = hashes[i] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = i
    return slots


@kernel(
    "Tuple((int32[:, ::1], boolean[::1], int64))"
    "(UniTuple(int32[::1], 3), UniTuple(int32[::1], 2), UniTuple(int32[::1], 2), int32[::1], boolean[::1],"
    " int64, int64, int64, int64)"
)
def determinise(
    edges: tuple[Array, Array, Array],
    epsilons: tuple[Array, Array],
    labels: tuple[Array, Array],
    starts: Array,
    final: Array,
    classes: Int,
    max_states: Int,
    fuel: Int,
    max_words: Int,
) -> tuple[Array, Array, Int]:
    """The deterministic automaton of an NFA, not yet minimal; see the package for what is returned.

    edges: source, label, target; epsilons: source, target; labels: CSR of the classes that each label stands for (see
    `NfaArrays`). final: bool[NFA states]. max_words bounds the memory of all sets together.
    """
    edge_source, edge_label, edge_target = edges
    epsilon_source, epsilon_target = epsilons
    label_start, label_classes = labels
    n = len(final)
    first, order = _grouped(edge_source, n)
    epsilon_first, epsilon_order = _grouped(epsilon_source, n)
    matters = allocate.zero_flags(n)
    for s in range(n):
        matters[s] = final[s] or first[s + 1] > first[s]
    closure_first, closure, steps = _closures(
        edge_target, starts, matters, epsilon_first, epsilon_order, epsilon_target, fuel
    )
    words = (n + 63) // 64
    capacity = np.int64(64)
    sets = allocate.zero_longs(capacity * words)
    hashes = allocate.zero_longs(capacity)
    table = allocate.zero_int_rows(capacity, classes)
    slots = _rehashed(hashes, 1)
    total = np.int64(1)  # the empty set, state 0, is never looked up
    nexts = allocate.zero_word_rows(classes + 1, words)  # one set being built per class; the last one for the start
    live = allocate.zero_flags(classes + 1)
    for s in starts:
        for i in range(closure_first[s], closure_first[s + 1]):
            u = closure[i]
            nexts[classes, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
            live[classes] = True
    at = np.int64(0)
    while at < total and steps <= fuel:
        for w in range(words):
            word = np.uint64(sets[at * words + w])
            while word != 0:
                s = w * 64 + _lowest_bit(word)
                word &= word - np.uint64(1)
                for e in range(first[s], first[s + 1]):
                    edge = order[e]
                    label, t = edge_label[edge], edge_target[edge]
                    low, high = closure_first[t], closure_first[t + 1]
                    steps += (high - low) * (label_start[label + 1] - label_start[label]) + 1
                    for j in range(label_start[label], label_start[label + 1]):
                        c = label_classes[j]
                        live[c] |= high > low
                        for i in range(low, high):
                            u = closure[i]
                            nexts[c, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        for c in range(classes + 1):
            if not live[c]:
                continue
            live[c] = False
            code = _hash(nexts, c)
            slot = _find(slots, hashes, sets, nexts, c, code)
            if slots[slot] < 0:
                if total == max_states or total * words > max_words:
                    steps = fuel + 1
                    break
                if total == capacity:
                    capacity *= 2
                    sets = longer(sets, total * words, capacity * words)
                    table = longer_table(table, total, capacity)
                    hashes = longer(hashes, total, capacity)
                    slots = _rehashed(hashes, total)
                    slot = _find(slots, hashes, sets, nexts, c, code)
                slots[slot] = total
                hashes[total] = code
                for w in range(words):
                    sets[total * words + w] = np.int64(nexts[c, w])
                total += 1
            if c < classes:
                table[at, c] = slots[slot]
            for w in range(words):
                nexts[c, w] = 0
        steps += (classes + 1) * words
        at += 1
    accepting = allocate.zero_flags(total)
    for i in range(1, total):
        for w in range(words):
            word = np.uint64(sets[i * words + w])
            while word != 0 and not accepting[i]:
                accepting[i] = final[w * 64 + _lowest_bit(word)]
                word &= word - np.uint64(1)
    return table[:total], accepting, steps
