"""Nodes with epsilons (`automata.thompson`) → the finished NFA: nodes that cannot reach the end are dropped, closures
replace epsilons.

The passes, in order, find bytes that no token holds (`producible`), nodes that match the empty string
(`find_nullable`), nodes that can reach the end (`find_productive`, `measure_distances`), tail calls (`tail_calls`),
closures (`find_closures`), the order of pushes (`order_pushes`), and bytes that no edge tells apart (`byte_classes`).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import (
    DONE,
    HEAD,
    LEFT_RECURSIVE,
    N_ACCEPT,
    N_BYTE,
    N_CALL,
    N_END,
    N_ENTER,
    N_PLAIN,
    N_RETURN,
    N_TOKENS,
    RETURN_NODE,
    TOO_MANY_CLOSURES,
    UNSATISFIABLE,
)
from dotllm.jit import B1, I1, I2, inner_kernel

# Byte edges: drops those that no token can take, groups the others by node, and finds bytes that no edge tells apart.


@inner_kernel("int32[:, ::1](int32[:, ::1], boolean[::1])")
def producible(edges: Int32, alive: Bool) -> Int32:
    """``edges`` [e, 3] without bytes that occur in no token (``alive``: bytes that occur in one). A range that lacks
    some of its bytes may become several ranges."""
    missing = 0
    for byte in range(256):
        missing += not alive[byte]
    if missing == 0:
        return edges
    count = 0
    for i in range(edges.shape[0]):
        low, high = edges[i, 1] & 255, edges[i, 1] >> 8
        for byte in range(low, high + 1):
            if alive[byte] and (byte == low or not alive[byte - 1]):
                count += 1
    kept = allocate.int_rows(count, 3)
    count = 0
    for i in range(edges.shape[0]):
        byte, high = edges[i, 1] & 255, edges[i, 1] >> 8
        while byte <= high:
            first = byte
            while byte <= high and alive[byte]:
                byte += 1
            if byte > first:
                kept[count, 0], kept[count, 1], kept[count, 2] = edges[i, 0], first | (byte - 1) << 8, edges[i, 2]
                count += 1
            byte += 1
    return kept


@inner_kernel("Tuple((int32[::1], int32[::1], int32[::1]))(int32[:, ::1], int64, boolean[::1], int32[::1])")
def by_node(edges: Int32, n_edges: int, productive: Bool, kind: Int32) -> tuple[Int32, Int32, Int32]:
    """Edges to productive nodes: the start of each node's edges, their bytes, their targets. Nodes with edges become
    BYTE nodes."""
    n = kind.shape[0]
    start = allocate.zero_ints(n + 1)
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            start[edges[i, 0] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
        if start[i + 1] > start[i]:
            kind[i] = N_BYTE
    fill = allocate.copied_ints(start[:n])
    taken, target = allocate.ints(start[n]), allocate.ints(start[n])
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            at = fill[edges[i, 0]]
            taken[at] = edges[i, 1]
            target[at] = edges[i, 2]
            fill[edges[i, 0]] += 1
    return start, taken, target


@inner_kernel(nb.int64(I1, I1, I1))
def byte_classes(taken: Int32, class_of: Int32, class_byte: Int32) -> int:
    """Put bytes that the same edges cover into one class. Returns the number of classes. ``class_byte``: one byte of
    each class.

    A byte's signature is the sum of the random numbers of the edges that cover it.
    """
    signature = allocate.zero_words(257)
    for i in range(taken.shape[0]):
        x = np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        signature[taken[i] & 255] += x
        signature[(taken[i] >> 8) + 1] -= x
    classes = 0
    class_signature = np.empty(256, np.uint64)
    running = np.uint64(0)
    for byte in range(256):
        if byte > 0 and signature[byte] == 0:  # no edge begins or ends here
            class_of[byte] = class_of[byte - 1]
            continue
        running += signature[byte]
        number = -1
        for j in range(classes):
            if class_signature[j] == running:
                number = j
                break
        if number < 0:
            number = classes
            class_signature[classes] = running
            class_byte[classes] = byte
            classes += 1
        class_of[byte] = number
    return classes


# Links between nodes, grouped by one of their ends; all passes use them.


@inner_kernel(nb.void(nb.int64, I1, I1, nb.int64, I1, I1))
def group_by(n: int, keys: Int32, values: Int32, m: int, starts: Int32, out: Int32) -> None:
    """CSR: values[i] grouped by keys[i] (stable counting sort). starts has n+1 entries."""
    starts[: n + 1] = 0
    for i in range(m):
        starts[keys[i]] += 1
    for i in range(n):
        starts[i + 1] += starts[i]
    for i in range(m - 1, -1, -1):  # backwards: starts[k], the end of group k now, becomes its start
        starts[keys[i]] -= 1
        out[starts[keys[i]]] = values[i]


@inner_kernel("Tuple((int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))(int32[::1], int32[::1], int32[::1])")
def group_calls(kind: Int32, a: Int32, b: Int32) -> tuple[Int32, Int32, Int32, Int32, Int32]:
    """The CALL nodes; then, as (starts, nodes), grouped by the node they return to, and by the start of their rule."""
    n = kind.shape[0]
    calls = 0
    for i in range(n):
        if kind[i] == N_CALL:
            calls += 1
    nodes, returns, rules = allocate.ints(calls), allocate.ints(calls), allocate.ints(calls)
    calls = 0
    for i in range(n):
        if kind[i] == N_CALL:
            nodes[calls], returns[calls], rules[calls] = i, b[i], a[i]
            calls += 1
    by_return_start, by_return = allocate.ints(n + 1), allocate.ints(calls)
    by_rule_start, by_rule = allocate.ints(n + 1), allocate.ints(calls)
    group_by(n, returns, nodes, calls, by_return_start, by_return)
    group_by(n, rules, nodes, calls, by_rule_start, by_rule)
    return nodes, by_return_start, by_return, by_rule_start, by_rule


@inner_kernel(nb.int64(nb.int64, I1, I1, B1, I1, nb.int64))
def mark(node: int, starts: Int32, nodes: Int32, marked: Bool, todo: Int32, top: int) -> int:
    """Mark the nodes that are grouped under ``node``, and put them on the stack ``todo``. Returns its new height."""
    for i in range(starts[node], starts[node + 1]):
        member = nodes[i]
        if not marked[member]:
            marked[member] = True
            todo[top] = member
            top += 1
    return top


@inner_kernel(nb.int64(nb.int64, I1, I1, I1, I1, I1, I1, B1, I1, nb.int64))
def mark_calls(
    node: int, a: Int32, b: Int32, by_return_start: Int32, by_return: Int32, by_rule_start: Int32, by_rule: Int32,
    marked: Bool, todo: Int32, top: int,
) -> int:  # fmt: skip
    """`mark` for the calls that return to ``node`` or whose rule starts there, if their other end is marked too."""
    for i in range(by_return_start[node], by_return_start[node + 1]):
        call = by_return[i]
        if not marked[call] and marked[a[call]]:
            marked[call] = True
            todo[top] = call
            top += 1
    for i in range(by_rule_start[node], by_rule_start[node + 1]):
        call = by_rule[i]
        if not marked[call] and marked[b[call]]:
            marked[call] = True
            todo[top] = call
            top += 1
    return top


# Finds rules that match the empty string: calls of them get a bypass (`find_closures` steps over them).
#
# No counted loop has a body that may be empty: `grammar.transform.prepare` ensures that, and dropping bytes that no
# token holds makes nothing empty.


@inner_kernel(B1(I1, I1, I1, I1, I1, I1, I1, I1))
def find_nullable(
    a: Int32, b: Int32, back_start: Int32, back: Int32, by_return_start: Int32, by_return: Int32, by_rule_start: Int32,
    by_rule: Int32,
) -> Bool:  # fmt: skip
    """bool [nodes]: the nodes that reach RETURN (node 0) of their own rule without consuming anything.

    back: the sources of the epsilons to each node, as CSR; by_return, by_rule: see `group_calls`.
    """
    n = a.shape[0]
    nullable = allocate.zero_flags(n)
    todo = allocate.ints(n + 1)
    nullable[0] = True
    todo[0] = 0
    top = 1
    while top > 0:
        top -= 1
        v = todo[top]
        top = mark(v, back_start, back, nullable, todo, top)
        top = mark_calls(v, a, b, by_return_start, by_return, by_rule_start, by_rule, nullable, todo, top)
    return nullable


# Finds the nodes from which the end can be reached (a call needs a productive rule).
#
# All others are dropped, so every state of the machine can still finish: there are no dead ends.


@inner_kernel(
    "Tuple((int32[::1], int32[::1]))"
    "(int32[::1], int32[::1], int32[::1], int32[:, ::1], int32[:, ::1], int64, int32[::1], int32[::1], int64)",
)
def links_back(
    kind: Int32, a: Int32, b: Int32, loops: Int32, edges: Int32, n_edges: int, eps_source: Int32, eps_target: Int32,
    n_eps: int,
) -> tuple[Int32, Int32]:  # fmt: skip
    """The nodes that lead to each node by any link: (starts, nodes). Both the node that a call returns to and the start
    of its rule link back to the call. It is one list, because a walk over four lists takes twice the time."""
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
            way = abs(b[i])  # the first transition of a state of a counted network
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
    """bool [nodes]: the nodes from which RETURN (node 0) can be reached, found by following the links backwards."""
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


# Orders pushes: calls and loop entries of one closure must be carried out left corners first.
#
# The order is topological (depth first, reverse postorder). A cycle is left recursion, which must have been rewritten
# (`grammar.transform`). All calls of one rule get the rank of the last of them, before everything that the rule begins
# with. So these calls follow each other, and their frames are pushed together.


@inner_kernel(nb.int64(I1, I1, I1, I2, nb.int64), inlined=True)
def first_pushed(kind: Int32, a: Int32, b: Int32, loops: Int32, node: int) -> int:
    """The (first) node at which a CALL or ENTER continues."""
    if kind[node] == N_CALL:
        return nb.int64(a[node])
    if loops[a[node], 3] < -1 or loops[a[node], 2] < 0:
        return nb.int64(b[node])
    return nb.int64(loops[a[node], 0])


@inner_kernel(nb.boolean(I1, I1, I1, I2, I1, I1, I1))
def order_pushes(
    kind: Int32, a: Int32, b: Int32, loops: Int32, closure_start: Int32, closure: Int32, rank: Int32
) -> bool:
    """Fill ``rank``, which is all 0 before. Returns False if the grammar is left-recursive."""
    n = kind.shape[0]
    colour = np.zeros(n, np.int8)
    path = allocate.ints(n + 1)
    position = allocate.ints(n + 1)
    place = allocate.zero_ints(n)  # by called node: the rank of the last call
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
            width = 1  # the parts of an unordered sequence have consecutive numbers
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


# Finds closures: for every node that can be jumped to, the nodes with an action that are reached without consuming
# anything.

_SHORT = 16  # maximum number of nodes after a call that are examined to see whether it is a tail call


@inner_kernel("boolean[::1](int32[::1], int32[::1], int32[::1], int32[::1], boolean[::1], int32[::1], int32[::1])")
def tail_calls(
    kind: Int32, a: Int32, b: Int32, calls: Int32, productive: Bool, forward_start: Int32, forward: Int32
) -> Bool:
    """bool [nodes]: calls that are followed only by a return. They become jumps, so that right recursion needs no
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
    """bool [nodes]: the nodes that are jumped to. Nodes that cannot end become PLAIN."""
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
            way = abs(b[i])  # the first transition of a state of a counted network
            for other in range(way, way + b[way] + 1):
                is_target[other] = True
    return is_target


