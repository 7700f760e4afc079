"""Kernels: put frame sets into the holes of other frame sets."""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.exits import normal
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    intern_sorted,
    singleton,
    sort_ints,
    triple_get,
    triple_put,
    union,
)
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.states import intern_symbol
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I, I, I))
def unmapped_below(mem: Int32, memo: int, fs: int, key: int) -> int:
    """List ``fs`` and all frame sets under it that have no entry in ``memo`` for ``key``; parents come before children.

    The list is put into the buffer (H_BUFFER moves to its end). A frame set is made after those that its frames stand
    on, so ascending numbers are the right order, and no recursion is needed. Returns the length, or an error.
    """
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    start = buffer_room(mem, 1)
    if start < 0:
        return start
    mem[start] = fs
    n = 1
    i = 0
    while i < n:
        frame_set = mem[start + i]
        i += 1
        for j in range(mem[sets + 2 * frame_set + 1]):
            at = frames + 3 * mem[pool + mem[sets + 2 * frame_set] + j]
            label, parent = mem[at], mem[at + 2]
            if (label < 0 and label > L.LOOP) or parent == 0 or triple_get(mem, memo, parent, key, 0) >= 0:
                continue
            known = False
            for k in range(n):
                if mem[start + k] == parent:
                    known = True
                    break
            mem[L.H_FUEL] -= 1 + (n >> 3)
            if mem[L.H_FUEL] < 0:
                return L.OUT_OF_FUEL
            if known:
                continue
            if buffer_room(mem, n + 1) < 0:
                return L.FULL - L.BUFFER
            mem[start + n] = parent
            n += 1
    sort_ints(mem, start, n)
    mem[L.H_BUFFER] += n
    return n


@inner_kernel(I(MEM, I))
def holes_of(mem: Int32, fs: int) -> int:
    """The set of all holes in ``fs`` and under it, or an error."""
    if fs == 0:
        return 0
    result = triple_get(mem, L.T_HOLES, fs, 0, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    bottom = mem[L.H_BUFFER]
    todo = unmapped_below(mem, L.T_HOLES, fs, 0)
    if todo < 0:
        return todo
    for t in range(todo):
        frame_set = mem[mem[L.AT_BUFFER] + bottom + t]
        result = I(0)
        for i in range(mem[sets + 2 * frame_set + 1]):
            number = I(mem[pool + mem[sets + 2 * frame_set] + i])
            label, parent = mem[frames + 3 * number], I(mem[frames + 3 * number + 2])
            below = singleton(mem, number) if label == L.HOLE else I(0)
            if label != L.HOLE and label != L.ROOT and parent != 0:
                below = triple_get(mem, L.T_HOLES, parent, 0, 0)
            if below > 0:
                below = union(mem, result, below) if result > 0 else below
                result = below
            if below < 0:
                return below
        result = triple_put(mem, L.T_HOLES, frame_set, 0, 0, result)
        if result < 0:
            return result
    mem[L.H_BUFFER] = bottom
    return triple_get(mem, L.T_HOLES, fs, 0, 0)


@inner_kernel(I(MEM, I, I))
def substitute(mem: Int32, fs: int, symbol: int) -> int:
    """``fs`` with every hole replaced by the frame set that ``symbol`` has for it."""
    if fs == 0:
        return 0
    result = triple_get(mem, L.T_SUBST, fs, symbol, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    tuple_at = pool + mem[mem[L.AT_SYMBOL] + 3 * symbol]
    bottom = mem[L.H_BUFFER]
    todo = unmapped_below(mem, L.T_SUBST, fs, symbol)
    if todo < 0:
        return todo
    top = mem[L.H_BUFFER]
    for t in range(todo):
        one_set = mem[mem[L.AT_BUFFER] + bottom + t]
        n = 0
        for i in range(mem[sets + 2 * one_set + 1]):
            number = mem[pool + mem[sets + 2 * one_set] + i]
            label, count, parent = mem[frames + 3 * number], mem[frames + 3 * number + 1], mem[frames + 3 * number + 2]
            mem[L.H_FUEL] -= 1
            if mem[L.H_FUEL] < 0:
                return L.OUT_OF_FUEL
            if label == L.HOLE:
                other = mem[tuple_at + count]
                m = mem[sets + 2 * other + 1]
                at = buffer_room(mem, m)
                if at < 0:
                    return at
                for j in range(m):
                    mem[at + j] = mem[pool + mem[sets + 2 * other] + j]
                n += m
                mem[L.H_BUFFER] += m
            else:
                new = I(number)
                if label != L.ROOT:
                    below = I(0) if parent == 0 else triple_get(mem, L.T_SUBST, parent, symbol, 0)
                    new = frame(mem, label, count, below)
                    if new < 0:
                        return new
                at = buffer_room(mem, 1)
                if at < 0:
                    return at
                mem[at] = new
                n += 1
                mem[L.H_BUFFER] += 1
        result = intern_sorted(mem, mem[L.AT_BUFFER] + top, n)
        mem[L.H_BUFFER] = top
        if result > 0:
            result = normal(mem, result)
        if result < 0:
            return result
        result = triple_put(mem, L.T_SUBST, one_set, symbol, 0, result)
        if result < 0:
            return result
    mem[L.H_BUFFER] = bottom
    return triple_get(mem, L.T_SUBST, fs, symbol, 0)


@inner_kernel(I(MEM, I, I))
def compose(mem: Int32, upper: int, lower: int) -> int:
    """One symbol that stands for ``upper`` pushed on ``lower`` (used when ``upper`` only renames holes)."""
    result = triple_get(mem, L.T_COMPOSE, upper, lower, 0)
    if result >= 0:
        return result
    mem[L.H_BUFFER] = 0
    entry = mem[L.AT_SYMBOL] + 3 * upper
    n = mem[entry + 1]
    at = buffer_room(mem, n)
    if at < 0:
        return at
    mem[L.H_BUFFER] = n
    for i in range(n):
        filled = substitute(mem, mem[mem[L.AT_POOL] + mem[entry] + i], lower)
        if filled < 0:
            return filled
        mem[at + i] = filled
    symbol = intern_symbol(mem, at, n)
    if symbol < 0:
        return symbol
    return triple_put(mem, L.T_COMPOSE, upper, lower, 0, symbol)


# Kernels: canonical symbols, in which counters that no token can bring to a limit are equal.
#
# Masks are remembered under canonical symbols (see `masks`), so position 7 and position 70 of a string of at most a
# thousand characters share a mask.


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
            number = mem[pool + mem[sets + 2 * one_set] + i]
            label, count, parent = mem[frames + 3 * number], mem[frames + 3 * number + 1], mem[frames + 3 * number + 2]
            new = I(number)
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
    """`canonical` for a symbol whose canonical symbol is not known yet."""
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
    """The canonical symbol, which every token treats like ``symbol`` (see `canonical_frames`)."""
    result = triple_get(mem, L.T_CANON, symbol, 0, 0)
    return result if result >= 0 else canonical_anew(mem, symbol)
