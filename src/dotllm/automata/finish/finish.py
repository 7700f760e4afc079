"""The passes in order (see the package)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dotllm.arrays import Bool, Int32
from dotllm.automata.finish import closures, edges, nullable, productive, rounds
from dotllm.automata.finish.links import N_ACCEPT, N_PLAIN, N_RETURN, group_calls
from dotllm.automata.finish.pushes import order_pushes
from dotllm.errors import BudgetExceeded, InvalidSpec, Unsupported

_MOST_CLOSURES = 64_000_000  # ints


class Unfinished(NamedTuple):
    """What Thompson's construction leaves: ``n`` nodes, epsilons, byte edges, loops. `finish` writes into all of it."""

    start: int
    kind: Int32  # [n]
    a: Int32  # [n]
    b: Int32  # [n]
    epsilons: Int32  # [·, 2] source, target
    edges: Int32  # [e, 3] source, low | high << 8, target
    loops: Int32  # [l, 4] body, after, min, max


class Finished(NamedTuple):
    """See `automata.nfa.Nfa`, whose arrays these are."""

    kind: Int32
    rank: Int32
    edge_start: Int32
    edge_bytes: Int32
    edge_target: Int32
    closure_start: Int32
    closure: Int32
    class_of: Int32
    class_byte: Int32


def finish(raw: Unfinished, alive: Bool) -> Finished:
    """The finished automaton. ``alive`` [256]: bytes that occur in some token.

    Raises InvalidSpec if nothing satisfies the grammar, Unsupported if it is left-recursive or needs bytes that the
    vocabulary lacks, BudgetExceeded.
    """
    start, kind, a, b, epsilons, byte_edges, loops = raw
    n = len(kind)
    kind[0], kind[1] = N_RETURN, N_ACCEPT
    n_edges = edges.producible(byte_edges, len(byte_edges), alive)
    if n_edges == edges.HOLE:
        raise Unsupported("the vocabulary lacks bytes this specification needs", keyword="vocabulary")
    calls, *by_end = group_calls(kind, a, b)
    room = len(epsilons) + len(loops)
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)
    source[: len(epsilons)], target[: len(epsilons)] = epsilons[:, 0], epsilons[:, 1]
    forward_start, back_start = np.empty(n + 1, np.int32), np.empty(n + 1, np.int32)
    forward, back = np.empty(room, np.int32), np.empty(room, np.int32)
    is_nullable = np.empty(n, np.bool_)
    nullable.bypass_nullable(
        kind, a, b, loops, source, target, len(epsilons), *by_end, forward_start, forward, back_start, back, is_nullable
    )
    while True:
        links = productive.consuming_links(kind, a, b, loops, byte_edges, n_edges)
        is_productive = productive.find_productive(kind, a, b, loops, back_start, back, *links, *by_end)
        if rounds.measure_rounds(kind, a, b, loops, is_productive):
            break
    if not is_productive[start]:
        raise InvalidSpec("nothing can satisfy this specification")
    edge_start, edge_bytes, edge_target = edges.by_node(byte_edges, n_edges, is_productive, kind)
    tail = closures.tail_calls(kind, a, b, calls, is_productive, forward_start, forward)
    is_target = closures.targets(start, kind, a, b, loops, is_productive, edge_target)
    closure_start, closure = np.empty(n + 1, np.int32), np.empty(4 * n + 64, np.int32)
    while True:
        size = closures.find_closures(
            kind, a, b, is_target, is_productive, tail, is_nullable, forward_start, forward, closure_start, closure
        )
        if size >= 0:
            break
        if 4 * len(closure) > _MOST_CLOSURES:
            raise BudgetExceeded("the grammar needs too many automaton transitions", keyword="size")
        closure = np.empty(4 * len(closure), np.int32)
    kind[tail] = N_PLAIN
    rank = np.zeros(n, np.int32)
    if not order_pushes(kind, a, b, loops, closure_start, closure, rank):
        raise Unsupported("the grammar is left-recursive and was not rewritten", keyword="left recursion")
    class_of, class_byte = np.empty(256, np.int32), np.empty(256, np.int32)
    classes = edges.byte_classes(edge_bytes, class_of, class_byte)
    return Finished(
        kind, rank, edge_start, edge_bytes, edge_target, closure_start, closure[:size], class_of, class_byte[:classes]
    )
