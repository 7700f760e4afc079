"""Kernels: walk the token trie together with the machine, on the walk's own stack, and inspect character sets.

The walk's stacks are made of cells (symbol, cell below) in the region LOCAL. A mask makes each cell once, so equal
stacks have equal handles, and facts about a handle hold wherever the walk returns to it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32
from dotllm.automata.kinds import N_BYTE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.frames import canonical
from dotllm.automata.machine.intern import mix
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans import TRIE, Trie, fits
from dotllm.automata.machine.run import reduce, step
from dotllm.jit import I1, I2, I, inner_kernel

_LONG_WALK = 4096  # nodes

CELL = 6  # ints: symbol, handle below, real stack, its depth + 1, first cell of a bucket, next cell in its own bucket


@inner_kernel(I(MEM, I), inlined=True)
def local_symbol(mem: Int32, handle: int) -> int:
    """The canonical symbol on top of a walk's stack; counts it if it belongs to the real stack."""
    at = mem[L.AT_LOCAL] + CELL * handle
    if mem[at + 3] > mem[L.H_CONSULTED]:
        mem[L.H_CONSULTED] = mem[at + 3]
    return I(mem[at])


@inner_kernel(I(MEM, I))
def alike(mem: Int32, symbol: int) -> int:
    """The canonical symbol of a real one; under a limit the symbol itself, because its counters are needed. Or an
    error."""
    return symbol if mem[L.H_LEFT] > 0 else canonical(mem, symbol)


@inner_kernel(I(MEM, I, I))
def base_cell(mem: Int32, depth: int, stack: int) -> int:
    """Make the walk's cell for the real stack cell ``stack``, ``depth`` symbols down. Returns its handle, or an error.
    The handles of the first cells are their depths; deeper cells lie among the walk's own."""
    handle = I(depth)
    if depth >= L.BASE_CELLS:
        handle = I(mem[L.H_LOCAL])
        if handle >= mem[L.CAP_LOCAL]:
            return L.FULL - L.LOCAL
        mem[L.H_LOCAL] = handle + 1
    symbol = I(0)
    if stack != 0:
        symbol = alike(mem, mem[mem[L.AT_STACK] + 3 * stack])
        if symbol < 0:
            return symbol
    at = mem[L.AT_LOCAL] + CELL * handle
    mem[at], mem[at + 1], mem[at + 2], mem[at + 3], mem[at + 5] = symbol, -1, stack, depth + 1, -1
    return handle


@inner_kernel(I(MEM, I, I), inlined=True)
def bucket(mem: Int32, symbol: int, below: int) -> int:
    """The number of the hash bucket of the cell with ``symbol`` on top of ``below``."""
    return mix(mix(1, symbol), below) & I(mem[L.CAP_LOCAL] - 1)


@inner_kernel(I(MEM, I, I))
def push_local(mem: Int32, symbol: int, below: int) -> int:
    """The handle of the cell with ``symbol`` on top of ``below``, or an error.

    One stack may have tens of thousands of cells on it, so they are hashed, with as many buckets as there is room for
    cells. Nothing clears the buckets that other masks have filled: a bucket is empty unless it leads to a cell that
    leads back to it. (P. Briggs and L. Torczon, "An efficient representation for sparse sets", LOPLAS 2, 1993.)
    """
    cells, new = mem[L.AT_LOCAL], I(mem[L.H_LOCAL])
    mine = bucket(mem, symbol, below)
    first = I(mem[cells + CELL * mine + 4])
    filled = L.BASE_CELLS <= first < new
    if filled:
        filled = bucket(mem, mem[cells + CELL * first], mem[cells + CELL * first + 1]) == mine
    if not filled:
        first = -1
    found = first
    while found >= 0:
        if mem[cells + CELL * found] == symbol and mem[cells + CELL * found + 1] == below:
            return found
        found = I(mem[cells + CELL * found + 5])
    if new >= mem[L.CAP_LOCAL]:
        return L.FULL - L.LOCAL
    mem[L.H_LOCAL] = new + 1
    at = cells + CELL * new
    mem[at], mem[at + 1], mem[at + 2], mem[at + 3], mem[at + 5] = symbol, below, 0, 0, first
    mem[cells + CELL * mine + 4] = new
    return new


@inner_kernel(I(MEM, I))
def local_below(mem: Int32, handle: int) -> int:
    """The handle of the stack below a handle."""
    at = mem[L.AT_LOCAL] + CELL * handle
    if mem[at + 3] == 0 or mem[at + 1] >= 0:
        return I(mem[at + 1])
    below = base_cell(mem, I(mem[at + 3]), mem[mem[L.AT_STACK] + 3 * mem[at + 2] + 1])
    if below >= 0:
        mem[at + 1] = below
    return below


