"""Kernels: the mask of a configuration.

The token trie is a depth-first list of (byte, depth, subtree end). Walking it is one loop: keep a state per depth, step
from the parent's state, and where the step is dead jump to the end of the subtree. What makes a cold mask cheap:

*Character loops.* An item that consumes one code point of a large set K (the body of a string, `.`, `\\w`) allows all
tokens made of K characters: a row of the vocabulary, by how many characters may still come. Of the other tokens it can
only allow those that start with characters of K and then leave K; these are walked as a trie of what comes *after*
the K characters (2,500 nodes instead of 266,000 for JSON strings). This needs that no other item of the state can
take a K character (checked; otherwise the tokens are walked whole).

*Canonical symbols.* A walk may only look at symbols of the real stack through `canonical`, which maps counters that
no token can bring to a limit to one value; and it notes how many symbols it looked at. The row is remembered under
(state, these symbols): every configuration that agrees on them shares it.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.canonical import canonical
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.states import intern_state
from dotllm.automata.machine.trie import TRIE, Trie
from dotllm.automata.machine.walk import (
    BASE_CELLS,
    CHARSETS,
    K_COUNTS,
    K_EXITS,
    K_EXITS_END,
    K_LONG,
    K_LONG_END,
    K_MAX_CHARS,
    K_MAX_COUNT,
    K_ROWS,
    K_WORDS,
    K_WORDS_END,
    WORDS_NOWHERE,
    WORDS_UNKNOWN,
    CharsetTables,
    base_cell,
    inspect_set,
    take_character,
    walk,
)
from dotllm.automata.machine.wide_loop import NOT_HERE, mask_via_self_loop
from dotllm.jit import I1, I2, I, inner_kernel, kernel, outlined_kernel

NEEDS_WORDS = -1024  # NEEDS_WORDS - number: the words that exit this set are needed; make them and call again


@outlined_kernel(I(MEM, I, I, I))
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
    if k >= table[K_MAX_CHARS]:
        row = charsets.rows[number * K_ROWS]
        for i in range(words):
            out[i] |= row[i]
        return 0
    row = charsets.rows[number * K_ROWS + min(k, K_ROWS - 1)]
    for i in range(words):
        out[i] |= row[i]
    if k > K_ROWS - 1:
        n = (table[K_LONG_END] - table[K_LONG]) // 2  # tokens, then their lengths, longest first
        at = table[K_LONG]
        for i in range(n - 1, -1, -1):
            if charsets.ints[at + n + i] > k:
                break
            token = charsets.ints[at + i]
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
    (whole); otherwise the token trie is walked.
    """
    table = charsets.sets[number]
    if table[K_WORDS_END] == WORDS_UNKNOWN:
        return NEEDS_WORDS - number
    state, env = loop, handle
    k = 0
    endless = False
    longest = max(table[K_MAX_CHARS], table[K_MAX_COUNT])
    while k < longest and not endless:
        after = take_character(mem, state, env, table)
        if after < 0:
            return after
        if after == 0:
            break
        k += 1
        new_env = I(mem[L.H_OUT])
        alone = select(mem, after, number, 1)
        if alone < 0:
            return alone
        if alone == 0:
            break
        endless = alone == state and new_env == env
        state, env = alone, new_env
    if (endless or k >= longest) and table[K_WORDS_END] != WORDS_NOWHERE:
        allow_inside(charsets, number, longest, out)
        return walk(mem, trie, table[K_WORDS], table[K_WORDS_END], loop, handle, out)
    return walk(mem, trie, 0, trie.main_end, loop, handle, out)


@outlined_kernel(I(MEM, TRIE, CHARSETS, I, I, I, I1))
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
    longest = max(table[K_MAX_CHARS], table[K_MAX_COUNT])  # characters of the set in any token
    state, env = loop, handle
    k = 0
    repeats = False
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
        # tokens that leave the set here
        if repeats and k == 1:
            done = walk(
                mem,
                trie,
                table[K_EXITS],
                table[K_EXITS_END],
                state,
                new_env,
                out,
            )
            if done < 0:
                return done
        else:
            last = table[K_MAX_COUNT] if repeats else min(k, table[K_MAX_COUNT])
            for j in range(k, last + 1):
                low, high = charsets.ints[table[K_COUNTS] + j], charsets.ints[table[K_COUNTS] + j + 1]
                done = walk(mem, trie, low, high, state, new_env, out)
                if done < 0:
                    return done
        if repeats:
            k = longest
            break
        if kind == 0:
            break
        env = new_env
    return allow_inside(charsets, number, k, out)


