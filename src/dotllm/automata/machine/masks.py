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

from dotllm.arrays import Int32, UInt8
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import (
    ACCEPTS,
    BUFFER,
    COMPLEX,
    CONFIG,
    DEAD,
    DELTA,
    FULL,
    H_A,
    H_BUFFER,
    H_CHARSET,
    H_CLASS_OF,
    H_CLASSES,
    H_CONSULTED,
    H_EDGE_BYTES,
    H_EDGE_START,
    H_KIND,
    H_LOCAL,
    H_OUT,
    H_WALK_ENV,
    H_WALK_STATE,
    H_WALK_TOP,
    HAS_CHARSET,
    HAS_TOKENS,
    LOCAL,
    MEMO,
    MEMO_DEEPER,
    MEMO_UNKNOWN,
    PENDING,
    POOL,
    S_CORE,
    S_FLAGS,
    S_LENGTH,
    S_MEMO,
    S_OFFSET,
    S_PUSH,
    STACK,
    STATE,
    T_MEMO,
    R,
)  # fmt: skip
from dotllm.automata.machine.step import MEM, N_BYTE, N_TOKENS, I, canonical, intern_state, reduce, step
from dotllm.jit import kernel

# columns of the table of character sets (see index.token_space)
(
    K_EXITS, K_EXITS_END, K_WORDS, K_WORDS_END, K_COUNTS, K_MAX_COUNT, K_MAX_CHARS, K_LONG, K_LONG_END, K_REP,
    K_REP_END,
    K_FIRST,
) = range(12)  # fmt: skip
K_REP_BYTES = 12  # up to 4 bytes: one character of the set
K_FIRST_BYTES = 16  # 8 ints: the set of first bytes
K_WIDTH = 24
K_ROWS = 17  # rows per set: [0] all tokens inside, [k] those of at most k characters

BASE_CELLS = 256  # local handles below this are cells of the real stack, by depth


@kernel(I(MEM, I))
def local_symbol(mem: Int32, handle: int) -> int:
    """The canonical symbol on top of a walk's stack; notes it if it belongs to the real stack."""
    at = mem[R + 3 * LOCAL] + 4 * handle
    if mem[at + 3] > mem[H_CONSULTED]:
        mem[H_CONSULTED] = mem[at + 3]
    return I(mem[at])


@kernel(I(MEM, I, I))
def base_cell(mem: Int32, depth: int, stack: int) -> int:
    """Make the walk's cell for the real stack cell ``stack``, ``depth`` symbols down. Returns its handle, or an
    error."""
    if depth >= BASE_CELLS:
        return FULL - LOCAL
    symbol = I(0)
    if stack != 0:
        symbol = canonical(mem, mem[mem[R + 3 * STACK] + 3 * stack])
        if symbol < 0:
            return symbol
    at = mem[R + 3 * LOCAL] + 4 * depth
    mem[at], mem[at + 1], mem[at + 2], mem[at + 3] = symbol, -1, stack, depth + 1
    return depth


@kernel(I(MEM, I))
def local_below(mem: Int32, handle: int) -> int:
    """The handle of the stack below a handle."""
    at = mem[R + 3 * LOCAL] + 4 * handle
    if handle >= BASE_CELLS or mem[at + 1] >= 0:
        return I(mem[at + 1])
    below = base_cell(mem, handle + 1, mem[mem[R + 3 * STACK] + 3 * mem[at + 2] + 1])
    if below >= 0:
        mem[at + 1] = below
    return below


@kernel(I(MEM, I, I))
def local_apply(mem: Int32, raw: int, handle: int) -> int:
    """`run.apply` on a walk's own stack. Returns the core state (the new handle is in H_OUT), or an error."""
    states = mem[R + 3 * STATE]
    while mem[states + 8 * raw + S_FLAGS] & PENDING:
        raw = reduce(mem, raw, local_symbol(mem, handle))
        if raw <= 0:
            return raw
        handle = local_below(mem, handle)
        if handle < 0:
            return handle
    symbol = I(mem[states + 8 * raw + S_PUSH])
    if symbol >= 0:
        symbol = canonical(mem, symbol)
        if symbol < 0:
            return symbol
        new = I(mem[H_LOCAL])
        if new >= mem[R + 3 * LOCAL + 1]:
            return FULL - LOCAL
        mem[H_LOCAL] = new + 1
        at = mem[R + 3 * LOCAL] + 4 * new
        mem[at], mem[at + 1], mem[at + 2], mem[at + 3] = symbol, handle, 0, 0
        handle = new
    mem[H_OUT] = handle
    return I(mem[states + 8 * raw + S_CORE])


