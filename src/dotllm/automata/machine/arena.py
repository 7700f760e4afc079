"""Making and starting a machine's arena (see `layout`; `memory` grows it)."""

from __future__ import annotations

from operator import mul

import numba as nb
import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.automata.kinds import HEAD, NfaArray
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import close
from dotllm.automata.machine.closure_worklist import add_closure, begin
from dotllm.automata.machine.intern import buffer_room, frame, intern_list, singleton
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.memory import allocate, cleared, constant_part, recover, too_large
from dotllm.automata.machine.run import configuration, resolve_stack
from dotllm.automata.nfa import Nfa
from dotllm.jit import I, kernel

DEFAULT_LIMIT = 64 << 20  # ints: 256 MiB per machine
_MOST = 2**31 - 1  # ints: places are int32
FUEL = 1 << 25  # closure steps per call of a kernel: about a second

# what a small grammar needs, in units of each region; grown when full
_FIRST_CAPACITY = {
    L.POOL: 4096, L.STATE: 256, L.FRAMESET: 256, L.SYMBOL: 128, L.FRAME: 256, L.LISTS: 2048, L.TRIPLES: 1024,
    L.STACK: 128, L.CONFIG: 256, L.MEMO: 128, L.BUFFER: 2048, L.LOCAL: 512, L.PLACES: 256, L.TAILS: 384,
}  # fmt: skip
_INITIAL = tuple(_FIRST_CAPACITY.get(region, 0) for region in range(L.REGIONS))
_PER_NODE, _PER_DEPTH = 11, 2  # arrays behind the NFA's: see H_SEEN, H_WAY_COST and H_WALK_STATE


def build(nfa: Nfa, charset_numbers: Int32, max_token_bytes: int, limit: int = DEFAULT_LIMIT) -> Int32:
    """The arena of ``nfa``, ready in its initial configuration.

    charset_numbers: for every charset of the NFA the number of its table in the token space, or -1. max_token_bytes:
    the bytes of the longest token.
    """
    parts = nfa.block[:HEAD].tolist()
    n, classes = parts[NfaArray.A] - parts[NfaArray.KIND], parts[NfaArray.CLASS_BYTE + 1] - parts[NfaArray.CLASS_BYTE]
    capacity = _capacities(classes)
    capacity[L.BUFFER] += n
    return _initialised(laid_out(nfa.block, charset_numbers, capacity, max_token_bytes, limit))


def laid_out(
    block: Int32, charset_numbers: Int32, capacity: list[int], max_token_bytes: int, limit: int = DEFAULT_LIMIT
) -> Int32:
    """An arena with the automaton of ``block`` (see `Nfa`) and empty regions of these capacities.

    Raises:
        BudgetExceededError: the arena would have more ints than an arena may.
    """  # noqa: DOC501 - a function makes the error
    n = int(block[NfaArray.A] - block[NfaArray.KIND])
    scratch = _PER_NODE * n + _PER_DEPTH * (max_token_bytes + 2)
    size = L.HEADER + len(block) - HEAD + scratch + sum(map(mul, capacity, L.WIDTH))
    if size > _MOST:
        raise too_large(_MOST)
    mem = cleared(size)
    lay_out(mem, block, HEAD, charset_numbers, np.array(capacity, np.int64), max_token_bytes, min(limit, _MOST))
    return mem


@kernel(nb.void(MEM, nb.int32[::1], nb.int64, nb.int32[::1], nb.int64[::1], nb.int64, nb.int64))
def lay_out(
    mem: Int32, block: Int32, head: int, charset_numbers: Int32, capacity: Int64, max_token_bytes: int, limit: int
) -> None:
    """Fill the header of an arena of the right size, all zero, and its NFA part: that of ``block`` (see `Nfa`), with
    the numbers of the charsets' tables instead of those of the charsets."""
    for i in range(head, block.shape[0]):
        mem[L.HEADER + i - head] = block[i]
    parts = L.H_CLASS_BYTE + 1 - L.H_KIND
    for i in range(parts):  # the slots of the parts stand together and in the same order
        mem[L.H_KIND + i] = L.HEADER + block[i] - head
    n, position = block[1] - block[0], L.HEADER + block[parts] - head
    for i in range(_PER_NODE + _PER_DEPTH):
        mem[L.H_SEEN + i] = position
        position += n if i < _PER_NODE else max_token_bytes + 2
    mem[L.H_FIRST] = position
    for region in range(L.REGIONS):
        mem[L.R + 3 * region], mem[L.R + 3 * region + 1] = position, capacity[region]
        position += capacity[region] * L.WIDTH[region]
    mem[L.H_MAGIC], mem[L.H_END], mem[L.H_LIMIT] = L.MAGIC, position, limit
    mem[L.H_NODES], mem[L.H_CLASSES], mem[L.H_START] = n, block[parts] - block[parts - 1], block[parts + 1]
    mem[L.H_MAX_TOKEN_BYTES], mem[L.H_DEPTH] = max_token_bytes, max_token_bytes + 2
    for node in range(mem[L.H_CHARSET], mem[L.H_CHARSET] + n):
        if mem[node] >= 0:
            mem[node] = charset_numbers[mem[node]]


def _capacities(classes: int) -> list[int]:
    capacity = list(_INITIAL)
    capacity[L.DELTA] = capacity[L.STATE] * classes
    return capacity


def _initialised(mem: Int32) -> Int32:
    while True:
        mem[L.H_FUEL] = FUEL
        code = initialise(mem)
        if code >= 0:
            return mem
        mem = recover(mem, code)


def restart(mem: Int32) -> Int32:
    """A new arena of the same automaton that has found nothing yet."""
    slots = mem[: L.HEADER].copy()
    capacity = _capacities(int(mem[L.H_CLASSES]))
    for scratch in (L.BUFFER, L.LOCAL):
        capacity[scratch] = int(mem[L.R + 3 * scratch + 1])
    for region in range(L.REGIONS):
        slots[L.R + 3 * region + 2] = 0
    return _initialised(allocate(slots, constant_part(mem), capacity))


@kernel(I(MEM))
def initialise(mem: Int32) -> int:
    """Make the fixed entries (number 0 of every region) and the initial configuration. 0, or an error."""
    if mem[L.USED_STACK] == 0:
        mem[L.H_BUFFER] = 0
        where = buffer_room(mem, 1)
        for kind in (L.L_STATE, L.L_FRAMESET, L.L_SYMBOL):
            done = intern_list(mem, kind, where, 0)
            if done < 0:
                return done
        mem[mem[L.AT_SYMBOL] + 2] = 1
        mem[L.USED_STACK] = 1
        for region in (L.CONFIG, L.FRAME, L.PLACES, L.TAILS):
            mem[L.R + 3 * region + 2] = 1  # config 0: finished; frame 0: unused; for the others see `plans`
        mem[mem[L.AT_CONFIG] + 2] = 0
        mem[mem[L.AT_FRAME]] = L.HOLE
        mem[mem[L.AT_FRAME] + 1] = -1
    begin(mem)
    bottom = singleton(mem, frame(mem, L.ROOT, 0, 0))
    if bottom < 0:
        return bottom
    done = add_closure(mem, mem[L.H_START], bottom, 0)
    if done < 0:
        return done
    raw = close(mem)
    if raw < 0:
        return raw
    state = resolve_stack(mem, raw, 0)
    if state < 0:
        return state
    return configuration(mem, state, mem[L.H_OUT])
