"""Kernels for interning: equal lists and equal triples get equal numbers, so the rest of the machine compares ints.

Lists (states, frame sets, symbols) are stored once in POOL; LISTS is an open-addressing table of (hash, id, kind).
TRIPLES maps (kind, a, b, c) to an int: frames, stack cells, configurations and every memo of the machine. Both tables
are at most half full. If a region has no room, kernels return FULL - region; callers pass it up, and Python grows the
arena and calls again.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel, kernel

_LARGE = 64  # frames in both sets together; unions of more are remembered


@inner_kernel(I(I, I), inlined=True)
def mix(h: int, x: int) -> int:
    """One round of a multiplicative hash. Unsigned, because overflow of a signed product is undefined in LLVM."""
    u = (nb.uint64(h) ^ nb.uint64(x & 0xFFFFFFFF)) * nb.uint64(0x9E3779B97F4A7C15)
    return I((u ^ (u >> nb.uint64(29))) >> nb.uint64(2))


@inner_kernel(I(MEM, I, I, I, I))
def triple_get(mem: Int32, kind: int, a: int, b: int, c: int) -> int:
    """The value stored under a key, or -1."""
    base, capacity = mem[L.AT_TRIPLES], mem[L.CAP_TRIPLES]
    h = mix(mix(mix(kind + 1, a), b), c)
    slot = h & (capacity - 1)
    while True:
        at = base + 5 * slot
        tag = mem[at]
        if tag == 0:
            return -1
        if tag == kind + 1 and mem[at + 1] == a and mem[at + 2] == b and mem[at + 3] == c:
            return I(mem[at + 4])
        slot = (slot + 1) & (capacity - 1)


@inner_kernel(I(MEM, I, I, I, I, I))
def triple_put(mem: Int32, kind: int, a: int, b: int, c: int, value: int) -> int:
    """Store or replace. Returns value, or FULL."""
    base, capacity = mem[L.AT_TRIPLES], mem[L.CAP_TRIPLES]
    if 2 * mem[L.USED_TRIPLES] >= capacity:
        return L.FULL - L.TRIPLES
    h = mix(mix(mix(kind + 1, a), b), c)
    slot = h & (capacity - 1)
    while True:
        at = base + 5 * slot
        tag = mem[at]
        if tag == 0:
            mem[at], mem[at + 1], mem[at + 2], mem[at + 3], mem[at + 4] = kind + 1, a, b, c, value
            mem[L.USED_TRIPLES] += 1
            return value
        if tag == kind + 1 and mem[at + 1] == a and mem[at + 2] == b and mem[at + 3] == c:
            mem[at + 4] = value
            return value
        slot = (slot + 1) & (capacity - 1)


@kernel(nb.void(MEM))
def rehash_lists(mem: Int32) -> None:
    """Fill the LISTS table (already zeroed) again after it grew."""
    base, capacity = mem[L.AT_LISTS], mem[L.CAP_LISTS]
    pool = mem[L.AT_POOL]
    used = 0
    for kind in range(3):
        region = L.STATE if kind == L.L_STATE else (L.FRAMESET if kind == L.L_FRAMESET else L.SYMBOL)
        width = 8 if kind == L.L_STATE else (2 if kind == L.L_FRAMESET else 3)
        for number in range(mem[L.R + 3 * region + 2]):
            entry = mem[L.R + 3 * region] + width * number
            h = mix(kind + 7, mem[entry + 1])
            for i in range(mem[entry + 1]):
                h = mix(h, mem[pool + mem[entry] + i])
            slot = h & (capacity - 1)
            while mem[base + 2 * slot + 1] != 0:
                slot = (slot + 1) & (capacity - 1)
            mem[base + 2 * slot] = h & 0x7FFFFFFF
            mem[base + 2 * slot + 1] = (number << 2 | kind) + 1
            used += 1
    mem[L.USED_LISTS] = used


@inner_kernel(I(MEM, I, I, I))
def intern_list(mem: Int32, kind: int, source: int, length: int) -> int:
    """The number of the list mem[source : source+length], as 2*id + 1 if it is new and 2*id if it is known; or FULL.

    A new entry has only its first two ints (offset, length) set.
    """
    region = L.STATE if kind == L.L_STATE else (L.FRAMESET if kind == L.L_FRAMESET else L.SYMBOL)
    width = 8 if kind == L.L_STATE else (2 if kind == L.L_FRAMESET else 3)
    entries = mem[L.R + 3 * region]
    pool = mem[L.AT_POOL]
    base, capacity = mem[L.AT_LISTS], mem[L.CAP_LISTS]
    h = mix(kind + 7, length)
    for i in range(length):
        h = mix(h, mem[source + i])
    tag = h & 0x7FFFFFFF
    slot = h & (capacity - 1)
    while True:
        stored = mem[base + 2 * slot + 1]
        if stored == 0:
            break
        if mem[base + 2 * slot] == tag and ((stored - 1) & 3) == kind:
            number = (stored - 1) >> 2
            entry = entries + width * number
            if mem[entry + 1] == length:
                same = True
                offset = pool + mem[entry]
                for i in range(length):
                    if mem[offset + i] != mem[source + i]:
                        same = False
                        break
                if same:
                    return I(number) * 2
        slot = (slot + 1) & (capacity - 1)
    if 2 * mem[L.USED_LISTS] >= capacity:
        return L.FULL - L.LISTS
    number = mem[L.R + 3 * region + 2]
    if number >= mem[L.R + 3 * region + 1]:
        return L.FULL - region
    used = mem[L.USED_POOL]
    if used + length > mem[L.CAP_POOL]:
        return L.FULL - L.POOL
    for i in range(length):
        mem[pool + used + i] = mem[source + i]
    mem[entries + width * number] = used
    mem[entries + width * number + 1] = length
    mem[L.USED_POOL] = used + length
    mem[L.R + 3 * region + 2] = number + 1
    mem[L.USED_LISTS] += 1
    mem[base + 2 * slot] = tag
    mem[base + 2 * slot + 1] = (number << 2 | kind) + 1
    return I(number) * 2 + 1


@inner_kernel(I(MEM, I), inlined=True)
def buffer_room(mem: Int32, length: int) -> int:
    """The absolute index of the buffer's top if ``length`` ints fit there, or FULL. This reserves nothing."""
    if mem[L.H_BUFFER] + length > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    return I(mem[L.AT_BUFFER] + mem[L.H_BUFFER])


