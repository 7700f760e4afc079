"""Kernels: raw states and symbols, made once.

A raw state is what a step leaves; its *core* is the same with the frame sets cut out, which are the *symbol* to push.
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.kinds import N_ACCEPT, N_END, N_RETURN, N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.intern import hole, intern_list
from dotllm.automata.machine.layout import MEM
from dotllm.jit import I, inner_kernel


@inner_kernel(I(MEM, I, I))
def intern_symbol(mem: Int32, at: int, n: int) -> int:
    """The symbol of the n frame sets at mem[at:]; notes whether it only renames holes."""
    found = intern_list(mem, L.L_SYMBOL, at, n)
    if found < 0:
        return found
    symbol = found >> 1
    if found & 1:
        sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
        bare = 1
        for i in range(n):
            fs = mem[at + i]
            if mem[sets + 2 * fs + 1] != 1 or mem[frames + 3 * mem[pool + mem[sets + 2 * fs]]] != L.HOLE:
                bare = 0
        mem[mem[L.AT_SYMBOL] + 3 * symbol + 2] = bare
    return symbol


@inner_kernel(I(MEM, I, I))
def intern_state(mem: Int32, at: int, n: int) -> int:
    """The raw state of the n items at mem[at:], with its core and its symbol worked out if it is new."""
    found = intern_list(mem, L.L_STATE, at, 2 * n)
    if found < 0:
        return found
    state = found >> 1
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    # (a state whose initialisation was cut short by FULL has S_CORE unset: 0)
    if (found & 1) == 0 and mem[entry + L.S_CORE] != 0:
        return state
    kind, charset = mem[L.H_KIND], mem[L.H_CHARSET]
    classes = mem[L.H_CLASSES]
    row = mem[L.AT_DELTA] + state * classes
    if (state + 1) * classes > mem[L.CAP_DELTA]:
        return L.FULL - L.DELTA
    flags = 0
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    # distinct frame sets, in order of appearance, become holes
    top = mem[L.H_BUFFER]
    base = mem[L.AT_BUFFER]
    if top + 4 * n > mem[L.CAP_BUFFER]:
        return L.FULL - L.BUFFER
    cut = base + top + 2 * n  # (the items themselves may lie at the top of the buffer)
    holes = 0
    for i in range(n):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        k = mem[kind + node]
        if k == N_RETURN or k == N_END:
            flags |= L.PENDING | L.COMPLEX
        elif k == N_ACCEPT:
            flags |= L.ACCEPTS
        elif k == N_TOKENS:
            flags |= L.HAS_TOKENS
        if mem[charset + node] >= 0:
            flags |= L.HAS_CHARSET
        if fs == 0:
            continue
        known = False
        for j in range(holes):
            if mem[cut + j] == fs:
                known = True
                break
        if not known:
            mem[cut + holes] = fs
            holes += 1
    mem[L.H_BUFFER] = top + 2 * n + holes
    identity = True
    core = state
    push = I(-1)
    if (flags & L.PENDING) == 0:
        for j in range(holes):
            h = hole(mem, j)
            if h < 0:
                mem[L.H_BUFFER] = top
                return h
            if h != mem[cut + j]:
                identity = False
        if not identity:
            symbol = intern_symbol(mem, cut, holes)
            if symbol < 0:
                mem[L.H_BUFFER] = top
                return symbol
            push = symbol
            flags |= L.COMPLEX
            start = mem[L.H_BUFFER]
            if start + 2 * n > mem[L.CAP_BUFFER]:
                mem[L.H_BUFFER] = top
                return L.FULL - L.BUFFER
            mem[L.H_BUFFER] = start + 2 * n
            for i in range(n):
                fs = mem[items + 2 * i + 1]
                mem[base + start + 2 * i] = mem[items + 2 * i]
                if fs != 0:
                    for j in range(holes):
                        if mem[cut + j] == fs:
                            h = hole(mem, j)
                            if h < 0:
                                mem[L.H_BUFFER] = top
                                return h
                            fs = h
                            break
                mem[base + start + 2 * i + 1] = fs
            found = intern_list(mem, L.L_STATE, base + start, 2 * n)
            if found < 0:
                mem[L.H_BUFFER] = top
                return found
            core = found >> 1
            other = mem[L.AT_STATE] + L.S_WIDTH * core
            if mem[other + L.S_CORE] == 0:
                if (core + 1) * classes > mem[L.CAP_DELTA]:
                    mem[L.H_BUFFER] = top
                    return L.FULL - L.DELTA
                # first delta, then S_CORE: an entry with S_CORE set is complete
                clear = mem[L.AT_DELTA] + core * classes
                for i in range(classes):
                    mem[clear + i] = L.UNKNOWN
                mem[other + L.S_PUSH] = -1
                mem[other + L.S_FLAGS] = flags & ~L.COMPLEX
                mem[other + L.S_HOLES] = holes
                mem[other + L.S_MEMO] = -1
                mem[other + L.S_CORE] = core
    for i in range(classes):
        mem[row + i] = L.UNKNOWN
    mem[entry + L.S_PUSH] = push
    mem[entry + L.S_FLAGS] = flags
    mem[entry + L.S_HOLES] = holes
    mem[entry + L.S_MEMO] = -1
    mem[entry + L.S_CORE] = core
    mem[L.H_BUFFER] = top
    return state