U8, I1, I2 = nb.uint8[::1], nb.int32[::1], nb.int32[:, ::1]


@kernel(I(MEM, U8, I1, I1, I1, I1, I, I, I, I, I1))
def walk(
    mem: Int32,
    t_byte: UInt8,
    t_depth: Int32,
    t_end: Int32,
    t_token_start: Int32,
    t_tokens: Int32,
    low: int,
    high: int,
    state: int,
    handle: int,
    out: Int32,
) -> int:
    """Set in ``out`` the bits of all tokens of the trie nodes [low, high) that (state, handle) allows. 0, or an
    error."""
    delta, classes, class_of = mem[R + 3 * DELTA], mem[H_CLASSES], mem[H_CLASS_OF]
    states = mem[R + 3 * STATE]
    at_state, at_env, at_top = mem[H_WALK_STATE], mem[H_WALK_ENV], mem[H_WALK_TOP]
    mem[at_state] = state
    mem[at_env] = handle
    mem[at_top] = mem[H_LOCAL]
    i = low
    while i < high:
        depth = t_depth[i]
        s = mem[at_state + depth - 1]
        cls = mem[class_of + t_byte[i]]
        raw = I(mem[delta + s * classes + cls])
        if raw <= 0:
            if raw < 0:
                raw = step(mem, s, cls)
                if raw < 0:
                    return raw
            if raw == DEAD:
                i = t_end[i]
                continue
        if mem[states + 8 * raw + S_FLAGS] & COMPLEX:
            mem[H_LOCAL] = mem[at_top + depth - 1]
            raw = local_apply(mem, raw, mem[at_env + depth - 1])
            if raw <= 0:
                if raw < 0:
                    return raw
                i = t_end[i]
                continue
            mem[at_env + depth] = mem[H_OUT]
            mem[at_top + depth] = mem[H_LOCAL]
        else:
            mem[at_env + depth] = mem[at_env + depth - 1]
            mem[at_top + depth] = mem[at_top + depth - 1]
        mem[at_state + depth] = raw
        for j in range(t_token_start[i], t_token_start[i + 1]):
            token = t_tokens[j]
            out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
        i += 1
    mem[H_LOCAL] = mem[at_top]
    return 0


@kernel(I(MEM, I, I, I1))
def take_character(mem: Int32, state: int, handle: int, table_row: Int32) -> int:
    """(state, handle) after one character of a set: the core state (handle in H_OUT), 0 if dead, or an error."""
    n = table_row[K_REP_END]
    for i in range(n):
        cls = mem[mem[H_CLASS_OF] + table_row[K_REP_BYTES + i]]
        raw = I(mem[mem[R + 3 * DELTA] + state * mem[H_CLASSES] + cls])
        if raw < 0:
            raw = step(mem, state, cls)
        if raw <= 0:
            return raw
        state = local_apply(mem, raw, handle)
        if state <= 0:
            return state
        handle = I(mem[H_OUT])
    mem[H_OUT] = handle
    return state


@kernel(nb.boolean(MEM, I, I))
def same_stack(mem: Int32, one: int, other: int) -> bool:
    """Whether two handles stand for equal stacks, as far as their topmost cells show."""
    if one == other:
        return True
    if one < BASE_CELLS or other < BASE_CELLS:
        return False
    x, y = mem[R + 3 * LOCAL] + 4 * one, mem[R + 3 * LOCAL] + 4 * other
    return mem[x] == mem[y] and mem[x + 1] == mem[y + 1]