@outlined_kernel(I(MEM, TRIE, CHARSETS, I2, I1, I, I, I1))
def find_row(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    token_rows: Int32,
    eos: Int32,
    state: int,
    stack: int,
    out: Int32,
) -> int:
    """Compute the mask of (state, stack) into ``out`` [words]. Returns how many stack symbols it depends on, or an
    error.

    token_rows [sets, words]: bitmasks of the grammar's token sets; eos: end tokens; (state, stack): a configuration.
    """
    words = out.shape[0]
    for i in range(words):
        out[i] = 0
    mem[L.H_CONSULTED] = 0
    mem[L.H_LOCAL] = BASE_CELLS
    if mem[L.CAP_LOCAL] < 2 * BASE_CELLS:
        return L.FULL - L.LOCAL
    handle = base_cell(mem, 0, stack)
    if handle < 0:
        return handle
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    flags = mem[entry + L.S_FLAGS]
    rest = I(state)
    if flags & L.HAS_CHARSET:
        rest = select(mem, state, -1, 0)
        if rest < 0:
            return rest
    if rest > 0:
        done = mask_via_self_loop(mem, trie, charsets, rest, handle, out)
        if done == NOT_HERE:
            done = walk(mem, trie, 0, trie.main_end, rest, handle, out)
        if done < 0:
            return done
    if flags & L.HAS_CHARSET:
        items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
        length = mem[entry + L.S_LENGTH] // 2
        for i in range(length):
            number = mem[mem[L.H_CHARSET] + mem[items + 2 * i]]
            if number < 0:
                continue
            again = False  # each set once
            for j in range(i):
                if mem[mem[L.H_CHARSET] + mem[items + 2 * j]] == number:
                    again = True
            if again:
                continue
            loop = select(mem, state, number, 1)
            if loop < 0:
                return loop
            done = allow_set(
                mem,
                trie,
                charsets,
                loop,
                handle,
                number,
                out,
            )
            if done < 0:
                return done
    if flags & L.ACCEPTS:
        for i in range(eos.shape[0]):
            out[eos[i] >> 5] |= nb.int32(1) << nb.int32(eos[i] & 31)
    if flags & L.HAS_TOKENS:
        items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
        for i in range(mem[entry + L.S_LENGTH] // 2):
            node = mem[items + 2 * i]
            if mem[mem[L.H_KIND] + node] == N_TOKENS:
                number = mem[mem[L.H_A] + node]
                for j in range(words):
                    out[j] |= token_rows[number, j]
    return I(mem[L.H_CONSULTED])


@kernel(I(MEM, I))
def known_row(mem: Int32, config: int) -> int:
    """The row of a configuration if it is known (remembered under its canonical key), else -1, or an error."""
    at = mem[L.AT_CONFIG] + 3 * config
    row = I(mem[at + 2])
    if row >= 0:
        return row
    state, stack = mem[at], I(mem[at + 1])
    row = I(mem[mem[L.AT_STATE] + L.S_WIDTH * state + L.S_MEMO])
    key = -1 - I(state)
    cells = mem[L.AT_STACK]
    while row == L.MEMO_DEEPER:
        symbol = canonical(mem, mem[cells + 3 * stack])
        if symbol < 0:
            return symbol
        key = triple_get(mem, L.T_MEMO, key, symbol, 0)
        if key < 0:
            return -1
        row = I(mem[mem[L.AT_MEMO] + key])
        stack = I(mem[cells + 3 * stack + 1])
    if row >= 0:
        mem[at + 2] = row
    return row if row >= 0 else I(-1)


@kernel(I(MEM, I, I, I))
def remember_row(mem: Int32, config: int, consulted: int, row: int) -> int:
    """Remember ``row`` for every configuration that has this state and these ``consulted`` topmost symbols."""
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = mem[at], I(mem[at + 1])
    cells = mem[L.AT_STACK]
    place = mem[L.AT_STATE] + L.S_WIDTH * state + L.S_MEMO
    key = -1 - I(state)
    for i in range(consulted):
        symbol = canonical(mem, mem[cells + 3 * stack])
        if symbol < 0:
            return symbol
        below = triple_get(mem, L.T_MEMO, key, symbol, 0)
        if below < 0:
            below = I(mem[L.USED_MEMO])
            if below >= mem[L.CAP_MEMO]:
                return L.FULL - L.MEMO
            done = triple_put(mem, L.T_MEMO, key, symbol, 0, below)
            if done < 0:
                return done
            mem[L.USED_MEMO] = below + 1
            mem[mem[L.AT_MEMO] + below] = L.MEMO_UNKNOWN
        mem[place] = L.MEMO_DEEPER
        place = mem[L.AT_MEMO] + below
        key = below
        stack = I(mem[cells + 3 * stack + 1])
    mem[place] = row
    mem[at + 2] = row
    return 0
