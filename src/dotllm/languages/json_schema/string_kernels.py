"""Kernels that turn sets of keys and tables of automata into the edges of networks (see `string_network`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.jit import kernel

Array = NDArray[Any]


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


@kernel("Tuple((int32[:, ::1], int32[::1], int32[::1], uint64[:, ::1]))(uint8[::1])")
def prefix_tree(text: Array) -> tuple[Array, Array, Array, Array]:
    """The prefix tree of sorted distinct ASCII words, each ended by a NUL byte. Node 0 is the root.

    Returns int32[nodes - 1, 3] (parent, byte, child), int32[nodes] whether a word ends there, int32[nodes] which set of
    bytes leads to its children, and uint64[sets, 2] these sets, as bits.
    """
    size = len(text)
    edges = np.empty((size, 3), np.int32)
    ends = np.zeros(size + 1, np.int32)
    children = np.zeros((size + 1, 2), np.uint64)
    path = np.zeros(size + 1, np.int32)
    nodes = 1
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
            edges[nodes - 1, 0], edges[nodes - 1, 1], edges[nodes - 1, 2] = parent, byte, nodes
            children[parent, byte >> 6] |= np.uint64(1) << np.uint64(byte & 63)
            path[depth + 1] = nodes
            nodes += 1
        ends[path[i - start]] = 1
        before = start
        start = i + 1
    slots_size = 4
    while slots_size < 2 * nodes + 2:
        slots_size *= 2
    slots = np.full(slots_size, -1, np.int32)
    sets = np.empty((nodes + 1, 2), np.uint64)
    which = np.empty(nodes, np.int32)
    count = 0
    for node in range(nodes):
        sets[count] = children[node]
        which[node] = _find_set(sets, count, slots)
        if which[node] == count:
            count += 1
    return edges[: nodes - 1].copy(), ends[:nodes].copy(), which, sets[:count].copy()


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
