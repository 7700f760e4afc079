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
from dotllm.automata.machine.closure import close
from dotllm.automata.machine.closure_worklist import add_closure, begin
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.loop_masks import allow_set, select
from dotllm.automata.machine.plans.places import fits
from dotllm.automata.machine.plans.trie import TRIE, Trie
from dotllm.automata.machine.walk import CHARSETS, CharsetTables, base_cell, local_apply, walk
from dotllm.automata.machine.wide_loop import NOT_APPLICABLE, mask_via_self_loop
from dotllm.jit import I1, I2, I, inner_kernel, kernel


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
    """Compute the mask of (state, stack) into ``out`` [words]. Returns how many stack symbols it depends on, or an
    error.

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
