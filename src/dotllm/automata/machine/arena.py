"""Making, growing and starting a machine's arena (see `layout`)."""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.intern import MEM, I, buffer_room, frame, intern_list, rehash_lists, singleton, triple_put
from dotllm.automata.machine.layout import (
    FULL,
    H_BUFFER,
    H_START,
    L_FRAMESET,
    L_STATE,
    L_SYMBOL,
    REGIONS,
    ROOT,
    STACK,
    STATE,
    TRIPLES,
    WIDTH,
    R,
)  # fmt: skip
from dotllm.automata.machine.run import apply, configuration
from dotllm.automata.machine.step import add_closure, begin, settle
from dotllm.automata.nfa import Nfa
from dotllm.errors import BudgetExceeded, Unsupported
from dotllm.jit import kernel

DEFAULT_LIMIT = 64 << 20  # ints: 256 MiB per machine
FUEL = 1 << 25  # closure steps per call of a kernel: about a second

# what a small grammar needs, in units of each region; grown when full
_INITIAL = {
    at.POOL: 4096, at.STATE: 256, at.FRAMESET: 256, at.SYMBOL: 128, at.FRAME: 256, at.LISTS: 2048, at.TRIPLES: 2048,
    at.STACK: 128, at.CONFIG: 256, at.MEMO: 128, at.BUFFER: 2048, at.LOCAL: 1024,
}  # fmt: skip
_GROW_FAST = 1 << 18  # ints: below this a region grows fourfold


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
    per_depth = (at.H_WALK_STATE, at.H_WALK_ENV, at.H_WALK_TOP)
    capacity = [_INITIAL.get(region, 0) for region in range(REGIONS)]
    capacity[at.DELTA] = capacity[at.STATE] * classes
    capacity[at.BUFFER] += 16 * n
    capacity[at.LOCAL] += 8 * reach
    size = at.HEADER + sum(len(part) for _, part in constant) + len(per_node) * n + len(per_depth) * (reach + 2)
    size += sum(count * width for count, width in zip(capacity, WIDTH, strict=True))
    mem = np.zeros(size, np.int32)
    position = at.HEADER
    for slot, part in constant:
        mem[slot] = position
        mem[position : position + len(part)] = part
        position += len(part)
    for slots, length in ((per_node, n), (per_depth, reach + 2)):
        for slot in slots:
            mem[slot] = position
            position += length
    for region in range(REGIONS):
        mem[R + 3 * region] = position
        mem[R + 3 * region + 1] = capacity[region]
        position += capacity[region] * WIDTH[region]
    mem[at.H_MAGIC], mem[at.H_SIZE], mem[at.H_NODES], mem[at.H_CLASSES] = at.MAGIC, size, n, classes
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
    return _initialised(allocate(slots, mem[at.HEADER : int(mem[R])], capacity))


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


@kernel(nb.void(MEM, nb.int32[:, ::1]))
def rehash(mem: Int32, triples: Int32) -> None:
    """Fill both hash tables (zeroed) again. triples [n, 5]: (kind + 1, a, b, c, value), kind + 1 = 0 where there is
    none."""
    mem[R + 3 * TRIPLES + 2] = 0
    for i in range(triples.shape[0]):
        if triples[i, 0] != 0:
            triple_put(mem, triples[i, 0] - 1, triples[i, 1], triples[i, 2], triples[i, 3], triples[i, 4])
    rehash_lists(mem)


def allocate(slots: Int32, constant: Int32, capacity: list[int]) -> Int32:
    """An arena with the given header, NFA part and capacities; its regions are zero, their used counts as in
    ``slots``."""
    first = at.HEADER + len(constant)
    size = first + sum(count * width for count, width in zip(capacity, WIDTH, strict=True))
    new = np.zeros(size, np.int32)
    new[: at.HEADER] = slots
    new[at.HEADER : first] = constant
    position = first
    for r in range(REGIONS):
        new[R + 3 * r], new[R + 3 * r + 1] = position, capacity[r]
        position += capacity[r] * WIDTH[r]
    new[at.H_SIZE] = size
    return new


def grow(mem: Int32, region: int) -> Int32:
    """A larger copy of the arena with more room in ``region``. Raises BudgetExceeded at the arena's limit."""
    capacity = [int(mem[R + 3 * r + 1]) for r in range(REGIONS)]
    small = capacity[region] * WIDTH[region] < _GROW_FAST
    capacity[region] *= 4 if small else 2
    if region == STATE:
        capacity[at.DELTA] = max(capacity[at.DELTA], capacity[STATE] * int(mem[at.H_CLASSES]))
    first = int(mem[R])  # regions follow each other from here
    if first + sum(c * w for c, w in zip(capacity, WIDTH, strict=True)) > int(mem[at.H_LIMIT]):
        raise BudgetExceeded(f"the automaton needs more than {int(mem[at.H_LIMIT]) * 4 >> 20} MiB", keyword="memory")
    new = allocate(mem[: at.HEADER], mem[at.HEADER : first], capacity)
    tables = region in (at.LISTS, TRIPLES)
    for r in range(REGIONS):
        if tables and r in (at.LISTS, TRIPLES):
            continue
        offset, length = int(mem[R + 3 * r]), int(mem[R + 3 * r + 1]) * WIDTH[r]
        start = int(new[R + 3 * r])
        new[start : start + length] = mem[offset : offset + length]
    if tables:
        start, slots = int(mem[R + 3 * TRIPLES]), int(mem[R + 3 * TRIPLES + 1])
        rehash(new, mem[start : start + 5 * slots].reshape(slots, 5))
    return new


def recover(mem: Int32, code: int) -> Int32:
    """What to do about an error code of a kernel: the grown arena to call it again with, or a named error."""
    if code <= FULL:
        return grow(mem, FULL - code)
    if code == at.OUT_OF_FUEL:
        raise BudgetExceeded("one step of the automaton needs too much work", keyword="steps")
    raise Unsupported(f"internal fault {code} of the automaton; please report the specification", keyword="fault")
