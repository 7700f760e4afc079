"""Making and starting a machine's arena (see `layout`; `memory` grows it)."""

from __future__ import annotations

from operator import mul

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.closing import add_closure, begin
from dotllm.automata.machine.intern import buffer_room, frame, intern_list, singleton
from dotllm.automata.machine.kinds import MEM, I
from dotllm.automata.machine.layout import (
    H_BUFFER,
    H_START,
    L_FRAMESET,
    L_STATE,
    L_SYMBOL,
    REGIONS,
    ROOT,
    STACK,
    WIDTH,
    R,
)  # fmt: skip
from dotllm.automata.machine.memory import allocate, cleared, constant_part, recover
from dotllm.automata.machine.run import apply, configuration
from dotllm.automata.machine.settle import settle
from dotllm.automata.nfa import HEAD, Nfa, Part
from dotllm.errors import BudgetExceeded
from dotllm.jit import kernel

DEFAULT_LIMIT = 64 << 20  # ints: 256 MiB per machine
_MOST = 2**31 - 1  # ints: places are int32
FUEL = 1 << 25  # closure steps per call of a kernel: about a second

# what a small grammar needs, in units of each region; grown when full
_FIRST_CAPACITY = {
    at.POOL: 4096, at.STATE: 256, at.FRAMESET: 256, at.SYMBOL: 128, at.FRAME: 256, at.LISTS: 2048, at.TRIPLES: 1024,
    at.STACK: 128, at.CONFIG: 256, at.MEMO: 128, at.BUFFER: 2048, at.LOCAL: 512,
}  # fmt: skip
_INITIAL = tuple(_FIRST_CAPACITY.get(region, 0) for region in range(REGIONS))
_PER_NODE, _PER_DEPTH = 6, 2  # arrays of scratch behind the NFA's: see H_SEEN and H_WALK_STATE


def build(nfa: Nfa, charset_numbers: Int32, reach: int, limit: int = DEFAULT_LIMIT) -> Int32:
    """The arena of ``nfa``, ready in its initial configuration.

    charset_numbers: for every charset of the NFA the number of its table in the token space, or -1. reach: the longest
    token in bytes.
    """
    parts = nfa.block[:HEAD].tolist()
    n, classes = parts[Part.A] - parts[Part.KIND], parts[Part.CLASS_BYTE + 1] - parts[Part.CLASS_BYTE]
    capacity = _capacities(classes)
    capacity[at.BUFFER] += n
    return _initialised(laid_out(nfa.block, charset_numbers, capacity, reach, limit))


def laid_out(
    block: Int32, charset_numbers: Int32, capacity: list[int], reach: int, limit: int = DEFAULT_LIMIT
) -> Int32:
    """An arena with the automaton of ``block`` (see `Nfa`) and empty regions of these capacities."""
    n = int(block[Part.A] - block[Part.KIND])
    scratch = _PER_NODE * n + _PER_DEPTH * (reach + 2)
    size = at.HEADER + len(block) - HEAD + scratch + sum(map(mul, capacity, WIDTH))
    if size > _MOST:
        raise BudgetExceeded(f"the automaton needs more than {_MOST * 4 >> 20} MiB", keyword="memory")
    mem = cleared(size)
    lay_out(mem, block, HEAD, charset_numbers, np.array(capacity, np.int64), reach, min(limit, _MOST))
    return mem


@kernel(nb.void(MEM, nb.int32[::1], nb.int64, nb.int32[::1], nb.int64[::1], nb.int64, nb.int64))
def lay_out(
    mem: Int32, block: Int32, head: int, charset_numbers: Int32, capacity: Int64, reach: int, limit: int
) -> None:
    """Fill the header of an arena of the right size, all zero, and its NFA part: that of ``block`` (see `Nfa`), with
    the numbers of the charsets' tables instead of those of the charsets."""
    for i in range(head, block.shape[0]):
        mem[at.HEADER + i - head] = block[i]
    parts = at.H_CLASS_BYTE + 1 - at.H_KIND
    for i in range(parts):  # the slots of the parts stand together and in the same order
        mem[at.H_KIND + i] = at.HEADER + block[i] - head
    n, position = block[1] - block[0], at.HEADER + block[parts] - head
    for i in range(_PER_NODE + _PER_DEPTH):
        mem[at.H_SEEN + i] = position
        position += n if i < _PER_NODE else reach + 2
    mem[at.H_FIRST] = position
    for region in range(REGIONS):
        mem[R + 3 * region], mem[R + 3 * region + 1] = position, capacity[region]
        position += capacity[region] * WIDTH[region]
    mem[at.H_MAGIC], mem[at.H_END], mem[at.H_LIMIT] = at.MAGIC, position, limit
    mem[at.H_NODES], mem[at.H_CLASSES], mem[H_START] = n, block[parts] - block[parts - 1], block[parts + 1]
    mem[at.H_REACH], mem[at.H_DEPTH] = reach, reach + 2
    for node in range(mem[at.H_CHARSET], mem[at.H_CHARSET] + n):
        if mem[node] >= 0:
            mem[node] = charset_numbers[mem[node]]


def _capacities(classes: int) -> list[int]:
    capacity = list(_INITIAL)
    capacity[at.DELTA] = capacity[at.STATE] * classes
    return capacity


def _initialised(mem: Int32) -> Int32:
    while True:
        mem[at.H_FUEL] = FUEL
        code = initialise(mem)
        if code >= 0:
            return mem
        mem = recover(mem, code)


def restart(mem: Int32) -> Int32:
    """A new arena of the same automaton that has found nothing yet."""
    slots = mem[: at.HEADER].copy()
    capacity = _capacities(int(mem[at.H_CLASSES]))
    for scratch in (at.BUFFER, at.LOCAL):
        capacity[scratch] = int(mem[R + 3 * scratch + 1])
    for region in range(REGIONS):
        slots[R + 3 * region + 2] = 0
    return _initialised(allocate(slots, constant_part(mem), capacity))


@kernel(I(MEM))
def initialise(mem: Int32) -> int:
    """Make the fixed entries (number 0 of every region) and the initial configuration. 0, or an error."""
    if mem[R + 3 * STACK + 2] == 0:
        mem[H_BUFFER] = 0
        where = buffer_room(mem, 1)
        for kind in (L_STATE, L_FRAMESET, L_SYMBOL):
            done = intern_list(mem, kind, where, 0)
            if done < 0:
                return done
        mem[mem[R + 3 * at.SYMBOL] + 2] = 1
        mem[R + 3 * STACK + 2] = 1
        for region in (at.CONFIG, at.FRAME):
            mem[R + 3 * region + 2] = 1  # config 0: finished; frame 0: unused
        mem[mem[R + 3 * at.CONFIG] + 2] = 0
        mem[mem[R + 3 * at.FRAME]] = at.HOLE
        mem[mem[R + 3 * at.FRAME] + 1] = -1
    begin(mem)
    bottom = singleton(mem, frame(mem, ROOT, 0, 0))
    if bottom < 0:
        return bottom
    done = add_closure(mem, mem[H_START], bottom, 0)
    if done < 0:
        return done
    raw = settle(mem)
    if raw < 0:
        return raw
    state = apply(mem, raw, 0)
    if state < 0:
        return state
    return configuration(mem, state, mem[at.H_OUT])
