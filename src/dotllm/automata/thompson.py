"""Kernel: turns expressions of a Grammar into nodes and edges with epsilons (Thompson's construction, iterative).

Every expression is built between two given nodes. A construct that loops makes its own nodes, so no path can leak back
into the part before it. Bounded repetition of something small is unrolled (it then costs no counter); anything else
becomes a counted loop: three nodes, whatever the bounds.

K. Thompson, "Regular Expression Search Algorithm", CACM 11(6), 1968.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb

from dotllm.arrays import Int32, UInt8
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER, N_TOKENS
from dotllm.grammar import kinds as K
from dotllm.jit import I1, I2, U1, I, inner_kernel

# Kernels: hold the nodes, epsilons and edges that Thompson's construction makes, in arrays that may become full.
#
# The emitters do not check for space: call `has_room` first.

NODES, EPSILONS, EDGES, LOOPS, TODO = range(5)
"""What `Builder.used` counts."""


class Builder(NamedTuple):
    """The automaton so far. All arrays are int32; ``used`` has the number of rows in use for each."""

    kind: Int32
    """[nodes], like ``a`` and ``b``: see `NodeKind`."""
    a: Int32
    b: Int32
    charset: Int32
    """[nodes]: the character set of which a node consumes one character, or -1."""
    epsilons: Int32
    """[·, 2]: source, target."""
    edges: Int32
    """[·, 3]: source, low | high << 8, target."""
    loops: Int32
    """[·, 4]: body, after, minimum, maximum."""
    todo: Int32
    """[·, 3]: a stack of expressions to be built, each with the nodes where it begins and ends."""
    used: Int32


BUILDER = nb.types.NamedTuple((I1, I1, I1, I1, I2, I2, I2, I2, I1), Builder)


@inner_kernel(nb.boolean(BUILDER, I, I, I, I), inlined=True)
def has_room(builder: Builder, nodes: int, epsilons: int, edges: int, todo: int) -> bool:
    """Whether there is room for so many more rows."""
    used = builder.used
    return (
        used[NODES] + nodes <= builder.kind.shape[0]
        and used[EPSILONS] + epsilons <= builder.epsilons.shape[0]
        and used[EDGES] + edges <= builder.edges.shape[0]
        and used[TODO] + todo <= builder.todo.shape[0]
    )


@inner_kernel(I(BUILDER, I), inlined=True)
def new_nodes(builder: Builder, count: int) -> int:
    """The first of ``count`` new nodes, whose numbers are consecutive."""
    first = I(builder.used[NODES])
    builder.used[NODES] += count
    for node in range(first, first + count):
        builder.kind[node] = builder.a[node] = builder.b[node] = 0
        builder.charset[node] = -1
    return first


@inner_kernel(nb.void(BUILDER, I, I), inlined=True)
def emit_epsilon(builder: Builder, source: int, target: int) -> None:
    """Add an epsilon from ``source`` to ``target``."""
    at = builder.used[EPSILONS]
    builder.epsilons[at, 0], builder.epsilons[at, 1] = source, target
    builder.used[EPSILONS] = at + 1


@inner_kernel(nb.void(BUILDER, I, I, I, I), inlined=True)
def emit_edge(builder: Builder, source: int, low: int, high: int, target: int) -> None:
    """Add an edge from ``source`` to ``target`` for the bytes from ``low`` to ``high``."""
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
    """Set the kind and the ints of a node."""
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


# Kernels: build automata with expressions on their edges, and parts in any order, as nodes (see `thompson`).


@inner_kernel(I(I1, I1, I), inlined=True)
def on_edge(kind: Int32, children: Int32, edge: int) -> int:
    """The expression on an edge (source, expression, target); ~expression if it is a character set and the edge is not
    a loop. Such a set is not marked: tables pay only where a set loops."""
    expression = I(children[edge + 1])
    return ~expression if children[edge] != children[edge + 2] and kind[expression] == K.CHARS else expression


@inner_kernel(nb.boolean(BUILDER, I1, I1, I, I, I, I), inlined=True)
def network(builder: Builder, kind: Int32, children: Int32, at: int, end: int, source: int, target: int) -> bool:
    """Build the NETWORK children[at:end], with a node for each of its states. False, here and below: no room."""
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
    """Build a NETWORK whose paths have at most ``most`` edges: a loop with a state.

    Enter → a transition of the start → end of its target → a transition of that state … The transitions of a state have
    consecutive numbers; a state without edges has one transition that leads nowhere.
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
    """Build an UNORDERED of the ``parts`` that follow the separator children[at]; ``bounds``: its ``c``. It is a loop
    that tells its rounds apart: enter → one of the parts → its end → separator → pick → one of the parts …

    The first nodes of the parts have consecutive numbers, so the loop can name them all. So do the ends of the parts,
    and the number of an end tells which part it was.
    """
    if not has_room(builder, 2 * parts + 3, 1, 0, parts + 2):
        return False
    enter = new_nodes(builder, 2 * parts + 3)
    between, pick, first = enter + 1, enter + 2, enter + 3
    loop = new_loop(builder, between, target, bounds, -2 - parts)
    if loop < 0:
        return False
    set_node(builder, enter, N_ENTER, loop, first)
    set_node(builder, pick, N_END, loop, first)
    emit_epsilon(builder, source, enter)
    build_later(builder, children[at], between, pick)
    for i in range(parts):
        last = first + parts + i
        set_node(builder, last, N_END, loop, -first)
        build_later(builder, children[at + 1 + i], first + i, last)
    return True


