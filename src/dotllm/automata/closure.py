"""Kernel: nodes and epsilons → the finished NFA: pruned, with closures, byte classes and an order of pushes.

Four passes over the output of `automata.thompson`:

1. *productive*: nodes from which the end can be reached (a call needs a productive rule). Everything else is dropped,
so every
   state of the machine can still finish: no dead ends.
2. *nullable*: rules and loop bodies that match the empty string. A call of such a rule gets a bypass; a counted loop
over
   such a body counts only rounds that consume something (its minimum becomes 0), which is the same language.
3. *tail calls*: a call after which nothing but a return follows is a jump. Right recursion then needs no stack.
4. *closures*: for every node something can jump to, the list of nodes with an action that are reached without
consuming.
   Pushes (calls, loop entries) must later be carried out in left-corner order; `rank` is a topological order of them.
   A cycle there is left recursion, which has to be rewritten before (`grammar.transform`).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32
from dotllm.jit import kernel

N_PLAIN, N_BYTE, N_CALL, N_ENTER, N_END, N_RETURN, N_TOKENS, N_ACCEPT = range(8)

UNSATISFIABLE, TOO_SMALL, LEFT_RECURSION = -3, -1, -2

I1 = nb.int32[::1]
I2 = nb.int32[:, ::1]


@kernel(nb.void(nb.int64, I1, I1, nb.int64, I1, I1))
def group_by(n: int, keys: Int32, values: Int32, m: int, starts: Int32, out: Int32) -> None:
    """CSR: values[i] grouped by keys[i] (stable counting sort). starts has n+1 entries."""
    starts[: n + 1] = 0
    for i in range(m):
        starts[keys[i] + 1] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    fill = starts[:n].copy()
    for i in range(m):
        out[fill[keys[i]]] = values[i]
        fill[keys[i]] += 1


@kernel(nb.int64(I1, I1, I1, I2, nb.int64))
def first_pushed(kind: Int32, a: Int32, b: Int32, loops: Int32, node: int) -> int:
    """The (first) node at which a CALL or ENTER goes on."""
    if kind[node] == N_CALL:
        return nb.int64(a[node])
    if loops[a[node], 3] < -1:
        return nb.int64(b[node])
    return nb.int64(loops[a[node], 0])


@kernel(
    nb.int64(
        nb.int64, nb.int64, nb.int64, nb.int64, nb.int64,  # nodes, epsilons, edges, loops, start
        I1, I1, I1,  # node kind, a, b (kind is completed here)
        I2, I2, I2,  # epsilons, edges, loops
        nb.boolean[::1],  # bytes the vocabulary can produce
        I1, I1, I1,  # out: edge_start, edge_bytes, edge_target
        I1, I1,  # out: closure_start, closure
        I1, I1, I1,  # out: rank, class_of, class_byte
    ),
)  # fmt: skip
def finish(
    n: int, n_eps: int, n_edges: int, n_loops: int, start: int, kind: Int32, a: Int32, b: Int32, eps: Int32,
    edges: Int32, loops: Int32, alive: Bool,
    edge_start: Int32, edge_bytes: Int32, edge_target: Int32, closure_start: Int32, closure: Int32, rank: Int32,
    class_of: Int32, class_byte: Int32,
) -> int:  # fmt: skip
    """Returns the number of byte classes, or UNSATISFIABLE, TOO_SMALL (``closure``; or call again) or
    LEFT_RECURSION."""
    kind[0] = N_RETURN
    kind[1] = N_ACCEPT

    # bytes that no token holds can never be produced: drop their edges (a range may lose its ends or fall apart: split)
    kept = np.int64(0)
    for i in range(n_edges):
        low, high = edges[i, 1] & 255, edges[i, 1] >> 8
        whole = True
        for byte in range(low, high + 1):
            if not alive[byte]:
                whole = False
        if whole:
            edges[kept, 0], edges[kept, 1], edges[kept, 2] = edges[i, 0], edges[i, 1], edges[i, 2]
            kept += 1
            continue
        while low <= high and not alive[low]:
            low += 1
        while high >= low and not alive[high]:
            high -= 1
        if low > high:
            continue
        for byte in range(low, high + 1):
            if not alive[byte]:
                return -4  # a hole inside a range: the vocabulary cannot spell whole bytes; refused by the caller
        edges[kept, 0], edges[kept, 1], edges[kept, 2] = edges[i, 0], low | (high << 8), edges[i, 2]
        kept += 1
    n_edges = kept

    # ---- nullable bodies and rules (usually one round)
    bypassed = np.zeros(n_loops, nb.boolean)
    enter_of = np.full(n_loops, -1, np.int32)
    for i in range(n):
        if kind[i] == N_ENTER:
            enter_of[a[i]] = i
    eps_source = np.empty(n_eps + n_loops, np.int32)
    eps_target = np.empty(n_eps + n_loops, np.int32)
    for i in range(n_eps):
        eps_source[i] = eps[i, 0]
        eps_target[i] = eps[i, 1]
    forward_start = np.empty(n + 1, np.int32)
    forward = np.empty(n_eps + n_loops + 1, np.int32)
    back_start = np.empty(n + 1, np.int32)
    back = np.empty(n_eps + n_loops + 1, np.int32)
    calls = np.int64(0)
    for i in range(n):
        if kind[i] == N_CALL:
            calls += 1
    call_nodes = np.empty(calls, np.int32)
    call_rets = np.empty(calls, np.int32)
    call_starts = np.empty(calls, np.int32)
    calls = 0
    for i in range(n):
        if kind[i] == N_CALL:
            call_nodes[calls], call_rets[calls], call_starts[calls] = i, b[i], a[i]
            calls += 1
    by_ret_start = np.empty(n + 1, np.int32)
    by_ret = np.empty(calls, np.int32)
    by_start_start = np.empty(n + 1, np.int32)
    by_start = np.empty(calls, np.int32)
    group_by(n, call_rets, call_nodes, calls, by_ret_start, by_ret)
    group_by(n, call_starts, call_nodes, calls, by_start_start, by_start)
    nullable = np.zeros(n, nb.boolean)  # reaches RETURN of its own rule without consuming
    todo = np.empty(n + 1, np.int32)
    seen = np.zeros(n, np.int32)
    stamp = np.int32(0)
    while True:
        group_by(n, eps_source, eps_target, n_eps, forward_start, forward)
        group_by(n, eps_target, eps_source, n_eps, back_start, back)
        nullable[:] = False
        nullable[0] = True
        todo[0] = 0
        top = 1
        while top > 0:
            top -= 1
            v = todo[top]
            for i in range(back_start[v], back_start[v + 1]):
                u = back[i]
                if not nullable[u]:
                    nullable[u] = True
                    todo[top] = u
                    top += 1
            for i in range(by_ret_start[v], by_ret_start[v + 1]):
                u = by_ret[i]
                if not nullable[u] and nullable[a[u]]:
                    nullable[u] = True
                    todo[top] = u
                    top += 1
            for i in range(by_start_start[v], by_start_start[v + 1]):
                u = by_start[i]
                if not nullable[u] and nullable[b[u]]:
                    nullable[u] = True
                    todo[top] = u
                    top += 1
        changed = False
        for loop in range(n_loops):
            if bypassed[loop] or loops[loop, 3] < -1:
                continue
            stamp += 1
            todo[0] = loops[loop, 0]
            seen[loops[loop, 0]] = stamp
            top = 1
            found = False
            while top > 0 and not found:
                top -= 1
                v = todo[top]
                if kind[v] == N_END and a[v] == loop:
                    found = True
                for i in range(forward_start[v], forward_start[v + 1]):
                    if seen[forward[i]] != stamp:
                        seen[forward[i]] = stamp
                        todo[top] = forward[i]
                        top += 1
                if kind[v] == N_CALL and nullable[a[v]] and seen[b[v]] != stamp:
                    seen[b[v]] = stamp
                    todo[top] = b[v]
                    top += 1
            if found:
                bypassed[loop] = True
                loops[loop, 2] = 0
                eps_source[n_eps], eps_target[n_eps] = enter_of[loop], loops[loop, 1]
                n_eps += 1
                changed = True
        if not changed:
            break

    # ---- productive nodes: backwards from RETURN
    links = n_edges + n_loops * 2 + n
    for loop in range(n_loops):
        if loops[loop, 3] < -1:
            links += 2 * (-2 - loops[loop, 3])
    link_key = np.empty(links, np.int32)
    link_value = np.empty(links, np.int32)
    m = np.int64(0)
    for i in range(n_edges):
        link_key[m], link_value[m] = edges[i, 2], edges[i, 0]
        m += 1
    for i in range(n):
        if kind[i] == N_TOKENS:
            link_key[m], link_value[m] = b[i], i
            m += 1
        elif (kind[i] == N_ENTER and loops[a[i], 3] < -1) or (kind[i] == N_END and b[i] > 0):
            # the parts of an unordered sequence
            for part in range(b[i], b[i] - 2 - loops[a[i], 3]):
                link_key[m], link_value[m] = part, i
                m += 1
        elif kind[i] == N_ENTER:
            link_key[m], link_value[m] = loops[a[i], 0], i
            m += 1
        elif kind[i] == N_END:
            link_key[m], link_value[m] = loops[a[i], 1], i
            m += 1
    link_start = np.empty(n + 1, np.int32)
    link = np.empty(m, np.int32)
    group_by(n, link_key, link_value, m, link_start, link)
    productive = np.zeros(n, nb.boolean)
    productive[0] = True
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        v = todo[top]
        for i in range(back_start[v], back_start[v + 1]):
            u = back[i]
            if not productive[u]:
                productive[u] = True
                todo[top] = u
                top += 1
        for i in range(link_start[v], link_start[v + 1]):
            u = link[i]
            if kind[u] == N_ENTER and loops[a[u], 3] < -1:
                # every part that is required must be productive
                whole = True
                for part in range(b[u], b[u] + (loops[a[u], 2] & 0x7FFF)):
                    whole = whole and productive[part]
                if not whole:
                    continue
            if not productive[u]:
                productive[u] = True
                todo[top] = u
                top += 1
        for i in range(by_ret_start[v], by_ret_start[v + 1]):
            u = by_ret[i]
            if not productive[u] and productive[a[u]]:
                productive[u] = True
                todo[top] = u
                top += 1
        for i in range(by_start_start[v], by_start_start[v + 1]):
            u = by_start[i]
            if not productive[u] and productive[b[u]]:
                productive[u] = True
                todo[top] = u
                top += 1
    if not productive[start]:
        return UNSATISFIABLE

    # ---- byte edges, by node
    edge_start[: n + 1] = 0
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            edge_start[edges[i, 0] + 1] += 1
    for i in range(n):
        edge_start[i + 1] += edge_start[i]
        if edge_start[i + 1] > edge_start[i]:
            kind[i] = N_BYTE
    fill = edge_start[:n].copy()
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            at = fill[edges[i, 0]]
            edge_bytes[at] = edges[i, 1]
            edge_target[at] = edges[i, 2]
            fill[edges[i, 0]] += 1

    # ---- tail calls
    tail = np.zeros(n, nb.boolean)
    for i in range(calls):
        c = call_nodes[i]
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
            if visited > 16 or (kind[v] != N_PLAIN and kind[v] != N_RETURN):
                only_return = False
            for j in range(forward_start[v], forward_start[v + 1]):
                if productive[forward[j]] and seen[forward[j]] != stamp:
                    seen[forward[j]] = stamp
                    todo[top] = forward[j]
                    top += 1
        tail[c] = only_return

    # ---- closures of the nodes something can jump to
    is_target = np.zeros(n, nb.boolean)
    is_target[start] = True
    for i in range(edge_start[n]):
        is_target[edge_target[i]] = True
    for i in range(n):
        if not productive[i]:
            if kind[i] != N_BYTE and kind[i] > N_BYTE and i > 1:
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
    size = np.int64(0)
    for root in range(n):
        closure_start[root] = size
        if not is_target[root] or not productive[root]:
            continue
        stamp += 1
        todo[0] = root
        seen[root] = stamp
        top = 1
        while top > 0:
            top -= 1
            v = todo[top]
            if kind[v] != N_PLAIN and not tail[v]:
                if size >= closure.shape[0]:
                    return TOO_SMALL
                closure[size] = v
                size += 1
            for i in range(forward_start[v], forward_start[v + 1]):
                w = forward[i]
                if productive[w] and seen[w] != stamp:
                    seen[w] = stamp
                    todo[top] = w
                    top += 1
            if kind[v] == N_CALL:
                if tail[v]:
                    w = a[v]
                    if seen[w] != stamp:
                        seen[w] = stamp
                        todo[top] = w
                        top += 1
                elif nullable[a[v]]:
                    w = b[v]
                    if productive[w] and seen[w] != stamp:
                        seen[w] = stamp
                        todo[top] = w
                        top += 1
    closure_start[n] = size
    for i in range(n):
        if tail[i]:
            kind[i] = N_PLAIN

    # ---- rank: topological order of pushes (depth first, reverse postorder)
    rank[:n] = 0
    colour = np.zeros(n, np.int8)
    path = np.empty(n + 1, np.int32)
    position = np.empty(n + 1, np.int32)
    order = np.int32(n)
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
            width = np.int64(1)  # the parts of an unordered sequence stand together
            if kind[v] == N_ENTER and loops[a[v], 3] < -1:
                width = np.int64(-2 - loops[a[v], 3])
            if position[depth - 1] >= closure_start[to + width]:
                colour[v] = 2
                rank[v] = order
                order -= 1
                depth -= 1
                continue
            w = closure[position[depth - 1]]
            position[depth - 1] += 1
            if kind[w] != N_CALL and kind[w] != N_ENTER:
                continue
            if colour[w] == 1:
                return LEFT_RECURSION
            if colour[w] == 0:
                colour[w] = 1
                path[depth] = w
                position[depth] = closure_start[first_pushed(kind, a, b, loops, w)]
                depth += 1

    # ---- byte classes: bytes covered by the same edges; a byte's signature is the sum of random numbers of its edges
    signature = np.zeros(257, np.uint64)
    for i in range(edge_start[n]):
        x = np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        signature[edge_bytes[i] & 255] += x
        signature[(edge_bytes[i] >> 8) + 1] -= x
    classes = np.int64(0)
    class_signature = np.empty(256, np.uint64)
    running = np.uint64(0)
    for byte in range(256):
        running += signature[byte]
        found = -1
        for j in range(classes):
            if class_signature[j] == running:
                found = j
                break
        if found < 0:
            found = classes
            class_signature[classes] = running
            class_byte[classes] = byte
            classes += 1
        class_of[byte] = found
    return classes
