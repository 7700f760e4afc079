"""Making and starting a machine's arena (see `layout`; `memory` grows it)."""

from __future__ import annotations

import numpy as np

from dotllm.arrays import Int32
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
    R,
)  # fmt: skip
from dotllm.automata.machine.memory import allocate, constant_part, recover
from dotllm.automata.machine.run import apply, configuration
from dotllm.automata.machine.settle import settle
from dotllm.automata.nfa import Nfa
from dotllm.jit import kernel

DEFAULT_LIMIT = 64 << 20  # ints: 256 MiB per machine
FUEL = 1 << 25  # closure steps per call of a kernel: about a second

# what a small grammar needs, in units of each region; grown when full
_INITIAL = {
    at.POOL: 4096, at.STATE: 256, at.FRAMESET: 256, at.SYMBOL: 128, at.FRAME: 256, at.LISTS: 2048, at.TRIPLES: 2048,
    at.STACK: 128, at.CONFIG: 256, at.MEMO: 128, at.BUFFER: 2048, at.LOCAL: 1024,
}  # fmt: skip


def build(nfa: Nfa, charset_numbers: Int32, reach: int, limit: int = DEFAULT_LIMIT) -> Int32:
    """The arena of ``nfa``, ready in its initial configuration.

    charset_numbers: for every charset of the NFA the number of its table in the token space, or -1. reach: the longest
    token in bytes.
    """
    n, classes = len(nfa.kind), len(nfa.class_byte)
    numbers = np.append(charset_numbers, np.int32(-1))  # index -1 (no charset) → -1
    constant = (
        (at.H_KIND, nfa.kind), (at.H_A, nfa.a), (at.H_B, nfa.b), (at.H_RANK, nfa.rank),
        (at.H_CHARSET, numbers[nfa.charset]), (at.H_EDGE_START, nfa.edge_start), (at.H_EDGE_BYTES, nfa.edge_bytes),
        (at.H_EDGE_TARGET, nfa.edge_target), (at.H_CLOSURE_START, nfa.closure_start), (at.H_CLOSURE, nfa.closure),
        (at.H_LOOP_BODY, nfa.loop_body), (at.H_LOOP_AFTER, nfa.loop_after), (at.H_LOOP_MIN, nfa.loop_min),
        (at.H_LOOP_MAX, nfa.loop_max), (at.H_CLASS_OF, nfa.class_of), (at.H_CLASS_BYTE, nfa.class_byte),
    )  # fmt: skip
    per_node = (at.H_SEEN, at.H_ACC, at.H_TOUCH_LIST, at.H_WORK_LIST, at.H_QUEUED, at.H_HEAP)
    per_depth = (at.H_WALK_STATE, at.H_WALK_ENV)
    capacity = [_INITIAL.get(region, 0) for region in range(REGIONS)]
    capacity[at.DELTA] = capacity[at.STATE] * classes
    capacity[at.BUFFER] += 16 * n
    fixed = sum(len(part) for _, part in constant) + len(per_node) * n + len(per_depth) * (reach + 2)
    mem = allocate(np.zeros(at.HEADER, np.int32), np.zeros(fixed, np.int32), capacity)
    position = at.HEADER
    for slot, part in constant:
        mem[slot] = position
        mem[position : position + len(part)] = part
        position += len(part)
    for slots, length in ((per_node, n), (per_depth, reach + 2)):
        for slot in slots:
            mem[slot] = position
            position += length
    mem[at.H_MAGIC], mem[at.H_NODES], mem[at.H_CLASSES] = at.MAGIC, n, classes
    mem[H_START], mem[at.H_REACH], mem[at.H_DEPTH] = nfa.start, reach, reach + 2
    mem[at.H_LIMIT] = min(limit, 2**31 - 1)
    return _initialised(mem)


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
    capacity = [_INITIAL.get(region, 0) for region in range(REGIONS)]
    capacity[at.DELTA] = capacity[at.STATE] * int(mem[at.H_CLASSES])
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
