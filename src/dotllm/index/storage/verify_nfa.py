"""Kernels: can the numbers of a saved automaton be used as places in memory?

`verify_arena` says why, and checks what a machine has found out with the automaton.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import HEAD, N_ACCEPT, N_CALL, N_END, N_ENTER, N_PLAIN, N_TOKENS, NfaArray
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel, kernel

BYTES = 256

# (members of an IntEnum are no constants of a kernel)
KIND, A, B, CHARSET = int(NfaArray.KIND), int(NfaArray.A), int(NfaArray.B), int(NfaArray.CHARSET)
EDGE_START, EDGE_BYTES, EDGE_TARGET = int(NfaArray.EDGE_START), int(NfaArray.EDGE_BYTES), int(NfaArray.EDGE_TARGET)
CLOSURE_START, CLOSURE = int(NfaArray.CLOSURE_START), int(NfaArray.CLOSURE)
LOOP_BODY, LOOP_AFTER, LOOP_MIN, LOOP_MAX = (
    int(NfaArray.LOOP_BODY), int(NfaArray.LOOP_AFTER), int(NfaArray.LOOP_MIN), int(NfaArray.LOOP_MAX),
)  # fmt: skip
CLASS_OF, CLASS_BYTE = int(NfaArray.CLASS_OF), int(NfaArray.CLASS_BYTE)
PARTS = HEAD - 2


@inner_kernel(nb.boolean(MEM, I, I, I, I))
def within(numbers: Int32, first: int, end: int, low: int, high: int) -> bool:
    """Whether low <= number < high for all of numbers[first:end]."""
    part = numbers[first:end]
    least, most = nb.int32(high - 1), nb.int32(low)
    for i in range(part.shape[0]):  # (to the end: a loop that may end at each number is no vector loop)
        least = min(least, part[i])
        most = max(most, part[i])
    return low <= least and most < high


@inner_kernel(nb.boolean(MEM, I, I, I))
def ascending(numbers: Int32, first: int, end: int, most: int) -> bool:
    """Whether numbers[first:end], of which there is one, never go down, from 0 at least to ``most`` at most."""
    part = numbers[first:end]
    falls = 0
    for i in range(1, part.shape[0]):
        falls += part[i] < part[i - 1]
    return falls == 0 and part[0] >= 0 and part[part.shape[0] - 1] <= most


@inner_kernel(nb.boolean(MEM, I, I, I))
def verify_nodes(block: Int32, nodes: int, loops: int, token_sets: int) -> bool:
    """Whether the two ints of every node are in the ranges of its kind (see `NodeKind`)."""
    for node in range(nodes):
        kind = block[block[KIND] + node]
        a, b = I(block[block[A] + node]), I(block[block[B] + node])
        if kind < N_PLAIN or kind > N_ACCEPT:
            return False
        if kind == N_CALL:
            if not (0 <= a < nodes and 0 <= b < nodes):
                return False
        elif kind == N_TOKENS:
            if not (0 <= a < token_sets and 0 <= b < nodes):
                return False
        elif kind == N_ENTER or kind == N_END:
            if not 0 <= a < loops:
                return False
            first, last = abs(b), I(0)
            if block[block[LOOP_MIN] + a] < 0:  # a counted network: so many ways out more
                if first >= nodes or block[block[B] + first] < 0:
                    return False
                last = first + block[block[B] + first]
            elif block[block[LOOP_MAX] + a] < -1:  # an unordered sequence: so many parts
                last = first - 3 - block[block[LOOP_MAX] + a]
            if last >= nodes:
                return False
    return True


@kernel(nb.boolean(MEM, I, I))
def verify_nfa(block: Int32, charsets: int, token_sets: int) -> bool:
    """Whether the ``block`` of an `Nfa` is valid, with so many character sets and token sets to refer to."""
    if block.shape[0] < HEAD or block[0] != HEAD or block[PARTS] != block.shape[0]:
        return False
    if not ascending(block, 0, PARTS + 1, block.shape[0]):
        return False
    nodes, edges = block[A] - block[KIND], block[EDGE_TARGET] - block[EDGE_BYTES]
    closures, loops = block[LOOP_BODY] - block[CLOSURE], block[LOOP_AFTER] - block[LOOP_BODY]
    classes = block[PARTS] - block[CLASS_BYTE]
    if nodes < 2 or not 1 <= classes <= BYTES:  # (a machine uses the nodes 0 and 1 whatever the automaton says)
        return False
    for part in range(PARTS):
        size = block[part + 1] - block[part]
        if part <= CHARSET:
            expected = nodes
        elif part == EDGE_START or part == CLOSURE_START:
            expected = nodes + 1
        elif part == EDGE_BYTES or part == EDGE_TARGET:
            expected = edges
        elif part == CLOSURE:
            expected = closures
        elif part <= LOOP_MAX:
            expected = loops
        else:
            expected = BYTES if part == CLASS_OF else classes
        if size != expected:
            return False
    return (
        0 <= block[PARTS + 1] < nodes
        and within(block, block[CHARSET], block[CHARSET + 1], -1, charsets)
        and ascending(block, block[EDGE_START], block[EDGE_START + 1], edges)
        and within(block, block[EDGE_BYTES], block[EDGE_BYTES + 1], 0, BYTES * BYTES)
        and within(block, block[EDGE_TARGET], block[EDGE_TARGET + 1], 0, nodes)
        and ascending(block, block[CLOSURE_START], block[CLOSURE_START + 1], closures)
        and within(block, block[CLOSURE], block[CLOSURE + 1], 0, nodes)
        and within(block, block[LOOP_BODY], block[LOOP_AFTER + 1], 0, nodes)
        and within(block, block[CLASS_OF], block[CLASS_OF + 1], 0, classes)
        and within(block, block[CLASS_BYTE], block[CLASS_BYTE + 1], 0, BYTES)
        and verify_nodes(block, nodes, loops, token_sets)
    )
