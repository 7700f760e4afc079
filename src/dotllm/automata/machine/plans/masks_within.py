"""Kernels: masks under a limit on the tokens that are left, and how many tokens make a limit none."""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.canonical import canonical
from dotllm.automata.machine.intern import triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.masks import find_row
from dotllm.automata.machine.plans.places import bytes_of, tokens_from
from dotllm.automata.machine.plans.trie import TRIE, Trie
from dotllm.automata.machine.walk import CHARSETS, CharsetTables
from dotllm.jit import I1, I2, I, inner_kernel, kernel

OF_CONFIG = 2  # in a key of T_RISE: a configuration's most tokens, not the most bytes that a row adds


@inner_kernel(nb.types.UniTuple(I, 2)(MEM, I, I))
def row_key(mem: Int32, state: int, stack: int) -> tuple[int, int]:
    """What the ordinary row of (state, stack) is remembered under: a state or the number of a memo, and how many
    symbols are part of it, 0 for a state. (-1, 0): it has no such row yet."""
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
    """Whether what lies below the ``depth`` topmost symbols adds the same number of bytes to all that a token leads to.

    It does if there is one way down to it. With an unordered sequence it may not (what is owed behind a separator is
    another number than before it), nor where rounds that are owed are alike in canonical symbols.
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
    remain then (see `plans`). Returns how many tokens suffice after whichever token comes next: the maximum over all
    tokens that the mask without a limit allows, and at least those that ``config`` needs less one; or an error. Ways
    must have been found. left: below 2**31.

    That number is remembered for the configuration; by how many bytes a token brings the end further away, at most, for
    all configurations that share the row, where the rest of the stack does not matter for that.
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
    # a plan may take more tokens than every token's own: a limit below it is refused, whatever is remembered
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
    """So many tokens are no limit at ``config``, whatever comes next; -1: that is not known; or an error.

    counts_bytes: whether every byte of a plan is a token by itself, so that its tokens are at most its bytes.
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
