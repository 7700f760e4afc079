"""Kernels: find where a rule's end leads through calls that may all end together.

A frame whose return node may return immediately is *transparent* if recursion can put such frames on top of each other:
the closure of its return node begins with RETURN (`nfa_passes.recursive_returns`). Through such a frame, a rule's end
leads to the items of its return node, with the frames below, and to everything that a rule's end leads to through each
of the frames below. These *exits* are found once for a frame, from the exits of the frames below it, so one more level
of a recursion costs the same at any depth. J. Leo remembers the same for right recursion ("A general context-free
parsing algorithm running in linear time on every LR(k) grammar without using lookahead", TCS 82, 1991); here it also
works for frames that are not quite at the end.

A set that has a transparent frame needs none of the frames below it, because the transparent frame allows everything
that they allow. And if a set has a frame and all frames that it stands on (``s: "i" s "e" s | "i" s`` pushes the first
and jumps with the others), they become one *optional* frame: its label is the return node plus the number of nodes, and
it may also return immediately. `normal` brings sets into this form.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import ACCEPT_NODE, RETURN_NODE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    intern_sorted,
    lower_bound,
    singleton,
    triple_get,
    triple_put,
    union,
)
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel

_LOOKED_AT = 32  # maximum number of frames examined below a transparent one
_MANY = 8  # maximum number of frames in a set; larger sets are left as they are
_FEW = 4  # maximum number of frames below a frame; with more, finding what they have in common costs more than it gains


@inner_kernel(nb.boolean(MEM, I), inlined=True)
def is_transparent(mem: Int32, number: int) -> bool:
    """Whether a rule's end may lead through a frame to the frames below it, any number of times by recursion."""
    at = mem[L.AT_FRAME] + 3 * number
    label = mem[at]
    if label < 0 or mem[mem[L.AT_FRAMESET] + 2 * mem[at + 2] + 1] > _FEW:
        return False
    if label >= mem[L.H_NODES]:
        return True
    start = mem[L.H_CLOSURE_START] + label
    return mem[start] < mem[start + 1] and mem[mem[L.H_CLOSURE] + mem[start]] == RETURN_NODE


@inner_kernel(nb.boolean(MEM, I))
def has_transparent(mem: Int32, fs: int) -> bool:
    """Whether a frame of a set is transparent."""
    first = mem[L.AT_POOL] + mem[mem[L.AT_FRAMESET] + 2 * fs]
    for i in range(mem[mem[L.AT_FRAMESET] + 2 * fs + 1]):
        if mem[first + i] > 0 and is_transparent(mem, mem[first + i]):
            return True
    return False


@inner_kernel(nb.boolean(MEM, I, I, I))
def stands_on(mem: Int32, number: int, first: int, n: int) -> bool:
    """Whether a frame is not optional, and the n frames at mem[first:] include all frames that it stands on."""
    at = mem[L.AT_FRAME] + 3 * number
    sets, parent = mem[L.AT_FRAMESET], mem[at + 2]
    length = mem[sets + 2 * parent + 1]
    if mem[at] < 0 or mem[at] >= mem[L.H_NODES] or length == 0 or length >= n or length > _FEW:
        return False
    for i in range(length):
        other = mem[mem[L.AT_POOL] + mem[sets + 2 * parent] + i]
        included = False
        for j in range(n):
            included = included or mem[first + j] == other
        if not included:
            return False
    return True


@inner_kernel(nb.boolean(MEM, I, I))
def is_within(mem: Int32, number: int, other: int) -> bool:
    """Whether ``other`` is the frame ``number``, or its optional form."""
    if number == other:
        return True
    mine, its = mem[L.AT_FRAME] + 3 * number, mem[L.AT_FRAME] + 3 * other
    return mem[mine] >= 0 and mem[mine] + mem[L.H_NODES] == mem[its] and mem[mine + 2] == mem[its + 2]


