"""Makes, starts and grows the arena of a machine (see `layout`)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from operator import mul
from types import MappingProxyType

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64
from dotllm.automata.kinds import HEAD, Nfa, NfaArray
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import add_closure, begin, close
from dotllm.automata.machine.intern import (
    buffer_room,
    frame,
    intern_list,
    intern_sorted,
    rehash_lists,
    singleton,
    triple_put,
)
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.run import configuration, push_cell, resolve_stack
from dotllm.automata.machine.states import intern_state, intern_symbol
from dotllm.errors import BudgetExceededError, EngineFault
from dotllm.jit import I1, I, inner_kernel, kernel
from dotllm.system import reserved

# The arena as memory: allocated with its regions one after another, and grown region by region.
#
# A region that is full moves to the free end of the array, twice as large; the space that it leaves is lost until the
# next copy. The whole arena is copied only when the end is reached, into an array with as much free space as the arena
# then takes. So all growth together costs about one copy, whichever part is large (the constant part of a schema with
# counted patterns can be 90 MB). Free space has not been written: in a small arena it holds anything, in a large one it
# is memory that the operating system has not committed yet.

_LEAST = 64  # units: the first capacity of an empty region
_GROW_FAST = 1 << 18  # ints: below this a region grows fourfold
_LARGE = 2 << 20  # ints, with the free space: such an arena is `reserved`, so its free space is zero
_FREE = 1 << 17  # ints: the free space of a new arena, enough for the first growth
_SCRATCH = (L.BUFFER, L.LOCAL)
_WHOLE = (L.LISTS, L.TRIPLES, L.BUFFER, L.LOCAL)  # regions whose used entries are not the first ones


def too_long() -> BudgetExceededError:
    """The refusal of a limit on tokens."""
    message = "the shortest text is too long for a token limit to be guaranteed"
    return BudgetExceededError(message, keyword="length", help="omit the limit (on a server: dotllm_finish)")


class ArenaFull(BudgetExceededError):
    """An arena has reached its limit. Its guides continue in another one (`carry`)."""


class Unfinished(BudgetExceededError):
    """A hurried step has used up its share of work. Repeated without hurry, it continues from what it has found."""


def too_large(limit: int) -> ArenaFull:
    """The refusal of an arena with more than ``limit`` ints."""
    return ArenaFull(
        f"the automaton needs more than {limit * 4 >> 20} MiB",
        keyword="memory",
        help="lower repetition counts and length limits, list fewer values or properties, or omit the token limit",
    )


@kernel(nb.void(MEM, nb.int32[:, ::1]))
def fill_triples(mem: Int32, triples: Int32) -> None:
    """Fill the zeroed hash table again. triples [n, 5]: (kind + 1, a, b, c, value); kind + 1 = 0: no entry."""
    mem[L.USED_TRIPLES] = 0
    for i in range(triples.shape[0]):
        if triples[i, 0] != 0:
            triple_put(mem, triples[i, 0] - 1, triples[i, 1], triples[i, 2], triples[i, 3], triples[i, 4])


def used(mem: Int32) -> int:
    """Ints in use, including the space that moved regions have left."""
    return int(mem[L.H_END])


def result_ints(mem: Int32) -> int:
    """Ints of the regions that hold results: all except scratch."""
    capacity = mem[L.R + 1 : L.R + 3 * L.REGIONS : 3].tolist()
    return sum(map(mul, capacity, L.WIDTH)) - sum(capacity[r] * L.WIDTH[r] for r in _SCRATCH)


def contents(mem: Int32, region: int) -> Int32:
    """A view of the part of a region that is in use (of a table: all of it)."""
    start, capacity, count = (int(x) for x in mem[L.R + 3 * region : L.R + 3 * region + 3])
    if region in _WHOLE:
        count = capacity
    elif region == L.DELTA:
        count = int(mem[L.USED_STATE]) * int(mem[L.H_CLASSES])
    return mem[start : start + count * L.WIDTH[region]]


def cleared(size: int, free: int) -> Int32:
    """Memory for an arena of ``size`` ints, all zero, followed by at least ``free`` ints."""
    large = size + max(free, size)
    if large >= _LARGE:
        return reserved(large, np.int32)
    mem = np.empty(size + free, np.int32)
    mem[:size] = 0
    return mem


def allocate_arena(slots: Int32, constant: Int32, capacity: list[int], free: int = 0) -> Int32:
    """An arena with the given header, NFA part and capacities; its regions are zero, their used counts as in ``slots``.

    ``free``: ints of free space after them.
    """
    first = L.HEADER + len(constant)
    *positions, size = accumulate(map(mul, capacity, L.WIDTH), initial=first)
    mem = cleared(size, free)
    mem[: L.HEADER] = slots
    mem[L.HEADER : first] = constant
    regions = mem[L.R : L.R + 3 * L.REGIONS].reshape(L.REGIONS, 3)
    regions[:, 0], regions[:, 1] = positions, capacity
    mem[L.H_FIRST], mem[L.H_END] = first, size
    return mem


def constant_part(mem: Int32) -> Int32:
    """A view of the NFA's arrays."""
    return mem[L.HEADER : mem[L.H_FIRST]]


