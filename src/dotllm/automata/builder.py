"""Kernels: the nodes, epsilons and edges that Thompson's construction makes, in arrays that may become full.

The emitters do not check for space: call `has_room` first.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb

from dotllm.arrays import Int32
from dotllm.jit import I1, I2, I, inner_kernel

NODES, EPSILONS, EDGES, LOOPS, TODO = range(5)
"""What `Builder.used` counts."""


class Builder(NamedTuple):
    """The automaton so far. All arrays are int32; ``used`` says how many rows of each are taken."""

    kind: Int32
    """[nodes]: see `NodeKind`; so are ``a`` and ``b``."""
    a: Int32
    b: Int32
    charset: Int32
    """[nodes]: the character set that a node consumes one character of, or -1."""
    epsilons: Int32
    """[·, 2]: source, target."""
    edges: Int32
    """[·, 3]: source, low | high << 8, target."""
    loops: Int32
    """[·, 4]: body, after, minimum, maximum."""
    todo: Int32
    """[·, 3]: a stack of expressions to be built, each with the nodes it begins and ends at."""
    used: Int32


BUILDER = nb.types.NamedTuple((I1, I1, I1, I1, I2, I2, I2, I2, I1), Builder)


@inner_kernel(nb.boolean(BUILDER, I, I, I, I), inlined=True)
def has_room(builder: Builder, nodes: int, epsilons: int, edges: int, todo: int) -> bool:
    """Whether so many more of each fit."""
    used = builder.used
    return (
        used[NODES] + nodes <= builder.kind.shape[0]
        and used[EPSILONS] + epsilons <= builder.epsilons.shape[0]
        and used[EDGES] + edges <= builder.edges.shape[0]
        and used[TODO] + todo <= builder.todo.shape[0]
    )


@inner_kernel(I(BUILDER, I), inlined=True)
def new_nodes(builder: Builder, count: int) -> int:
    """The first of ``count`` new nodes, whose numbers follow each other."""
    first = I(builder.used[NODES])
    builder.used[NODES] += count
    return first


@inner_kernel(nb.void(BUILDER, I, I), inlined=True)
def emit_epsilon(builder: Builder, source: int, target: int) -> None:
    """``target`` may follow ``source`` after nothing."""
    at = builder.used[EPSILONS]
    builder.epsilons[at, 0], builder.epsilons[at, 1] = source, target
    builder.used[EPSILONS] = at + 1


@inner_kernel(nb.void(BUILDER, I, I, I, I), inlined=True)
def emit_edge(builder: Builder, source: int, low: int, high: int, target: int) -> None:
    """``target`` may follow ``source`` after a byte from ``low`` to ``high``."""
    at = builder.used[EDGES]
    builder.edges[at, 0], builder.edges[at, 1], builder.edges[at, 2] = source, low | high << 8, target
    builder.used[EDGES] = at + 1


@inner_kernel(nb.void(BUILDER, I, I, I), inlined=True)
def build_later(builder: Builder, expression: int, source: int, target: int) -> None:
    """Put an expression that leads from ``source`` to ``target`` on the stack."""
    at = builder.used[TODO]
    builder.todo[at, 0], builder.todo[at, 1], builder.todo[at, 2] = expression, source, target
    builder.used[TODO] = at + 1


@inner_kernel(nb.void(BUILDER, I, I, I, I), inlined=True)
def set_node(builder: Builder, node: int, kind: int, a: int, b: int) -> None:
    """Say what happens at a node."""
    builder.kind[node], builder.a[node], builder.b[node] = kind, a, b


@inner_kernel(I(BUILDER, I, I, I, I), inlined=True)
def new_loop(builder: Builder, body: int, after: int, minimum: int, maximum: int) -> int:
    """The number of a new loop; -1: no room."""
    loop = I(builder.used[LOOPS])
    if loop >= builder.loops.shape[0]:
        return -1
    builder.used[LOOPS] += 1
    builder.loops[loop, 0], builder.loops[loop, 1] = body, after
    builder.loops[loop, 2], builder.loops[loop, 3] = minimum, maximum
    return loop
