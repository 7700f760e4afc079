"""Kernel: finds what each expression of a Grammar can derive, which parts are at the left edge, and what must be
rewritten.

Every grammar goes through this pass on its way to the machine, and most need no rewriting. So the pass is a kernel: it
takes a few microseconds for the grammar of a JSON Schema.

*Derives* is a set of two facts per expression, "the empty text" and "some other text", as bits; no bit means that
nothing satisfies the expression (it is unproductive). It is the least fixpoint over the expressions, found with a work
list: a node is examined again when a child has gained a bit, which happens at most twice per child.

A part is *at the left edge* of an expression if a text of the expression can begin with it: everything before it can be
empty. A cycle of such parts is left recursion: direct, indirect, or hidden by nullable prefixes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba as nb
import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.grammar import kinds as K
from dotllm.grammar.grammar import Grammar
from dotllm.grammar.kinds import UNDEFINED
from dotllm.jit import I1, U1, I, inner_kernel, kernel

EMPTY, OTHER = 1, 2  # bits of `derives`

# Reasons to rewrite, as bits.
LEFT_RECURSION, NULLABLE_LOOP = 1, 2
EMPTY_PART = 4  # a part of an UNORDERED, or an edge of a counted NETWORK, can be empty, which is not allowed

_Ints = NDArray[np.int32]
_Bytes = NDArray[np.uint8]
_WHITE, _GREY, _BLACK = 0, 1, 2
_ROUNDS = 6  # over the edges of a network, see `_network`
_STALE = -1  # in place of the number of undefined rules: some facts may not be true any more
_NOTHING: _Bytes = np.zeros(0, np.uint8)


class Analysis(NamedTuple):
    """``derives`` [nodes], ``left`` [len(children)]: uint8. ``reasons``: LEFT_RECURSION, NULLABLE_LOOP, EMPTY_PART.

    ``left`` marks children of SEQ, ALT, UNORDERED and NETWORK nodes (the children of a network are the expressions on
    its edges). The body of a REPEAT or a CALL is always at the left edge.
    """

    derives: NDArray[np.uint8]
    left: NDArray[np.uint8]
    reasons: int


def analyse(grammar: Grammar, since: int | None = None) -> Analysis:
    """All facts about ``grammar``; linear in its size, except that a node is examined again when a child has changed.

    The result is kept with the grammar, because both the front end and the lowering ask for it. An expression contains
    only earlier expressions. So if no rule was undefined before, all facts stay true when the grammar grows, and only
    new nodes are examined.

    ``since``: only an expression made from this node on is asked about, and it calls no rule that was undefined at that
    time. Then facts that such rules may change do not matter (a grammar that embeds n schemas asks n times).
    """
    size = len(grammar), len(grammar.children), len(grammar.rule_body), grammar.rule_body.count(UNDEFINED)
    before, known = grammar.analysis or (None, None)
    if known is not None and before == size:
        return known
    derives, left = np.zeros(size[0], np.uint8), np.zeros(size[1], np.uint8)
    first = reasons = 0
    if before is not None and known is not None and (not before[3] or (since is not None and before[0] <= since)):
        if before[3]:
            size = (*size[:3], _STALE)
        first, reasons = before[0], known.reasons
        derives[:first] = known.derives
        left[: len(known.left)] = known.left
    # What is derived by the leaves whose contents are kept in Python lists.
    words, tokens = _NOTHING, _NOTHING
    if grammar.literal_sets:
        words = np.array([_words(texts) for texts in grammar.literal_sets], np.uint8)
    if grammar.token_sets:
        tokens = np.array([OTHER if ids or exclude else 0 for ids, exclude in grammar.token_sets], np.uint8)
    reasons |= int(_analyse(*grammar.arrays(), words, tokens, first, derives, left))
    result = Analysis(derives, left, reasons)
    grammar.analysis = size, result
    return result


def _words(texts: list[bytes]) -> int:
    return EMPTY | OTHER if not texts[0] else OTHER


@inner_kernel(nb.uint8(nb.uint8, nb.uint8), inlined=True)
def _then(x: int, y: int) -> Any:
    """The facts of ``x`` followed by ``y``."""
    if x == 0 or y == 0:
        return nb.uint8(0)
    return nb.uint8((x & y & EMPTY) | ((x | y) & OTHER))


@inner_kernel(nb.void(I1, I, I, I, U1, U1))
def _reach(children: _Ints, edges: int, end: int, states: int, derives: _Bytes, reached: _Bytes) -> None:
    """Complete `_network` for edges in any order, in linear time."""
    # Edges by their source, as CSR.
    first = allocate.zero_ints(states + 1)
    for edge in range(edges, end, 3):
        first[children[edge]] += 1
    for state in range(states):
        first[state + 1] += first[state]
    out = allocate.ints(first[states])
    for edge in range(edges, end, 3):
        first[children[edge]] -= 1
        out[first[children[edge]]] = edge
    agenda = allocate.ints(3 * states)  # every state once, and again when it gains a bit, at most twice
    length = 0
    for state in range(states):
        if reached[state] != 0:
            agenda[length] = state
            length += 1
    while length > 0:
        length -= 1
        source = agenda[length]
        for i in range(first[source], first[source + 1]):
            target = children[out[i] + 2]
            new = reached[target] | _then(reached[source], derives[children[out[i] + 1]])
            if new != reached[target]:
                reached[target] = new
                agenda[length] = target
                length += 1


@inner_kernel(nb.uint8(I, I1, I1, I1, U1, U1))
def _network(node: int, a: _Ints, b: _Ints, children: _Ints, derives: _Bytes, reached: _Bytes) -> Any:
    """The facts of a network; sets ``reached`` to the facts of the paths from its start to each state."""
    at = a[node]
    states, start, finals = children[at], children[at + 1], children[at + 2]
    edges, end = at + 3 + finals, at + b[node]
    for state in range(states):
        reached[state] = 0
    reached[start] = EMPTY
    # Edges are nearly always in an order in which a few rounds over all of them find everything.
    rounds, changed = 0, True
    while changed and rounds < _ROUNDS:
        rounds += 1
        changed = False
        for edge in range(edges, end, 3):
            source = reached[children[edge]]
            if source != 0:
                new = reached[children[edge + 2]] | _then(source, derives[children[edge + 1]])
                if new != reached[children[edge + 2]]:
                    reached[children[edge + 2]] = new
                    changed = True
    if changed:
        _reach(children, edges, end, states, derives, reached)
    result = nb.uint8(0)
    for i in range(at + 3, at + 3 + finals):
        result |= reached[children[i]]
    return result


@inner_kernel(nb.types.UniTuple(I, 3)(I1, I1, I1, I1, I), inlined=True)
def _span(kind: _Ints, a: _Ints, b: _Ints, children: _Ints, node: int) -> tuple[int, int, int]:
    """(First, end, step): the ints of ``children`` that are the expressions of a node; none for a REPEAT or a CALL."""
    k = kind[node]
    if k == K.SEQ or k == K.ALT or k == K.UNORDERED:
        return I(a[node]), I(a[node] + b[node]), I(1)
    if k == K.NETWORK:
        return I(a[node] + 4 + children[a[node] + 2]), I(a[node] + b[node]), I(3)
    return I(0), I(0), I(1)


@inner_kernel(I(I1, I1, I1, I), inlined=True)
def _only_child(kind: _Ints, a: _Ints, bodies: _Ints, node: int) -> int:
    """The expression in a REPEAT or a CALL; -1: none, or another kind."""
    if kind[node] == K.REPEAT:
        return I(a[node])
    return I(bodies[a[node]]) if kind[node] == K.CALL else I(-1)


@inner_kernel(nb.types.UniTuple(I1, 2)(I1, I1, I1, I1, I1, I), inlined=True)
def _parents(kind: _Ints, a: _Ints, b: _Ints, children: _Ints, bodies: _Ints, known: int) -> tuple[_Ints, _Ints]:
    """The parents of every node (only parents from ``known`` on), as CSR: counted, then filled from the back."""
    nodes = kind.shape[0]
    first = allocate.zero_ints(nodes + 1)
    parents = allocate.ints(0)
    for fill in range(2):
        if fill == 1:
            for node in range(nodes):
                first[node + 1] += first[node]
            parents = allocate.ints(first[nodes])
        for node in range(known, nodes):
            begin, end, step = _span(kind, a, b, children, node)
            child = _only_child(kind, a, bodies, node)
            for i in range(begin - step, end, step):
                if i >= begin:
                    child = I(children[i])
                if child < 0:
                    continue
                if fill == 0:
                    first[child] += 1
                else:
                    first[child] -= 1
                    parents[first[child]] = node
                child = I(-1)
    return first, parents


@inner_kernel(nb.uint8(I, I1, I1, I1, I1, I1, I1, U1, U1, U1, U1), inlined=True)
def _derived(
    node: int, kind: _Ints, a: _Ints, b: _Ints, c: _Ints, children: _Ints, bodies: _Ints, words: _Bytes, tokens: _Bytes,
    derives: _Bytes, reached: _Bytes,
) -> Any:  # fmt: skip
    """The facts of a node, given what is known about its children."""
    k = kind[node]
    new = nb.uint8(OTHER)
    if k == K.EMPTY:
        new = nb.uint8(EMPTY)
    elif k == K.NEVER:
        new = nb.uint8(0)
    elif k == K.SEQ:
        new = nb.uint8(EMPTY)
        for i in range(a[node], a[node] + b[node]):
            new = _then(new, derives[children[i]])
    elif k == K.ALT:
        new = nb.uint8(0)
        for i in range(a[node], a[node] + b[node]):
            new |= derives[children[i]]
    elif k == K.REPEAT:
        new = derives[a[node]]
        if b[node] == 0:
            new |= nb.uint8(EMPTY)
    elif k == K.CALL:
        new = derives[bodies[a[node]]] if bodies[a[node]] >= 0 else nb.uint8(0)
    elif k == K.LITERALS:
        new = words[a[node]]
    elif k == K.TOKENS:
        new = tokens[a[node]]
    elif k == K.NETWORK:
        new = _network(node, a, b, children, derives, reached)
    elif k == K.UNORDERED:
        new = nb.uint8(0)
        for i in range(a[node] + 1, a[node] + b[node]):
            new |= derives[children[i]]
        for i in range(a[node], a[node] + 1 + (c[node] & 0x7FFF)):
            if derives[children[i]] == 0:
                new = nb.uint8(0)
        new &= OTHER
    return new


@inner_kernel(nb.void(I1, I1, I1, I1, I1, I1, U1, U1, I, U1, U1), inlined=True)
def _find_derives(
    kind: _Ints, a: _Ints, b: _Ints, c: _Ints, children: _Ints, bodies: _Ints, words: _Bytes, tokens: _Bytes,
    known: int, derives: _Bytes, reached: _Bytes,
) -> None:  # fmt: skip
    """Find the least fixpoint with a ring buffer of nodes to examine, which begins with children before parents."""
    nodes = kind.shape[0]
    first, parents = _parents(kind, a, b, children, bodies, known)
    ring = allocate.ints(nodes)
    waiting = np.ones(nodes, np.uint8)
    for node in range(known, nodes):
        ring[node - known] = node
    head, length = 0, nodes - known
    while length > 0:
        node = ring[head]
        head = 0 if head + 1 == nodes else head + 1
        length -= 1
        waiting[node] = 0
        new = _derived(node, kind, a, b, c, children, bodies, words, tokens, derives, reached)
        if new == derives[node]:
            continue
        derives[node] = new
        for i in range(first[node], first[node + 1]):
            parent = parents[i]
            if waiting[parent] == 0:
                waiting[parent] = 1
                tail = head + length
                ring[tail - nodes if tail >= nodes else tail] = parent
                length += 1


@inner_kernel(I(I1, I1, I1, I1, I1, I, U1, U1, U1), inlined=True)
def _mark_left(
    kind: _Ints, a: _Ints, b: _Ints, c: _Ints, children: _Ints, known: int, derives: _Bytes, left: _Bytes,
    reached: _Bytes,
) -> int:  # fmt: skip
    """Mark the parts at the left edge. Returns the reasons to rewrite found here: NULLABLE_LOOP, EMPTY_PART."""
    reasons = 0
    for node in range(known, kind.shape[0]):
        k = kind[node]
        if k == K.SEQ:
            for i in range(a[node], a[node] + b[node]):
                left[i] = 1
                if derives[children[i]] & EMPTY == 0:
                    break
        elif k == K.ALT:
            for i in range(a[node], a[node] + b[node]):
                left[i] = 1
        elif k == K.UNORDERED:
            for i in range(a[node], a[node] + b[node]):
                left[i] = i > a[node]  # not the separator: it comes after a part, and no part is empty
                if left[i] and derives[children[i]] & EMPTY:
                    reasons |= EMPTY_PART
        elif k == K.NETWORK:
            edges, end, start = a[node] + 3 + children[a[node] + 2], a[node] + b[node], children[a[node] + 1]
            passed = nb.uint8(0)  # EMPTY if some edge can be passed without reading anything
            for edge in range(edges, end, 3):
                passed |= derives[children[edge + 1]] & EMPTY
                left[edge + 1] = children[edge] == start
            if passed and c[node] > 0:
                reasons |= EMPTY_PART
            if passed:
                _network(node, a, b, children, derives, reached)
                for edge in range(edges, end, 3):
                    left[edge + 1] = reached[children[edge]] & EMPTY
        elif k == K.REPEAT and c[node] != 1 and derives[a[node]] & EMPTY:
            reasons |= NULLABLE_LOOP
    return reasons


@inner_kernel(nb.boolean(I1, I1, I1, I1, I1, I, U1, U1), inlined=True)
def _has_left_cycle(
    kind: _Ints, a: _Ints, b: _Ints, children: _Ints, bodies: _Ints, known: int, derives: _Bytes, left: _Bytes
) -> bool:
    """Whether there is a cycle at the left edge (an iterative depth-first search)."""
    nodes = kind.shape[0]
    colour = np.zeros(nodes, np.uint8)
    colour[:known] = _BLACK
    path = allocate.ints(nodes)
    position = allocate.ints(nodes)  # for each node on the path, how many of its ints are done
    for root in range(known, nodes):
        if colour[root] != _WHITE or derives[root] == 0:
            continue
        path[0], position[0], colour[root] = root, 0, _GREY
        depth = 1
        while depth > 0:
            node = path[depth - 1]
            at = position[depth - 1]
            child = I(-1)
            if at == 0:
                child = _only_child(kind, a, bodies, node)
                position[depth - 1] = 1
            if child < 0 and kind[node] in (K.SEQ, K.ALT, K.NETWORK, K.UNORDERED):
                while at < b[node]:
                    i = a[node] + at
                    at += 1
                    if left[i]:
                        child = I(children[i])
                        break
                position[depth - 1] = at
            if child < 0:
                colour[node] = _BLACK
                depth -= 1
            elif derives[child] == 0 or colour[child] == _BLACK:
                continue
            elif colour[child] == _GREY:
                return True
            else:
                colour[child] = _GREY
                path[depth], position[depth] = child, 0
                depth += 1
    return False


@kernel(I(I1, I1, I1, I1, I1, I1, U1, U1, I, U1, U1))
def _analyse(
    kind: _Ints,
    a: _Ints,
    b: _Ints,
    c: _Ints,
    children: _Ints,
    bodies: _Ints,
    words: _Bytes,
    tokens: _Bytes,
    known: int,
    derives: _Bytes,
    left: _Bytes,
) -> int:
    """Fill ``derives`` [nodes] and ``left`` [len(children)] from node ``known`` on; returns the reasons of these nodes.

    kind … bodies: see `Grammar.arrays`. words [literal sets], tokens [token sets]: what each set derives.
    """
    widest = 1  # states of any network
    for node in range(known, kind.shape[0]):
        if kind[node] == K.NETWORK:
            widest = max(widest, children[a[node]])
    reached = np.empty(widest, np.uint8)
    _find_derives(kind, a, b, c, children, bodies, words, tokens, known, derives, reached)
    reasons = _mark_left(kind, a, b, c, children, known, derives, left, reached)
    if _has_left_cycle(kind, a, b, children, bodies, known, derives, left):
        reasons |= LEFT_RECURSION
    return reasons