def grow(mem: Int32, region: int) -> Int32:
    """Make ``region`` larger, in the arena or in a copy of it, and return that arena.

    Raises:
        BudgetExceededError: the arena would be larger than its limit.
    """
    capacity = {region: max(_LEAST, int(mem[L.R + 3 * region + 1]))}
    capacity[region] *= 4 if capacity[region] * L.WIDTH[region] < _GROW_FAST else 2
    if region == L.STATE:
        capacity[L.DELTA] = max(int(mem[L.CAP_DELTA]), capacity[L.STATE] * int(mem[L.H_CLASSES]))
    needed = sum(count * L.WIDTH[r] for r, count in capacity.items())
    limit = int(mem[L.H_LIMIT])
    if used(mem) + needed > min(len(mem), limit):
        if _copied_size(mem) + needed > limit:
            return _with_larger(mem, capacity)
        mem = _copy(mem, needed + _copied_size(mem))
    for r, count in capacity.items():
        _move(mem, r, count)
    return mem


def _copied_size(mem: Int32) -> int:
    """Ints of the arena without the space that moved regions have left."""
    return int(mem[L.H_FIRST]) + sum(int(mem[L.R + 3 * r + 1]) * L.WIDTH[r] for r in range(L.REGIONS))


def _copy(mem: Int32, free: int, grown: Mapping[int, int] = MappingProxyType({})) -> Int32:
    """A copy of the arena without the space that moved regions have left, followed by ``free`` ints. ``grown``: larger
    capacities, by region."""
    capacity = [grown.get(r, int(mem[L.R + 3 * r + 1])) for r in range(L.REGIONS)]
    new = allocate_arena(mem[: L.HEADER], constant_part(mem), capacity, free)
    for r in sorted(range(L.REGIONS), key=grown.__contains__):  # (tables are filled from the others)
        part, start = contents(mem, r), int(new[L.R + 3 * r])
        if r in grown:
            _fill(new, r, part)
        else:
            new[start : start + len(part)] = part
    return new


def _with_larger(mem: Int32, grown: Mapping[int, int]) -> Int32:
    """`_copy` without free space: at its limit, an arena has no room for both a region and its smaller predecessor.

    Raises:
        BudgetExceededError: it would be larger than its limit.
    """  # noqa: DOC501 - a function makes the error
    added = sum((count - int(mem[L.R + 3 * r + 1])) * L.WIDTH[r] for r, count in grown.items())
    limit = int(mem[L.H_LIMIT])
    if _copied_size(mem) + added > limit:
        raise too_large(limit)
    return _copy(mem, 0, grown)


def _move(mem: Int32, region: int, capacity: int) -> None:
    """Move a region to the end of the space in use."""
    part = contents(mem, region)
    start = int(mem[L.H_END])
    end = start + capacity * L.WIDTH[region]
    mem[L.R + 3 * region], mem[L.R + 3 * region + 1], mem[L.H_END] = start, capacity, end
    if region != L.DELTA and len(mem) < _LARGE:  # (a new state fills its row of DELTA)
        mem[start:end] = 0
    _fill(mem, region, part)


