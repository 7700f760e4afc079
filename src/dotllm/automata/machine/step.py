"""Kernels: one step of the machine, found once and then remembered.

A step takes the items of a state over one byte class and *closes* the result:

 A. returns and loop ends are carried out until nothing changes: a frame is popped, the item goes on at its return node
    with the frames below. Only frames that existed before the step are popped, so the order does not matter.
 B. pushes (calls, loop entries) are carried out in left-corner order (`rank`), so the frames of a caller are complete
    before they become part of a callee's frame. A rule that can be empty has a bypass in the closures, so its RETURN is
    ignored here and B never pops.

What is left are items that wait for a byte, a token or the end; and items that returned through a hole, which wait for
the symbol on top of the stack (`reduce`). Frame sets of the same node are merged: one item per node, however many
derivations lead there (the graph-structured stack of M. Tomita, 1985, cut into symbols).
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.kinds import N_BYTE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import close
from dotllm.automata.machine.closure_worklist import add_closure, begin, touch
from dotllm.automata.machine.frames import substitute
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I, I))
def step(mem: Int32, state: int, cls: int) -> int:
    """delta[state, cls]: the raw state after one byte of the class, found now. Returns it (0: dead), or an error.

    Neighbouring classes that the same edges of this state cover get the same entry at once: a schema tells apart most
    letters somewhere, but most of its states do not.
    """
    begin(mem)
    class_byte, classes = mem[L.H_CLASS_BYTE], mem[L.H_CLASSES]
    byte = mem[class_byte + cls]
    low, high = I(0), I(255)  # bytes around it that are in the same edges
    kind, edge_start = mem[L.H_KIND], mem[L.H_EDGE_START]
    edge_bytes, edge_target = mem[L.H_EDGE_BYTES], mem[L.H_EDGE_TARGET]
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        if mem[kind + node] != N_BYTE:
            continue
        for e in range(mem[edge_start + node], mem[edge_start + node + 1]):
            first, last = I(mem[edge_bytes + e] & 255), I(mem[edge_bytes + e] >> 8)
            if byte < first:
                high = min(high, first - 1)
            elif byte > last:
                low = max(low, last + 1)
            else:
                low, high = max(low, first), min(high, last)
                done = add_closure(mem, mem[edge_target + e], fs, 0)
                if done < 0:
                    return done
    target = close(mem)
    if target >= 0:
        row = mem[L.AT_DELTA] + state * classes
        while cls > 0 and mem[class_byte + cls - 1] >= low:  # (classes are in the order of their first bytes)
            cls -= 1
        while cls < classes and mem[class_byte + cls] <= high:
            mem[row + cls] = target
            cls += 1
    return target


@inner_kernel(I(MEM, I, I))
def expand(mem: Int32, state: int, symbol: int) -> int:
    """The raw state of ``state`` with ``symbol`` written into its holes (nothing is consumed or carried out)."""
    begin(mem)
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    for i in range(mem[entry + L.S_LENGTH] // 2):
        filled = substitute(mem, mem[items + 2 * i + 1], symbol)
        if filled < 0:
            return filled
        done = touch(mem, mem[items + 2 * i], filled)
        if done < 0:
            return done
    return close(mem)


@inner_kernel(I(MEM, I, I))
def reduce(mem: Int32, state: int, symbol: int) -> int:
    """The raw state when ``state``, which is pending, meets ``symbol`` on top of the stack (and the symbol is
    popped)."""
    found = triple_get(mem, L.T_REDUCE, state, symbol, 0)
    if found >= 0:
        return found
    target = expand(mem, state, symbol)
    if target < 0:
        return target
    return triple_put(mem, L.T_REDUCE, state, symbol, 0, target)
