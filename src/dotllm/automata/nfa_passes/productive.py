"""Nodes from which the end can be reached (a call needs a productive rule).

Everything else is dropped, so every state of the machine can still finish: no dead ends.
"""

from __future__ import annotations

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER, N_TOKENS
from dotllm.automata.nfa_passes.links import group_by
from dotllm.jit import inner_kernel


@inner_kernel(
    "Tuple((int32[::1], int32[::1]))"
    "(int32[::1], int32[::1], int32[::1], int32[:, ::1], int32[:, ::1], int64, int32[::1], int32[::1], int64)",
)
def links_back(
    kind: Int32, a: Int32, b: Int32, loops: Int32, edges: Int32, n_edges: int, eps_source: Int32, eps_target: Int32,
    n_eps: int,
) -> tuple[Int32, Int32]:  # fmt: skip
    """Which nodes lead to each node by anything: (starts, nodes). To calls lead both what they return to and the start
    of their rule. One list, because a walk over four of them takes twice the time."""
    n = kind.shape[0]
    most = n_edges + n_eps + 2 * loops.shape[0] + 2 * n
    for loop in range(loops.shape[0]):
        if loops[loop, 3] < -1:
            most += 2 * (-2 - loops[loop, 3])
    for i in range(n):
        if (kind[i] == N_ENTER or kind[i] == N_END) and loops[a[i], 2] < 0:
            most += b[abs(b[i])] + 1
    key, value = allocate.ints(most), allocate.ints(most)
    m = 0
    for i in range(n_edges):
        key[m], value[m] = edges[i, 2], edges[i, 0]
        m += 1
    for i in range(n_eps):
        key[m], value[m] = eps_target[i], eps_source[i]
        m += 1
    for i in range(n):
        if kind[i] == N_CALL:
            key[m], value[m] = a[i], i
            key[m + 1], value[m + 1] = b[i], i
            m += 2
        elif kind[i] == N_TOKENS:
            key[m], value[m] = b[i], i
            m += 1
        elif (kind[i] == N_ENTER or kind[i] == N_END) and loops[a[i], 2] < 0:
            way = abs(b[i])  # out of a state of a counted network
            for other in range(way, way + b[way] + 1):
                key[m], value[m] = other, i
                m += 1
            if b[i] < 0:
                key[m], value[m] = loops[a[i], 1], i
                m += 1
        elif (kind[i] == N_ENTER and loops[a[i], 3] < -1) or (kind[i] == N_END and b[i] > 0):
            # the parts of an unordered sequence
            for part in range(b[i], b[i] - 2 - loops[a[i], 3]):
                key[m], value[m] = part, i
                m += 1
        elif kind[i] == N_ENTER:
            key[m], value[m] = loops[a[i], 0], i
            m += 1
        elif kind[i] == N_END:
            key[m], value[m] = loops[a[i], 1], i
            m += 1
    start, link = allocate.ints(n + 1), allocate.ints(m)
    group_by(n, key, value, m, start, link)
    return start, link


@inner_kernel("boolean[::1](int32[::1], int32[::1], int32[::1], int32[:, ::1], int32[::1], int32[::1])")
def find_productive(kind: Int32, a: Int32, b: Int32, loops: Int32, link_start: Int32, link: Int32) -> Bool:
    """bool [nodes]: backwards from RETURN (node 0) over all links."""
    n = kind.shape[0]
    productive = allocate.zero_flags(n)
    todo = allocate.ints(n + 1)
    productive[0] = True
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        v = todo[top]
        for i in range(link_start[v], link_start[v + 1]):
            u = link[i]
            if productive[u]:
                continue
            if kind[u] == N_CALL:
                if not productive[a[u]] or not productive[b[u]]:
                    continue
            elif kind[u] == N_ENTER and loops[a[u], 3] < -1:
                # every part that is required must be productive
                whole = True
                for part in range(b[u], b[u] + (loops[a[u], 2] & 0x7FFF)):
                    whole = whole and productive[part]
                if not whole:
                    continue
            productive[u] = True
            todo[top] = u
            top += 1
    return productive