@inner_kernel(nb.void(I1, nb.int64, nb.int64, nb.boolean))
def place_return(closure: Int32, start: int, end: int, is_first: bool) -> None:
    """Put RETURN, if closure[start:end] has it, at the start (``is_first``) or at the end."""
    for i in range(start, end):
        if closure[i] == RETURN_NODE:
            other = start if is_first else end - 1
            closure[i], closure[other] = closure[other], closure[i]
            break


@inner_kernel(nb.int64(I1, I1, I1, B1, B1, B1, B1, B1, I1, I1, I1, I1))
def find_closures(
    kind: Int32, a: Int32, b: Int32, is_target: Bool, productive: Bool, tail: Bool, nullable: Bool, recursive: Bool,
    forward_start: Int32, forward: Int32, closure_start: Int32, closure: Int32,
) -> int:  # fmt: skip
    """Fill the closures (starts [nodes + 1], nodes). Returns their size, or -1 if ``closure`` is too small. RETURN
    comes first in the closures of ``recursive`` nodes, and last in the others."""
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
        place_return(closure, closure_start[root], size, recursive[root])
    closure_start[n] = size
    return size


# Finds return nodes that a recursion can put on top of each other, and that may return immediately.
#
# ``list: x | x "," list ws?`` may end all its open calls when the innermost one ends, because each return node may
# consume nothing. The machine treats the frames of such nodes as one (see `machine.exits`). Such a node belongs to a
# call in a cycle of calls whose return nodes may all return immediately (R. Tarjan, "Depth-first search and linear
# graph algorithms", SIAM J. Comput. 1, 1972). Without a cycle, the grammar bounds how many of them meet.


