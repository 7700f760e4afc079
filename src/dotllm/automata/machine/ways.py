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
def worth(mem: Int32, node: int, acc: Int64) -> int:
    """Cost of a node other than a BYTE; -1 while the cost of a part is unknown.

    acc[node], for the ENTER of an unordered sequence or a counted network: the cost of its required parts, or of its
    cheapest transition; below 0 while it is unknown.
    """
    kind, x, y = mem[mem[L.H_KIND] + node], I(mem[mem[L.H_A] + node]), I(mem[mem[L.H_B] + node])
    if kind == N_END:
        return acc[node]
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
            return acc[node] + rest if acc[node] >= 0 else -1
        inside = I(mem[mem[L.H_LOOP_BODY] + x])
    if high < -1:
        if acc[node] < 0:
            return -1
        separators = max(1, low & 0x7FFF) - 1
        between = I(mem[mem[L.H_WAY_AFTER] + inside])
        if separators > 0 and between < 0:
            return -1
        return acc[node] + rest + (separators * I(mem[mem[L.H_WAY_COST] + between]) if separators > 0 else 0)
    begin = I(mem[mem[L.H_WAY_BEGIN] + inside])
    if begin < 0:
        return -1
    return max(1, low) * I(mem[mem[L.H_WAY_COST] + begin]) + rest


@inner_kernel(nb.void(MEM, I1, I1, I1))
def list_holders(mem: Int32, first: Int32, following: Int32, holder: Int32) -> None:
    """List for each node the targets whose closures contain it: holder[i] from i = first[node] on, then i =
    following[i]; -1 ends the list."""
    closure_start, closure = mem[L.H_CLOSURE_START], mem[L.H_CLOSURE]
    for target in range(mem[L.H_NODES]):
        for i in range(mem[closure_start + target], mem[closure_start + target + 1]):
            node = mem[closure + i]
            holder[i], following[i], first[node] = target, first[node], i


@kernel(I(MEM, B1))
def find_ways(mem: Int32, spellable: Bool) -> int:
    """Fill the H_WAY arrays. Returns 0.

    spellable [256]: bytes that are tokens of their own.
    """
    n = I(mem[L.H_NODES])
    kind, cost_of, after_of, begin_of = mem[L.H_KIND], mem[L.H_WAY_COST], mem[L.H_WAY_AFTER], mem[L.H_WAY_BEGIN]
    for node in range(n):
        mem[cost_of + node], mem[after_of + node], mem[begin_of + node] = MOST, -1, -1
        mem[mem[L.H_WAY_CHOICE] + node], mem[mem[L.H_WAY_BYTE] + node] = -1, -1
    none = allocate.longs(0)
    reads = allocate.longs(list_reads(mem, none))
    list_reads(mem, reads)
    # Linked lists: for each target its readers, for each node the targets whose closures contain it.
    count = reads.shape[0] // 3
    first_read, next_read = allocate.filled_ints(n, -1), allocate.ints(count)
    for i in range(count):
        next_read[i] = first_read[reads[3 * i]]
        first_read[reads[3 * i]] = i
    size = mem[mem[L.H_CLOSURE_START] + n]
    first_holder, next_holder = allocate.filled_ints(n, -1), allocate.ints(size)
    holder = allocate.ints(size)
    list_holders(mem, first_holder, next_holder, holder)

    acc = allocate.filled_longs(n, -1)
    needed = allocate.zero_longs(n)  # required parts of an unordered sequence whose costs are unknown
    tentative = allocate.filled_longs(n, 2 * MOST)
    heap = allocate.longs(n + 2 * count + 16)
    waiting = I(0)
    for node in range(n):
        k = mem[kind + node]
        if k == N_RETURN or k == N_ACCEPT or (k == N_END and (not is_network(mem, node) or mem[mem[L.H_B] + node] < 0)):
            tentative[node] = 0
            put(heap, waiting, node)
            waiting += 1
        elif k == N_ENTER and not is_network(mem, node):
            needed[node] = mem[mem[L.H_LOOP_MIN] + mem[mem[L.H_A] + node]] & 0x7FFF
    while waiting > 0:
        entry = take(heap, waiting)
        waiting -= 1
        node, cost = entry & ((1 << _NODE_BITS) - 1), entry >> _NODE_BITS
        if mem[cost_of + node] != MOST or cost != tentative[node]:
            continue
        mem[cost_of + node] = min(cost, MOST - 1)
        ends = mem[kind + node] == N_RETURN or mem[kind + node] == N_END
        i = first_holder[node]
        while i >= 0:
            target = holder[i]
            i = next_holder[i]
            after = mem[after_of + target] < 0
            begin = mem[begin_of + target] < 0 and not ends
            if after:
                mem[after_of + target] = node
            if begin:
                mem[begin_of + target] = node
            if not after and not begin:
                continue
            j = first_read[target]
            while j >= 0:
                user, how = reads[3 * j + 1], reads[3 * j + 2]
                j = next_read[j]
                if mem[cost_of + user] != MOST or not (after if how >= _READS_AFTER else begin):
                    continue
                if how >= 0:
                    packed = I(mem[mem[L.H_EDGE_BYTES] + how])
                    byte = byte_of(packed, spellable)
                    value = cost + (1 if spellable[byte] else _NO_TOKEN)
                    if value < tentative[user]:
                        mem[mem[L.H_WAY_CHOICE] + user], mem[mem[L.H_WAY_BYTE] + user] = how, byte
                else:
                    if how <= _READS_PART:
                        loop = mem[mem[L.H_A] + user]
                        part = _READS_PART - how
                        if mem[mem[L.H_LOOP_MIN] + loop] < 0:
                            if acc[user] < 0:
                                acc[user] = cost
                                mem[mem[L.H_WAY_CHOICE] + user] = target
                        elif mem[mem[L.H_LOOP_MIN] + loop] & 0x7FFF == 0:
                            if acc[user] < 0:
                                acc[user] = cost
                        elif part < mem[mem[L.H_LOOP_MIN] + loop] & 0x7FFF:
                            needed[user] -= 1
                            acc[user] -= cost  # below zero until the last one is known
                            if needed[user] == 0:
                                acc[user] = -1 - acc[user]
                    value = worth(mem, user, acc)
                value = min(value, MOST - 1)
                if 0 <= value < tentative[user]:
                    tentative[user] = value
                    put(heap, waiting, value << _NODE_BITS | user)
                    waiting += 1
    mem[L.H_HAS_WAYS] = 1
    return 0
