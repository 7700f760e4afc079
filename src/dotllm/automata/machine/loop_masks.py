"""Kernels: what items that loop over a large character set allow (see `masks`).

Under a limit the tokens inside the set are asked for by their characters, because these lead to different places; the
few that end inside a character are walked.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm.arrays import Bool, Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans.places import fits
from dotllm.automata.machine.plans.trie import TRIE, Trie
from dotllm.automata.machine.states import intern_state
from dotllm.automata.machine.walk import CHARSETS, CharsetTables, inspect_set, take_character, walk
from dotllm.jit import B1, I1, I, inner_kernel


@inner_kernel(I(MEM, I, I, I))
def select(mem: Int32, state: int, number: int, only: int) -> int:
    """The state of those items of ``state`` that loop over set ``number`` (``only`` 1), or of all that loop over no
    known set (``only`` 0). 0: none; or an error."""
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    length = mem[entry + L.S_LENGTH]
    base = mem[L.AT_BUFFER]
    if 8 * length + 64 > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    mem[L.H_BUFFER] = 0
    n = 0
    for i in range(length // 2):
        node = mem[items + 2 * i]
        charset = mem[mem[L.H_CHARSET] + node]
        if (only == 1 and charset == number) or (only == 0 and charset < 0):
            mem[base + 2 * n] = node
            mem[base + 2 * n + 1] = mem[items + 2 * i + 1]
            n += 1
    if n == 0:
        return 0
    return intern_state(mem, base, n)


@inner_kernel(I(CHARSETS, I, I, I1))
def allow_inside(charsets: CharsetTables, number: int, k: int, out: Int32) -> int:
    """Allow the tokens of at most k characters that lie inside a set."""
    table = charsets.sets[number]
    words = out.shape[0]
    if k <= 0:
        return 0
    if k >= table[L.K_MAX_CHARS]:
        row = charsets.rows[number * L.K_ROWS]
        for i in range(words):
            out[i] |= row[i]
        return 0
    row = charsets.rows[number * L.K_ROWS + min(k, L.K_ROWS - 1)]
    for i in range(words):
        out[i] |= row[i]
    if k > L.K_ROWS - 1:
        n = (table[L.K_LONG_END] - table[L.K_LONG]) // 2  # tokens, then their lengths, longest first
        at = table[L.K_LONG]
        for i in range(n - 1, -1, -1):
            if charsets.ints[at + n + i] > k:
                break
            token = charsets.ints[at + i]
            out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
    return 0


@inner_kernel(I(CHARSETS, I, I, B1, I1))
def allow_fitting_inside(charsets: CharsetTables, number: int, k: int, fitting: Bool, out: Int32) -> int:
    """`allow_inside` for tokens of whole characters; those of j leave enough tokens only if ``fitting[j]``."""
    table = charsets.sets[number]
    longest, unfinished = I(table[L.K_MAX_CHARS]), charsets.unfinished
    for j in range(1, min(k, longest, L.K_ROWS - 1) + 1):
        if fitting[j]:
            row = charsets.rows[number * L.K_ROWS + (j if j < longest else 0)]
            shorter = charsets.rows[number * L.K_ROWS + j - 1]
            for i in range(out.shape[0]):
                out[i] |= row[i] & ~unfinished[i] & (~shorter[i] if j > 1 else nb.int32(-1))
    n = (table[L.K_LONG_END] - table[L.K_LONG]) // 2
    for i in range(n):
        token, length = charsets.ints[table[L.K_LONG] + i], charsets.ints[table[L.K_LONG] + n + i]
        is_finished = (unfinished[token >> 5] >> (token & 31)) & 1 == 0
        if is_finished and length > L.K_ROWS - 1 and length <= k and fitting[length]:
            out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
    return 0


@inner_kernel(I(MEM, TRIE, CHARSETS, I, I, I, I1))
def allow_overlapping(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    loop: int,
    handle: int,
    number: int,
    out: Int32,
) -> int:
    """`allow_set` when something else may also take characters of the set after the first one (`[a-z]*abc`).

    If the loop alone takes any number of characters, all tokens inside are allowed and only those that leave are walked
    (whole); otherwise the token trie is walked, as it is where the loop alone cannot be ended in time.
    """
    is_limited = mem[L.H_LEFT] > 0
    table = charsets.sets[number]
    if table[L.K_WORDS_END] == L.WORDS_UNKNOWN:
        return L.NEEDS_WORDS - number
    state, env = loop, handle
    k = 0
    endless = False
    longest = max(table[L.K_MAX_CHARS], table[L.K_MAX_COUNT])
    while k < longest and not endless:
        after = take_character(mem, state, env, table)
        if after < 0:
            return after
        if after == 0:
            break
        k += 1
        new_env = I(mem[L.H_OUT])
        if is_limited:  # what the loop can end in time, it and others can
            fit = fits(mem, trie, after, new_env)
            if fit < 0:
                return fit
            if fit == 0:
                return walk(mem, trie, 0, trie.main_end, loop, handle, out)
        alone = select(mem, after, number, 1)
        if alone < 0:
            return alone
        if alone == 0:
            break
        endless = alone == state and new_env == env
        state, env = alone, new_env
    if (endless or k >= longest) and table[L.K_WORDS_END] != L.WORDS_NOWHERE:
        if is_limited:
            done = walk(mem, trie, charsets.unfinished_low, charsets.unfinished_high, loop, handle, out)
            if done < 0:
                return done
            allow_fitting_inside(charsets, number, longest, np.ones(longest + 1, np.bool_), out)
        else:
            allow_inside(charsets, number, longest, out)
        return walk(mem, trie, table[L.K_WORDS], table[L.K_WORDS_END], loop, handle, out)
    return walk(mem, trie, 0, trie.main_end, loop, handle, out)


@inner_kernel(I(MEM, TRIE, CHARSETS, I, I, I, I1))
def allow_set(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    loop: int,
    handle: int,
    number: int,
    out: Int32,
) -> int:
    """Allow what a state whose items all loop over one character set allows. 0, or an error.

    Follow one character of the set after the other: C1, C2, … until the configuration repeats (a loop without a near
    limit), the set is no longer taken (the limit: k characters), or no token is that long. Tokens inside the set of
    at most k characters are a row; tokens that leave it after j characters are walked from Cj.
    """
    table = charsets.sets[number]
    longest = max(table[L.K_MAX_CHARS], table[L.K_MAX_COUNT])  # characters of the set in any token
    state, env = loop, handle
    k = 0
    repeats = False
    is_limited = mem[L.H_LEFT] > 0
    fitting = np.ones(longest + 1 if is_limited else 1, np.bool_)
    while k < longest:
        state = take_character(mem, state, env, table)
        if state < 0:
            return state
        if state == 0:
            break
        new_env = I(mem[L.H_OUT])
        kind = inspect_set(mem, state, number, table)
        k += 1
        if kind == 1:
            return allow_overlapping(
                mem,
                trie,
                charsets,
                loop,
                handle,
                number,
                out,
            )
        # does the next character lead back here? (equal state, and equal top symbol on an equal rest)
        if kind == 2:
            after = take_character(mem, state, new_env, table)
            if after < 0:
                return after
            after_env = I(mem[L.H_OUT])
            if after == state:
                repeats = after_env == new_env
        if is_limited:
            fit = fits(mem, trie, state, new_env)
            if fit < 0:
                return fit
            fitting[k : longest + 1 if repeats else k + 1] = fit != 0
        # tokens that leave the set here
        if repeats and k == 1:
            done = walk(
                mem,
                trie,
                table[L.K_EXITS],
                table[L.K_EXITS_END],
                state,
                new_env,
                out,
            )
            if done < 0:
                return done
        else:
            last = table[L.K_MAX_COUNT] if repeats else min(k, table[L.K_MAX_COUNT])
            for j in range(k, last + 1):
                low, high = charsets.ints[table[L.K_COUNTS] + j], charsets.ints[table[L.K_COUNTS] + j + 1]
                done = walk(mem, trie, low, high, state, new_env, out)
                if done < 0:
                    return done
        if repeats:
            k = longest
            break
        if kind == 0:
            break
        env = new_env
    if is_limited:
        done = walk(mem, trie, charsets.unfinished_low, charsets.unfinished_high, loop, handle, out)
        return done if done < 0 else allow_fitting_inside(charsets, number, k, fitting, out)
    return allow_inside(charsets, number, k, out)