UNROLL_SIZE = 48  # nodes; repetitions that unroll to at most this many are unrolled


class GrammarArrays(NamedTuple):
    """A `Grammar` for kernels. ``kind`` to ``children``, and ``bodies``: see `Grammar.arrays`."""

    kind: Int32
    a: Int32
    b: Int32
    c: Int32
    children: Int32
    data: UInt8
    byte_sets: UInt8
    """[32 * sets]: bitmasks."""
    char_start: Int32
    """[charsets + 1]: where the UTF-8 sequences of each begin in ``char_sequences``."""
    char_sequences: Int32
    """Each a number of bytes, then low | high << 8 of each byte."""
    char_marked: Int32
    """[charsets]: whether it is large enough for tables of its own."""
    set_start: Int32
    """[literal sets + 1]: the first word of each."""
    word_offset: Int32
    """[words]: where each begins in ``word_bytes``."""
    word_length: Int32
    word_bytes: UInt8
    bodies: Int32
    """[rules]"""


GRAMMAR = nb.types.NamedTuple((I1, I1, I1, I1, I1, U1, U1, I1, I1, I1, I1, I1, I1, U1, I1), GrammarArrays)


@inner_kernel(I(I1, I1, I, I), inlined=True)
def size_of_part(kind: Int32, b: Int32, child: int, none: int) -> int:
    """The nodes that one copy of a literal or of one character needs; ``none`` for anything else."""
    if kind[child] == K.BYTES:
        return 1
    if kind[child] == K.CHARS:
        return 2
    return I(b[child]) if kind[child] == K.LITERAL else none


@inner_kernel(I(I1, I1, I1, I1, I))
def unrolled_size(kind: Int32, a: Int32, b: Int32, children: Int32, root: int) -> int:
    """The nodes that one copy of a simple expression needs; a large number for anything that should not be copied."""
    large = 1 << 20
    if kind[root] != K.SEQ and kind[root] != K.ALT:
        return size_of_part(kind, b, root, large)
    total = 0
    for i in range(a[root], a[root] + b[root]):
        size = size_of_part(kind, b, children[i], large)
        if size == large:
            return large
        total += size
    return total


