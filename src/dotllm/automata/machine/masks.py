"""Kernels: compute the mask of a configuration.

The token trie is a depth-first list of (byte, depth, subtree end). Walking it is one loop: keep a state per depth, step
from the parent's state, and if the step is dead, jump to the end of the subtree. Two things make a cold mask cheap:

*Character loops.* An item that consumes one code point of a large set K (the body of a string, `.`, `\\w`) allows all
tokens made of K characters: a row of the vocabulary, chosen by the number of characters that may still come. Of the
other tokens it can only allow those that start with characters of K and then leave K; these are walked as a trie of
what comes *after* the K characters (2,500 nodes instead of 266,000 for JSON strings). This requires that no other item
of the state can take a K character (which is checked; otherwise whole tokens are walked).

*Canonical symbols.* A walk sees symbols of the real stack only through `canonical`, which maps counters that no token
can bring to a limit to one value; and it counts the symbols that it has examined. The row is remembered under (state,
these symbols): every configuration that agrees on them shares it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Bool, Int32, Int64
from dotllm.automata.kinds import N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import add_closure, begin, close
from dotllm.automata.machine.frames import canonical
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans import TRIE, Trie, bytes_of, fits, tokens_from
from dotllm.automata.machine.states import intern_state
from dotllm.automata.machine.walk import (
    CHARSETS,
    LEAST_BELOW,
    MOST_STEPS,
    CharsetTables,
    advance,
    allow,
    base_cell,
    beyond_ascii,
    inspect_set,
    local_apply,
    new_loops,
    stays_below,
    table_of,
    take_byte,
    take_character,
    walk,
)
from dotllm.jit import B1, I1, I2, I, inner_kernel, kernel

# Kernels: the masks of items that loop over a large character set (see the module docstring).
#
# Under a limit, tokens inside the set are tested by their number of characters, which decides where they lead; the few
# tokens that end inside a character are walked.


@inner_kernel(I(MEM, I, I, I))
def select(mem: Int32, state: int, number: int, only: int) -> int:
    """The state of the items of ``state`` that loop over set ``number`` (``only`` = 1), or of all items that do not
    loop over a known set (``only`` = 0). 0 if there are none; or an error."""
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
    """`allow_inside` for tokens of whole characters; a token of j characters leaves enough tokens only if
    ``fitting[j]``."""
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

    If the loop alone takes any number of characters, all tokens inside the set are allowed, and only those that leave
    it are walked (whole). Otherwise, or if the loop alone cannot end in time, the token trie is walked.
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
        if is_limited:  # if the loop alone can end in time, so can the loop with others
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
    """Allow the tokens of a state whose items all loop over one character set. 0, or an error.

    Follow one character of the set after another: C1, C2, … until the configuration repeats (a loop without a near
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
        # walk the tokens that leave the set here
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


@kernel(nb.void(MEM, B1))
def forget_charsets(mem: Int32, leaving: Bool) -> None:
    """Make all nodes stop using the tables whose flags are set: their sets are walked from then on. (Masks stay the
    same.)"""
    charset = mem[L.H_CHARSET]
    for node in range(mem[L.H_NODES]):
        number = mem[charset + node]
        if number >= 0 and leaving[number]:
            mem[charset + node] = -1


# Kernel: computes the mask of items that nearly all tokens take into one loop over a character set.
#
# In a key that must not be one of some names, every character except the next character of a name leads to "any other
# key": a loop over one large set. So most of the token trie lies inside that loop, whose tokens are known (see the
# module docstring). The kernel takes the tokens of the loop, and walks the trie only until the machine is in the loop:
# a few hundred nodes instead of 266,000.

NOT_APPLICABLE = 1  # result: the state is not of this kind; nothing has been done
_PROBES = np.frombuffer(b"aek0M_ q", np.uint8)  # first bytes that are likely to lead into the loop


@inner_kernel(I(MEM, I, I, I2))
def endless_loop(mem: Int32, state: int, handle: int, sets: Int32) -> int:
    """The set over which a state loops forever without changing; -1 if there is none; or an error (below -1).

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


class EndlessLoop(NamedTuple):
    """An `endless_loop`."""

    number: int
    """The number of its set. Without a loop, -1; after an error, a code below that."""
    state: int
    handle: int


ENDLESS_LOOP = nb.types.NamedUniTuple(I, 3, EndlessLoop)


@inner_kernel(ENDLESS_LOOP(MEM, I, I, I2))
def likely_loop(mem: Int32, state: int, handle: int, sets: Int32) -> EndlessLoop:
    """An endless loop that is one byte away from (state, handle)."""
    for i in range(_PROBES.shape[0]):
        loop = take_byte(mem, state, handle, I(_PROBES[i]))
        if loop < 0:
            return EndlessLoop(loop, 0, 0)
        if loop == 0 or loop == state:
            continue
        loop_handle = I(mem[L.H_OUT])
        number = endless_loop(mem, loop, loop_handle, sets)
        if number != -1:
            return EndlessLoop(number, loop, loop_handle)
    return EndlessLoop(I(-1), I(0), I(0))


@inner_kernel(I(MEM, TRIE, CHARSETS, ENDLESS_LOOP, I, I, I1))
def allow_as_loop(
    mem: Int32, trie: Trie, charsets: CharsetTables, loop: EndlessLoop, state: int, handle: int, row: Int32
) -> int:
    """Write into ``row`` the tokens that begin with characters of the set, as if the first one led from (state, handle)
    into the loop. 0, or an error."""
    table = charsets.sets[loop.number]
    inside = charsets.rows[loop.number * L.K_ROWS]
    is_limited = mem[L.H_LEFT] > 0
    fit = fits(mem, trie, loop.state, loop.handle) if is_limited else I(1)
    if fit < 0:
        return fit
    for i in range(row.shape[0]):
        row[i] = inside[i] if fit != 0 else 0
        if is_limited:
            row[i] &= ~charsets.unfinished[i]
    if is_limited:
        done = walk(mem, trie, charsets.unfinished_low, charsets.unfinished_high, state, handle, row)
        if done < 0:
            return done
    return walk(mem, trie, table[L.K_EXITS], table[L.K_EXITS_END], loop.state, loop.handle, row)


@inner_kernel(nb.void(I1, I, I, I1), inlined=True)
def forbid(tokens: Int32, first: int, behind: int, out: Int32) -> None:
    """Clear the bits of tokens[first:behind] in ``out``."""
    for i in range(first, behind):
        out[tokens[i] >> 5] &= ~(nb.int32(1) << nb.int32(tokens[i] & 31))


@inner_kernel(I(MEM, TRIE, ENDLESS_LOOP, nb.int64[:, ::1], I, I, I), inlined=True)
def is_as_loop(mem: Int32, trie: Trie, loop: EndlessLoop, loops: Int64, state: int, handle: int, node: int) -> int:
    """Whether (state, handle), the configuration after a trie node whose bytes all belong to characters of the set,
    allows the same tokens below the node as the loop: 1, 0 (or it is not known), or an error."""
    if state == loop.state and handle == loop.handle:
        return 1
    byte = I(trie.byte[node])
    if byte >= 0xC2:
        leads_there = beyond_ascii(mem, state, handle, byte, loop.state, loop.handle, MOST_STEPS)
        if leads_there != 0:
            return leads_there
    if mem[L.H_LEFT] > 0 or trie.end[node] - node <= LEAST_BELOW:
        return 0
    # Other callers have loops of their own over the set. A token that stays in one of them (or in a chain)
    # and in this loop is allowed by both.
    stays = stays_below(mem, trie, loops, state, handle, node, state == loop.state)
    return stays if stays <= 0 else stays_below(mem, trie, loops, loop.state, loop.handle, node, True)


@inner_kernel(I(MEM, TRIE, CHARSETS, I, I, I1))
def mask_via_self_loop(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    state: int,
    handle: int,
    out: Int32,
) -> int:
    """Allow in ``out`` the tokens that (state, handle) allows, as `walk` over the whole trie does. 0, NOT_APPLICABLE,
    or an error.

    First come the tokens of the loop (`allow_as_loop`), then a walk that corrects them. Below a node that is as the
    loop (`is_as_loop`), they are right.
    """
    loop = likely_loop(mem, state, handle, charsets.sets)
    if loop.number < 0:
        return NOT_APPLICABLE if loop.number == -1 else loop.number
    row = allocate.ints(out.shape[0])
    done = allow_as_loop(mem, trie, charsets, loop, state, handle, row)
    if done < 0:
        return done
    entry = charsets.sets[loop.number]
    table = table_of(mem)
    at_state, at_env = mem[L.H_WALK_STATE], mem[L.H_WALK_ENV]
    mem[at_state], mem[at_env] = state, handle
    member = allocate.zero_flags(mem[L.H_DEPTH] + 1)  # by depth: all bytes so far belong to characters of the set
    member[0] = True
    is_limited = mem[L.H_LEFT] > 0
    known = np.full((16, 6), -1, np.int64)
    loops = new_loops(not is_limited)
    i = 0
    while i < trie.main_end:
        depth, byte = trie.depth[i], I(trie.byte[i])
        before, before_env = I(mem[at_state + depth - 1]), I(mem[at_env + depth - 1])
        after, env, _ = advance(mem, table, known, before, before_env, byte, False)
        if after < 0:
            return after
        if after == L.DEAD:
            forbid(trie.tokens, I(trie.token_start[i]), I(trie.token_start[trie.end[i]]), row)
            i = trie.end[i]
            continue
        inside = member[depth - 1] and (byte >= 0x80 or (entry[L.K_FIRST_BYTES + (byte >> 5)] >> (byte & 31)) & 1 != 0)
        if inside:
            is_right = is_as_loop(mem, trie, loop, loops, after, env, i)
            if is_right < 0:
                return is_right
            if is_right != 0:
                i = trie.end[i]
                continue
        first, behind, fitting = I(trie.token_start[i]), I(trie.token_start[i + 1]), I(1)
        if is_limited and first < behind:
            fitting = fits(mem, trie, after, env)
            if fitting < 0:
                return fitting
        if fitting != 0:
            allow(trie.tokens, first, behind, row)
        else:
            forbid(trie.tokens, first, behind, row)
        mem[at_state + depth], mem[at_env + depth], member[depth] = after, env, inside
        i += 1
    for i in range(out.shape[0]):
        out[i] |= row[i]
    return 0


@inner_kernel(I(MEM, TRIE, I, I, I))
def fits_by_id(mem: Int32, trie: Trie, node: int, fs: int, handle: int) -> int:
    """`fits` for the tokens that an item takes by their ids."""
    begin(mem)
    done = add_closure(mem, mem[mem[L.H_B] + node], fs, 0)
    raw = close(mem) if done >= 0 else done
    state = local_apply(mem, raw, handle) if raw > 0 else raw
    return fits(mem, trie, state, mem[L.H_OUT]) if state > 0 else state


@inner_kernel(I(MEM, TRIE, CHARSETS, I2, I1, I, I, I1))
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
    """Compute the mask of (state, stack) into ``out`` [words]. Returns the number of stack symbols that it depends on,
    or an error.

    token_rows [sets, words]: bitmasks of the grammar's token sets; eos: end tokens; (state, stack): a configuration.
    """
    words = out.shape[0]
    for i in range(words):
        out[i] = 0
    mem[L.H_CONSULTED] = 0
    mem[L.H_LOCAL] = L.BASE_CELLS
    if mem[L.CAP_LOCAL] < 2 * L.BASE_CELLS:
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
        if done == NOT_APPLICABLE:
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
                fit = fits_by_id(mem, trie, node, I(mem[items + 2 * i + 1]), handle) if mem[L.H_LEFT] > 0 else I(1)
                if fit < 0:
                    return fit
                for j in range(words):
                    if fit != 0:
                        out[j] |= token_rows[number, j]
    return I(mem[L.H_CONSULTED])


@kernel(I(MEM, I))
def known_row(mem: Int32, config: int) -> int:
    """The row of a configuration if it is remembered under its canonical key, else -1; or an error."""
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


@inner_kernel(I(MEM, I, I, I))
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


# Kernels: compute masks under a limit on the remaining tokens, and the number of tokens from which on a limit changes
# nothing.

OF_CONFIG = 2  # in a key of T_RISE: the value is the tokens after a configuration, not the bytes that a row adds


@inner_kernel(nb.types.UniTuple(I, 2)(MEM, I, I))
def row_key(mem: Int32, state: int, stack: int) -> tuple[int, int]:
    """The key of the ordinary row of (state, stack): a state or the number of a memo, and the number of symbols in it
    (0 for a state). (-1, 0): it has no such row yet."""
    row = I(mem[mem[L.AT_STATE] + L.S_WIDTH * state + L.S_MEMO])
    key, depth = I(state), I(0)
    while row == L.MEMO_DEEPER:
        symbol = canonical(mem, mem[mem[L.AT_STACK] + 3 * stack])
        key = triple_get(mem, L.T_MEMO, -1 - key if depth == 0 else key, symbol, 0) if symbol >= 0 else symbol
        if key < 0:
            return -1, 0
        row = I(mem[mem[L.AT_MEMO] + key])
        stack = I(mem[mem[L.AT_STACK] + 3 * stack + 1])
        depth += 1
    return (key, depth) if row >= 0 else (-1, 0)


@inner_kernel(nb.boolean(MEM, I, I))
def adds_alike(mem: Int32, stack: int, depth: int) -> bool:
    """Whether the stack below ``depth`` adds the same cost to every successor, so that the rise can be shared.

    It does if its top symbol has at most one frame set. It may not if the grammar has an unordered sequence (the bytes
    required after a separator differ from those before it), or if canonical symbols do not tell required rounds apart.
    """
    loops = mem[L.H_LOOP_AFTER] - mem[L.H_LOOP_BODY]
    for loop in range(loops):
        low, high = mem[mem[L.H_LOOP_MIN] + loop], mem[mem[L.H_LOOP_MAX] + loop]
        if low > mem[L.H_MAX_TOKEN_BYTES] or (low >= 0 and high < -1):
            return False
    for _ in range(depth):
        stack = I(mem[mem[L.AT_STACK] + 3 * stack + 1])
    return mem[mem[L.AT_SYMBOL] + 3 * mem[mem[L.AT_STACK] + 3 * stack] + 1] <= 1


@kernel(I(MEM, TRIE, CHARSETS, I2, I1, I, I, I1))
def find_row_within(
    mem: Int32,
    trie: Trie,
    charsets: CharsetTables,
    token_rows: Int32,
    eos: Int32,
    config: int,
    left: int,
    out: Int32,
) -> int:
    """Compute into ``out`` [words] the tokens after which ``config`` can be completed with the ``left`` - 1 tokens that
    then remain (see `plans`). Returns the number of tokens that suffice after any next token: the maximum over all
    tokens that the mask without a limit allows, but at least what ``config`` needs minus one; or an error. Ways must
    have been found. left: below 2**31.

    That number is remembered for the configuration. The largest number of bytes by which a token moves the end further
    away is remembered for all configurations that share the row, if the rest of the stack does not matter.
    """
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = I(mem[at]), I(mem[at + 1])
    mem[L.H_LEFT], mem[L.H_MOST], mem[L.H_MOST_BYTES] = left, 0, 0
    consulted = find_row(mem, trie, charsets, token_rows, eos, state, stack, out)
    mem[L.H_LEFT] = 0
    if consulted < 0:
        return consulted
    needed = tokens_from(mem, trie, config)
    if needed < 0:
        return needed
    # the plan of ``config`` may take more tokens than any next token requires; a limit below the plan is refused anyway
    most, most_bytes = max(I(mem[L.H_MOST]), needed - 1), I(mem[L.H_MOST_BYTES])
    done = triple_put(mem, L.T_RISE, config, OF_CONFIG, 0, most)
    key, depth = row_key(mem, state, stack)
    if done >= 0 and key >= 0 and depth >= consulted and adds_alike(mem, stack, depth):
        done = bytes_of(mem, trie, state, stack)
        if done >= 0:
            done = triple_put(mem, L.T_RISE, key, min(depth, 1), 0, max(0, most_bytes - done))
    return done if done < 0 else most


@kernel(I(MEM, TRIE, nb.boolean, I))
def enough_tokens(mem: Int32, trie: Trie, counts_bytes: bool, config: int) -> int:
    """The number of tokens from which on a limit changes nothing at ``config``, whatever comes next; -1 if it is not
    known; or an error.

    counts_bytes: whether each byte of a plan is a token of its own, so that a plan has at most as many tokens as bytes.
    """
    if mem[L.H_HAS_WAYS] == 0:
        return -1
    most = triple_get(mem, L.T_RISE, config, OF_CONFIG, 0)
    if most >= 0:
        return most + 1
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = I(mem[at]), I(mem[at + 1])
    key, depth = row_key(mem, state, stack)
    if not counts_bytes or key < 0 or not adds_alike(mem, stack, depth):
        return -1
    rise = triple_get(mem, L.T_RISE, key, min(depth, 1), 0)
    if rise < 0:
        return -1
    least = bytes_of(mem, trie, state, stack)
    return least if least < 0 else least + rise + 2
