"""Kernels: automata with expressions on their edges, and parts in any order, as nodes (see `thompson`)."""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.builder import (
    BUILDER,
    Builder,
    build_later,
    emit_epsilon,
    has_room,
    new_loop,
    new_nodes,
    set_node,
)
from dotllm.automata.kinds import N_END, N_ENTER
from dotllm.grammar import kinds as K
from dotllm.jit import I1, I, inner_kernel


@inner_kernel(I(I1, I1, I), inlined=True)
def on_edge(kind: Int32, children: Int32, edge: int) -> int:
    """The expression on an edge (source, expression, target); ~expression if it is a character set and the edge is no
    loop. No set is marked there then: tables pay only where a set loops."""
    expression = I(children[edge + 1])
    return ~expression if children[edge] != children[edge + 2] and kind[expression] == K.CHARS else expression


@inner_kernel(nb.boolean(BUILDER, I1, I1, I, I, I, I), inlined=True)
def network(builder: Builder, kind: Int32, children: Int32, at: int, end: int, source: int, target: int) -> bool:
    """The NETWORK children[at:end], a node for each of its states. False, here and below: no room."""
    states, first, finals = I(children[at]), I(children[at + 1]), I(children[at + 2])
    edges = at + 3 + finals
    if not has_room(builder, states, finals + 2, 0, (end - edges) // 3 + 2):
        return False
    base = new_nodes(builder, states)
    emit_epsilon(builder, source, base + first)
    for i in range(at + 3, edges):
        emit_epsilon(builder, base + children[i], target)
    for edge in range(edges, end, 3):
        build_later(builder, on_edge(kind, children, edge), base + children[edge], base + children[edge + 2])
    return True


@inner_kernel(nb.boolean(BUILDER, I1, I1, I, I, I, I, I), inlined=True)
def counted_network(
    builder: Builder, kind: Int32, children: Int32, at: int, end: int, most: int, source: int, target: int
) -> bool:
    """A NETWORK of which only paths of at most ``most`` edges count: a loop with a state.

    Enter → a transition of the start → end of its target → a transition of that one … The transitions of one state have
    consecutive numbers, each state has at least one (without edges).
    """
    states, first, finals = I(children[at]), I(children[at + 1]), I(children[at + 2])
    edge = at + 3 + finals
    count = (end - edge) // 3
    if not has_room(builder, 2 * states + count + 2, finals + 2, 0, count + 2):
        return False
    enter = new_nodes(builder, 1 + states)
    last = enter + 1
    loop = new_loop(builder, 0, target, -1, most)
    if loop < 0:
        return False
    for state in range(states):
        transition = new_nodes(builder, 0)
        while edge < end and children[edge] == state:
            node = new_nodes(builder, 1)
            builder.a[node] = last + children[edge + 2]
            build_later(builder, on_edge(kind, children, edge), node, last + children[edge + 2])
            edge += 3
        if new_nodes(builder, 0) == transition:
            new_nodes(builder, 1)
        behind = new_nodes(builder, 0)
        for node in range(transition, behind):
            builder.b[node] = behind - 1 - node
        set_node(builder, last + state, N_END, loop, transition)
    for i in range(at + 3, at + 3 + finals):
        final = last + children[i]
        if builder.b[final] > 0:
            builder.b[final] = -builder.b[final]
        if children[i] == first:
            emit_epsilon(builder, source, target)
    set_node(builder, enter, N_ENTER, loop, abs(I(builder.b[last + first])))
    builder.loops[loop, 0] = builder.b[enter]
    emit_epsilon(builder, source, enter)
    return True


@inner_kernel(nb.boolean(BUILDER, I1, I, I, I, I, I), inlined=True)
def unordered(builder: Builder, children: Int32, at: int, parts: int, bounds: int, source: int, target: int) -> bool:
    """An UNORDERED of ``parts`` behind the separator children[at]; ``bounds``: its ``c``. A loop whose rounds are told
    apart: enter → one of the parts → end → separator → pick → one of the parts …

    The parts' first nodes have consecutive numbers, so the loop can name them all.
    """
    if not has_room(builder, parts + 4, 1, 0, parts + 2):
        return False
    enter = new_nodes(builder, parts + 4)
    between, pick, last, first = enter + 1, enter + 2, enter + 3, enter + 4
    loop = new_loop(builder, between, target, bounds, -2 - parts)
    if loop < 0:
        return False
    set_node(builder, enter, N_ENTER, loop, first)
    set_node(builder, pick, N_END, loop, first)
    set_node(builder, last, N_END, loop, -first)
    emit_epsilon(builder, source, enter)
    build_later(builder, children[at], between, pick)
    for i in range(parts):
        build_later(builder, children[at + 1 + i], first + i, last)
    return True