@inner_kernel(I(MEM, I))
def normal(mem: Int32, fs: int) -> int:
    """The normal form of a set (see the module docstring), within the limits above; or an error. Not for the set of a
    RETURN in a closure in progress, whose holes must not be lost."""
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    first, n = pool + mem[sets + 2 * fs], mem[sets + 2 * fs + 1]
    if n < 2 or n > _MANY or mem[first] < 0:
        return fs
    kept = buffer_room(mem, n + _LOOKED_AT + 1)
    if kept < 0:
        return kept
    below = kept + n  # transparent frames that are still to be searched
    changed = False
    for i in range(n):
        number = I(mem[first + i])
        if stands_on(mem, number, first, n) and not is_transparent(mem, number):
            number = frame(mem, mem[frames + 3 * number] + mem[L.H_NODES], 0, mem[frames + 3 * number + 2])
            if number < 0:
                return number
            changed = True
        mem[kept + i] = number
    for i in range(n):
        if mem[kept + i] < 0 or not is_transparent(mem, mem[kept + i]):
            continue
        mem[below] = mem[kept + i]
        seen, done, looked_at = 1, 0, 0
        while done < seen and looked_at < _LOOKED_AT:
            parent = mem[frames + 3 * mem[below + done] + 2]
            for k in range(n):
                if k != i and mem[kept + k] > 0 and is_within(mem, mem[kept + k], mem[below + done]):
                    mem[kept + k] = -1
                    changed = True
            done += 1
            for j in range(mem[sets + 2 * parent + 1]):
                other = I(mem[pool + mem[sets + 2 * parent] + j])
                looked_at += 1
                if looked_at >= _LOOKED_AT:
                    break
                if is_transparent(mem, other):
                    mem[below + seen] = other
                    seen += 1
                    continue
                for k in range(n):
                    if mem[kept + k] == other:
                        mem[kept + k] = -1
                        changed = True
        mem[L.H_FUEL] -= looked_at
    if mem[L.H_FUEL] < 0:
        return L.OUT_OF_FUEL
    if not changed:
        return fs
    length = 0
    for i in range(n):
        if mem[kept + i] >= 0:
            mem[kept + length] = mem[kept + i]
            length += 1
    return intern_sorted(mem, kept, length)


@inner_kernel(I(MEM, I, I, I, I))
def add_exit(mem: Int32, start: int, length: int, node: int, fs: int) -> int:
    """Add (node, fs) to the ``length`` exits that the buffer has from ``start`` to its top, in the order of their
    nodes. Returns their new number, or an error."""
    base = mem[L.AT_BUFFER] + start
    low = lower_bound(mem, base, 2, length, node)
    mem[L.H_FUEL] -= 1 + (length >> 3)
    if mem[L.H_FUEL] < 0:
        return L.OUT_OF_FUEL
    if low < length and mem[base + 2 * low] == node:
        both = union(mem, mem[base + 2 * low + 1], fs)
        if both >= 0 and node != RETURN_NODE:
            both = normal(mem, both)
        if both < 0:
            return both
        mem[base + 2 * low + 1] = both
        return length
    if buffer_room(mem, 2) < 0:
        return L.FULL - L.BUFFER
    for i in range(2 * length - 1, 2 * low - 1, -1):
        mem[base + i + 2] = mem[base + i]
    mem[base + 2 * low], mem[base + 2 * low + 1] = node, fs
    mem[L.H_BUFFER] += 2
    return length + 1


@inner_kernel(I(MEM, I, I, I, I))
def add_return(mem: Int32, start: int, length: int, number: int, own: int) -> int:
    """`add_exit` for everything that a rule's end leads to through one frame, whose exits must be known if it is
    transparent. ``own`` = 1: only for the items of its return node."""
    at = mem[L.AT_FRAME] + 3 * number
    label, parent = I(mem[at]), I(mem[at + 2])
    if label == L.HOLE:
        alone = singleton(mem, number)
        return alone if alone < 0 else add_exit(mem, start, length, RETURN_NODE, alone)
    if label == L.ROOT:
        return add_exit(mem, start, length, ACCEPT_NODE, 0)
    if label < 0:
        return L.FAULT
    if own == 0 and is_transparent(mem, number):
        unit = mem[L.AT_TAILS] + 3 * triple_get(mem, L.T_EXITS, number, 0, 0)
        for i in range(mem[unit + 2]):
            length = add_exit(mem, start, length, mem[unit + 3 * i], mem[unit + 3 * i + 1])
            if length < 0:
                return length
        return length
    if label >= mem[L.H_NODES]:
        label -= I(mem[L.H_NODES])
        if own == 0:
            length = add_exit(mem, start, length, RETURN_NODE, parent)
            if length < 0:
                return length
    closure = mem[L.H_CLOSURE]
    for i in range(mem[mem[L.H_CLOSURE_START] + label], mem[mem[L.H_CLOSURE_START] + label + 1]):
        if own != 0 and mem[closure + i] == RETURN_NODE:
            continue
        length = add_exit(mem, start, length, mem[closure + i], parent)
        if length < 0:
            return length
    return length


