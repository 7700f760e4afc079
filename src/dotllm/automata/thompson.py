"""Kernel: expressions of a Grammar → nodes and edges with epsilons (Thompson's construction, iterative).

Every expression is built between two given nodes. A construct that loops makes its own nodes, so no path can leak
back into what stands before it. Bounded repetition of something small is unrolled (it then costs no counter); of
anything else it becomes a counted loop: three nodes, whatever the bounds.

K. Thompson, "Regular Expression Search Algorithm", CACM 11(6), 1968.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb

from dotllm.arrays import Int32, UInt8
from dotllm.automata.builder import (
    BUILDER,
    TODO,
    Builder,
    build_later,
    emit_edge,
    emit_epsilon,
    has_room,
    new_loop,
    new_nodes,
    set_node,
)
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER, N_TOKENS
from dotllm.automata.networks import counted_network, network, unordered
from dotllm.grammar import kinds as K
from dotllm.jit import I1, U1, I, inner_kernel

UNROLL_SIZE = 48  # nodes: repetitions that unroll to no more than this are unrolled


class GrammarArrays(NamedTuple):
    """A `Grammar` for kernels. ``kind`` to ``bodies``: see `Grammar.arrays`; int32 but for data and bytes."""

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
    """Nodes one copy of a literal or of one character needs; ``none`` for anything else."""
    if kind[child] == K.BYTES:
        return 1
    if kind[child] == K.CHARS:
        return 2
    return I(b[child]) if kind[child] == K.LITERAL else none


@inner_kernel(I(I1, I1, I1, I1, I))
def unrolled_size(kind: Int32, a: Int32, b: Int32, children: Int32, root: int) -> int:
    """Nodes one copy of a simple expression needs; a large number for anything that should not be copied."""
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
    tail_1, tail_2 = I(-1), I(-1)  # from which 1 or 2 continuation bytes 80-BF lead to the target; made when needed
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
    """``body`` any number of times, ``low`` (0 or 1) at least."""
    loop = new_nodes(builder, 1)
    emit_epsilon(builder, source, loop)
    if low == 0:
        build_later(builder, body, loop, loop)
        emit_epsilon(builder, loop, target)
    else:  # out of it behind the body
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
    """The words from ``first`` on, which are sorted, as a prefix tree.

    The free part of the stack holds the nodes on the way to the last word.
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
        # A later word that begins with this one goes on from its end: then that is a node of its own.
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
    """Build expression ``e`` between two nodes (~e: an edge of a network that leads elsewhere); see `thompson`."""
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
    """Build everything reachable from ``start``. Returns the start node, or -1: some array of ``builder`` is too small.

    rule_start [rules], all -1: the node at which each rule starts, if it is reached. charset_uses [charsets], all 0: at
    how many places each marked character set is. Nodes 0 and 1 are the RETURN and the ACCEPT node. Room for the direct
    needs of most expressions is made sure of before each, so no store is out of bounds.
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
