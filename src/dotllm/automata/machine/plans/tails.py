"""Kernels: the frames below a place of a plan (see `plans`), as numbers.

A tail is a list of cells (label, count, tail below), several where several derivations lead to the same node. Equal
tails have equal numbers, however they are cut into symbols on a stack. Counters that no longer ask for a round are
alike.
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import buffer_room, sort_ints, triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I, I, I, I))
def unit(mem: Int32, kind: int, a: int, b: int, c: int) -> int:
    """The number of a cell (label, count, tail below) or of a tail (cell, rest of the tail, 0); or an error."""
    found = triple_get(mem, kind, a, b, c)
    if found >= 0:
        return found
    number = I(mem[L.USED_TAILS])
    if number >= mem[L.CAP_TAILS]:
        return L.FULL - L.TAILS
    done = triple_put(mem, kind, a, b, c, number)
    if done < 0:
        return done
    at = mem[L.AT_TAILS] + 3 * number
    mem[at], mem[at + 1], mem[at + 2] = a, b, c
    mem[L.USED_TAILS] = number + 1
    return number


@inner_kernel(I(MEM, I, I, I))
def pushed(mem: Int32, label: int, count: int, tail: int) -> int:
    """The tail of one frame on another tail; or an error."""
    cell = unit(mem, L.T_CELL, label, count, tail)
    return cell if cell < 0 else unit(mem, L.T_TAIL, cell, 0, 0)


@inner_kernel(I(MEM, I, I), inlined=True)
def plain_count(mem: Int32, label: int, count: int) -> int:
    """The count of a frame as cells have it: what asks for no further round is alike."""
    if label > L.LOOP:
        return 0
    loop = L.LOOP - label
    low, high = I(mem[mem[L.H_LOOP_MIN] + loop]), I(mem[mem[L.H_LOOP_MAX] + loop])
    if low < 0:
        return 0
    if high < -1:
        return count
    last = max(low - 1, 0)
    return last if count < 0 else min(count, last)


@inner_kernel(I(MEM, I, I))
def tail_of(mem: Int32, fs: int, stack: int) -> int:
    """The tail of a frame set, whose holes are those of the stack cell ``stack``; or an error."""
    found = triple_get(mem, L.T_BELOW, fs, stack, 0)
    if found >= 0:
        return found
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    bottom = mem[L.H_BUFFER]
    at = buffer_room(mem, 2)
    if at < 0:
        return at
    mem[at], mem[at + 1] = fs, stack
    mem[L.H_BUFFER] += 2
    while mem[L.H_BUFFER] > bottom:
        top = mem[L.AT_BUFFER] + mem[L.H_BUFFER] - 2
        one, cell_at = I(mem[top]), I(mem[top + 1])
        if triple_get(mem, L.T_BELOW, one, cell_at, 0) >= 0:
            mem[L.H_BUFFER] -= 2
            continue
        first, n = pool + mem[sets + 2 * one], mem[sets + 2 * one + 1]
        mem[L.H_FUEL] -= 1 + n
        if mem[L.H_FUEL] < 0:
            return L.OUT_OF_FUEL
        cell = mem[L.AT_STACK] + 3 * cell_at
        is_missing = False
        length = 0
        for i in range(n):
            entry = frames + 3 * mem[first + i]
            label = mem[entry]
            if label == L.ROOT:
                length += 1
                continue
            other, below = I(mem[entry + 2]), cell_at
            if label == L.HOLE:
                if cell_at == 0:
                    return L.FAULT
                other = I(mem[mem[L.AT_POOL] + mem[mem[L.AT_SYMBOL] + 3 * mem[cell]] + mem[entry + 1]])
                below = I(mem[cell + 1])
            tail = triple_get(mem, L.T_BELOW, other, below, 0)
            if tail < 0:
                at = buffer_room(mem, 2)
                if at < 0:
                    return at
                mem[at], mem[at + 1] = other, below
                mem[L.H_BUFFER] += 2
                is_missing = True
            elif label == L.HOLE:
                while tail > 0:
                    length += 1
                    tail = I(mem[mem[L.AT_TAILS] + 3 * tail + 1])
            else:
                length += 1
        if is_missing:
            continue
        cells = buffer_room(mem, length)
        if cells < 0:
            return cells
        length = 0
        for i in range(n):
            entry = frames + 3 * mem[first + i]
            label = I(mem[entry])
            if label == L.HOLE:
                other = I(mem[mem[L.AT_POOL] + mem[mem[L.AT_SYMBOL] + 3 * mem[cell]] + mem[entry + 1]])
                tail = triple_get(mem, L.T_BELOW, other, I(mem[cell + 1]), 0)
                while tail > 0:
                    mem[cells + length] = mem[mem[L.AT_TAILS] + 3 * tail]
                    length += 1
                    tail = I(mem[mem[L.AT_TAILS] + 3 * tail + 1])
                continue
            below = I(0) if label == L.ROOT else triple_get(mem, L.T_BELOW, mem[entry + 2], cell_at, 0)
            new = unit(mem, L.T_CELL, label, plain_count(mem, label, I(mem[entry + 1])), below)
            if new < 0:
                return new
            mem[cells + length] = new
            length += 1
        sort_ints(mem, cells, length)
        tail = I(0)
        for i in range(length - 1, -1, -1):
            if i + 1 < length and mem[cells + i] == mem[cells + i + 1]:
                continue
            tail = unit(mem, L.T_TAIL, mem[cells + i], tail, 0)
            if tail < 0:
                return tail
        done = triple_put(mem, L.T_BELOW, one, cell_at, 0, tail)
        if done < 0:
            return done
        mem[L.H_BUFFER] -= 2
    return triple_get(mem, L.T_BELOW, fs, stack, 0)
