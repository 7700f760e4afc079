"""For every node something can jump to, the nodes with an action that are reached without consuming anything."""

from __future__ import annotations

import numba as nb

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import N_BYTE, N_CALL, N_END, N_ENTER, N_PLAIN, N_RETURN, N_TOKENS
from dotllm.jit import B1, I1, inner_kernel

_SHORT = 16  # nodes behind a call that are looked at for whether it is a tail call


@inner_kernel("boolean[::1](int32[::1], int32[::1], int32[::1], int32[::1], boolean[::1], int32[::1], int32[::1])")
def tail_calls(
    kind: Int32, a: Int32, b: Int32, calls: Int32, productive: Bool, forward_start: Int32, forward: Int32
) -> Bool:
    """bool [nodes]: calls behind which nothing but a return follows. They are jumps, so that right recursion needs no
    stack. Calls that cannot end become PLAIN."""
    n = kind.shape[0]
    tail = allocate.zero_flags(n)
    todo = allocate.ints(n + 1)
    seen = allocate.zero_ints(n)
    stamp = 0
    for i in range(calls.shape[0]):
        c = calls[i]
        if not productive[c] or not productive[a[c]]:
            kind[c] = N_PLAIN
            continue
        stamp += 1
        todo[0] = b[c]
        seen[b[c]] = stamp
        top = 1
        only_return = True
        visited = 0
        while top > 0 and only_return:
            top -= 1
            v = todo[top]
            visited += 1
            if visited > _SHORT or (kind[v] != N_PLAIN and kind[v] != N_RETURN):
                only_return = False
            for j in range(forward_start[v], forward_start[v + 1]):
                if productive[forward[j]] and seen[forward[j]] != stamp:
                    seen[forward[j]] = stamp
                    todo[top] = forward[j]
                    top += 1
        tail[c] = only_return
    return tail


@inner_kernel("boolean[::1](int64, int32[::1], int32[::1], int32[::1], int32[:, ::1], boolean[::1], int32[::1])")
def targets(start: int, kind: Int32, a: Int32, b: Int32, loops: Int32, productive: Bool, edge_target: Int32) -> Bool:
    """bool [nodes]: what something jumps to. Nodes that cannot end become PLAIN."""
    n = kind.shape[0]
    is_target = allocate.zero_flags(n)
    is_target[start] = True
    for i in range(edge_target.shape[0]):
        is_target[edge_target[i]] = True
    for i in range(n):
        if not productive[i]:
            if kind[i] > N_BYTE and i > 1:
                kind[i] = N_PLAIN
        elif kind[i] == N_CALL:
            is_target[a[i]] = True
            is_target[b[i]] = True
        elif kind[i] == N_TOKENS:
            is_target[b[i]] = True
        elif kind[i] == N_ENTER:
            is_target[loops[a[i], 0]] = True
            is_target[loops[a[i], 1]] = True
            for part in range(b[i], b[i] - 2 - loops[a[i], 3]):  # of an unordered sequence
                is_target[part] = True
        if (kind[i] == N_ENTER or kind[i] == N_END) and loops[a[i], 2] < 0:
            way = abs(b[i])  # out of a state of a counted network
            for other in range(way, way + b[way] + 1):
                is_target[other] = True
    return is_target


@inner_kernel(nb.int64(I1, I1, I1, B1, B1, B1, B1, I1, I1, I1, I1))
def find_closures(
    kind: Int32, a: Int32, b: Int32, is_target: Bool, productive: Bool, tail: Bool, nullable: Bool,
    forward_start: Int32, forward: Int32, closure_start: Int32, closure: Int32,
) -> int:  # fmt: skip
    """Fill the closures (starts [nodes + 1], nodes); their size, or -1: ``closure`` is too small."""
    n = kind.shape[0]
    todo = allocate.ints(n + 1)
    seen = allocate.filled_ints(n, -1)  # the last root from which a node was seen
    size = 0
    for root in range(n):
        closure_start[root] = size
        if not is_target[root] or not productive[root]:
            continue
        todo[0] = root
        seen[root] = root
        top = 1
        while top > 0:
            top -= 1
            v = todo[top]
            if kind[v] != N_PLAIN and not tail[v]:
                if size >= closure.shape[0]:
                    return -1
                closure[size] = v
                size += 1
            for i in range(forward_start[v], forward_start[v + 1]):
                w = forward[i]
                if productive[w] and seen[w] != root:
                    seen[w] = root
                    todo[top] = w
                    top += 1
            if kind[v] == N_CALL:
                w = a[v] if tail[v] else b[v]
                if (tail[v] or (nullable[a[v]] and productive[w])) and seen[w] != root:
                    seen[w] = root
                    todo[top] = w
                    top += 1
    closure_start[n] = size
    return size