@inner_kernel(I(MEM, I))
def find_exits(mem: Int32, number: int) -> int:
    """Find the exits of a transparent frame; those of the frames below it must be known. See `exits_of`."""
    sets, pool = mem[L.AT_FRAMESET], mem[L.AT_POOL]
    start = I(mem[L.H_BUFFER])
    parent = mem[mem[L.AT_FRAME] + 3 * number + 2]
    length = I(0)
    for i in range(mem[sets + 2 * parent + 1]):
        length = add_return(mem, start, length, mem[pool + mem[sets + 2 * parent] + i], 0)
        if length < 0:
            return length
    length = add_return(mem, start, length, number, 1)
    if length < 0:
        return length
    new = I(mem[L.USED_TAILS])
    if new + length > mem[L.CAP_TAILS]:
        return L.FULL - L.TAILS
    done = triple_put(mem, L.T_EXITS, number, 0, 0, new if length > 0 else I(0))
    if done < 0:
        return done
    base, unit = mem[L.AT_BUFFER] + start, mem[L.AT_TAILS] + 3 * new
    for i in range(length):
        mem[unit + 3 * i], mem[unit + 3 * i + 1] = mem[base + 2 * i], mem[base + 2 * i + 1]
        mem[unit + 3 * i + 2] = length - i
    mem[L.USED_TAILS] = new + length
    mem[L.H_BUFFER] = start
    return done


@inner_kernel(I(MEM, I))
def exits_of(mem: Int32, number: int) -> int:
    """The exits of a transparent frame, with RETURN only for frames that are not transparent: units (node, frame set,
    number of units from here on) of TAILS, in the order of their nodes. Returns the number of the first unit (0: none),
    or an error."""
    result = triple_get(mem, L.T_EXITS, number, 0, 0)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    bottom = I(mem[L.H_BUFFER])
    at = buffer_room(mem, 1)
    if at < 0:
        return at
    mem[at] = number
    mem[L.H_BUFFER] += 1
    while mem[L.H_BUFFER] > bottom:
        top = I(mem[mem[L.AT_BUFFER] + mem[L.H_BUFFER] - 1])
        mem[L.H_FUEL] -= 1
        if mem[L.H_FUEL] < 0:
            return L.OUT_OF_FUEL
        if triple_get(mem, L.T_EXITS, top, 0, 0) >= 0:
            mem[L.H_BUFFER] -= 1
            continue
        parent = mem[frames + 3 * top + 2]
        is_missing = False
        for i in range(mem[sets + 2 * parent + 1]):
            other = I(mem[pool + mem[sets + 2 * parent] + i])
            if is_transparent(mem, other) and triple_get(mem, L.T_EXITS, other, 0, 0) < 0:
                at = buffer_room(mem, 1)
                if at < 0:
                    return at
                mem[at] = other
                mem[L.H_BUFFER] += 1
                is_missing = True
        if not is_missing:
            done = find_exits(mem, top)
            if done < 0:
                return done
            mem[L.H_BUFFER] -= 1
    return triple_get(mem, L.T_EXITS, number, 0, 0)


@inner_kernel(nb.boolean(MEM, I, I))
def goes_on_transparently(mem: Int32, exits: int, lower: int) -> bool:
    """Whether a rule's end leads through the frame with these exits to a transparent frame of the symbol below."""
    unit = mem[L.AT_TAILS] + 3 * exits
    if exits == 0 or mem[unit] != RETURN_NODE:
        return False
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    below = pool + mem[mem[L.AT_SYMBOL] + 3 * lower]
    first = pool + mem[sets + 2 * mem[unit + 1]]
    for i in range(mem[sets + 2 * mem[unit + 1] + 1]):
        at = frames + 3 * mem[first + i]
        if mem[at] == L.HOLE and has_transparent(mem, mem[below + mem[at + 1]]):
            return True
    return False
