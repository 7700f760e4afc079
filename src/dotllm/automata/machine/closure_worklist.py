"""Kernels: the closure in progress.

Items by node, each with one frame set; pushes wait in a heap, returns in a list.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import N_CALL, N_END, N_ENTER, N_RETURN
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import merge
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(nb.void(MEM))
def begin(mem: Int32) -> None:
    """Start a closure: forget every node touched by the one before."""
    mem[L.H_STAMP] += 1
    mem[L.H_TOUCHED] = 0
    mem[L.H_WORK] = 0
    mem[L.H_PENDING] = 0
    mem[L.H_BUFFER] = 0


@inner_kernel(nb.void(MEM, I))
def heap_push(mem: Int32, node: int) -> None:
    """Queue a push, ordered by rank."""
    heap, rank = mem[L.H_HEAP], mem[L.H_RANK]
    at = mem[L.H_PENDING]
    mem[L.H_PENDING] += 1
    while at > 0:
        up = (at - 1) >> 1
        if mem[rank + mem[heap + up]] <= mem[rank + node]:
            break
        mem[heap + at] = mem[heap + up]
        at = up
    mem[heap + at] = node


@inner_kernel(I(MEM))
def heap_pop(mem: Int32) -> int:
    """The queued push of lowest rank."""
    heap, rank = mem[L.H_HEAP], mem[L.H_RANK]
    first = mem[heap]
    mem[L.H_PENDING] -= 1
    n = mem[L.H_PENDING]
    x = mem[heap + n]
    at = 0
    child = 1
    while child < n:
        if child + 1 < n and mem[rank + mem[heap + child + 1]] < mem[rank + mem[heap + child]]:
            child += 1
        if mem[rank + mem[heap + child]] >= mem[rank + x]:
            break
        mem[heap + at] = mem[heap + child]
        at = child
        child = 2 * at + 1
    mem[heap + at] = x
    return I(first)


@inner_kernel(I(MEM, I, I))
def touch(mem: Int32, node: int, frames: int) -> int:
    """Add the item (node, frames) to the closure, merging. Returns 0, or an error."""
    seen, acc = mem[L.H_SEEN] + node, mem[L.H_ACC] + node
    kind = mem[mem[L.H_KIND] + node]
    if mem[seen] != mem[L.H_STAMP]:
        mem[seen] = mem[L.H_STAMP]
        mem[acc] = frames
        mem[mem[L.H_TOUCH_LIST] + mem[L.H_TOUCHED]] = node
        mem[L.H_TOUCHED] += 1
        mem[mem[L.H_QUEUED] + node] = 0
        if kind == N_CALL or kind == N_ENTER:
            heap_push(mem, node)
    else:
        merged = merge(mem, mem[acc], frames)
        if merged < 0:
            return merged
        if merged == mem[acc]:
            return 0
        mem[acc] = merged
    if (kind == N_RETURN or kind == N_END) and mem[mem[L.H_QUEUED] + node] == 0:
        mem[mem[L.H_QUEUED] + node] = 1
        mem[mem[L.H_WORK_LIST] + mem[L.H_WORK]] = node
        mem[L.H_WORK] += 1
    return 0


@inner_kernel(I(MEM, I, I, I))
def add_closure(mem: Int32, target: int, frames: int, pushing: int) -> int:
    """Add everything reached from ``target`` without consuming. ``pushing``: phase B, returns and loop ends are
    bypassed."""
    start = mem[mem[L.H_CLOSURE_START] + target]
    end = mem[mem[L.H_CLOSURE_START] + target + 1]
    closure, kind = mem[L.H_CLOSURE], mem[L.H_KIND]
    mem[L.H_FUEL] -= 1 + end - start
    if mem[L.H_FUEL] < 0:
        return L.OUT_OF_FUEL
    for i in range(start, end):
        node = mem[closure + i]
        if pushing != 0 and (mem[kind + node] == N_RETURN or mem[kind + node] == N_END):
            continue
        done = touch(mem, node, frames)
        if done < 0:
            return done
    return 0
