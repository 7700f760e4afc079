"""Kernels: symbols in which counters that no token can bring to a limit are alike.

Masks are remembered under canonical symbols (see `masks`), so position 7 and position 70 of a string of at most a
thousand characters share one.
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.frames import unmapped_below
from dotllm.automata.machine.intern import buffer_room, frame, intern_sorted, triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.states import intern_symbol
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I))
def canonical_frames(mem: Int32, fs: int) -> int:
    """``fs`` with every counter that no single token can bring to a limit mapped to FAR_INSIDE or FAR_BELOW."""
    if fs == 0:
        return 0
    result = triple_get(mem, L.T_CANON_FRAMES, fs, 0, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    bottom = mem[L.H_BUFFER]
    todo = unmapped_below(mem, L.T_CANON_FRAMES, fs, 0)
    if todo < 0:
        return todo
    for t in range(todo):
        one_set = mem[mem[L.AT_BUFFER] + bottom + t]
        n = mem[sets + 2 * one_set + 1]
        at = buffer_room(mem, n + 1)
        if at < 0:
            return at
        mem[L.H_BUFFER] += n
        for i in range(n):
            one = mem[pool + mem[sets + 2 * one_set] + i]
            label, count, parent = mem[frames + 3 * one], mem[frames + 3 * one + 1], mem[frames + 3 * one + 2]
            new = I(one)
            if label >= 0 or label <= L.LOOP:
                below = I(0) if parent == 0 else triple_get(mem, L.T_CANON_FRAMES, parent, 0, 0)
                if label <= L.LOOP and count >= 0:
                    loop = L.LOOP - label
                    low, high = mem[mem[L.H_LOOP_MIN] + loop], mem[mem[L.H_LOOP_MAX] + loop]
                    # (low < 0: a counted network, some of whose states are -1 - low edges from the end)
                    far_from_high = high < 0 or high - count + min(0, low + 1) > mem[L.H_MAX_TOKEN_BYTES]
                    if high < -1:
                        pass  # an unordered sequence: the set of used parts, not a number
                    elif count >= low and high >= 0 and far_from_high:
                        count = L.FAR_INSIDE
                    elif low - count > mem[L.H_MAX_TOKEN_BYTES] and far_from_high:
                        count = L.FAR_BELOW
                new = frame(mem, label, count, below)
                if new < 0:
                    return new
            mem[at + i] = new
        mem[L.H_BUFFER] -= n
        result = intern_sorted(mem, at, n)
        if result < 0:
            return result
        result = triple_put(mem, L.T_CANON_FRAMES, one_set, 0, 0, result)
        if result < 0:
            return result
    mem[L.H_BUFFER] = bottom
    return triple_get(mem, L.T_CANON_FRAMES, fs, 0, 0)


@inner_kernel(I(MEM, I))
def canonical_anew(mem: Int32, symbol: int) -> int:
    """`canonical` of a symbol that it is not known of."""
    mem[L.H_BUFFER] = 0
    entry = mem[L.AT_SYMBOL] + 3 * symbol
    n = mem[entry + 1]
    at = buffer_room(mem, n)
    if at < 0:
        return at
    mem[L.H_BUFFER] = n
    for i in range(n):
        new = canonical_frames(mem, mem[mem[L.AT_POOL] + mem[entry] + i])
        if new < 0:
            return new
        mem[at + i] = new
    result = intern_symbol(mem, at, n)
    if result < 0:
        return result
    return triple_put(mem, L.T_CANON, symbol, 0, 0, result)


@inner_kernel(I(MEM, I))
def canonical(mem: Int32, symbol: int) -> int:
    """The symbol that every token treats alike (see canonical_frames)."""
    found = triple_get(mem, L.T_CANON, symbol, 0, 0)
    return found if found >= 0 else canonical_anew(mem, symbol)