@inner_kernel(nb.boolean(BUILDER, U1, I, I, I), inlined=True)
def byte_set(builder: Builder, byte_sets: UInt8, at: int, source: int, target: int) -> bool:
    """An edge for each range of the set of bytes whose 32 bytes begin at ``at``. False, here and below: no room."""
    if not has_room(builder, 0, 0, 128, 0):
        return False
    byte = 0
    while byte < 256:
        eight = byte_sets[at + (byte >> 3)]
        if eight == 0:
            byte = (byte | 7) + 1
        elif eight >> (byte & 7) & 1 == 0:
            byte += 1
        else:
            low = byte
            while byte < 256 and byte_sets[at + (byte >> 3)] >> (byte & 7) & 1:
                byte += 8 if byte & 7 == 0 and byte_sets[at + (byte >> 3)] == 255 else 1
            emit_edge(builder, source, low, byte - 1, target)
    return True


@inner_kernel(nb.boolean(BUILDER, U1, I, I, I, I), inlined=True)
def literal(builder: Builder, data: UInt8, first: int, length: int, source: int, target: int) -> bool:
    """The bytes data[first : first + length]."""
    if not has_room(builder, length, 0, length, 0):
        return False
    for i in range(first, first + length):
        to = target if i == first + length - 1 else new_nodes(builder, 1)
        emit_edge(builder, source, data[i], data[i], to)
        source = to
    return True


@inner_kernel(nb.boolean(BUILDER, I1, I, I, I, I), inlined=True)
def characters(builder: Builder, sequences: Int32, low: int, high: int, source: int, target: int) -> bool:
    """One character, whose UTF-8 sequences are sequences[low:high]."""
    if not has_room(builder, high - low + 4, 0, high - low + 4, 0):
        return False
    tail_1, tail_2 = I(-1), I(-1)  # from these 1 or 2 continuation bytes 80-BF lead to the target; made when needed
    i = low
    while i < high:
        n = I(sequences[i])
        at = source
        for j in range(n):
            left = n - 1 - j
            shared = 0 < left <= 2
            for m in range(j + 1, n):
                shared = shared and sequences[i + 1 + m] == 0x80 | 0xBF << 8
            if left == 0:
                to = target
            elif shared:
                if tail_1 < 0:
                    tail_1 = new_nodes(builder, 1)
                    emit_edge(builder, tail_1, 0x80, 0xBF, target)
                if left == 2 and tail_2 < 0:
                    tail_2 = new_nodes(builder, 1)
                    emit_edge(builder, tail_2, 0x80, 0xBF, tail_1)
                to = tail_1 if left == 1 else tail_2
            else:
                to = new_nodes(builder, 1)
            emit_edge(builder, at, sequences[i + 1 + j] & 255, sequences[i + 1 + j] >> 8, to)
            if shared:
                break
            at = to
        i += n + 1
    return True


@inner_kernel(nb.boolean(BUILDER, I1, I, I, I, I), inlined=True)
def sequence(builder: Builder, children: Int32, first: int, parts: int, source: int, target: int) -> bool:
    """children[first : first + parts], one after another."""
    if not has_room(builder, parts, 0, 0, parts):
        return False
    for i in range(first, first + parts):
        to = target if i == first + parts - 1 else new_nodes(builder, 1)
        build_later(builder, children[i], source, to)
        source = to
    return True


@inner_kernel(nb.void(BUILDER, I, I, I, I), inlined=True)
def unlimited(builder: Builder, body: int, low: int, source: int, target: int) -> None:
    """``body`` any number of times, at least ``low`` (0 or 1)."""
    loop = new_nodes(builder, 1)
    emit_epsilon(builder, source, loop)
    if low == 0:
        build_later(builder, body, loop, loop)
        emit_epsilon(builder, loop, target)
    else:  # leave the loop after the body
        behind = new_nodes(builder, 1)
        build_later(builder, body, loop, behind)
        emit_epsilon(builder, behind, loop)
        emit_epsilon(builder, behind, target)