def _fill(mem: Int32, region: int, part: Int32) -> None:
    """Put contents into a larger region. Tables are filled again, because the size determines where an entry is."""
    start = int(mem[L.R + 3 * region])
    if region == L.LISTS:
        rehash_lists(mem)
    elif region == L.TRIPLES:
        fill_triples(mem, part.reshape(-1, L.WIDTH[L.TRIPLES]))
    else:
        mem[start : start + len(part)] = part


def recover(mem: Int32, code: int, *, hurried: bool = False) -> Int32:
    """React to an error code of a kernel: return the grown arena with which to call it again, or raise.

    Raises:
        BudgetExceededError: the arena is at its limit, or the fuel is gone.
        Unfinished: in a ``hurried`` step, the fuel is gone, or the arena is too large to grow quickly.
        EngineFault: any other code.
    """  # noqa: DOC501 - a function makes the error
    if hurried and (code == L.OUT_OF_FUEL or (code <= L.FULL and used(mem) > _QUICKLY_COPIED)):
        raise Unfinished("the step is not finished")
    if code <= L.FULL:
        return grow(mem, L.FULL - code)
    if code == L.TOO_FAR:
        raise too_long()
    if code == L.OUT_OF_FUEL:
        message = "one step of the automaton needs too much work"
        raise BudgetExceededError(message, keyword="steps", help="use fewer alternatives that begin the same way")
    raise EngineFault(f"internal fault {code} of the automaton; please report the specification")


DEFAULT_LIMIT = 64 << 20  # ints: 256 MiB per machine
_MOST = 2**31 - 1  # ints: indices are int32
FUEL = 1 << 25  # maximum closure steps in a call of a kernel: about a second
HURRIED_FUEL = 1 << 12  # the same in a hurried call: about a millisecond
_QUICKLY_COPIED = 1 << 20  # ints: a larger arena does not grow in a hurried step

# enough for a small grammar, in units of each region; grown when full
_FIRST_CAPACITY = {
    L.POOL: 4096, L.STATE: 256, L.FRAMESET: 256, L.SYMBOL: 128, L.FRAME: 256, L.LISTS: 2048, L.TRIPLES: 1024,
    L.STACK: 128, L.CONFIG: 256, L.MEMO: 128, L.BUFFER: 2048, L.LOCAL: 512, L.PLACES: 256, L.TAILS: 384,
}  # fmt: skip
_INITIAL = tuple(_FIRST_CAPACITY.get(region, 0) for region in range(L.REGIONS))
_SCRATCH_SHARE = 16  # a scratch region of a new arena takes at most 1 / this of the limit
_PER_NODE, _PER_DEPTH = 11, 2  # arrays after the NFA's: see H_SEEN, H_WAY_COST and H_WALK_STATE


def build(nfa: Nfa, charset_numbers: Int32, max_token_bytes: int, limit: int = DEFAULT_LIMIT) -> Int32:
    """The arena of ``nfa``, ready in its initial configuration.

    charset_numbers: for every charset of the NFA the number of its table in the token space, or -1. max_token_bytes:
    the bytes of the longest token.
    """
    parts = nfa.block[:HEAD].tolist()
    n, classes = parts[NfaArray.A] - parts[NfaArray.KIND], parts[NfaArray.CLASS_BYTE + 1] - parts[NfaArray.CLASS_BYTE]
    capacity = _capacities(classes)
    capacity[L.BUFFER] += n
    return _initialised(laid_out(nfa.block, charset_numbers, capacity, max_token_bytes, limit, _FREE))


def laid_out(
    block: Int32,
    charset_numbers: Int32,
    capacity: list[int],
    max_token_bytes: int,
    limit: int = DEFAULT_LIMIT,
    free: int = 0,
) -> Int32:
    """An arena with the automaton of ``block`` (see `Nfa`) and empty regions of these capacities, followed by at least
    ``free`` ints.

    Raises:
        BudgetExceededError: the arena would have more ints than an arena can.
    """  # noqa: DOC501 - a function makes the error
    n = int(block[NfaArray.A] - block[NfaArray.KIND])
    scratch = _PER_NODE * n + (_PER_DEPTH + L.WAITING) * (max_token_bytes + 2)
    size = L.HEADER + len(block) - HEAD + scratch + sum(map(mul, capacity, L.WIDTH))
    if size > _MOST:
        raise too_large(_MOST)
    mem = cleared(size, free)
    lay_out(mem, block, HEAD, charset_numbers, np.array(capacity, np.int64), max_token_bytes, min(limit, _MOST))
    return mem


