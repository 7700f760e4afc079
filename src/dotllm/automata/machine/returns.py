"""Kernel: a rule returns through many frames at once.

Where rules are highly ambiguous a rule's end has hundreds of frames, most of them with one of a few return nodes. The
frames below those of one return node are put together before the item goes on there: one after another, each union
would be a frame set of its own, in every node of the closure.
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.kinds import ACCEPT_NODE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure_worklist import add_closure, touch
from dotllm.automata.machine.intern import buffer_room, intern_sorted, sort_ints
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I))
def return_through(mem: Int32, fs: int) -> int:
    """Go on at the return nodes of all frames of ``fs``, but for holes. 0, or an error."""
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    first, n = pool + mem[sets + 2 * fs], mem[sets + 2 * fs + 1]
    labels = buffer_room(mem, 3 * n + 1)
    if labels < 0:
        return labels
    top = mem[L.H_BUFFER]
    mem[L.H_BUFFER] += 3 * n + 1
    starts, parents = labels + n, labels + 2 * n + 1  # parents in the order of their labels; where those of each begin
    m = 0
    for i in range(n):
        label = mem[frames + 3 * mem[first + i]]
        if label >= 0:
            mem[labels + m] = label
            m += 1
        elif label == L.ROOT:
            done = touch(mem, ACCEPT_NODE, 0)
            if done < 0:
                return done
        elif label != L.HOLE:
            return L.FAULT
    sort_ints(mem, labels, m)
    count = 0
    for i in range(m):
        if i == 0 or mem[labels + i] != mem[labels + i - 1]:
            mem[labels + count] = mem[labels + i]
            mem[starts + count] = i
            count += 1
    mem[starts + count] = m
    for i in range(n):
        label = mem[frames + 3 * mem[first + i]]
        if label < 0:
            continue
        low, high = 0, count - 1
        while low < high:
            middle = (low + high) >> 1
            if mem[labels + middle] < label:
                low = middle + 1
            else:
                high = middle
        mem[parents + mem[starts + low]] = mem[frames + 3 * mem[first + i] + 2]
        mem[starts + low] += 1  # (so this is where those of the next label begin, in the end)
    for i in range(count):
        one = mem[starts + i - 1] if i > 0 else 0
        end = mem[starts + i]
        below = I(mem[parents + one])
        if end - one > 1:
            length = 0
            for j in range(one, end):
                length += mem[sets + 2 * mem[parents + j] + 1]
            mem[L.H_FUEL] -= length
            if mem[L.H_FUEL] < 0:
                return L.OUT_OF_FUEL
            at = buffer_room(mem, length)
            if at < 0:
                return at
            length = 0
            for j in range(one, end):
                other = pool + mem[sets + 2 * mem[parents + j]]
                for k in range(mem[sets + 2 * mem[parents + j] + 1]):
                    mem[at + length] = mem[other + k]
                    length += 1
            below = intern_sorted(mem, at, length)
            if below < 0:
                return below
        done = add_closure(mem, mem[labels + i], below, 0)
        if done < 0:
            return done
    mem[L.H_BUFFER] = top
    return 0