@inner_kernel(
    "boolean[::1](int32[::1], int32[::1], int32[::1], int32[::1], boolean[::1], boolean[::1], boolean[::1],"
    " int32[::1], int32[::1])"
)
def recursive_returns(
    kind: Int32, a: Int32, b: Int32, calls: Int32, productive: Bool, tail: Bool, nullable: Bool, link_start: Int32,
    link: Int32,
) -> Bool:  # fmt: skip
    """bool [nodes]: these return nodes. link_start, link: what leads to each node, as CSR (`links_back`)."""
    n = kind.shape[0]
    result = allocate.zero_flags(n)
    roots = allocate.ints(calls.shape[0])
    count = 0
    for i in range(calls.shape[0]):
        c = calls[i]
        if kind[c] == N_CALL and not tail[c] and nullable[b[c]]:
            roots[count] = c
            count += 1
    if count == 0:
        return result
    # Depth first, against the links: a cycle is a cycle in both directions.
    number, low, component = allocate.zero_ints(n), allocate.zero_ints(n), allocate.zero_ints(n)
    path, position, waiting = allocate.ints(n + 1), allocate.ints(n + 1), allocate.ints(n + 1)
    numbered, components, height = 0, 0, 0
    for i in range(count):
        if number[roots[i]] != 0:
            continue
        numbered += 1
        path[0], position[0] = roots[i], link_start[roots[i]]
        number[roots[i]] = low[roots[i]] = numbered
        waiting[height] = roots[i]
        height += 1
        depth = 1
        while depth > 0:
            v = path[depth - 1]
            if position[depth - 1] >= link_start[v + 1]:
                depth -= 1
                if low[v] == number[v]:
                    components += 1
                    while True:
                        height -= 1
                        component[waiting[height]] = components
                        if waiting[height] == v:
                            break
                if depth > 0:
                    low[path[depth - 1]] = min(low[path[depth - 1]], low[v])
                continue
            u = link[position[depth - 1]]
            position[depth - 1] += 1
            if not productive[u]:
                continue
            if kind[u] == N_CALL and b[u] != v and not tail[u] and not nullable[b[u]]:
                continue  # its return node must consume something, so no such cycle contains this call
            if number[u] == 0:
                numbered += 1
                number[u] = low[u] = numbered
                waiting[height] = u
                height += 1
                path[depth], position[depth] = u, link_start[u]
                depth += 1
            elif component[u] == 0:
                low[v] = min(low[v], number[u])
    for i in range(count):
        c = roots[i]
        if component[c] == component[a[c]]:
            result[b[c]] = True
    return result


