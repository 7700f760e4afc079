"""Kernel: expressions of a Grammar → nodes and edges with epsilons (Thompson's construction, iterative).

Every expression is built between two given nodes. A construct that loops makes its own nodes, so no path can leak
back into what stands before it. Bounded repetition of something small is unrolled (it then costs no counter); of
anything else it becomes a counted loop: three nodes, whatever the bounds.

K. Thompson, "Regular Expression Search Algorithm", CACM 11(6), 1968.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Int32, UInt8
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER, N_TOKENS
from dotllm.grammar.kinds import (
    ALT,
    BYTES,
    CALL,
    CHARS,
    EMPTY,
    LITERAL,
    LITERALS,
    NETWORK,
    REPEAT,
    SEQ,
    TOKENS,
    UNORDERED,
)
from dotllm.jit import I1, U1, inner_kernel

UNROLL_SIZE = 48  # nodes: repetitions that unroll to no more than this are unrolled

# slots of `count`
NODES, EPSILONS, EDGES, LOOPS, STACK_PEAK = range(5)


@inner_kernel(nb.int64(I1, I1, I1, I1, I1, nb.int64))
def unrolled_size(kind: Int32, a: Int32, b: Int32, c: Int32, children: Int32, root: int) -> int:
    """Nodes one copy of a simple expression needs; a large number for anything that should not be copied."""
    k = kind[root]
    if k == BYTES or k == CHARS:
        return 1 if k == BYTES else 2
    if k == LITERAL:
        return b[root]
    if k == SEQ or k == ALT:
        total = 0
        for i in range(a[root], a[root] + b[root]):
            child = children[i]
            ck = kind[child]
            if ck == BYTES:
                total += 1
            elif ck == CHARS:
                total += 2
            elif ck == LITERAL:
                total += b[child]
            else:
                return 1 << 20
        return total
    return 1 << 20


@inner_kernel(nb.int64(U1, nb.int64, nb.int64, nb.int64, nb.int32[:, ::1], nb.int64))
def byte_edges(byte_sets: UInt8, at: int, source: int, target: int, edges: Int32, n_edges: int) -> int:
    """An edge for each range of the set of bytes whose 32 bytes begin at ``at``; how many edges there are then."""
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
            edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = source, low | (byte - 1) << 8, target
            n_edges += 1
    return n_edges


@inner_kernel(
    nb.int64(
        I1, I1, I1, I1, I1, U1,  # kind a b c children data
        U1,  # byte sets: 32 bytes each
        I1, I1, I1,  # charsets: start, sequences (n, lo|hi<<8 ...), marked
        I1, I1, I1, U1,  # literal sets: start (in words), word offset, word length, bytes
        I1, nb.int64,  # rule bodies, start expression
        I1, I1, I1, I1,  # out: node kind, a, b, charset
        nb.int32[:, ::1], nb.int32[:, ::1],  # out: epsilons [.., 2], edges [.., 3] (source, low|high<<8, target)
        nb.int32[:, ::1],  # out: loops [.., 4] body, after, min, max
        I1, I1,  # out: rule start nodes (-1: not reached), at how many places each marked character set is
        nb.int32[:, ::1],  # scratch: stack [.., 3]
        I1,  # out: counts
    ),
)  # fmt: skip
def thompson(
    kind: Int32, a: Int32, b: Int32, c: Int32, children: Int32, data: UInt8, byte_sets: UInt8,
    char_start: Int32, char_seqs: Int32, char_marked: Int32,
    set_start: Int32, word_offset: Int32, word_length: Int32, word_bytes: UInt8, rule_body: Int32, start: int,
    node_kind: Int32, node_a: Int32, node_b: Int32, node_charset: Int32, eps: Int32, edges: Int32, loops: Int32,
    rule_start: Int32, charset_uses: Int32, stack: Int32, count: Int32,
) -> int:  # fmt: skip
    """Build everything reachable from ``start``. Returns the start node, or -1: some output array is too small.

    Nodes 0 and 1 are the RETURN and the ACCEPT node. The three limits are checked before each expression with room for
    its direct needs, so no store is out of bounds.
    """
    max_nodes = node_kind.shape[0]
    max_eps = eps.shape[0]
    max_edges = edges.shape[0]
    max_loops = loops.shape[0]
    max_stack = stack.shape[0]
    nodes = 2
    n_eps = 0
    n_edges = 0
    n_loops = 0
    root = nodes
    nodes += 1
    sp = 0
    stack[0, 0], stack[0, 1], stack[0, 2] = start, root, 0
    sp = 1
    while sp > 0:
        sp -= 1
        e, u, v = stack[sp, 0], stack[sp, 1], stack[sp, 2]
        passing = e < 0  # an edge of a network that leads elsewhere
        if passing:
            e = ~e
        k = kind[e]
        if nodes + 8 > max_nodes or n_eps + 8 > max_eps or n_edges + 8 > max_edges or n_loops + 2 > max_loops:
            return -1
        if sp + 8 > max_stack:
            return -1
        if k == EMPTY:
            eps[n_eps, 0], eps[n_eps, 1] = u, v
            n_eps += 1
        elif k == LITERAL:
            length = b[e]
            if nodes + length > max_nodes or n_edges + length > max_edges:
                return -1
            at = u
            for i in range(length):
                byte = np.int32(data[a[e] + i])
                if i == length - 1:
                    to = v
                else:
                    to = nodes
                    nodes += 1
                edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = at, byte | (byte << 8), to
                n_edges += 1
                at = to
        elif k == BYTES:
            if n_edges + 128 > max_edges:
                return -1
            n_edges = byte_edges(byte_sets, 32 * a[e], u, v, edges, n_edges)
        elif k == CHARS:
            lo, hi = char_start[a[e]], char_start[a[e] + 1]
            if nodes + (hi - lo) + 4 > max_nodes or n_edges + (hi - lo) + 4 > max_edges:
                return -1
            at = u
            if char_marked[a[e]] != 0 and not passing:
                at = nodes
                nodes += 1
                node_charset[at] = a[e]
                charset_uses[a[e]] += 1
                eps[n_eps, 0], eps[n_eps, 1] = u, at
                n_eps += 1
            # nodes from which 1, 2 or 3 plain continuation bytes (80-BF) lead to v; made when first needed
            tail1 = -1
            tail2 = -1
            i = lo
            while i < hi:
                n = char_seqs[i]
                source = at
                for j in range(n):
                    packed = char_seqs[i + 1 + j]
                    left = n - 1 - j
                    plain = True
                    for m in range(j + 1, n):
                        if char_seqs[i + 1 + m] != (0x80 | (0xBF << 8)):
                            plain = False
                    if left == 0:
                        to = v
                    elif plain and left == 1:
                        if tail1 < 0:
                            tail1 = nodes
                            nodes += 1
                            edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = tail1, 0x80 | (0xBF << 8), v
                            n_edges += 1
                        to = tail1
                    elif plain and left == 2:
                        if tail1 < 0:
                            tail1 = nodes
                            nodes += 1
                            edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = tail1, 0x80 | (0xBF << 8), v
                            n_edges += 1
                        if tail2 < 0:
                            tail2 = nodes
                            nodes += 1
                            edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = tail2, 0x80 | (0xBF << 8), tail1
                            n_edges += 1
                        to = tail2
                    else:
                        to = nodes
                        nodes += 1
                    edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = source, packed, to
                    n_edges += 1
                    source = to
                    if plain and left > 0 and left <= 2:
                        break  # the shared tail does the rest
                i += n + 1
        elif k == SEQ:
            parts = b[e]
            if nodes + parts > max_nodes or sp + parts > max_stack:
                return -1
            at = u
            for i in range(parts):
                if i == parts - 1:
                    to = v
                else:
                    to = nodes
                    nodes += 1
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = children[a[e] + i], at, to
                sp += 1
                at = to
        elif k == ALT:
            if sp + b[e] > max_stack:
                return -1
            for i in range(b[e]):
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = children[a[e] + i], u, v
                sp += 1
        elif k == REPEAT:
            low, high = b[e], c[e]
            body = a[e]
            size = unrolled_size(kind, a, b, c, children, body)
            copies = low if high < 0 else high
            if high < 0 and low <= 1:
                # star: u → loop ⟲ body, loop → v; plus: the way out is behind the body
                loop = nodes
                nodes += 1
                eps[n_eps, 0], eps[n_eps, 1] = u, loop
                n_eps += 1
                if low == 0:
                    stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, loop, loop
                    sp += 1
                    eps[n_eps, 0], eps[n_eps, 1] = loop, v
                    n_eps += 1
                else:
                    behind = nodes
                    nodes += 1
                    stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, loop, behind
                    sp += 1
                    eps[n_eps, 0], eps[n_eps, 1] = behind, loop
                    eps[n_eps + 1, 0], eps[n_eps + 1, 1] = behind, v
                    n_eps += 2
            elif high == 1:
                eps[n_eps, 0], eps[n_eps, 1] = u, v
                n_eps += 1
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, u, v
                sp += 1
            elif copies * size <= UNROLL_SIZE:
                if nodes + copies + 2 > max_nodes or n_eps + copies + 4 > max_eps or sp + copies + 2 > max_stack:
                    return -1
                at = u
                for i in range(copies):
                    if i >= low:
                        eps[n_eps, 0], eps[n_eps, 1] = at, v
                        n_eps += 1
                    to = nodes
                    nodes += 1
                    stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, at, to
                    sp += 1
                    at = to
                eps[n_eps, 0], eps[n_eps, 1] = at, v
                n_eps += 1
                if high < 0:
                    stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, at, at
                    sp += 1
            else:
                enter = nodes
                first = nodes + 1
                last = nodes + 2
                nodes += 3
                node_kind[enter], node_a[enter] = N_ENTER, n_loops
                node_kind[last], node_a[last] = N_END, n_loops
                loops[n_loops, 0], loops[n_loops, 1] = first, v
                loops[n_loops, 2], loops[n_loops, 3] = low, high
                n_loops += 1
                eps[n_eps, 0], eps[n_eps, 1] = u, enter
                n_eps += 1
                if low == 0:
                    eps[n_eps, 0], eps[n_eps, 1] = u, v
                    n_eps += 1
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = body, first, last
                sp += 1
        elif k == CALL:
            rule = a[e]
            if rule_start[rule] < 0:
                rule_start[rule] = nodes
                nodes += 1
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = rule_body[rule], rule_start[rule], 0
                sp += 1
            call = nodes
            nodes += 1
            node_kind[call], node_a[call], node_b[call] = N_CALL, rule_start[rule], v
            eps[n_eps, 0], eps[n_eps, 1] = u, call
            n_eps += 1
        elif k == LITERALS:
            # sorted words → prefix tree: `path` (the top of the stack array) holds the nodes of the last word
            lo, hi = set_start[a[e]], set_start[a[e] + 1]
            previous = np.int64(-1)
            for w in range(lo, hi):
                length = word_length[w]
                off = word_offset[w]
                if sp + length + 2 > max_stack or nodes + length > max_nodes or n_edges + length > max_edges:
                    return -1
                if n_eps + 2 > max_eps:
                    return -1
                if length == 0:
                    eps[n_eps, 0], eps[n_eps, 1] = u, v
                    n_eps += 1
                    continue
                common = np.int64(0)
                if previous >= 0:
                    limit = min(length, word_length[previous])
                    while common < limit and word_bytes[off + common] == word_bytes[word_offset[previous] + common]:
                        common += 1
                    # the previous word's last node was v itself; if it is our prefix, it needs a node of its own
                stack[sp, 0] = u
                at = u if common == 0 else stack[sp + common, 0]
                for i in range(common, length):
                    byte = np.int32(word_bytes[off + i])
                    # a later word that starts with this one would have to continue from v: give the end its own node
                    prefix_of_next = False
                    if i == length - 1 and w + 1 < hi and word_length[w + 1] > length:
                        prefix_of_next = True
                        for j in range(length):
                            if word_bytes[word_offset[w + 1] + j] != word_bytes[off + j]:
                                prefix_of_next = False
                                break
                    if i == length - 1 and not prefix_of_next:
                        to = v
                    else:
                        to = nodes
                        nodes += 1
                    edges[n_edges, 0], edges[n_edges, 1], edges[n_edges, 2] = at, byte | (byte << 8), to
                    n_edges += 1
                    if prefix_of_next:
                        eps[n_eps, 0], eps[n_eps, 1] = to, v
                        n_eps += 1
                    stack[sp + i + 1, 0] = to
                    at = to
                previous = w
        elif k == NETWORK:
            at = a[e]
            states, first, finals = children[at], children[at + 1], children[at + 2]
            n_net = (b[e] - 3 - finals) // 3
            if nodes + states > max_nodes or n_eps + finals + 2 > max_eps or sp + n_net + 2 > max_stack:
                return -1
            if c[e] > 0:
                # A loop with a state: enter → a way out of the start → end of its target → a way out of that one …
                # The ways out of one state have consecutive numbers, each state at least one (without edges).
                if nodes + 2 * states + n_net + 2 > max_nodes:
                    return -1
                enter = nodes
                last = nodes + 1
                nodes += 1 + states
                p = at + 3 + finals
                for state in range(states):
                    way = nodes
                    while p < a[e] + b[e] and children[p] == state:
                        node_a[nodes] = last + children[p + 2]
                        once = state != children[p + 2] and kind[children[p + 1]] == CHARS
                        stack[sp, 0] = ~children[p + 1] if once else children[p + 1]
                        stack[sp, 1], stack[sp, 2] = nodes, last + children[p + 2]
                        sp += 1
                        nodes += 1
                        p += 3
                    if nodes == way:
                        nodes += 1
                    for i in range(way, nodes):
                        node_b[i] = nodes - 1 - i
                    node_kind[last + state], node_a[last + state], node_b[last + state] = N_END, n_loops, way
                for i in range(finals):
                    final = children[at + 3 + i]
                    if node_b[last + final] > 0:
                        node_b[last + final] = -node_b[last + final]
                    if final == first:
                        eps[n_eps, 0], eps[n_eps, 1] = u, v
                        n_eps += 1
                node_kind[enter], node_a[enter], node_b[enter] = N_ENTER, n_loops, abs(node_b[last + first])
                loops[n_loops, 0], loops[n_loops, 1], loops[n_loops, 2] = node_b[enter], v, -1
                loops[n_loops, 3] = c[e]
                n_loops += 1
                eps[n_eps, 0], eps[n_eps, 1] = u, enter
                n_eps += 1
                continue
            base = nodes
            nodes += states
            eps[n_eps, 0], eps[n_eps, 1] = u, base + first
            n_eps += 1
            for i in range(finals):
                eps[n_eps, 0], eps[n_eps, 1] = base + children[at + 3 + i], v
                n_eps += 1
            p = at + 3 + finals
            for i in range(n_net):
                # a large set that is taken once on the way is not worth tables; one that loops is
                once = children[p] != children[p + 2] and kind[children[p + 1]] == CHARS
                stack[sp, 0] = ~children[p + 1] if once else children[p + 1]
                stack[sp, 1] = base + children[p]
                stack[sp, 2] = base + children[p + 2]
                sp += 1
                p += 3
        elif k == UNORDERED:
            # A loop whose rounds are told apart: enter → one of the parts → end → separator → pick → one of the parts …
            # The parts' first nodes have consecutive numbers, so the loop can name them all.
            parts = b[e] - 1
            if nodes + parts + 4 > max_nodes or sp + parts + 2 > max_stack:
                return -1
            enter, between, pick, last, first = nodes, nodes + 1, nodes + 2, nodes + 3, nodes + 4
            nodes += parts + 4
            node_kind[enter], node_a[enter], node_b[enter] = N_ENTER, n_loops, first
            node_kind[pick], node_a[pick], node_b[pick] = N_END, n_loops, first
            node_kind[last], node_a[last], node_b[last] = N_END, n_loops, -first
            loops[n_loops, 0], loops[n_loops, 1] = between, v
            loops[n_loops, 2], loops[n_loops, 3] = c[e], -2 - parts
            n_loops += 1
            eps[n_eps, 0], eps[n_eps, 1] = u, enter
            n_eps += 1
            stack[sp, 0], stack[sp, 1], stack[sp, 2] = children[a[e]], between, pick
            sp += 1
            for i in range(parts):
                stack[sp, 0], stack[sp, 1], stack[sp, 2] = children[a[e] + 1 + i], first + i, last
                sp += 1
        elif k == TOKENS:
            token = nodes
            nodes += 1
            node_kind[token], node_a[token], node_b[token] = N_TOKENS, a[e], v
            eps[n_eps, 0], eps[n_eps, 1] = u, token
            n_eps += 1
    count[NODES] = nodes
    count[EPSILONS] = n_eps
    count[EDGES] = n_edges
    count[LOOPS] = n_loops
    return root