@inner_kernel(nb.boolean(BUILDER, I, I, I, I, I), inlined=True)
def unrolled(builder: Builder, body: int, low: int, high: int, source: int, target: int) -> bool:
    """``body`` ``low`` to ``high`` (-1: any number of) times, as copies."""
    copies = low if high < 0 else high
    if not has_room(builder, copies + 2, copies + 4, 0, copies + 2):
        return False
    for i in range(copies):
        if i >= low:
            emit_epsilon(builder, source, target)
        to = new_nodes(builder, 1)
        build_later(builder, body, source, to)
        source = to
    emit_epsilon(builder, source, target)
    if high < 0:
        build_later(builder, body, source, source)
    return True


@inner_kernel(nb.boolean(BUILDER, I, I, I, I, I), inlined=True)
def counted_loop(builder: Builder, body: int, low: int, high: int, source: int, target: int) -> bool:
    """``body`` ``low`` to ``high`` (-1: any number of) times, counted by the machine."""
    enter = new_nodes(builder, 3)
    first, last = enter + 1, enter + 2
    loop = new_loop(builder, first, target, low, high)
    if loop < 0:
        return False
    set_node(builder, enter, N_ENTER, loop, 0)
    set_node(builder, last, N_END, loop, 0)
    emit_epsilon(builder, source, enter)
    if low == 0:
        emit_epsilon(builder, source, target)
    build_later(builder, body, first, last)
    return True


@inner_kernel(nb.boolean(I1, I1, U1, I, I), inlined=True)
def begins_next(word_offset: Int32, word_length: Int32, word_bytes: UInt8, word: int, end: int) -> bool:
    """Whether the word after ``word`` begins with it; the words end at ``end``."""
    if word + 1 >= end or word_length[word + 1] <= word_length[word]:
        return False
    for j in range(word_length[word]):
        if word_bytes[word_offset[word + 1] + j] != word_bytes[word_offset[word] + j]:
            return False
    return True


@inner_kernel(nb.boolean(BUILDER, I1, I1, U1, I, I, I, I), inlined=True)
def words(
    builder: Builder, word_offset: Int32, word_length: Int32, word_bytes: UInt8, first: int, end: int, source: int,
    target: int,
) -> bool:  # fmt: skip
    """The words [first, end), which are sorted, as a prefix tree.

    The free part of the stack ``todo`` holds the nodes on the path of the previous word.
    """
    top = I(builder.used[TODO])
    path = builder.todo
    previous = I(-1)
    for word in range(first, end):
        length, offset = I(word_length[word]), I(word_offset[word])
        if not has_room(builder, length, 2, length, length + 2):
            return False
        if length == 0:
            emit_epsilon(builder, source, target)
            continue
        common = I(0)
        if previous >= 0:
            limit = min(length, I(word_length[previous]))
            while common < limit and word_bytes[offset + common] == word_bytes[word_offset[previous] + common]:
                common += 1
        path[top, 0] = source
        at = I(path[top + common, 0])
        # A later word that begins with this one continues from its end, so the end is a separate node.
        goes_on = begins_next(word_offset, word_length, word_bytes, word, end)
        for i in range(common, length):
            to = target if i == length - 1 and not goes_on else new_nodes(builder, 1)
            emit_edge(builder, at, word_bytes[offset + i], word_bytes[offset + i], to)
            path[top + i + 1, 0] = to
            at = to
        if goes_on:
            emit_epsilon(builder, at, target)
        previous = word
    return True


