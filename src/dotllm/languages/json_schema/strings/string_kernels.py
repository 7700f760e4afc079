"""Kernels that turn tables of automata into the edges of networks (see `string_network`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.jit import inner_kernel, kernel

Array = NDArray[Any]


@inner_kernel("int64(uint64[:, ::1], int64, int32[::1])")
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
        result = slots[at]
        if result < 0:
            slots[at] = count
            return count
        same = True
        for w in range(words):
            if sets[result, w] != sets[count, w]:
                same = False
                break
        if same:
            return np.int64(result)
        at = (at + np.uint64(1)) & mask


@kernel("Tuple((int32[:, ::1], int32[:, ::1], uint64[:, ::1]))(int32[:, ::1])")
def group_edges(table: Array) -> tuple[Array, Array, Array]:
    """The transitions of a Dfa's ``table`` (state 0 is dead) with all classes between two states as one edge.

    Returns int32[edges, 2] (source, use), int32[uses, 3] (set, target, number of edges): the edges with the same set of
    classes to the same target are one use; and uint64[sets, words] the sets, as bits.
    """
    states, classes = table.shape
    words = (classes + 63) // 64
    last_source = allocate.zero_ints(states)
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
    slots = allocate.filled_ints(slots_size, -1)
    use_slots = allocate.filled_ints(slots_size, -1)
    sets = allocate.zero_word_rows(total + 1, words)
    uses = allocate.zero_int_rows(total, 3)
    edges = allocate.int_rows(total, 2)
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


MUST_ESCAPE_WORDS = np.array([(1 << 0x20) - 1 | 1 << 0x22, 1 << 0x5C - 0x40], np.uint64)
"""The ASCII characters that a JSON string cannot hold raw, as bits, 64 per word (see `spelling`)."""


@kernel(
    "Tuple((int32[:, ::1], int32[:, ::1], uint64[:, ::1], int32[:, ::1], uint64[:, ::1], uint64[:, ::1]))"
    "(int32[:, ::1], int32[::1], int32[::1], uint64[::1])"
)
def spelled_edges(
    table: Array, starts: Array, class_of: Array, must_escape: Array
) -> tuple[Array, Array, Array, Array, Array, Array]:
    """`group_edges`, and how the characters of each set are written.

    ``table`` int32[states, classes] is a Dfa's; ``starts`` and ``class_of`` int32[ranges] are the alphabet's: the
    first character and the class of each range; ``must_escape`` uint64[2] is `MUST_ESCAPE_WORDS`. Returns:

    * edges and uses, as `group_edges`;
    * uint64[sets, 2]: the ASCII characters that are written raw, as bits;
    * int32[sets, 3]: the number of ranges of these characters, the index of the set's escapes (-1: it has none), and
      the index of its characters beyond ASCII (0: it has none);
    * uint64[escapes, 2] and uint64[beyonds, words]: the escapes as bits of characters, and the characters beyond
      ASCII as bits of classes.
    """
    edges, uses, sets = group_edges(table)
    count, words = sets.shape
    of_class = allocate.zero_word_rows(table.shape[1], 2)
    is_beyond = allocate.zero_words(words)
    for i in range(len(starts)):
        end = starts[i + 1] if i + 1 < len(starts) else 0x110000
        for char in range(starts[i], min(end, 0x80)):
            of_class[class_of[i], char >> 6] |= np.uint64(1) << np.uint64(char & 63)
        if end > 0x80:
            is_beyond[class_of[i] >> 6] |= np.uint64(1) << np.uint64(class_of[i] & 63)
    slots = 4
    while slots < 2 * count + 4:
        slots *= 2
    raw = allocate.zero_word_rows(count, 2)
    set_info = allocate.int_rows(count, 3)
    escapes, escape_slots = allocate.zero_word_rows(count + 1, 2), allocate.filled_ints(slots, -1)
    beyonds, beyond_slots = allocate.zero_word_rows(count + 2, words), allocate.filled_ints(slots, -1)
    n_escapes, n_beyonds = 0, 1
    _find_set(beyonds, 0, beyond_slots)
    for edge in range(count):
        for w in range(words):
            beyonds[n_beyonds, w] = sets[edge, w] & is_beyond[w]
            for bit in range(min(64, table.shape[1] - 64 * w)):
                if sets[edge, w] >> np.uint64(bit) & np.uint64(1) != 0:
                    raw[edge, 0] |= of_class[64 * w + bit, 0]
                    raw[edge, 1] |= of_class[64 * w + bit, 1]
        number = _find_set(beyonds, n_beyonds, beyond_slots)
        n_beyonds += number == n_beyonds
        set_info[edge, 2] = number
        set_info[edge, 1] = -1
        for half in range(2):
            escapes[n_escapes, half] = raw[edge, half] & must_escape[half]
            raw[edge, half] &= ~must_escape[half]
        if escapes[n_escapes, 0] | escapes[n_escapes, 1] != 0:
            number = _find_set(escapes, n_escapes, escape_slots)
            n_escapes += number == n_escapes
            set_info[edge, 1] = number
        runs = 0
        before = np.uint64(0)
        for half in range(2):
            for bit in range(64):
                bit_set = raw[edge, half] >> np.uint64(bit) & np.uint64(1)
                runs += bit_set > before
                before = bit_set
        set_info[edge, 0] = runs
    return edges, uses, raw, set_info, escapes[:n_escapes].copy(), beyonds[:n_beyonds].copy()


@inner_kernel("Tuple((int32[::1], int32[:, ::1]))(int64, int32[:, ::1], int32[:, ::1], int64)")
def _escape_states(states: int, uses: Array, set_info: Array, escapes: int) -> tuple[Array, Array]:
    """The states after a backslash, one for each kind of escape and target, numbered from ``states``.

    ``uses`` and ``set_info`` are as `spelled_edges` returns them; ``escapes`` is the number of kinds. Returns
    int32[uses], each use's state after the backslash (0: its set has no escape), and int32[n, 2], (kind, target) of
    each state, sorted by both.
    """
    n_uses = len(uses)
    # The uses are sorted by target, then by kind.
    first = allocate.zero_ints(max(states, escapes + 1) + 1)
    by_target, by_kind = allocate.ints(n_uses), allocate.ints(n_uses)
    for use in range(n_uses):
        first[uses[use, 1] + 1] += 1
    for i in range(states):
        first[i + 1] += first[i]
    for use in range(n_uses):
        by_target[first[uses[use, 1]]] = use
        first[uses[use, 1]] += 1
    first[:] = 0
    for use in range(n_uses):
        first[set_info[uses[use, 0], 1] + 2] += 1  # kind -1 comes first
    for i in range(escapes + 1):
        first[i + 1] += first[i]
    for i in range(n_uses):
        kind = set_info[uses[by_target[i], 0], 1]
        by_kind[first[kind + 1]] = by_target[i]
        first[kind + 1] += 1
    behind = allocate.zero_ints(n_uses)  # each use's state after the backslash
    pairs = allocate.int_rows(n_uses, 2)
    n_pairs = 0
    for i in range(n_uses):
        use = by_kind[i]
        kind, target = set_info[uses[use, 0], 1], uses[use, 1]
        if kind >= 0:
            if n_pairs == 0 or pairs[n_pairs - 1, 0] != kind or pairs[n_pairs - 1, 1] != target:
                pairs[n_pairs, 0], pairs[n_pairs, 1] = kind, target
                n_pairs += 1
            behind[use] = states + n_pairs - 1
    return behind, pairs[:n_pairs].copy()


@inner_kernel(
    "Tuple((int64[::1], int32[::1], int64))(int64, int32[:, ::1], uint64[:, ::1], int32[:, ::1], int32[:, ::1])"
)
def _shared_states(first: int, uses: Array, raw: Array, set_info: Array, beyonds: Array) -> tuple[Array, Array, int]:
    """The states from which uses of many edges are read, numbered from ``first``.

    ``uses``, ``raw``, ``set_info`` and ``beyonds`` are as in `spelled_network`. Returns int64[sets], how many ranges of
    each set are read raw; int32[uses], the state of each use (0: it is read from each of its sources); and the number
    of states.
    """
    via = allocate.zero_ints(len(uses))
    n_via = 0
    size = allocate.longs(len(set_info))  # 0: nothing is read raw
    for edge in range(len(set_info)):
        beyond = set_info[edge, 2]
        touch = raw[edge, 1] >> np.uint64(63) != 0 and beyonds[beyond, 1] != 0
        size[edge] = set_info[edge, 0] + beyonds[beyond, 0] - touch
    for use in range(len(uses)):
        edge, count = uses[use, 0], np.int64(uses[use, 2])
        all_ranges = size[edge] + (2 if set_info[edge, 1] >= 0 else 0)
        if all_ranges * count > all_ranges + count + 2:
            via[use] = first + n_via
            n_via += 1
    return size, via, n_via


@kernel(
    "Tuple((int32[::1], int32[::1], int64[::1]))"
    "(boolean[::1], int64, int32[:, ::1], int32[:, ::1], uint64[:, ::1], int32[:, ::1], int32[:, ::1], int64, int32,"
    " int32)"
)
def spelled_network(
    accepting: Array, start: int, edges: Array, uses: Array, raw: Array, set_info: Array, beyonds: Array,
    escapes: int, empty: int, backslash: int,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """The results of `spelled_edges` as the layout of a network (see `Grammar.network`), in which the expressions
    that Python makes are still missing.

    ``accepting`` bool[states] and ``start`` are the Dfa's; ``edges``, ``uses``, ``raw`` and ``set_info`` are what
    `spelled_edges` returns. ``beyonds`` int32[n, 2]: how many ranges the characters beyond ASCII have, and whether
    U+0080 is one of them. ``escapes``: how many sets of escapes there are. ``empty``, ``backslash``: expressions.

    Returns the layout as int32; int32[2 * sets], at how many places each set is read raw, outside a loop (even) and
    in a loop (odd); and int64[4], the place of the first edge and the number of edges, for two runs of edges. The
    first run reads raw characters: its expressions are twice the index of the set, + 1 in a loop. The second run
    reads the rest of an escape: its expressions are the indices of the escapes.

    States are added after the Dfa's: one after the backslash for each kind of escape and target, then one for each use
    of many edges.
    """
    states, n_uses, n_edges = len(accepting), len(uses), len(edges)
    behind, pairs = _escape_states(states, uses, set_info, escapes)
    n_pairs = len(pairs)
    size, via, n_via = _shared_states(states + n_pairs, uses, raw, set_info, beyonds)
    n_finals = 0
    for state in range(states):
        n_finals += accepting[state]
    layout = allocate.ints(3 + n_finals + 3 * (2 * n_edges + 3 * n_uses))
    layout[0], layout[1], layout[2] = states + n_pairs + n_via, start, n_finals
    at = 3
    for state in range(states):
        if accepting[state]:
            layout[at] = state
            at += 1
    reads = allocate.int_rows(n_edges + n_via, 2)
    n_reads = 0
    for i in range(n_edges):
        source, use = edges[i, 0], edges[i, 1]
        if via[use] == 0 or source == uses[use, 1]:  # a loop stays a loop, which the machine looks for
            reads[n_reads, 0], reads[n_reads, 1] = source, use
            n_reads += 1
        else:
            layout[at], layout[at + 1], layout[at + 2] = source, empty, via[use]
            at += 3
    for use in range(n_uses):
        if via[use] != 0:
            reads[n_reads, 0], reads[n_reads, 1] = via[use], use
            n_reads += 1
    times = allocate.zero_ints(2 * len(set_info))
    places = allocate.longs(4)
    places[0] = at + 1
    for i in range(n_reads):
        source, use = reads[i, 0], reads[i, 1]
        if size[uses[use, 0]] > 0:
            code = 2 * uses[use, 0] + (1 if source == uses[use, 1] else 0)
            times[code] += 1
            layout[at], layout[at + 1], layout[at + 2] = source, code, uses[use, 1]
            at += 3
    places[1] = (at + 1 - places[0]) // 3
    for i in range(n_reads):
        if behind[reads[i, 1]] != 0:
            layout[at], layout[at + 1], layout[at + 2] = reads[i, 0], backslash, behind[reads[i, 1]]
            at += 3
    places[2], places[3] = at + 1, n_pairs
    for i in range(n_pairs):
        layout[at], layout[at + 1], layout[at + 2] = states + i, pairs[i, 0], pairs[i, 1]
        at += 3
    return layout[:at], times, places
