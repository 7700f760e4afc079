"""Kernels: raw states and symbols, made once.

A raw state is what a step leaves; its *core* is the same with the frame sets cut out, which are the *symbol* to push.
"""

from __future__ import annotations

from dotllm.arrays import Int32
from dotllm.automata.machine.intern import hole, intern_list
from dotllm.automata.machine.kinds import MEM, N_ACCEPT, N_END, N_RETURN, N_TOKENS, I
from dotllm.automata.machine.layout import (
    ACCEPTS,
    BUFFER,
    COMPLEX,
    DELTA,
    FRAME,
    FRAMESET,
    FULL,
    H_BUFFER,
    H_CHARSET,
    H_CLASSES,
    H_KIND,
    HAS_CHARSET,
    HAS_TOKENS,
    HOLE,
    L_STATE,
    L_SYMBOL,
    PENDING,
    POOL,
    S_CORE,
    S_FLAGS,
    S_HOLES,
    S_MEMO,
    S_OFFSET,
    S_PUSH,
    S_SPARE,
    STATE,
    SYMBOL,
    UNKNOWN,
    R,
)  # fmt: skip
from dotllm.jit import kernel


@kernel(I(MEM, I, I))
def intern_symbol(mem: Int32, at: int, n: int) -> int:
    """The symbol of the n frame sets at mem[at:]; notes whether it only renames holes."""
    found = intern_list(mem, L_SYMBOL, at, n)
    if found < 0:
        return found
    symbol = found >> 1
    if found & 1:
        sets, pool, frames = mem[R + 3 * FRAMESET], mem[R + 3 * POOL], mem[R + 3 * FRAME]
        bare = 1
        for i in range(n):
            fs = mem[at + i]
            if mem[sets + 2 * fs + 1] != 1 or mem[frames + 3 * mem[pool + mem[sets + 2 * fs]]] != HOLE:
                bare = 0
        mem[mem[R + 3 * SYMBOL] + 3 * symbol + 2] = bare
    return symbol


@kernel(I(MEM, I, I))
def intern_state(mem: Int32, at: int, n: int) -> int:
    """The raw state of the n items at mem[at:], with its core and its symbol worked out if it is new."""
    found = intern_list(mem, L_STATE, at, 2 * n)
    if found < 0:
        return found
    state = found >> 1
    entry = mem[R + 3 * STATE] + 8 * state
    # (a state whose initialisation was cut short by FULL has S_CORE unset: 0)
    if (found & 1) == 0 and mem[entry + S_CORE] != 0:
        return state
    kind, charset = mem[H_KIND], mem[H_CHARSET]
    classes = mem[H_CLASSES]
    row = mem[R + 3 * DELTA] + state * classes
    if (state + 1) * classes > mem[R + 3 * DELTA + 1]:
        return FULL - DELTA
    flags = 0
    items = mem[R + 3 * POOL] + mem[entry + S_OFFSET]
    # distinct frame sets, in order of appearance, become holes
    top = mem[H_BUFFER]
    base = mem[R + 3 * BUFFER]
    if top + 4 * n > mem[R + 3 * BUFFER + 1]:
        return FULL - BUFFER
    cut = base + top + 2 * n  # (the items themselves may lie at the top of the buffer)
    holes = 0
    for i in range(n):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        k = mem[kind + node]
        if k == N_RETURN or k == N_END:
            flags |= PENDING | COMPLEX
        elif k == N_ACCEPT:
            flags |= ACCEPTS
        elif k == N_TOKENS:
            flags |= HAS_TOKENS
        if mem[charset + node] >= 0:
            flags |= HAS_CHARSET
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
    mem[H_BUFFER] = top + 2 * n + holes
    identity = True
    core = state
    push = I(-1)
    if (flags & PENDING) == 0:
        for j in range(holes):
            h = hole(mem, j)
            if h < 0:
                mem[H_BUFFER] = top
                return h
            if h != mem[cut + j]:
                identity = False
        if not identity:
            symbol = intern_symbol(mem, cut, holes)
            if symbol < 0:
                mem[H_BUFFER] = top
                return symbol
            push = symbol
            flags |= COMPLEX
            start = mem[H_BUFFER]
            if start + 2 * n > mem[R + 3 * BUFFER + 1]:
                mem[H_BUFFER] = top
                return FULL - BUFFER
            mem[H_BUFFER] = start + 2 * n
            for i in range(n):
                fs = mem[items + 2 * i + 1]
                mem[base + start + 2 * i] = mem[items + 2 * i]
                if fs != 0:
                    for j in range(holes):
                        if mem[cut + j] == fs:
                            h = hole(mem, j)
                            if h < 0:
                                mem[H_BUFFER] = top
                                return h
                            fs = h
                            break
                mem[base + start + 2 * i + 1] = fs
            found = intern_list(mem, L_STATE, base + start, 2 * n)
            if found < 0:
                mem[H_BUFFER] = top
                return found
            core = found >> 1
            other = mem[R + 3 * STATE] + 8 * core
            if mem[other + S_CORE] == 0:
                if (core + 1) * classes > mem[R + 3 * DELTA + 1]:
                    mem[H_BUFFER] = top
                    return FULL - DELTA
                # first delta, then S_CORE: an entry with S_CORE set is complete
                clear = mem[R + 3 * DELTA] + core * classes
                for i in range(classes):
                    mem[clear + i] = UNKNOWN
                mem[other + S_PUSH] = -1
                mem[other + S_FLAGS] = flags & ~COMPLEX
                mem[other + S_HOLES] = holes
                mem[other + S_MEMO] = -1
                mem[other + S_SPARE] = -1
                mem[other + S_CORE] = core
    for i in range(classes):
        mem[row + i] = UNKNOWN
    mem[entry + S_PUSH] = push
    mem[entry + S_FLAGS] = flags
    mem[entry + S_HOLES] = holes
    mem[entry + S_MEMO] = -1
    mem[entry + S_SPARE] = -1
    mem[entry + S_CORE] = core
    mem[H_BUFFER] = top
    return state