# Counted networks: measures the edges from each transition to a final state.
#
# The machine takes a transition only if the remaining edges suffice to reach a final state, so the limit causes no dead
# ends. The distances depend on which edges are productive, so this pass computes them, not the construction of the
# network.

_NEVER = 1 << 30


@inner_kernel("boolean(int32[::1], int32[::1], int32[::1], int32[:, ::1], boolean[::1])")
def measure_distances(kind: Int32, a: Int32, b: Int32, loops: Int32, productive: Bool) -> bool:
    """Set ``a`` of every transition (until now the END node of its target) to its distance, and ``loops[:, 2]`` of all
    counted networks. Returns False if some network has no text that is short enough: its ENTER has become PLAIN, and
    nothing else has changed."""
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


# Runs the passes in order (see the module docstring) as one kernel.
#
# Each kernel call from Python spends a few microseconds on its arguments, as much as a pass takes for a small grammar.

_MOST_CLOSURES = 64_000_000  # ints


@inner_kernel(nb.int64(I1, nb.int64, I1))
def put(block: Int32, at: int, part: Int32) -> int:
    """Copy ``part`` into ``block`` from ``at`` on; returns the end. It is a loop, because an assignment to a slice
    takes seconds to compile (Numba builds the error message for shapes that differ)."""
    for i in range(part.shape[0]):
        block[at + i] = part[i]
    return at + part.shape[0]