@inner_kernel(nb.boolean(GRAMMAR, BUILDER, I1, I1, I, I, I), inlined=True)
def build(
    grammar: GrammarArrays, builder: Builder, rule_start: Int32, charset_uses: Int32, e: int, source: int, target: int
) -> bool:
    """Build expression ``e`` between two nodes (~e: see `on_edge`); see `thompson`."""
    passing = e < 0
    if passing:
        e = ~e
    k, a, b, c = grammar.kind[e], I(grammar.a[e]), I(grammar.b[e]), I(grammar.c[e])
    if k == K.EMPTY:
        emit_epsilon(builder, source, target)
    elif k == K.LITERAL:
        return literal(builder, grammar.data, a, b, source, target)
    elif k == K.BYTES:
        return byte_set(builder, grammar.byte_sets, 32 * a, source, target)
    elif k == K.CHARS:
        at = source
        if grammar.char_marked[a] != 0 and not passing:
            at = new_nodes(builder, 1)
            builder.charset[at] = a
            charset_uses[a] += 1
            emit_epsilon(builder, source, at)
        low, high = I(grammar.char_start[a]), I(grammar.char_start[a + 1])
        return characters(builder, grammar.char_sequences, low, high, at, target)
    elif k == K.SEQ:
        return sequence(builder, grammar.children, a, b, source, target)
    elif k == K.ALT:
        if not has_room(builder, 0, 0, 0, b):
            return False
        for i in range(a, a + b):
            build_later(builder, grammar.children[i], source, target)
    elif k == K.REPEAT:
        copies = b if c < 0 else c
        if c < 0 and b <= 1:
            unlimited(builder, a, b, source, target)
        elif c == 1:
            emit_epsilon(builder, source, target)
            build_later(builder, a, source, target)
        elif copies * unrolled_size(grammar.kind, grammar.a, grammar.b, grammar.children, a) <= UNROLL_SIZE:
            return unrolled(builder, a, b, c, source, target)
        else:
            return counted_loop(builder, a, b, c, source, target)
    elif k == K.CALL:
        if rule_start[a] < 0:
            rule_start[a] = new_nodes(builder, 1)
            build_later(builder, grammar.bodies[a], rule_start[a], 0)
        call = new_nodes(builder, 1)
        set_node(builder, call, N_CALL, rule_start[a], target)
        emit_epsilon(builder, source, call)
    elif k == K.LITERALS:
        first, end = I(grammar.set_start[a]), I(grammar.set_start[a + 1])
        return words(builder, grammar.word_offset, grammar.word_length, grammar.word_bytes, first, end, source, target)
    elif k == K.NETWORK:
        if c > 0:
            return counted_network(builder, grammar.kind, grammar.children, a, a + b, c, source, target)
        return network(builder, grammar.kind, grammar.children, a, a + b, source, target)
    elif k == K.UNORDERED:
        return unordered(builder, grammar.children, a, b - 1, c, source, target)
    elif k == K.TOKENS:
        token = new_nodes(builder, 1)
        set_node(builder, token, N_TOKENS, a, target)
        emit_epsilon(builder, source, token)
    return True


@inner_kernel(I(GRAMMAR, I, BUILDER, I1, I1))
def thompson(grammar: GrammarArrays, start: int, builder: Builder, rule_start: Int32, charset_uses: Int32) -> int:
    """Build everything reachable from ``start``. Returns the start node, or -1 if some array of ``builder`` is too
    small.

    rule_start [rules], all -1 before: the node at which each rule starts, if it is reached. charset_uses [charsets],
    all 0 before: the number of uses of each marked character set. Nodes 0 and 1 are the RETURN and the ACCEPT node.
    Before an expression is built, a check ensures that what it adds fits, so no store is out of bounds.
    """
    root = new_nodes(builder, 3) + 2
    build_later(builder, start, root, 0)
    used = builder.used
    while used[TODO] > 0:
        used[TODO] -= 1
        e, source, target = builder.todo[used[TODO], 0], builder.todo[used[TODO], 1], builder.todo[used[TODO], 2]
        if not has_room(builder, 8, 8, 8, 8):
            return -1
        if not build(grammar, builder, rule_start, charset_uses, e, source, target):
            return -1
    return root
