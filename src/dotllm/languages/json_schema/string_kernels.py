"""Kernels that turn sets of keys and tables of automata into the edges of networks (see `string_network`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.jit import kernel

Array = NDArray[Any]

FAR = 1 << 40
"""More characters than any text has."""


@kernel("int64(uint64[:, ::1], int64, int32[::1])")
def _find_set(sets: Array, count: int, slots: Array) -> Any:
    """Intern the row ``sets[count]`` (the last, a candidate) among those before it; open addressing over ``slots``."""
    words = sets.shape[1]
    mixed = np.uint64(1469598103934665603)
    for w in range(words):
        mixed = (mixed ^ sets[count, w]) * np.uint64(1099511628211)
        mixed ^= mixed >> np.uint64(29)
    mask = np.uint64(len(slots) - 1)
    at = mixed & mask
    while True:
        found = slots[at]
        if found < 0:
            slots[at] = count
            return count
        same = True
        for w in range(words):
            if sets[found, w] != sets[count, w]:
                same = False
                break
        if same:
            return np.int64(found)
        at = (at + np.uint64(1)) & mask


@kernel("Tuple((int32[::1], int64[:, ::1]))(uint8[::1], int32[::1], int32[::1], int32)")
def all_but_network(text: Array, letters: Array, ways_out: Array, quote: int) -> tuple[Array, Array]:
    """What follows the opening quote of all strings but some sorted distinct ASCII words, each ended by a NUL byte in
    ``text``: the layout of `Grammar.network`.

    It is the prefix tree of the words, with a quote where no word ends, and at each node a way out: any character that
    leads to no other node. ``letters`` are the expressions of the characters, ``ways_out`` those of the ways out of
    nodes with one child, by its character (0: with none); 0 for what does not exist yet. The ways out that are not
    found there are left open: for each its place in the layout, and the characters of the children as bits, 64 a word.
    """
    size = len(text)
    edges = np.empty((size, 3), np.int32)
    ends = np.zeros(size + 1, np.int32)
    children = np.zeros((size + 1, 2), np.int64)
    only = np.zeros(size + 1, np.int32)  # the character of the only child, 0 if there is none, -1 if there are more
    path = np.zeros(size + 1, np.int32)
    nodes = 1
    ended = 0
    before = -1  # where the previous word starts
    start = 0
    for i in range(size):
        if text[i] != 0:
            continue
        common = 0
        if before >= 0:
            while text[start + common] != 0 and text[start + common] == text[before + common]:
                common += 1
        for depth in range(common, i - start):
            byte = text[start + depth]
            parent = path[depth]
            edges[nodes - 1, 0], edges[nodes - 1, 1], edges[nodes - 1, 2] = parent, letters[byte], nodes
            children[parent, byte >> 6] |= np.int64(1) << np.int64(byte & 63)
            only[parent] = byte if only[parent] == 0 else -1
            path[depth + 1] = nodes
            nodes += 1
        ended += 1 - ends[path[i - start]]
        ends[path[i - start]] = 1
        before = start
        start = i + 1
    layout = np.empty(4 + 3 * (nodes - 1 + nodes + nodes - ended), np.int32)
    layout[0], layout[1], layout[2], layout[3] = nodes + 1, 0, 1, nodes
    at = 4
    for node in range(nodes):
        if ends[node] == 0:
            layout[at], layout[at + 1], layout[at + 2] = node, quote, nodes
            at += 3
    for i in range(nodes - 1):
        layout[at], layout[at + 1], layout[at + 2] = edges[i, 0], edges[i, 1], edges[i, 2]
        at += 3
    left_open = np.empty((nodes, 3), np.int64)
    n_open = 0
    for node in range(nodes):
        way = ways_out[only[node]] if only[node] >= 0 else 0
        if way == 0:
            left_open[n_open, 0] = at + 1
            left_open[n_open, 1], left_open[n_open, 2] = children[node, 0], children[node, 1]
            n_open += 1
        layout[at], layout[at + 1], layout[at + 2] = node, way, nodes
        at += 3
    return layout, left_open[:n_open]


@kernel("Tuple((int64[::1], int64[::1]))(int32[:, ::1], boolean[::1])")
def distances(table: Array, accepting: Array) -> tuple[Array, Array]:
    """For each state of a Dfa's ``table`` how many characters the shortest and the longest way to acceptance has.

    `FAR` where there is no longest one; both are `FAR` for the dead state 0.
    """
    states, classes = table.shape
    shortest = np.full(states, FAR, np.int64)
    longest = np.full(states, FAR, np.int64)
    # The edges by target, each pair of states once.
    first = np.zeros(states + 2, np.int64)
    seen = np.zeros(states, np.int32)
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target != 0 and seen[target] != source:
                seen[target] = source
                first[target + 2] += 1
    for target in range(states):
        first[target + 2] += first[target + 1]
    sources = np.empty(first[states + 1], np.int32)
    leaving = np.zeros(states, np.int64)
    seen[:] = 0
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target != 0 and seen[target] != source:
                seen[target] = source
                sources[first[target + 1]] = source
                first[target + 1] += 1
                leaving[source] += 1
    queue = np.empty(states, np.int32)
    end = 0
    for state in range(1, states):
        if accepting[state]:
            shortest[state] = 0
            queue[end] = state
            end += 1
    begin = 0
    while begin < end:
        target = queue[begin]
        begin += 1
        for at in range(first[target], first[target + 1]):
            source = sources[at]
            if shortest[source] == FAR:
                shortest[source] = shortest[target] + 1
                queue[end] = source
                end += 1
    # What is on no cycle and leads to none, backwards from the ends: there the longest way is known.
    begin = end = 0
    for state in range(1, states):
        if leaving[state] == 0:
            longest[state] = 0
            queue[end] = state
            end += 1
    furthest = np.zeros(states, np.int64)
    while begin < end:
        target = queue[begin]
        begin += 1
        for at in range(first[target], first[target + 1]):
            source = sources[at]
            furthest[source] = max(furthest[source], longest[target] + 1)
            leaving[source] -= 1
            if leaving[source] == 0:
                longest[source] = furthest[source]
                queue[end] = source
                end += 1
    return shortest, longest


@kernel("int64(int32[:, ::1], boolean[::1], int64, int64[::1], int64[::1], int64, int64, int32[:, ::1], int32[::1])")
def count_characters(
    table: Array,
    accepting: Array,
    start: int,
    shortest: Array,
    longest: Array,
    low: int,
    high: int,
    out: Array,
    origin: Array,
) -> Any:
    """A Dfa's strings of ``low`` to ``high`` (`FAR`: any number of) characters, as a table in ``out``; how many states,
    or -1 if they do not fit. State 0 is dead, 1 the start; ``origin`` is the state of the Dfa each comes from, its bits
    inverted where a string may not end though it may there.

    A state is one of the Dfa's and the number of characters read, as long as that matters: not where no way on can
    break the limits, however it goes.
    """
    classes = table.shape[1]
    limit = out.shape[0]
    slots_size = 16
    while slots_size < 2 * limit:
        slots_size *= 2
    slots = np.zeros(slots_size, np.int32)
    read = np.empty(limit, np.int64)
    origin[0] = 0
    for c in range(classes):
        out[0, c] = 0
    origin[1] = start
    read[1] = 0
    count = 2
    state = 1
    while state < count:
        here, before = origin[state], read[state]
        for c in range(classes):
            target = table[here, c]
            if target != 0:
                length = before + 1 if before >= 0 else -1
                if length >= 0:
                    if length + shortest[target] > high or (longest[target] != FAR and length + longest[target] < low):
                        target = 0
                    elif length + shortest[target] >= low and (
                        high == FAR or (longest[target] != FAR and length + longest[target] <= high)
                    ):
                        length = -1
            if target == 0:
                out[state, c] = 0
                continue
            at = (target * 1000003 + length) * 7919 & (slots_size - 1)
            while slots[at] != 0 and (origin[slots[at]] != target or read[slots[at]] != length):
                at = (at + 1) & (slots_size - 1)
            if slots[at] == 0:
                if count == limit:
                    return -1
                slots[at] = count
                origin[count] = target
                read[count] = length
                count += 1
            out[state, c] = slots[at]
        state += 1
    for state in range(1, count):
        if read[state] >= 0 and read[state] < low and accepting[origin[state]]:
            origin[state] = ~origin[state]
    return count


@kernel("Tuple((int32[:, ::1], int32[:, ::1], uint64[:, ::1]))(int32[:, ::1])")
def group_edges(table: Array) -> tuple[Array, Array, Array]:
    """The transitions of a Dfa's ``table`` (state 0 is dead) with all classes between two states as one edge.

    Returns int32[edges, 2] (source, use), int32[uses, 3] (set, target, number of edges): the edges with the same set of
    classes to the same target are one use; and uint64[sets, words] the sets, as bits.
    """
    states, classes = table.shape
    words = (classes + 63) // 64
    last_source = np.zeros(states, np.int32)
    total = 0
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target != 0 and last_source[target] != source:
                last_source[target] = source
                total += 1
    slots_size = 4
    while slots_size < 2 * total + 2:
        slots_size *= 2
    slots = np.full(slots_size, -1, np.int32)
    use_slots = np.full(slots_size, -1, np.int32)
    sets = np.zeros((total + 1, words), np.uint64)
    uses = np.zeros((total, 3), np.int32)
    edges = np.empty((total, 2), np.int32)
    n_sets = n_uses = n_edges = 0
    last_source[:] = 0
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target == 0 or last_source[target] == source:
                continue
            last_source[target] = source
            for w in range(words):
                sets[n_sets, w] = 0
            for d in range(c, classes):
                if table[source, d] == target:
                    sets[n_sets, d >> 6] |= np.uint64(1) << np.uint64(d & 63)
            which = _find_set(sets, n_sets, slots)
            if which == n_sets:
                n_sets += 1
            at = (np.int64(which) * 1000003 + target) * 7919 & (slots_size - 1)
            while True:
                use = use_slots[at]
                if use < 0:
                    use = n_uses
                    use_slots[at] = use
                    uses[use, 0], uses[use, 1] = which, target
                    n_uses += 1
                    break
                if uses[use, 0] == which and uses[use, 1] == target:
                    break
                at = (at + 1) & (slots_size - 1)
            uses[use, 2] += 1
            edges[n_edges, 0], edges[n_edges, 1] = source, use
            n_edges += 1
    return edges, uses[:n_uses].copy(), sets[:n_sets].copy()