@inner_kernel(nb.types.Tuple((nb.int64, I1))(nb.int64, I1, I1, I1, I1, I2, I2, I2, B1))
def finish(
    start: int, kind: Int32, a: Int32, b: Int32, charset: Int32, epsilons: Int32, byte_edges: Int32, loops: Int32,
    alive: Bool,
) -> tuple[int, Int32]:  # fmt: skip
    """Finish the result of Thompson's construction. Returns DONE and the block of an `Nfa`, or the fault and nothing.

    kind, a, b, charset [n]; epsilons [·, 2] source, target; byte_edges [e, 3] source, low | high << 8, target; loops
    [l, 4] body, after, min, max. All of these may be modified. alive [256]: bytes that occur in some token.
    """
    nothing = allocate.ints(0)
    n = kind.shape[0]
    kind[0], kind[1] = N_RETURN, N_ACCEPT
    byte_edges = producible(byte_edges, alive)
    n_edges = byte_edges.shape[0]
    calls, by_return_start, by_return, by_rule_start, by_rule = group_calls(kind, a, b)
    n_eps = epsilons.shape[0]
    source, target = allocate.ints(n_eps), allocate.ints(n_eps)
    for i in range(n_eps):
        source[i], target[i] = epsilons[i, 0], epsilons[i, 1]
    forward_start, back_start = allocate.ints(n + 1), allocate.ints(n + 1)
    forward, back = allocate.ints(n_eps), allocate.ints(n_eps)
    group_by(n, source, target, n_eps, forward_start, forward)
    group_by(n, target, source, n_eps, back_start, back)
    nullable = find_nullable(a, b, back_start, back, by_return_start, by_return, by_rule_start, by_rule)
    while True:
        link_start, link = links_back(kind, a, b, loops, byte_edges, n_edges, source, target, n_eps)
        productive = find_productive(kind, a, b, loops, link_start, link)
        if measure_distances(kind, a, b, loops, productive):
            break
    if not productive[start]:
        return UNSATISFIABLE, nothing
    edge_start, edge_bytes, edge_target = by_node(byte_edges, n_edges, productive, kind)
    tail = tail_calls(kind, a, b, calls, productive, forward_start, forward)
    recursive = recursive_returns(kind, a, b, calls, productive, tail, nullable, link_start, link)
    is_target = targets(start, kind, a, b, loops, productive, edge_target)
    closure_start, closure = allocate.ints(n + 1), allocate.ints(4 * n + 64)
    while True:
        size = find_closures(
            kind, a, b, is_target, productive, tail, nullable, recursive, forward_start, forward, closure_start, closure
        )
        if size >= 0:
            break
        if 4 * closure.shape[0] > _MOST_CLOSURES:
            return TOO_MANY_CLOSURES, nothing
        closure = allocate.ints(4 * closure.shape[0])
    for i in range(n):
        if tail[i]:
            kind[i] = N_PLAIN
    rank = allocate.zero_ints(n)
    if not order_pushes(kind, a, b, loops, closure_start, closure, rank):
        return LEFT_RECURSIVE, nothing
    class_of, class_byte = allocate.ints(256), allocate.ints(256)
    classes = byte_classes(edge_bytes, class_of, class_byte)

    # The arrays, one after another, in the order of `NfaArray`.
    e, n_loops = edge_bytes.shape[0], loops.shape[0]
    block = allocate.ints(HEAD + 7 * n + 2 + 2 * e + size + 4 * n_loops + 256 + classes)
    at, number = HEAD, 0
    for part in (kind, a, b, rank, charset, edge_start, edge_bytes, edge_target, closure_start, closure[:size]):
        block[number] = at
        at = put(block, at, part)
        number += 1
    for column in range(4):
        block[number] = at
        for loop in range(n_loops):
            block[at + loop] = loops[loop, column]
        at += n_loops
        number += 1
    for part in (class_of, class_byte[:classes]):
        block[number] = at
        at = put(block, at, part)
        number += 1
    block[number], block[number + 1] = at, start
    return DONE, block


__all__ = ["finish"]
