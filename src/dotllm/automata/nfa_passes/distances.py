"""Counted networks: how many edges each transition is from a final state.

The machine takes a transition only if the remaining edges suffice to reach a final state, so the limit makes no dead
ends. The distances depend on which edges are productive, so this pass computes them, and not the construction of the
network.
"""

from __future__ import annotations

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import N_END, N_ENTER, N_PLAIN
from dotllm.automata.nfa_passes.links import group_by
from dotllm.jit import inner_kernel

_NEVER = 1 << 30


@inner_kernel("boolean(int32[::1], int32[::1], int32[::1], int32[:, ::1], boolean[::1])")
def measure_distances(kind: Int32, a: Int32, b: Int32, loops: Int32, productive: Bool) -> bool:
    """Set ``a`` of every transition (until now the END node of its target) to its distance, and ``loops[:, 2]`` of all
    counted networks. False: some network has no text short enough; its ENTER has become PLAIN, and nothing else has
    been done."""
    n = kind.shape[0]
    edges = 0
    for i in range(n):
        if kind[i] == N_END and loops[a[i], 2] < 0:
            edges += b[abs(b[i])] + 1
    if edges == 0:
        return True
    key, value = allocate.ints(edges), allocate.ints(edges)
    distance = allocate.filled_ints(n, _NEVER)  # of END nodes
    todo = allocate.ints(n)
    m, end = 0, 0
    for i in range(n):
        if kind[i] != N_END or loops[a[i], 2] >= 0:
            continue
        way = abs(b[i])
        for other in range(way, way + b[way] + 1):
            if productive[other]:
                key[m], value[m] = a[other], i
                m += 1
        if b[i] < 0 and productive[i]:
            distance[i] = 0
            todo[end] = i
            end += 1
    start, sources = allocate.ints(n + 1), allocate.ints(m)
    group_by(n, key, value, m, start, sources)
    begin = 0
    while begin < end:
        target = todo[begin]
        begin += 1
        for i in range(start[target], start[target + 1]):
            if distance[sources[i]] == _NEVER:
                distance[sources[i]] = distance[target] + 1
                todo[end] = sources[i]
                end += 1
    possible = True
    for i in range(n):
        if kind[i] == N_ENTER and loops[a[i], 2] < 0 and productive[i]:
            nearest = _NEVER
            for other in range(b[i], b[i] + b[b[i]] + 1):
                if productive[other]:
                    nearest = min(nearest, distance[a[other]] + 1)
            if nearest > loops[a[i], 3]:
                kind[i] = N_PLAIN
                possible = False
    if not possible:
        return False
    for i in range(n):
        if kind[i] != N_END or loops[a[i], 2] >= 0:
            continue
        if distance[i] != _NEVER:
            loops[a[i], 2] = min(loops[a[i], 2], -1 - distance[i])
        way = abs(b[i])
        for other in range(way, way + b[way] + 1):
            if productive[other]:
                a[other] = distance[a[other]] + 1
    return True
