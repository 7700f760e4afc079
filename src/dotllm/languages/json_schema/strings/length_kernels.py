"""Kernels that count the characters of an automaton's strings (see `string_network`)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from dotllm import allocate
from dotllm.jit import kernel

Array = NDArray[Any]

FAR = 1 << 40
"""More characters than any text has."""


@kernel("Tuple((int64[::1], int64[::1]))(int32[:, ::1], boolean[::1])")
def distances(table: Array, accepting: Array) -> tuple[Array, Array]:
    """The lengths of the shortest and of the longest string from each state of a Dfa to acceptance.

    ``table`` int32[states, classes] holds the next states (0: dead), ``accepting`` bool[states] where a string may end.
    Returns two int64[states], in characters: `FAR` if there is no longest string; both are `FAR` for state 0.
    """
    states, classes = table.shape
    shortest = allocate.filled_longs(states, FAR)
    longest = allocate.filled_longs(states, FAR)
    # The edges by target, each pair of states once.
    first = allocate.zero_longs(states + 2)
    seen = allocate.zero_ints(states)
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target != 0 and seen[target] != source:
                seen[target] = source
                first[target + 2] += 1
    for target in range(states):
        first[target + 2] += first[target + 1]
    sources = allocate.ints(first[states + 1])
    leaving = allocate.zero_longs(states)
    seen[:] = 0
    for source in range(1, states):
        for c in range(classes):
            target = table[source, c]
            if target != 0 and seen[target] != source:
                seen[target] = source
                sources[first[target + 1]] = source
                first[target + 1] += 1
                leaving[source] += 1
    queue = allocate.ints(states)
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
    # States that neither lie on a cycle nor lead to one, backwards from the ends: only they have a longest string.
    begin = end = 0
    for state in range(1, states):
        if leaving[state] == 0:
            longest[state] = 0
            queue[end] = state
            end += 1
    furthest = allocate.zero_longs(states)
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
    """A Dfa's strings of ``low`` to ``high`` (`FAR`: any number of) characters, as another table.

    ``table``, ``accepting`` and ``start`` are the Dfa's; ``shortest`` and ``longest`` are its `distances`. Writes
    ``out`` int32[limit, classes], the next states (0: dead, 1: the start), and ``origin`` int32[limit], the Dfa's
    state for each new state; its bits are inverted if a string may end there in the Dfa but is too short. Returns the
    number of states, or -1 if there are more than ``limit``.

    A state is a state of the Dfa and the number of characters read, or -1 if no continuation can break the limits.
    """
    classes = table.shape[1]
    limit = out.shape[0]
    slots_size = 16
    while slots_size < 2 * limit:
        slots_size *= 2
    slots = allocate.zero_ints(slots_size)
    read = allocate.longs(limit)
    origin[0] = 0
    for c in range(classes):
        out[0, c] = 0
    origin[1] = start
    read[1] = 0
    count = 2
    state = 1
    while state < count:
        place, before = origin[state], read[state]
        for c in range(classes):
            target = table[place, c]
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