@kernel(nb.void(MEM, nb.int32[::1], nb.int64, nb.int32[::1], nb.int64[::1], nb.int64, nb.int64))
def lay_out(
    mem: Int32, block: Int32, head: int, charset_numbers: Int32, capacity: Int64, max_token_bytes: int, limit: int
) -> None:
    """Fill the header and the NFA part of ``mem``, which has the right size and is all zero. The NFA part is that of
    ``block`` (see `Nfa`), with the numbers of the tables of charsets in place of the numbers of charsets."""
    for i in range(head, block.shape[0]):
        mem[L.HEADER + i - head] = block[i]
    parts = L.H_CLASS_BYTE + 1 - L.H_KIND
    for i in range(parts):  # the slots of the parts are consecutive and in the same order
        mem[L.H_KIND + i] = L.HEADER + block[i] - head
    n, position = block[1] - block[0], L.HEADER + block[parts] - head
    for i in range(_PER_NODE + _PER_DEPTH):
        mem[L.H_SEEN + i] = position
        position += n if i < _PER_NODE else max_token_bytes + 2
    position += L.WAITING * (max_token_bytes + 2)
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
    """A new arena of the same automaton, without results."""
    slots = mem[: L.HEADER].copy()
    capacity = _capacities(int(mem[L.H_CLASSES]))
    for scratch in (L.BUFFER, L.LOCAL):  # as much as before, but most of the limit is for states and transitions
        size = int(mem[L.R + 3 * scratch + 1])
        while size > capacity[scratch] and size * L.WIDTH[scratch] * _SCRATCH_SHARE > int(mem[L.H_LIMIT]):
            size //= 2
        capacity[scratch] = size
    for region in range(L.REGIONS):
        slots[L.R + 3 * region + 2] = 0
    return _initialised(allocate_arena(slots, constant_part(mem), capacity))


@kernel(I(MEM))
def initialise(mem: Int32) -> int:
    """Make the fixed entries (number 0 of every region) and the initial configuration. Returns its number, or an
    error."""
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


# Kernel: recreates a configuration in another arena of the same automaton.
#
# Numbers are valid only in their own arena, so the parts of a configuration are recreated: the frame sets that its
# state and its stack stand on, from the bottom up, then the symbols, the cells, the state. Everything else that the
# old arena has found (transitions, masks, memos) stays there, and is found again when it is needed.


@inner_kernel(I(MEM, I, I, I1))
def need(old: Int32, fs: int, n: int, needed: Int32) -> int:
    """Put ``fs`` and the frame sets under it on the list needed[1 : n], unless they are on it already; the second half
    of ``needed`` marks those that are. Returns the new n."""
    sets, pool, frames, marks = old[L.AT_FRAMESET], old[L.AT_POOL], old[L.AT_FRAME], old[L.USED_FRAMESET]
    i = n
    if fs != 0 and needed[marks + fs] == 0:
        needed[marks + fs] = 1
        needed[n] = fs
        n += 1
    while i < n:
        frame_set = needed[i]
        i += 1
        for j in range(old[sets + 2 * frame_set + 1]):
            at = frames + 3 * old[pool + old[sets + 2 * frame_set] + j]
            label, parent = old[at], old[at + 2]
            if (label >= 0 or label <= L.LOOP) and parent != 0 and needed[marks + parent] == 0:
                needed[marks + parent] = 1
                needed[n] = parent
                n += 1
    return n


