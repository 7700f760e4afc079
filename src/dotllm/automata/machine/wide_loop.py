"""Kernel: the mask of items that nearly all tokens take into one loop over a character set.

While a key is typed that must not be one of some names, every character but the next of a name leads to "any other
key": a loop over one large set. So most of the token trie lies inside that loop, of which all is known (see
`masks`). We take what the loop allows and walk the trie only until the machine is in the loop: some hundred nodes
instead of 266,000.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans.places import fits
from dotllm.automata.machine.plans.trie import TRIE, Trie
from dotllm.automata.machine.step import step
from dotllm.automata.machine.walk import CHARSETS, CharsetTables, inspect_set, local_apply, take_character, walk
from dotllm.jit import I1, I2, I, inner_kernel

NOT_APPLICABLE = 1  # result: the state is not of this kind; nothing has been done
_PROBES = np.frombuffer(b"aek0M_ q", np.uint8)  # first bytes that most likely lead into the loop
_MOST_STEPS = 512  # spent on finding out where the characters beyond ASCII lead

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


@inner_kernel(I(MEM, I, I, I2))
def endless_loop(mem: Int32, state: int, handle: int, sets: Int32) -> int:
    """The set over which a state loops for ever, unchanged; -1: it does not; or an error (below that).

    Only sets with all characters beyond ASCII count.
    """
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    if mem[entry + L.S_FLAGS] & L.HAS_CHARSET == 0 or mem[entry + L.S_FLAGS] & L.HAS_TOKENS:
        return -1
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    number = -1
    for i in range(mem[entry + L.S_LENGTH] // 2):
        charset = I(mem[mem[L.H_CHARSET] + mem[items + 2 * i]])
        if charset >= 0:
            if number >= 0 and charset != number:
                return -1
            number = charset
    if number < 0 or sets[number, L.K_WIDE] == 0 or inspect_set(mem, state, number, sets[number]) != 2:
        return -1
    after = take_character(mem, state, handle, sets[number])
    if after < 0:
        return after
    return number if after == state and I(mem[L.H_OUT]) == handle else -1


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
        # bytes of one class are alike
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


@inner_kernel(I(MEM, TRIE, CHARSETS, I, I, I, I, I1))
def limit_inside(
    mem: Int32, trie: Trie, charsets: CharsetTables, state: int, handle: int, loop: int, loop_handle: int, row: Int32
) -> int:
    """Leave in ``row``, the tokens inside the set of a loop, those that leave enough tokens if they lead from
    (state, handle) into the loop. 0, or an error."""
    fit = fits(mem, trie, loop, loop_handle)
    if fit < 0:
        return fit
    for i in range(row.shape[0]):
        row[i] = row[i] & ~charsets.unfinished[i] if fit != 0 else 0
    return walk(mem, trie, charsets.unfinished_low, charsets.unfinished_high, state, handle, row)


@inner_kernel(I(MEM, TRIE, CHARSETS, I, I, I1))
def mask_via_self_loop(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    state: int,
    handle: int,
    out: Int32,
) -> int:
    """Allow in ``out`` what (state, handle) allows, as `walk` over the whole trie does. 0, NOT_APPLICABLE, or an
    error."""
    loop = I(0)
    loop_handle = I(0)
    number = I(-1)
    for i in range(_PROBES.shape[0]):
        loop = take_byte(mem, state, handle, I(_PROBES[i]))
        if loop < 0:
            return loop
        if loop == 0 or loop == state:
            continue
        loop_handle = I(mem[L.H_OUT])
        number = endless_loop(mem, loop, loop_handle, charsets.sets)
        if number < -1:
            return number
        if number >= 0:
            break
    if number < 0:
        return NOT_APPLICABLE
    # Every token that begins with characters of the set, as if the first of them led into the loop …
    table = charsets.sets[number]
    row = charsets.rows[number * L.K_ROWS].copy()
    is_limited = mem[L.H_LEFT] > 0
    if is_limited:
        done = limit_inside(mem, trie, charsets, state, handle, loop, loop_handle, row)
        if done < 0:
            return done
    done = walk(mem, trie, table[L.K_EXITS], table[L.K_EXITS_END], loop, loop_handle, row)
    if done < 0:
        return done
    # … and now the others, and those whose first characters do not.
    delta, classes, class_of = mem[L.AT_DELTA], mem[L.H_CLASSES], mem[L.H_CLASS_OF]
    states = mem[L.AT_STATE]
    at_state, at_env = mem[L.H_WALK_STATE], mem[L.H_WALK_ENV]
    mem[at_state] = state
    mem[at_env] = handle
    member = allocate.zero_flags(mem[L.H_DEPTH] + 1)  # by depth: all bytes so far belong to characters of the set
    member[0] = True
    i = 0
    while i < trie.main_end:
        depth = trie.depth[i]
        before = mem[at_state + depth - 1]
        byte = I(trie.byte[i])
        cls = mem[class_of + byte]
        raw = I(mem[delta + before * classes + cls])
        if raw < 0:
            raw = step(mem, before, cls)
            if raw < 0:
                return raw
        env = I(mem[at_env + depth - 1])
        if raw != L.DEAD and mem[states + L.S_WIDTH * raw + L.S_FLAGS] & L.COMPLEX:
            raw = local_apply(mem, raw, env)
            if raw < 0:
                return raw
            env = I(mem[L.H_OUT])
        if raw == L.DEAD:
            for j in range(trie.token_start[i], trie.token_start[trie.end[i]]):
                token = trie.tokens[j]
                row[token >> 5] &= ~(nb.int32(1) << nb.int32(token & 31))
            i = trie.end[i]
            continue
        inside = member[depth - 1] and (byte >= 0x80 or (table[L.K_FIRST_BYTES + (byte >> 5)] >> (byte & 31)) & 1 != 0)
        if inside:
            if raw == loop and env == loop_handle:
                i = trie.end[i]
                continue
            if byte >= 0xC2:
                known = beyond_ascii(mem, raw, env, byte, loop, loop_handle)
                if known < 0:
                    return known
                if known == 1:
                    i = trie.end[i]
                    continue
        fitting = I(1)
        if is_limited and trie.token_start[i] < trie.token_start[i + 1]:
            fitting = fits(mem, trie, raw, env)
            if fitting < 0:
                return fitting
        for j in range(trie.token_start[i], trie.token_start[i + 1]):
            token = trie.tokens[j]
            if fitting != 0:
                row[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
            else:
                row[token >> 5] &= ~(nb.int32(1) << nb.int32(token & 31))
        mem[at_state + depth] = raw
        mem[at_env + depth] = env
        member[depth] = inside
        i += 1
    for i in range(out.shape[0]):
        out[i] |= row[i]
    return 0