@inner_kernel(I(MEM, I, I))
def local_apply(mem: Int32, raw: int, handle: int) -> int:
    """`run.resolve_stack` on a walk's own stack. Returns the core state (the new handle is in H_OUT), or an error."""
    states = mem[L.AT_STATE]
    before = handle
    pops = 0
    while mem[states + L.S_WIDTH * raw + L.S_FLAGS] & L.PENDING:
        pops += 1
        raw = reduce(mem, raw, local_symbol(mem, handle))
        if raw <= 0:
            return raw
        handle = local_below(mem, handle)
        if handle < 0:
            return handle
    symbol = I(mem[states + L.S_WIDTH * raw + L.S_PUSH])
    if symbol >= 0:
        symbol = alike(mem, symbol)
        if symbol < 0:
            return symbol
        if pops == 1 and symbol == mem[mem[L.AT_LOCAL] + CELL * before]:
            handle = before  # (this may be a cell of the real stack, which is found by its depth)
        else:
            handle = push_local(mem, symbol, handle)
            if handle < 0:
                return handle
    mem[L.H_OUT] = handle
    return I(mem[states + L.S_WIDTH * raw + L.S_CORE])


_MOST_STEPS = 512  # maximum number of steps to find out where the characters beyond ASCII lead

# Well-formed UTF-8 (RFC 3629 §4): first bytes, second bytes, length; all further bytes are 80-BF.
_FORMS = np.array(
    [
        (0xC2, 0xDF, 0x80, 0xBF, 2),
        (0xE0, 0xE0, 0xA0, 0xBF, 3),
        (0xE1, 0xEC, 0x80, 0xBF, 3),
        (0xED, 0xED, 0x80, 0x9F, 3),
        (0xEE, 0xEF, 0x80, 0xBF, 3),
        (0xF0, 0xF0, 0x90, 0xBF, 4),
        (0xF1, 0xF3, 0x80, 0xBF, 4),
        (0xF4, 0xF4, 0x80, 0x8F, 4),
    ],
    np.int64,
)


@inner_kernel(I(MEM, I, I, I))
def take_byte(mem: Int32, state: int, handle: int, byte: int) -> int:
    """(state, handle) after one byte: the core state (handle in H_OUT), 0 if dead, or an error."""
    cls = mem[mem[L.H_CLASS_OF] + byte]
    raw = I(mem[mem[L.AT_DELTA] + state * mem[L.H_CLASSES] + cls])
    if raw < 0:
        raw = step(mem, state, cls)
    if raw <= 0:
        return raw
    return local_apply(mem, raw, handle)


@inner_kernel(I(MEM, I, I, I, I, I))
def beyond_ascii(mem: Int32, state: int, handle: int, lead: int, loop: int, loop_handle: int) -> int:
    """Whether every character with the first byte ``lead``, which has just been read, leads into the loop: 1, 0, or an
    error."""
    form = -1
    for i in range(_FORMS.shape[0]):
        if _FORMS[i, 0] <= lead <= _FORMS[i, 1]:
            form = i
    if form < 0:
        return 0
    length = _FORMS[form, 4]
    states = allocate.longs(4)
    handles = allocate.longs(4)
    byte = allocate.longs(4)
    states[1], handles[1] = state, handle
    level = 1  # bytes read
    byte[1] = _FORMS[form, 2] - 1
    steps = 0
    while level > 0:
        byte[level] += 1
        last = _FORMS[form, 3] if level == 1 else 0xBF
        # bytes of one class lead to the same state
        cls = mem[mem[L.H_CLASS_OF] + byte[level] - 1]
        first = byte[level] == (_FORMS[form, 2] if level == 1 else 0x80)
        while byte[level] <= last and not first and mem[mem[L.H_CLASS_OF] + byte[level]] == cls:
            byte[level] += 1
        if byte[level] > last:
            level -= 1
            continue
        after = take_byte(mem, states[level], handles[level], byte[level])
        steps += 1
        if after < 0:
            return after
        if after == 0 or steps > _MOST_STEPS:
            return 0
        if level == length - 1:
            if after != loop or mem[L.H_OUT] != loop_handle:
                return 0
        else:
            level += 1
            states[level], handles[level] = after, I(mem[L.H_OUT])
            byte[level] = 0x7F
    return 1


class CharsetTables(NamedTuple):
    """The tables of the vocabulary for each character set."""

    sets: Int32
    """[sets, L.K_WIDTH], see `layout`."""
    rows: Int32
    """[sets * L.K_ROWS, words]: bitmasks of tokens inside a set, by their number of characters."""
    ints: Int32
    """The arrays that offsets in ``sets`` point into."""
    unfinished: Int32
    """[words]: bitmask of the tokens that end inside a character. For masks with a limit, like the fields below."""
    unfinished_low: int
    """Their trie is the nodes [unfinished_low, unfinished_high)."""
    unfinished_high: int


CHARSETS = nb.types.NamedTuple((I2, I2, I1, I1, I, I), CharsetTables)


