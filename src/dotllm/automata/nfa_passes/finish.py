"""The passes in order (see the package), as one kernel: each call of a kernel from Python costs some microseconds for
its arguments, and a small grammar takes a pass no longer."""

from __future__ import annotations

import numba as nb

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import (
    DONE,
    HEAD,
    LEFT_RECURSIVE,
    N_ACCEPT,
    N_PLAIN,
    N_RETURN,
    TOO_MANY_CLOSURES,
    UNSATISFIABLE,
)
from dotllm.automata.nfa_passes.closures import find_closures, tail_calls, targets
from dotllm.automata.nfa_passes.distances import measure_distances
from dotllm.automata.nfa_passes.edges import by_node, byte_classes, producible
from dotllm.automata.nfa_passes.links import group_by, group_calls
from dotllm.automata.nfa_passes.nullable import find_nullable
from dotllm.automata.nfa_passes.productive import find_productive, links_back
from dotllm.automata.nfa_passes.pushes import order_pushes
from dotllm.jit import B1, I1, I2, inner_kernel

_MOST_CLOSURES = 64_000_000  # ints


@inner_kernel(nb.int64(I1, nb.int64, I1))
def put(block: Int32, at: int, part: Int32) -> int:
    """Copy ``part`` into ``block`` from ``at`` on; where it ends. A loop: an assignment to a slice compiles for seconds
    (Numba makes a message of the shapes, should they differ)."""
    for i in range(part.shape[0]):
        block[at + i] = part[i]
    return at + part.shape[0]


@inner_kernel(nb.types.Tuple((nb.int64, I1))(nb.int64, I1, I1, I1, I1, I2, I2, I2, B1))
def finish(
    start: int, kind: Int32, a: Int32, b: Int32, charset: Int32, epsilons: Int32, byte_edges: Int32, loops: Int32,
    alive: Bool,
) -> tuple[int, Int32]:  # fmt: skip
    """What Thompson's construction has left, finished: DONE and the block of an `Nfa`, or what is wrong and nothing.

    kind, a, b, charset [n]; epsilons [·, 2] source, target; byte_edges [e, 3] source, low | high << 8, target; loops
    [l, 4] body, after, min, max. All of them are written into. alive [256]: bytes that occur in some token.
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
    is_target = targets(start, kind, a, b, loops, productive, edge_target)
    closure_start, closure = allocate.ints(n + 1), allocate.ints(4 * n + 64)
    while True:
        size = find_closures(
            kind, a, b, is_target, productive, tail, nullable, forward_start, forward, closure_start, closure
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

    # The parts one behind the other, in the order of `NfaArray`.
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