@kernel(I(MEM, I, I, I1))
def inspect_set(mem: Int32, state: int, number: int, table_row: Int32) -> int:
    """Who takes characters of set ``number`` next: 2 only items that loop over it, 1 others (too), 0 nobody."""
    entry = mem[R + 3 * STATE] + 8 * state
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    loops = False
    overlap = False
    for i in range(mem[entry + S_LENGTH] // 2):
        node = mem[items + 2 * i]
        if mem[mem[H_CHARSET] + node] == number:
            loops = True
        elif mem[mem[H_KIND] + node] == N_BYTE:
            for e in range(mem[mem[H_EDGE_START] + node], mem[mem[H_EDGE_START] + node + 1]):
                packed = mem[mem[H_EDGE_BYTES] + e]
                for byte in range(packed & 255, (packed >> 8) + 1):
                    if (table_row[K_FIRST_BYTES + (byte >> 5)] >> (byte & 31)) & 1:
                        overlap = True
                        break
    if overlap:
        return 1
    return 2 if loops else 0


@kernel(I(MEM, I, I, I))
def select(mem: Int32, state: int, number: int, only: int) -> int:
    """The state of those items of ``state`` that loop over set ``number`` (``only`` 1), or of all that loop over no
    known set (``only`` 0). 0: none; or an error."""
    entry = mem[R + 3 * STATE] + 8 * state
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    length = mem[entry + S_LENGTH]
    base = mem[R + 3 * BUFFER]
    if 8 * length + 64 > mem[R + 3 * BUFFER + 1]:
        return FULL - BUFFER
    mem[H_BUFFER] = 0
    n = 0
    for i in range(length // 2):
        node = mem[items + 2 * i]
        charset = mem[mem[H_CHARSET] + node]
        if (only == 1 and charset == number) or (only == 0 and charset < 0):
            mem[base + 2 * n] = node
            mem[base + 2 * n + 1] = mem[items + 2 * i + 1]
            n += 1
    if n == 0:
        return 0
    return intern_state(mem, base, n)


@kernel(I(I2, I2, I1, I, I, I1))
def allow_inside(sets: Int32, set_rows: Int32, set_ints: Int32, number: int, k: int, out: Int32) -> int:
    """Allow the tokens of at most k characters that lie inside a set."""
    table = sets[number]
    words = out.shape[0]
    if k <= 0:
        return 0
    if k >= table[K_MAX_CHARS]:
        row = set_rows[number * K_ROWS]
        for i in range(words):
            out[i] |= row[i]
        return 0
    row = set_rows[number * K_ROWS + min(k, K_ROWS - 1)]
    for i in range(words):
        out[i] |= row[i]
    if k > K_ROWS - 1:
        n = (table[K_LONG_END] - table[K_LONG]) // 2  # tokens, then their lengths, longest first
        at = table[K_LONG]
        for i in range(n - 1, -1, -1):
            if set_ints[at + n + i] > k:
                break
            token = set_ints[at + i]
            out[token >> 5] |= nb.int32(1) << nb.int32(token & 31)
    return 0


@kernel(
    I(MEM, U8, I1, I1, I1, I1, I, I2, I2, I1, I, I, I, I1),
)
def allow_overlapping(
    mem: Int32,
    t_byte: UInt8,
    t_depth: Int32,
    t_end: Int32,
    t_token_start: Int32,
    t_tokens: Int32,
    main_end: int,
    sets: Int32,
    set_rows: Int32,
    set_ints: Int32,
    loop: int,
    handle: int,
    number: int,
    out: Int32,
) -> int:
    """`allow_set` when something else may also take characters of the set after the first one (`[a-z]*abc`).

    If the loop alone takes any number of characters, all tokens inside are allowed and only those that leave are walked
    (whole); otherwise the token trie is walked.
    """
    table = sets[number]
    mem[H_LOCAL] = BASE_CELLS
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
        new_env = I(mem[H_OUT])
        alone = select(mem, after, number, 1)
        if alone < 0:
            return alone
        if alone == 0:
            break
        endless = alone == state and same_stack(mem, new_env, env)
        state, env = alone, new_env
    mem[H_LOCAL] = BASE_CELLS
    if endless or k >= longest:
        allow_inside(sets, set_rows, set_ints, number, longest, out)
        return walk(
            mem, t_byte, t_depth, t_end, t_token_start, t_tokens, table[K_WORDS], table[K_WORDS_END], loop, handle, out
        )
    return walk(mem, t_byte, t_depth, t_end, t_token_start, t_tokens, 0, main_end, loop, handle, out)


@kernel(
    I(MEM, U8, I1, I1, I1, I1, I, I2, I2, I1, I, I, I, I1),
)
def allow_set(
    mem: Int32,
    t_byte: UInt8,
    t_depth: Int32,
    t_end: Int32,
    t_token_start: Int32,
    t_tokens: Int32,
    main_end: int,
    sets: Int32,
    set_rows: Int32,
    set_ints: Int32,
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
    table = sets[number]
    longest = max(table[K_MAX_CHARS], table[K_MAX_COUNT])  # characters of the set in any token
    mem[H_LOCAL] = BASE_CELLS  # nothing of an earlier walk is needed
    state, env = loop, handle
    k = 0
    repeats = False
    while k < longest:
        state = take_character(mem, state, env, table)
        if state < 0:
            return state
        if state == 0:
            break
        new_env = I(mem[H_OUT])
        kind = inspect_set(mem, state, number, table)
        k += 1
        if kind == 1:
            return allow_overlapping(
                mem, t_byte, t_depth, t_end, t_token_start, t_tokens, main_end, sets, set_rows, set_ints,
                loop, handle, number, out,
            )  # fmt: skip
        # does the next character lead back here? (equal state, and equal top symbol on an equal rest)
        if kind == 2:
            saved = I(mem[H_LOCAL])
            after = take_character(mem, state, new_env, table)
            if after < 0:
                return after
            after_env = I(mem[H_OUT])
            if after == state:
                repeats = same_stack(mem, after_env, new_env)
            mem[H_LOCAL] = saved
        # tokens that leave the set here
        if repeats and k == 1:
            done = walk(
                mem, t_byte, t_depth, t_end, t_token_start, t_tokens, table[K_EXITS], table[K_EXITS_END], state,
                new_env,
                out,
            )  # fmt: skip
            if done < 0:
                return done
        else:
            last = table[K_MAX_COUNT] if repeats else min(k, table[K_MAX_COUNT])
            for j in range(k, last + 1):
                low, high = set_ints[table[K_COUNTS] + j], set_ints[table[K_COUNTS] + j + 1]
                done = walk(mem, t_byte, t_depth, t_end, t_token_start, t_tokens, low, high, state, new_env, out)
                if done < 0:
                    return done
        if repeats:
            k = longest
            break
        if kind == 0:
            break
        env = new_env
    return allow_inside(sets, set_rows, set_ints, number, k, out)


@kernel(
    I(MEM, U8, I1, I1, I1, I1, I, I2, I2, I1, I2, I1, I, I, I1),
)
def find_row(
    mem: Int32, t_byte: UInt8, t_depth: Int32, t_end: Int32, t_token_start: Int32, t_tokens: Int32, main_end: int,
    sets: Int32, set_rows: Int32, set_ints: Int32, token_rows: Int32, eos: Int32,
    state: int, stack: int, out: Int32,
) -> int:  # fmt: skip
    """Compute the mask of (state, stack) into ``out`` [words]. Returns how many stack symbols it depends on, or an
    error.

    t_*: the store of tries (the token trie is nodes [0, main_end)); sets, set_rows, set_ints: the character sets (see
    K_*); token_rows: bitmasks of the grammar's token sets; eos: end tokens.
    """
    words = out.shape[0]
    for i in range(words):
        out[i] = 0
    mem[H_CONSULTED] = 0
    mem[H_LOCAL] = BASE_CELLS
    if mem[R + 3 * LOCAL + 1] < 2 * BASE_CELLS:
        return FULL - LOCAL
    handle = base_cell(mem, 0, stack)
    if handle < 0:
        return handle
    entry = mem[R + 3 * STATE] + 8 * state
    flags = mem[entry + S_FLAGS]
    if flags & HAS_CHARSET == 0:
        done = walk(mem, t_byte, t_depth, t_end, t_token_start, t_tokens, 0, main_end, state, handle, out)
        if done < 0:
            return done
    else:
        rest = select(mem, state, -1, 0)
        if rest < 0:
            return rest
        if rest > 0:
            done = walk(mem, t_byte, t_depth, t_end, t_token_start, t_tokens, 0, main_end, rest, handle, out)
            if done < 0:
                return done
        items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
        length = mem[entry + S_LENGTH] // 2
        for i in range(length):
            number = mem[mem[H_CHARSET] + mem[items + 2 * i]]
            if number < 0:
                continue
            again = False  # each set once
            for j in range(i):
                if mem[mem[H_CHARSET] + mem[items + 2 * j]] == number:
                    again = True
            if again:
                continue
            loop = select(mem, state, number, 1)
            if loop < 0:
                return loop
            done = allow_set(
                mem, t_byte, t_depth, t_end, t_token_start, t_tokens, main_end, sets, set_rows, set_ints,
                loop, handle, number, out,
            )  # fmt: skip
            if done < 0:
                return done
    if flags & ACCEPTS:
        for i in range(eos.shape[0]):
            out[eos[i] >> 5] |= nb.int32(1) << nb.int32(eos[i] & 31)
    if flags & HAS_TOKENS:
        items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
        for i in range(mem[entry + S_LENGTH] // 2):
            node = mem[items + 2 * i]
            if mem[mem[H_KIND] + node] == N_TOKENS:
                number = mem[mem[H_A] + node]
                for j in range(words):
                    out[j] |= token_rows[number, j]
    return I(mem[H_CONSULTED])


@kernel(I(MEM, I))
def known_row(mem: Int32, config: int) -> int:
    """The row of a configuration if it is known (remembered under its canonical key), else -1, or an error."""
    at = mem[R + 3 * CONFIG] + 3 * config
    row = I(mem[at + 2])
    if row >= 0:
        return row
    state, stack = mem[at], I(mem[at + 1])
    row = I(mem[mem[R + 3 * STATE] + 8 * state + S_MEMO])
    key = -1 - I(state)
    cells = mem[R + 3 * STACK]
    while row == MEMO_DEEPER:
        symbol = canonical(mem, mem[cells + 3 * stack])
        if symbol < 0:
            return symbol
        key = triple_get(mem, T_MEMO, key, symbol, 0)
        if key < 0:
            return -1
        row = I(mem[mem[R + 3 * MEMO] + key])
        stack = I(mem[cells + 3 * stack + 1])
    if row >= 0:
        mem[at + 2] = row
    return row if row >= 0 else I(-1)


@kernel(I(MEM, I, I, I))
def remember_row(mem: Int32, config: int, consulted: int, row: int) -> int:
    """Remember ``row`` for every configuration that has this state and these ``consulted`` topmost symbols."""
    at = mem[R + 3 * CONFIG] + 3 * config
    state, stack = mem[at], I(mem[at + 1])
    cells = mem[R + 3 * STACK]
    place = mem[R + 3 * STATE] + 8 * state + S_MEMO
    key = -1 - I(state)
    for i in range(consulted):
        symbol = canonical(mem, mem[cells + 3 * stack])
        if symbol < 0:
            return symbol
        below = triple_get(mem, T_MEMO, key, symbol, 0)
        if below < 0:
            below = I(mem[R + 3 * MEMO + 2])
            if below >= mem[R + 3 * MEMO + 1]:
                return FULL - MEMO
            done = triple_put(mem, T_MEMO, key, symbol, 0, below)
            if done < 0:
                return done
            mem[R + 3 * MEMO + 2] = below + 1
            mem[mem[R + 3 * MEMO] + below] = MEMO_UNKNOWN
        mem[place] = MEMO_DEEPER
        place = mem[R + 3 * MEMO] + below
        key = below
        stack = I(mem[cells + 3 * stack + 1])
    mem[place] = row
    mem[at + 2] = row
    return 0