@inner_kernel(I(MEM, TRIE, I, I, I, I, I1))
def walk(
    mem: Int32,
    trie: Trie,
    low: int,
    high: int,
    state: int,
    handle: int,
    out: Int32,
) -> int:
    """Set in ``out`` the bits of all tokens of the trie nodes [low, high) that (state, handle) allows (and after which
    the remaining tokens suffice, if there is a limit). 0, or an error.

    In a loop that may return to its caller (such as an identifier), every byte pops and pushes. The classes that lead
    from the last such place back to it are remembered, so a byte costs a look-up. Long walks also remember all pops and
    pushes (for the first or the last byte of a character in such a loop).
    """
    t_byte, t_depth, t_end, t_token_start, t_tokens, _ = trie
    delta, classes, class_of = mem[L.AT_DELTA], mem[L.H_CLASSES], mem[L.H_CLASS_OF]
    states = mem[L.AT_STATE]
    at_state, at_env = mem[L.H_WALK_STATE], mem[L.H_WALK_ENV]
    mem[at_state] = state
    mem[at_env] = handle
    loop_state, loop_env = I(-1), I(-1)
    stays = allocate.zero_flags(256)  # by class
    slots = 1024 if high - low > _LONG_WALK else 1
    known = np.full((slots, 4), -1, np.int64)  # raw state and handle, and the result of `local_apply` for them
    is_limited = mem[L.H_LEFT] > 0
    asked_state, asked_env, fitting = I(-1), I(-1), I(1)
    i = low
    while i < high:
        depth = t_depth[i]
        s = I(mem[at_state + depth - 1])
        cls = mem[class_of + t_byte[i]]
        if s == loop_state and stays[cls] and mem[at_env + depth - 1] == loop_env:
            mem[at_state + depth] = s
            mem[at_env + depth] = loop_env
            if is_limited and (s != asked_state or loop_env != asked_env):
                asked_state, asked_env, fitting = s, loop_env, fits(mem, trie, s, loop_env)
                if fitting < 0:
                    return fitting
            if fitting != 0:
                for j in range(t_token_start[i], t_token_start[i + 1]):
                    token = t_tokens[j]
                    out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
            i += 1
            continue
        raw = I(mem[delta + s * classes + cls])
        if raw <= 0:
            if raw < 0:
                raw = step(mem, s, cls)
                if raw < 0:
                    return raw
            if raw == L.DEAD:
                i = t_end[i]
                continue
        if mem[states + L.S_WIDTH * raw + L.S_FLAGS] & L.COMPLEX:
            env = I(mem[at_env + depth - 1])
            slot = raw & (slots - 1)
            if known[slot, 0] == raw and known[slot, 1] == env:
                raw = known[slot, 2]
                mem[L.H_OUT] = known[slot, 3]
            else:
                known[slot, 0], known[slot, 1] = raw, env
                raw = local_apply(mem, raw, env)
                if raw < 0:
                    return raw
                known[slot, 2], known[slot, 3] = raw, mem[L.H_OUT]
            if raw == L.DEAD:
                i = t_end[i]
                continue
            if raw == s and mem[L.H_OUT] == env:
                if s != loop_state or env != loop_env:
                    loop_state, loop_env = s, env
                    stays[:] = False
                stays[cls] = True
            mem[at_env + depth] = mem[L.H_OUT]
        else:
            mem[at_env + depth] = mem[at_env + depth - 1]
        mem[at_state + depth] = raw
        first, behind = t_token_start[i], t_token_start[i + 1]
        if is_limited and first < behind:
            env = I(mem[at_env + depth])
            if raw != asked_state or env != asked_env:
                asked_state, asked_env, fitting = raw, env, fits(mem, trie, raw, env)
                if fitting < 0:
                    return fitting
            if fitting == 0:
                first = behind
        for j in range(first, behind):
            token = t_tokens[j]
            out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
        i += 1
    return 0


@inner_kernel(I(MEM, I, I, I1))
def take_character(mem: Int32, state: int, handle: int, table_row: Int32) -> int:
    """(state, handle) after one character of a set: the core state (handle in H_OUT), 0 if dead, or an error."""
    n = table_row[L.K_REP_END]
    for i in range(n):
        cls = mem[mem[L.H_CLASS_OF] + table_row[L.K_REP_BYTES + i]]
        raw = I(mem[mem[L.AT_DELTA] + state * mem[L.H_CLASSES] + cls])
        if raw < 0:
            raw = step(mem, state, cls)
        if raw <= 0:
            return raw
        state = local_apply(mem, raw, handle)
        if state <= 0:
            return state
        handle = I(mem[L.H_OUT])
    mem[L.H_OUT] = handle
    return state


@inner_kernel(I(MEM, I, I, I1))
def inspect_set(mem: Int32, state: int, number: int, table_row: Int32) -> int:
    """Which items take characters of set ``number`` next. 2: only items that loop over it; 1: others (too); 0: none."""
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    loops = False
    overlap = False
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node = mem[items + 2 * i]
        if mem[mem[L.H_CHARSET] + node] == number:
            loops = True
        elif mem[mem[L.H_KIND] + node] == N_BYTE:
            for e in range(mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]):
                packed = mem[mem[L.H_EDGE_BYTES] + e]
                for byte in range(packed & 255, (packed >> 8) + 1):
                    if (table_row[L.K_FIRST_BYTES + (byte >> 5)] >> (byte & 31)) & 1:
                        overlap = True
                        break
    if overlap:
        return 1
    return 2 if loops else 0