@inner_kernel(I(MEM, I, I, I))
def frame(mem: Int32, label: int, count: int, parent: int) -> int:
    """The number of the frame (label, count, parent frame set)."""
    result = triple_get(mem, L.T_FRAME, label, count, parent)
    if result >= 0:
        return result
    number = mem[L.USED_FRAME]
    if number >= mem[L.CAP_FRAME]:
        return L.FULL - L.FRAME
    done = triple_put(mem, L.T_FRAME, label, count, parent, number)
    if done < 0:
        return done
    at = mem[L.AT_FRAME] + 3 * number
    mem[at], mem[at + 1], mem[at + 2] = label, count, parent
    mem[L.USED_FRAME] = number + 1
    return I(number)


@inner_kernel(I(MEM, I))
def singleton(mem: Int32, number: int) -> int:
    """The frame set of a single frame."""
    if number < 0:
        return number
    at = buffer_room(mem, 1)
    if at < 0:
        return at
    mem[at] = number
    result = intern_list(mem, L.L_FRAMESET, at, 1)
    return result if result < 0 else result >> 1


@inner_kernel(I(MEM, I))
def hole(mem: Int32, i: int) -> int:
    """The frame set that stands for hole i of the symbol below."""
    return singleton(mem, frame(mem, L.HOLE, i, 0))


@inner_kernel(I(MEM, I, I, I, I), inlined=True)
def lower_bound(mem: Int32, first: int, stride: int, n: int, value: int) -> int:
    """How many of ``n`` sorted numbers, which start at mem[first] and are ``stride`` apart, are less than ``value``."""
    low, high = 0, n
    while low < high:
        middle = (low + high) >> 1
        if mem[first + stride * middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@inner_kernel(nb.void(MEM, I, I))
def sort_ints(mem: Int32, start: int, n: int) -> None:
    """Sort mem[start : start+n] in place: insertion for few, heapsort for many."""
    if n <= 24:
        for i in range(1, n):
            x = mem[start + i]
            j = i - 1
            while j >= 0 and mem[start + j] > x:
                mem[start + j + 1] = mem[start + j]
                j -= 1
            mem[start + j + 1] = x
        return
    end = n
    root = n // 2
    while end > 1:
        if root > 0:
            root -= 1
            x = mem[start + root]
        else:
            end -= 1
            x = mem[start + end]
            mem[start + end] = mem[start]
        at = root
        child = 2 * at + 1
        while child < end:
            if child + 1 < end and mem[start + child + 1] > mem[start + child]:
                child += 1
            if mem[start + child] <= x:
                break
            mem[start + at] = mem[start + child]
            at = child
            child = 2 * at + 1
        mem[start + at] = x


@inner_kernel(I(MEM, I, I))
def intern_sorted(mem: Int32, start: int, n: int) -> int:
    """Sort and de-duplicate frames at mem[start : start+n] (in the buffer), return the frame set."""
    sort_ints(mem, start, n)
    kept = 0
    for i in range(n):
        if i == 0 or mem[start + i] != mem[start + i - 1]:
            mem[start + kept] = mem[start + i]
            kept += 1
    result = intern_list(mem, L.L_FRAMESET, start, kept)
    return result if result < 0 else result >> 1


@inner_kernel(I(MEM, I, I))
def union(mem: Int32, f: int, g: int) -> int:
    """The union of two frame sets."""
    if f == g:
        return f
    sets = mem[L.AT_FRAMESET]
    pool = mem[L.AT_POOL]
    nf, ng = mem[sets + 2 * f + 1], mem[sets + 2 * g + 1]
    at = buffer_room(mem, nf + ng)
    if at < 0:
        return at
    i = pool + mem[sets + 2 * f]
    j = pool + mem[sets + 2 * g]
    end_i = i + nf
    end_j = j + ng
    n = 0
    while i < end_i or j < end_j:
        if j >= end_j or (i < end_i and mem[i] <= mem[j]):
            x = mem[i]
            i += 1
            if j < end_j and mem[j] == x:
                j += 1
        else:
            x = mem[j]
            j += 1
        mem[at + n] = x
        n += 1
    result = intern_list(mem, L.L_FRAMESET, at, n)
    return result if result < 0 else result >> 1


@inner_kernel(I(MEM, I, I))
def merge(mem: Int32, f: int, g: int) -> int:
    """`union` in a closure. Unions of large sets are remembered, because a closure brings the same two sets to many
    nodes."""
    sets = mem[L.AT_FRAMESET]
    size = mem[sets + 2 * f + 1] + mem[sets + 2 * g + 1]
    if size <= _LARGE or f == g:
        return union(mem, f, g)
    result = triple_get(mem, L.T_UNION, f, g, 0)
    if result >= 0:
        return result
    mem[L.H_FUEL] -= size >> 3
    if mem[L.H_FUEL] < 0:
        return L.OUT_OF_FUEL
    result = union(mem, f, g)
    return result if result < 0 else triple_put(mem, L.T_UNION, f, g, 0, result)
