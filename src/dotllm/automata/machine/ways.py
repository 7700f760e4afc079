"""Kernel: finds for every node the way to the end of its level that takes the fewest bytes.

A level is a rule, up to its return, or one round of a loop, up to its end. What the levels below require is on the
stack, so the way from a node is the same wherever the node occurs: it is found once for an automaton, and a plan
joins ways. Ways are chosen by bytes; tokens are counted when the whole text is known.

The costs are the least fixpoint of a system in which the cost of a node is a minimum of sums of other costs (a
context-free grammar with weights). Nodes are settled in the order of their costs, as in Dijkstra's algorithm: D. E.
Knuth, "A generalization of Dijkstra's algorithm", Information Processing Letters 6(1), 1977.

A byte that is not a token of its own costs more, so it is taken only if necessary.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.kinds import N_ACCEPT, N_BYTE, N_CALL, N_END, N_ENTER, N_RETURN, N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.jit import B1, I1, I, inner_kernel, kernel

# The results are arrays with one int for each node; -1: none.
# H_WAY_COST: bytes to the end of the node's level.
# H_WAY_CHOICE: the edge that a BYTE node takes; the transition that a counted network's ENTER or END takes.
# H_WAY_BYTE: the byte on that edge.
# H_WAY_AFTER: for a node that is jumped to, the node with an action that comes next.
# H_WAY_BEGIN: the same if the node's level has just begun, so that it does not end there.
MOST = 1 << 30  # largest cost; larger ones count as this
_NO_TOKEN = 1 << 12  # cost of a byte that is not a token of its own
_NODE_BITS = 32  # low bits of an entry of the heap, which hold the node; the cost is above them
_READS_AFTER, _READS_BEGIN, _READS_PART = -1, -2, -3  # how a node reads another node's cost; from 0 on: by this edge
_PREFERRED = np.frombuffer(b' a0"', np.uint8)

L1 = nb.int64[::1]


@inner_kernel(I(I, B1), inlined=True)
def byte_of(packed: int, spellable: Bool) -> int:
    """The byte to take out of the range of an edge (low | high << 8)."""
    low, high = packed & 255, packed >> 8
    for i in range(_PREFERRED.shape[0]):
        if low <= _PREFERRED[i] <= high and spellable[_PREFERRED[i]]:
            return I(_PREFERRED[i])
    for byte in range(low, high + 1):
        if spellable[byte]:
            return byte
    return low


@inner_kernel(nb.boolean(MEM, I))
def is_network(mem: Int32, node: int) -> bool:
    """Whether an ENTER or END node belongs to a counted network."""
    return mem[mem[L.H_LOOP_MIN] + mem[mem[L.H_A] + node]] < 0


@inner_kernel(I(MEM, I))
def fewest_edges(mem: Int32, node: int) -> int:
    """The fewest edges from an ENTER or END of a counted network to a final state."""
    first = abs(I(mem[mem[L.H_B] + node]))
    fewest = I(mem[mem[L.H_A] + first])
    for way in range(first + 1, first + mem[mem[L.H_B] + first] + 1):
        fewest = min(fewest, I(mem[mem[L.H_A] + way]))
    return fewest


@inner_kernel(I(L1, I, I, I, I), inlined=True)
def read(reads: Int64, n: int, target: int, node: int, how: int) -> int:
    """Record at reads[n:n + 3], if there is room, that ``node`` reads ``target``. Returns the next n."""
    if n + 3 <= reads.shape[0]:
        reads[n], reads[n + 1], reads[n + 2] = target, node, how
    return n + 3


@inner_kernel(I(MEM, L1))
def list_reads(mem: Int32, reads: Int64) -> int:
    """List the parts of the costs of all nodes, as (target, node, how). Returns the number of ints."""
    kind, a, b = mem[L.H_KIND], mem[L.H_A], mem[L.H_B]
    n = I(0)
    for node in range(mem[L.H_NODES]):
        k, x, y = mem[kind + node], I(mem[a + node]), I(mem[b + node])
        if k == N_BYTE:
            for e in range(mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]):
                n = read(reads, n, I(mem[mem[L.H_EDGE_TARGET] + e]), node, e)
        elif k == N_CALL:
            n = read(reads, n, x, node, _READS_BEGIN)
            n = read(reads, n, y, node, _READS_AFTER)
        elif k == N_TOKENS:
            n = read(reads, n, y, node, _READS_AFTER)
        elif k == N_ENTER or (k == N_END and is_network(mem, node) and y > 0):
            if k == N_ENTER:
                n = read(reads, n, I(mem[mem[L.H_LOOP_AFTER] + x]), node, _READS_AFTER)
            high = I(mem[mem[L.H_LOOP_MAX] + x])
            if is_network(mem, node):
                first, fewest = abs(y), fewest_edges(mem, node)
                for way in range(first, first + mem[b + first] + 1):
                    if mem[a + way] == fewest:
                        n = read(reads, n, way, node, _READS_PART)
            elif high < -1:  # its separator may be empty
                n = read(reads, n, I(mem[mem[L.H_LOOP_BODY] + x]), node, _READS_AFTER)
                for part in range(-2 - high):
                    n = read(reads, n, y + part, node, _READS_PART - part)
            else:
                n = read(reads, n, I(mem[mem[L.H_LOOP_BODY] + x]), node, _READS_BEGIN)
    return n


@inner_kernel(nb.void(L1, I, I))
def put(heap: Int64, n: int, entry: int) -> None:
    """Put an entry into a heap of ``n`` entries."""
    while n > 0:
        up = (n - 1) >> 1
        if heap[up] <= entry:
            break
        heap[n] = heap[up]
        n = up
    heap[n] = entry


@inner_kernel(I(L1, I))
def take(heap: Int64, n: int) -> int:
    """Take the least entry out of a heap of ``n`` entries."""
    least, entry = heap[0], heap[n - 1]
    at, child = 0, 1
    while child < n - 1:
        if child + 1 < n - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[at] = heap[child]
        at = child
        child = 2 * at + 1
    heap[at] = entry
    return I(least)


@inner_kernel(I(MEM, I, L1), inlined=True)
def worth(mem: Int32, node: int, parts: Int64) -> int:
    """Cost of a node other than a BYTE; -1 while the cost of a part is unknown.

    parts[node], for the ENTER of an unordered sequence or a counted network: the cost of its required parts, or of its
    cheapest transition; below 0 while it is unknown.
    """
    kind, x, y = mem[mem[L.H_KIND] + node], I(mem[mem[L.H_A] + node]), I(mem[mem[L.H_B] + node])
    if kind == N_END:
        return parts[node]
    behind = y if kind != N_ENTER else I(mem[mem[L.H_LOOP_AFTER] + x])
    after = I(mem[mem[L.H_WAY_AFTER] + behind])
    if after < 0:
        return -1
    rest = I(mem[mem[L.H_WAY_COST] + after])
    if kind == N_TOKENS:
        return 1 + rest
    low, high = I(0), I(0)
    inside = x
    if kind == N_ENTER:
        low, high = I(mem[mem[L.H_LOOP_MIN] + x]), I(mem[mem[L.H_LOOP_MAX] + x])
        if low < 0:
            return parts[node] + rest if parts[node] >= 0 else -1
        inside = I(mem[mem[L.H_LOOP_BODY] + x])
    if high < -1:
        if parts[node] < 0:
            return -1
        separators = max(1, low & 0x7FFF) - 1
        between = I(mem[mem[L.H_WAY_AFTER] + inside])
        if separators > 0 and between < 0:
            return -1
        return parts[node] + rest + (separators * I(mem[mem[L.H_WAY_COST] + between]) if separators > 0 else 0)
    begin = I(mem[mem[L.H_WAY_BEGIN] + inside])
    if begin < 0:
        return -1
    return max(1, low) * I(mem[mem[L.H_WAY_COST] + begin]) + rest


class Links(NamedTuple):
    """Which nodes learn of a cost, as linked lists; -1 ends a list.

    The cost of a target is that of the first settled node in its closure. The cost of a node is a sum of costs of
    targets, which it *reads*::

        settled node -> targets with the node in their closures -> nodes that read these targets
    """

    first_target: Int32
    """[nodes]: the first entry of the list of targets of each node; an entry is an index of the closures."""
    next_target: Int32
    """[entries]"""
    target: Int32
    """[entries]"""
    first_read: Int32
    """[nodes]: the first read of each target."""
    next_read: Int32
    """[reads]"""
    reads: Int64
    """[3 * reads]: see `list_reads`."""


class Search(NamedTuple):
    """What is known about nodes that have no cost yet."""

    tentative: Int64
    """[nodes]: the lowest cost so far."""
    parts: Int64
    """[nodes]: the cost of an ENTER's or END's parts, see `worth`; below 0 while it is unknown."""
    missing: Int64
    """[nodes]: how many required parts of an unordered sequence have no cost yet."""
    heap: Int64
    """[most entries]: the nodes with a tentative cost, cheapest first: cost << _NODE_BITS | node."""


LINKS = nb.types.NamedTuple((I1, I1, I1, I1, I1, L1), Links)
SEARCH = nb.types.NamedUniTuple(L1, 4, Search)


@inner_kernel(LINKS(MEM))
def find_links(mem: Int32) -> Links:
    """The links of an automaton."""
    n, closure_start = I(mem[L.H_NODES]), mem[L.H_CLOSURE_START]
    reads = allocate.longs(list_reads(mem, allocate.longs(0)))
    list_reads(mem, reads)
    count = reads.shape[0] // 3
    first_read, next_read = allocate.filled_ints(n, -1), allocate.ints(count)
    for i in range(count):
        next_read[i] = first_read[reads[3 * i]]
        first_read[reads[3 * i]] = i
    size = I(mem[closure_start + n])
    first_target, next_target, targets = allocate.filled_ints(n, -1), allocate.ints(size), allocate.ints(size)
    for target in range(n):
        for i in range(mem[closure_start + target], mem[closure_start + target + 1]):
            node = mem[mem[L.H_CLOSURE] + i]
            targets[i], next_target[i], first_target[node] = target, first_target[node], i
    return Links(first_target, next_target, targets, first_read, next_read, reads)


@inner_kernel(nb.boolean(MEM, I), inlined=True)
def ends_level(mem: Int32, node: int) -> bool:
    """Whether a level may end at ``node``: RETURN, ACCEPT, or an END that is not in the middle of a counted network."""
    kind = mem[mem[L.H_KIND] + node]
    if kind == N_END:
        return not is_network(mem, node) or mem[mem[L.H_B] + node] < 0
    return kind == N_RETURN or kind == N_ACCEPT


@inner_kernel(I(MEM, B1, SEARCH, I, I, I), inlined=True)
def worth_by_edge(mem: Int32, spellable: Bool, search: Search, node: int, edge: int, rest: int) -> int:
    """The cost of a BYTE node by an edge to a target of cost ``rest``. Records the edge if it is the cheapest."""
    byte = byte_of(I(mem[mem[L.H_EDGE_BYTES] + edge]), spellable)
    value = rest + (1 if spellable[byte] else _NO_TOKEN)
    if value < search.tentative[node]:
        mem[mem[L.H_WAY_CHOICE] + node], mem[mem[L.H_WAY_BYTE] + node] = edge, byte
    return value


@inner_kernel(nb.void(MEM, SEARCH, I, I, I, I), inlined=True)
def add_part(mem: Int32, search: Search, node: int, part: int, target: int, cost: int) -> None:
    """Enter the cost of a part of an unordered sequence, or of a transition of a counted network."""
    low = mem[mem[L.H_LOOP_MIN] + mem[mem[L.H_A] + node]]
    required = low & 0x7FFF
    if low < 0 or required == 0:  # the cheapest one is enough
        if search.parts[node] < 0:
            search.parts[node] = cost
            if low < 0:
                mem[mem[L.H_WAY_CHOICE] + node] = target
    elif part < required:
        search.missing[node] -= 1
        search.parts[node] -= cost  # from -1 down, until the last cost is known
        if search.missing[node] == 0:
            search.parts[node] = -1 - search.parts[node]


@inner_kernel(I(MEM, B1, LINKS, SEARCH, I, I, nb.boolean, nb.boolean, I))
def tell_readers(
    mem: Int32,
    spellable: Bool,
    links: Links,
    search: Search,
    target: int,
    cost: int,
    after: bool,
    begin: bool,
    waiting: int,
) -> int:
    """Give the readers of ``target`` tentative costs: its cost is known, after other actions (``after``) or where a
    level begins (``begin``). ``waiting``: entries in the heap. Returns how many there are then."""
    read = links.first_read[target]
    while read >= 0:
        node, how = links.reads[3 * read + 1], links.reads[3 * read + 2]
        read = links.next_read[read]
        if mem[mem[L.H_WAY_COST] + node] != MOST or not (after if how >= _READS_AFTER else begin):
            continue
        if how >= 0:
            value = worth_by_edge(mem, spellable, search, node, how, cost)
        else:
            if how <= _READS_PART:
                add_part(mem, search, node, _READS_PART - how, target, cost)
            value = worth(mem, node, search.parts)
        value = min(value, MOST - 1)
        if 0 <= value < search.tentative[node]:
            search.tentative[node] = value
            put(search.heap, waiting, value << _NODE_BITS | node)
            waiting += 1
    return waiting


@kernel(I(MEM, B1))
def find_ways(mem: Int32, spellable: Bool) -> int:
    """Fill the H_WAY arrays. Returns 0.

    spellable [256]: bytes that are tokens of their own.
    """
    n = I(mem[L.H_NODES])
    cost_of, after_of, begin_of = mem[L.H_WAY_COST], mem[L.H_WAY_AFTER], mem[L.H_WAY_BEGIN]
    links = find_links(mem)
    most_entries = n + 2 * links.next_read.shape[0] + 16
    search = Search(
        allocate.filled_longs(n, 2 * MOST),
        allocate.filled_longs(n, -1),
        allocate.zero_longs(n),
        allocate.longs(most_entries),
    )
    waiting = I(0)
    for node in range(n):
        mem[cost_of + node], mem[after_of + node], mem[begin_of + node] = MOST, -1, -1
        mem[mem[L.H_WAY_CHOICE] + node], mem[mem[L.H_WAY_BYTE] + node] = -1, -1
        if ends_level(mem, node):
            search.tentative[node] = 0
            put(search.heap, waiting, node)
            waiting += 1
        elif mem[mem[L.H_KIND] + node] == N_ENTER and not is_network(mem, node):
            search.missing[node] = mem[mem[L.H_LOOP_MIN] + mem[mem[L.H_A] + node]] & 0x7FFF
    while waiting > 0:
        entry = take(search.heap, waiting)
        waiting -= 1
        node, cost = entry & ((1 << _NODE_BITS) - 1), entry >> _NODE_BITS
        if mem[cost_of + node] != MOST or cost != search.tentative[node]:
            continue  # it has been settled, or has become cheaper since
        mem[cost_of + node] = min(cost, MOST - 1)
        kind = mem[mem[L.H_KIND] + node]
        may_begin = kind != N_RETURN and kind != N_END
        i = links.first_target[node]
        while i >= 0:
            target = I(links.target[i])
            i = links.next_target[i]
            after = mem[after_of + target] < 0
            begin = mem[begin_of + target] < 0 and may_begin
            if after:
                mem[after_of + target] = node
            if begin:
                mem[begin_of + target] = node
            if after or begin:
                waiting = tell_readers(mem, spellable, links, search, target, cost, after, begin, waiting)
    mem[L.H_HAS_WAYS] = 1
    return 0