@inner_kernel(I(MEM, MEM, I, I))
def carry_count(old: Int32, new: Int32, label: int, count: int) -> int:
    """The ``count`` of a frame in ``new``: for an unordered sequence the set of used parts (see `closure.part_set`),
    otherwise the same number. Or an error."""
    if label > L.LOOP or count <= 0 or old[old[L.H_LOOP_MAX] + L.LOOP - label] >= -1:
        return count
    entry = old[L.AT_FRAMESET] + 2 * count
    n = old[entry + 1]
    at = buffer_room(new, n)
    if at < 0:
        return at
    for i in range(n):
        new[at + i] = old[old[L.AT_POOL] + old[entry] + i]
    made = intern_list(new, L.L_FRAMESET, at, n)
    return made if made < 0 else made >> 1


@inner_kernel(I(MEM, MEM, I1))
def carry_frame_sets(old: Int32, new: Int32, needed: Int32) -> int:
    """Make the frame sets that are marked in the second half of ``needed``, and replace each mark by 1 + the new
    number. 0, or an error. (They are made in the order of their numbers, so a frame set comes after those that its
    frames stand on.)"""
    sets, pool, frames, marks = old[L.AT_FRAMESET], old[L.AT_POOL], old[L.AT_FRAME], old[L.USED_FRAMESET]
    needed[marks] = 1
    for fs in range(1, marks):
        if needed[marks + fs] == 0:
            continue
        n = old[sets + 2 * fs + 1]
        new[L.H_BUFFER] = 0
        start = buffer_room(new, n)
        if start < 0:
            return start
        new[L.H_BUFFER] = n
        for i in range(n):
            at = frames + 3 * old[pool + old[sets + 2 * fs] + i]
            parent = I(old[at + 2])
            if parent != 0:
                parent = I(needed[marks + parent]) - 1
            count = carry_count(old, new, old[at], old[at + 1])
            if count <= L.FULL:
                return count
            number = frame(new, old[at], count, parent)
            if number < 0:
                return number
            new[start + i] = number
        made = intern_sorted(new, start, n)
        if made < 0:
            return made
        needed[marks + fs] = nb.int32(1 + made)
    return 0


@kernel(I(MEM, I, MEM))
def carry(old: Int32, config: int, new: Int32) -> int:
    """The configuration of ``new`` that equals ``config`` of ``old``, or an error of ``new``."""
    if config == L.FINISHED:
        return L.FINISHED
    pool, marks = old[L.AT_POOL], old[L.USED_FRAMESET]
    entry = old[L.AT_STATE] + L.S_WIDTH * old[old[L.AT_CONFIG] + 3 * config]
    items, length = pool + old[entry + L.S_OFFSET], old[entry + L.S_LENGTH]
    top = I(old[old[L.AT_CONFIG] + 3 * config + 1])
    depth = old[old[L.AT_STACK] + 3 * top + 2]
    needed = allocate.zero_ints(2 * I(marks))
    n = I(1)
    for i in range(1, length, 2):
        n = need(old, old[items + i], n, needed)
    cells = allocate.ints(depth)
    stack = top
    for level in range(depth - 1, -1, -1):
        cells[level] = nb.int32(stack)
        symbol = old[L.AT_SYMBOL] + 3 * old[old[L.AT_STACK] + 3 * stack]
        for i in range(old[symbol + 1]):
            n = need(old, old[pool + old[symbol] + i], n, needed)
        stack = I(old[old[L.AT_STACK] + 3 * stack + 1])
    done = carry_frame_sets(old, new, needed)
    if done < 0:
        return done
    new[L.H_BUFFER] = 0
    below = I(0)
    for level in range(depth):
        symbol = old[L.AT_SYMBOL] + 3 * old[old[L.AT_STACK] + 3 * cells[level]]
        size = old[symbol + 1]
        at = buffer_room(new, size)
        if at < 0:
            return at
        for i in range(size):
            new[at + i] = needed[marks + old[pool + old[symbol] + i]] - 1
        made = intern_symbol(new, at, size)
        if made < 0:
            return made
        below = push_cell(new, made, below)
        if below < 0:
            return below
    at = buffer_room(new, length)
    if at < 0:
        return at
    for i in range(0, length, 2):
        new[at + i], new[at + i + 1] = old[items + i], needed[marks + old[items + i + 1]] - 1
    state = intern_state(new, at, length // 2)
    return state if state < 0 else configuration(new, state, below)
