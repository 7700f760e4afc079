"""The order of pushes: calls and loop entries of one closure must be carried out left corners first.

A topological order of them (depth first, reverse postorder). A cycle is left recursion, which has to be rewritten
before (`grammar.transform`). All calls of one rule stand at the place of the last of them, which is before everything
that the rule begins with. So these calls follow each other, and their frames are pushed together.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32
from dotllm.automata.kinds import N_CALL, N_ENTER
from dotllm.jit import I1, I2, inner_kernel


@inner_kernel(nb.int64(I1, I1, I1, I2, nb.int64), inlined=True)
def first_pushed(kind: Int32, a: Int32, b: Int32, loops: Int32, node: int) -> int:
    """The (first) node at which a CALL or ENTER goes on."""
    if kind[node] == N_CALL:
        return nb.int64(a[node])
    if loops[a[node], 3] < -1 or loops[a[node], 2] < 0:
        return nb.int64(b[node])
    return nb.int64(loops[a[node], 0])


@inner_kernel(nb.boolean(I1, I1, I1, I2, I1, I1, I1))
def order_pushes(
    kind: Int32, a: Int32, b: Int32, loops: Int32, closure_start: Int32, closure: Int32, rank: Int32
) -> bool:
    """Fill ``rank`` (zeroed); False: the grammar is left-recursive."""
    n = kind.shape[0]
    colour = np.zeros(n, np.int8)
    path = allocate.ints(n + 1)
    position = allocate.ints(n + 1)
    place = allocate.zero_ints(n)  # by called node: that of the last call
    order = n
    for first in range(n):
        if colour[first] != 0 or (kind[first] != N_CALL and kind[first] != N_ENTER):
            continue
        path[0] = first
        position[0] = closure_start[first_pushed(kind, a, b, loops, first)]
        colour[first] = 1
        depth = 1
        while depth > 0:
            v = path[depth - 1]
            to = first_pushed(kind, a, b, loops, v)
            width = 1  # the parts of an unordered sequence stand together
            if kind[v] == N_ENTER and loops[a[v], 3] < -1:
                width = -2 - loops[a[v], 3]
            elif kind[v] == N_ENTER and loops[a[v], 2] < 0:
                width = b[to] + 1  # and so do the transitions of a state of a counted network
            if position[depth - 1] >= closure_start[to + width]:
                colour[v] = 2
                rank[v] = order
                if kind[v] == N_CALL:
                    if place[to] == 0:
                        place[to] = order
                    rank[v] = place[to]
                order -= 1
                depth -= 1
                continue
            w = closure[position[depth - 1]]
            position[depth - 1] += 1
            if kind[w] != N_CALL and kind[w] != N_ENTER:
                continue
            if colour[w] == 1:
                return False
            if colour[w] == 0:
                colour[w] = 1
                path[depth] = w
                position[depth] = closure_start[first_pushed(kind, a, b, loops, w)]
                depth += 1
    return True
