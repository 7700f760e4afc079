"""Paths in the table of a total automaton: a list per state, state 0 is dead."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def shortest_path(rows: Sequence[Sequence[int]], accepting: NDArray[np.bool_], start: int) -> list[int]:
    """The classes on the first of the shortest paths to an accepting state, smallest class first. There must be one."""
    came = {start: (0, 0)}
    queue = [start]
    for state in queue:
        if accepting[state]:
            path = []
            while state != start:
                state, cls = came[state]
                path.append(cls)
            return path[::-1]
        for cls, to in enumerate(rows[state]):
            if to and to not in came:
                came[to] = (state, cls)
                queue.append(to)
    raise AssertionError("every state of a canonical automaton can accept")


def topological_order(rows: Sequence[Sequence[int]], start: int) -> list[int]:
    """The states that all paths from ``start`` (0: none) reach in topological order; fewer than there are if some lie
    on a cycle."""
    arrivals = [0] * len(rows)
    for row in rows[1:]:
        for to in row:
            arrivals[to] += 1
    ready = [start] if start and not arrivals[start] else []
    for state in ready:
        for to in rows[state]:
            arrivals[to] -= 1
            if to and not arrivals[to]:
                ready.append(to)
    return ready
