"""Kernels: make raw states and symbols, each once.

A raw state is the result of a step. Its *core* is the same state without the frame sets, which become the *symbol* to
push.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Int32
from dotllm.automata.kinds import N_ACCEPT, N_END, N_RETURN, N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import hole, intern_list
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I, I))
def intern_symbol(mem: Int32, at: int, n: int) -> int:
    """The symbol of the n frame sets at mem[at:]; notes whether it only renames holes."""
    result = intern_list(mem, L.L_SYMBOL, at, n)
    if result < 0:
        return result
    symbol = result >> 1
    if result & 1:
        sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
        bare = 1
        for i in range(n):
            fs = mem[at + i]
            if mem[sets + 2 * fs + 1] != 1 or mem[frames + 3 * mem[pool + mem[sets + 2 * fs]]] != L.HOLE:
                bare = 0
        mem[mem[L.AT_SYMBOL] + 3 * symbol + 2] = bare
    return symbol


@inner_kernel(I(MEM, I, I), inlined=True)
def flags_of(mem: Int32, items: int, n: int) -> int:
    """The flags of a raw state of the n items at mem[items:]; COMPLEX is set only if PENDING is."""
    kind, charset = mem[L.H_KIND], mem[L.H_CHARSET]
    flags = 0
    for i in range(n):
        node = mem[items + 2 * i]
        k = mem[kind + node]
        if k == N_RETURN or k == N_END:
            flags |= L.PENDING | L.COMPLEX
        elif k == N_ACCEPT:
            flags |= L.ACCEPTS
        elif k == N_TOKENS:
            flags |= L.HAS_TOKENS
        if mem[charset + node] >= 0:
            flags |= L.HAS_CHARSET
    return flags


@inner_kernel(I(MEM, I, I, I), inlined=True)
def position_in(mem: Int32, cut: int, holes: int, fs: int) -> int:
    """The position of ``fs`` among the frame sets at mem[cut : cut + holes]; ``holes`` if it is not among them."""
    for j in range(holes):
        if mem[cut + j] == fs:
            return j
    return holes


@inner_kernel(I(MEM, I, I, I), inlined=True)
def cut_frames(mem: Int32, items: int, n: int, cut: int) -> int:
    """Write the distinct frame sets of the items to mem[cut:], in order of appearance: they become holes. Returns their
    number."""
    holes = 0
    for i in range(n):
        fs = mem[items + 2 * i + 1]
        if fs != 0 and position_in(mem, cut, holes, fs) == holes:
            mem[cut + holes] = fs
            holes += 1
    return holes


@inner_kernel(I(MEM, I, I), inlined=True)
def are_bare_holes(mem: Int32, cut: int, holes: int) -> int:
    """1 if the frame sets cut out are the holes themselves, in order, otherwise 0; or an error."""
    bare = 1
    for j in range(holes):
        h = hole(mem, j)
        if h < 0:
            return h
        if h != mem[cut + j]:
            bare = 0
    return bare


@inner_kernel(nb.void(MEM, I, I, I, I, I))
def complete_state(mem: Int32, state: int, core: int, push: int, flags: int, holes: int) -> None:
    """Fill the entry of a state. The core is written last, so an entry with a core is complete."""
    classes = mem[L.H_CLASSES]
    row = mem[L.AT_DELTA] + state * classes
    for i in range(classes):
        mem[row + i] = L.UNKNOWN
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    mem[entry + L.S_PUSH] = push
    mem[entry + L.S_FLAGS] = flags
    mem[entry + L.S_HOLES] = holes
    mem[entry + L.S_MEMO] = -1
    mem[entry + L.S_CORE] = core


@inner_kernel(I(MEM, I, I, I, I, I), inlined=True)
def intern_core(mem: Int32, items: int, n: int, cut: int, holes: int, flags: int) -> int:
    """The state of the items with holes in place of the frame sets cut out, or an error."""
    start = mem[L.H_BUFFER]
    if start + 2 * n > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    core = mem[L.AT_BUFFER] + start
    mem[L.H_BUFFER] = start + 2 * n
    for i in range(n):
        fs = I(mem[items + 2 * i + 1])
        if fs != 0:
            fs = hole(mem, position_in(mem, cut, holes, fs))
            if fs < 0:
                return fs
        mem[core + 2 * i], mem[core + 2 * i + 1] = mem[items + 2 * i], fs
    result = intern_list(mem, L.L_STATE, core, 2 * n)
    if result < 0:
        return result
    state = result >> 1
    if mem[mem[L.AT_STATE] + L.S_WIDTH * state + L.S_CORE] == 0:
        if (state + 1) * mem[L.H_CLASSES] > mem[L.CAP_DELTA]:
            return L.FULL - L.DELTA
        complete_state(mem, state, state, -1, flags, holes)
    return state


@inner_kernel(I(MEM, I, I))
def intern_state(mem: Int32, at: int, n: int) -> int:
    """The raw state of the n items at mem[at:], or an error. A new state gets its core and its symbol."""
    result = intern_list(mem, L.L_STATE, at, 2 * n)
    if result < 0:
        return result
    state = result >> 1
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    # (if FULL interrupted the initialisation of a state, its S_CORE is still 0)
    if (result & 1) == 0 and mem[entry + L.S_CORE] != 0:
        return state
    if (state + 1) * mem[L.H_CLASSES] > mem[L.CAP_DELTA]:
        return L.FULL - L.DELTA
    top = mem[L.H_BUFFER]
    if top + 4 * n > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    cut = mem[L.AT_BUFFER] + top + 2 * n  # (the items themselves may lie at the top of the buffer)
    holes = cut_frames(mem, items, n, cut)
    flags = flags_of(mem, items, n)
    mem[L.H_BUFFER] = top + 2 * n + holes
    core, push = state, I(-1)
    if (flags & L.PENDING) == 0:
        bare = are_bare_holes(mem, cut, holes)
        if bare == 0:
            push = intern_symbol(mem, cut, holes)
            core = intern_core(mem, items, n, cut, holes, flags) if push >= 0 else push
            flags |= L.COMPLEX
        elif bare < 0:
            core = bare
    mem[L.H_BUFFER] = top
    if core >= 0:
        complete_state(mem, state, core, push, flags, holes)
        return state
    return core
