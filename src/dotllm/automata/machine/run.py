"""Kernels: move a configuration over bytes and tokens.

A configuration is (state, stack); the stack is an interned linked list of symbols (STACK cells), and cell 0 is the
empty stack. The fast path of a byte is two loads: delta gives the next state, and its flags say that there is nothing
else to do.
"""

from __future__ import annotations

import numba as nb

from dotllm.arrays import Bool, Int32, UInt8
from dotllm.automata.kinds import N_BYTE, N_TOKENS
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.closure import add_closure, begin, close, touch
from dotllm.automata.machine.exits import exits_of, goes_on_transparently, is_transparent
from dotllm.automata.machine.frames import compose, holes_of, substitute
from dotllm.automata.machine.intern import buffer_room, hole, triple_get, triple_put
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.states import intern_symbol
from dotllm.jit import I, inner_kernel, kernel

# Kernels: take one step of the machine. Each step is found once and then remembered.
#
# A step takes the items of a state over one byte class and *closes* the result:
#
#  A. Returns and loop ends are carried out until nothing changes: a frame is popped, and the item continues at its
#     return node with the frames below. Only frames that existed before the step are popped, so the order does not
#     matter.
#  B. Pushes (calls, loop entries) are carried out in left-corner order (`rank`), so the frames of a caller are complete
#     before they become part of a callee's frame. A rule that can be empty has a bypass in the closures, so its RETURN
#     is ignored here, and B never pops.
#
# The remaining items wait for a byte, a token or the end; items that returned through a hole wait for the symbol on top
# of the stack (`reduce`). Frame sets of the same node are merged: there is one item per node, however many derivations
# lead there (the graph-structured stack of M. Tomita, 1985, cut into symbols).


@inner_kernel(I(MEM, I, I))
def step(mem: Int32, state: int, cls: int) -> int:
    """Find delta[state, cls], the raw state after one byte of the class. Returns it (0: dead), or an error.

    Neighbouring classes that the same edges of this state cover get the same entry now: a schema tells most letters
    apart somewhere, but most of its states do not.
    """
    begin(mem)
    class_byte, classes = mem[L.H_CLASS_BYTE], mem[L.H_CLASSES]
    byte = mem[class_byte + cls]
    low, high = I(0), I(255)  # bytes around it that the same edges cover
    kind, edge_start = mem[L.H_KIND], mem[L.H_EDGE_START]
    edge_bytes, edge_target = mem[L.H_EDGE_BYTES], mem[L.H_EDGE_TARGET]
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        if mem[kind + node] != N_BYTE:
            continue
        for e in range(mem[edge_start + node], mem[edge_start + node + 1]):
            first, last = I(mem[edge_bytes + e] & 255), I(mem[edge_bytes + e] >> 8)
            if byte < first:
                high = min(high, first - 1)
            elif byte > last:
                low = max(low, last + 1)
            else:
                low, high = max(low, first), min(high, last)
                done = add_closure(mem, mem[edge_target + e], fs, 0)
                if done < 0:
                    return done
    target = close(mem)
    if target >= 0:
        row = mem[L.AT_DELTA] + state * classes
        while cls > 0 and mem[class_byte + cls - 1] >= low:  # (classes are in the order of their first bytes)
            cls -= 1
        while cls < classes and mem[class_byte + cls] <= high:
            mem[row + cls] = target
            cls += 1
    return target


@inner_kernel(I(MEM, I, I))
def expand(mem: Int32, state: int, symbol: int) -> int:
    """The raw state of ``state`` with its holes filled from ``symbol``. Nothing is consumed; the result is closed."""
    begin(mem)
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    for i in range(mem[entry + L.S_LENGTH] // 2):
        filled = substitute(mem, mem[items + 2 * i + 1], symbol)
        if filled < 0:
            return filled
        done = touch(mem, mem[items + 2 * i], filled)
        if done < 0:
            return done
    return close(mem)


@inner_kernel(I(MEM, I, I))
def reduce(mem: Int32, state: int, symbol: int) -> int:
    """The raw state after ``state``, which is pending, has popped ``symbol`` off the stack; or an error."""
    result = triple_get(mem, L.T_REDUCE, state, symbol, 0)
    if result >= 0:
        return result
    target = expand(mem, state, symbol)
    if target < 0:
        return target
    return triple_put(mem, L.T_REDUCE, state, symbol, 0, target)


@inner_kernel(I(MEM, I, I))
def push_cell(mem: Int32, symbol: int, below: int) -> int:
    """The stack ``below`` with ``symbol`` on top. A cell is (symbol, below, depth)."""
    result = triple_get(mem, L.T_STACK, symbol, below, 0)
    if result >= 0:
        return result
    number = mem[L.USED_STACK]
    if number >= mem[L.CAP_STACK]:
        return L.FULL - L.STACK
    done = triple_put(mem, L.T_STACK, symbol, below, 0, number)
    if done < 0:
        return done
    at = mem[L.AT_STACK] + 3 * number
    mem[at], mem[at + 1] = symbol, below
    mem[at + 2] = mem[mem[L.AT_STACK] + 3 * below + 2] + 1
    mem[L.USED_STACK] = number + 1
    return I(number)


@inner_kernel(I(MEM, I, I))
def merge_symbols(mem: Int32, upper: int, lower: int) -> int:
    """1 + the symbol that replaces both; 0 if they are not merged; or an error.

    They are merged if ``upper`` needs only bare holes of ``lower``: the rest of ``lower`` is dead, and without merging,
    every item of a list would leave a dead symbol. They are also merged if a rule's end leads through transparent
    frames of both (see `exits`): otherwise the end of a recursion would pop a symbol for each level.
    """
    result = triple_get(mem, L.T_COMPOSE, upper, lower, 1)
    if result >= 0:
        return result
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    entry = mem[L.AT_SYMBOL] + 3 * upper
    needed = pool + mem[mem[L.AT_SYMBOL] + 3 * lower]
    mem[L.H_BUFFER] = 0
    only_bare, goes_on = True, False
    for i in range(mem[entry + 1]):
        fs = I(mem[pool + mem[entry] + i])
        holes = holes_of(mem, fs)
        if holes < 0:
            return holes
        for j in range(mem[sets + 2 * holes + 1]):
            at = frames + 3 * mem[pool + mem[sets + 2 * holes] + j]
            other = mem[needed + mem[at + 1]]
            if mem[sets + 2 * other + 1] != 1 or mem[frames + 3 * mem[pool + mem[sets + 2 * other]]] != L.HOLE:
                only_bare = False
        for j in range(mem[sets + 2 * fs + 1]):
            number = I(mem[pool + mem[sets + 2 * fs] + j])
            if not goes_on and is_transparent(mem, number):
                exits = exits_of(mem, number)
                if exits < 0:
                    return exits
                goes_on = goes_on_transparently(mem, exits, lower)
    if not only_bare and not goes_on:
        return triple_put(mem, L.T_COMPOSE, upper, lower, 1, 0)
    symbol = compose(mem, upper, lower)
    if symbol < 0:
        return symbol
    return triple_put(mem, L.T_COMPOSE, upper, lower, 1, symbol + 1)


@inner_kernel(I(MEM, I, I))
def resolve_stack(mem: Int32, raw: int, stack: int) -> int:
    """Carry out the pops and pushes of a raw state. Returns the core state (the new stack is in H_OUT), or an error.

    The number of holes of a state always equals the size of the symbol on top: dead frame sets are dropped, so that
    equal situations are equal configurations.
    """
    states, cells, symbols = mem[L.AT_STATE], mem[L.AT_STACK], mem[L.AT_SYMBOL]
    while True:
        entry = states + L.S_WIDTH * raw
        if mem[entry + L.S_FLAGS] & L.PENDING:
            cell = cells + 3 * stack
            if stack == 0:
                return L.FAULT
            raw = reduce(mem, raw, mem[cell])
            if raw <= 0:
                return raw
            stack = I(mem[cell + 1])
            continue
        core = I(mem[entry + L.S_CORE])
        symbol = I(mem[entry + L.S_PUSH])
        holes = mem[states + L.S_WIDTH * core + L.S_HOLES]
        if holes == 0:
            mem[L.H_OUT] = 0
            return core
        if symbol < 0:
            if holes == mem[symbols + 3 * mem[cells + 3 * stack] + 1]:
                mem[L.H_OUT] = stack
                return core
            mem[L.H_BUFFER] = 0
            at = buffer_room(mem, holes)
            if at < 0:
                return at
            mem[L.H_BUFFER] = holes
            for i in range(holes):
                h = hole(mem, i)
                if h < 0:
                    return h
                mem[at + i] = h
            symbol = intern_symbol(mem, at, holes)
            if symbol < 0:
                return symbol
        while mem[symbols + 3 * symbol + 2] != 0:  # only renames holes: merge it with the symbol below
            if stack == 0:
                return L.FAULT
            cell = cells + 3 * stack
            symbol = compose(mem, symbol, mem[cell])
            if symbol < 0:
                return symbol
            stack = I(mem[cell + 1])
        while stack != 0:
            both = merge_symbols(mem, symbol, mem[cells + 3 * stack])
            if both < 0:
                return both
            if both == 0:
                break
            symbol = both - 1
            stack = I(mem[cells + 3 * stack + 1])
        stack = push_cell(mem, symbol, stack)
        if stack < 0:
            return stack
        mem[L.H_OUT] = stack
        return core


@inner_kernel(I(MEM, I, I))
def configuration(mem: Int32, state: int, stack: int) -> int:
    """The number of the configuration (state, stack). An entry is (state, stack, mask row or -1)."""
    result = triple_get(mem, L.T_CONFIG, state, stack, 0)
    if result >= 0:
        return result
    number = mem[L.USED_CONFIG]
    if number >= mem[L.CAP_CONFIG]:
        return L.FULL - L.CONFIG
    done = triple_put(mem, L.T_CONFIG, state, stack, 0, number)
    if done < 0:
        return done
    at = mem[L.AT_CONFIG] + 3 * number
    mem[at], mem[at + 1], mem[at + 2] = state, stack, -1
    mem[L.USED_CONFIG] = number + 1
    return I(number)


@inner_kernel(I(MEM, I, I, nb.uint8[::1], I, I))
def run_bytes(mem: Int32, state: int, stack: int, data: UInt8, start: int, end: int) -> int:
    """Move (state, stack) over data[start:end]. Returns the state (0: not allowed; the stack is in H_OUT), or an
    error."""
    delta, classes, class_of = mem[L.AT_DELTA], mem[L.H_CLASSES], mem[L.H_CLASS_OF]
    states = mem[L.AT_STATE]
    for i in range(start, end):
        cls = mem[class_of + data[i]]
        raw = I(mem[delta + state * classes + cls])
        if raw < 0:
            raw = step(mem, state, cls)
            if raw < 0:
                return raw
        if raw == L.DEAD:
            return 0
        if (
            mem[states + L.S_WIDTH * raw + L.S_FLAGS] & L.COMPLEX
            or mem[states + L.S_WIDTH * raw + L.S_HOLES] != mem[states + L.S_WIDTH * state + L.S_HOLES]
        ):
            state = resolve_stack(mem, raw, stack)
            if state <= 0:
                return state
            stack = I(mem[L.H_OUT])
        else:
            state = raw
    mem[L.H_OUT] = stack
    return state


@inner_kernel(nb.boolean(nb.int32[:, ::1], I, I), inlined=True)
def in_token_set(token_rows: Int32, number: int, token: int) -> bool:
    """Whether a token belongs to a token set (rows are bitmasks)."""
    return (token_rows[number, token >> 5] >> (token & 31)) & 1 != 0


@inner_kernel(I(MEM, I, nb.int32[:, ::1], I))
def token_step(mem: Int32, state: int, token_rows: Int32, token: int) -> int:
    """The raw state after taking ``token`` by its id (0: no item takes it), or an error."""
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    if mem[entry + L.S_FLAGS] & L.HAS_TOKENS == 0:
        return 0
    begin(mem)
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node, fs = mem[items + 2 * i], mem[items + 2 * i + 1]
        if mem[mem[L.H_KIND] + node] == N_TOKENS and in_token_set(token_rows, mem[mem[L.H_A] + node], token):
            done = add_closure(mem, mem[mem[L.H_B] + node], fs, 0)
            if done < 0:
                return done
    return close(mem)


@inner_kernel(I(MEM, I, I, I, I))
def unite(mem: Int32, state: int, stack: int, other: int, other_stack: int) -> int:
    """The union of two configurations: they are expanded down to the stack that they share, then merged.

    Used if a token is allowed both by its id and by its bytes. Returns the core state (stack in H_OUT), or an error.
    """
    cells = mem[L.AT_STACK]
    while stack != other_stack:
        if mem[cells + 3 * stack + 2] >= mem[cells + 3 * other_stack + 2]:
            state = expand(mem, state, mem[cells + 3 * stack])
            if state <= 0:
                return state
            stack = I(mem[cells + 3 * stack + 1])
        else:
            other = expand(mem, other, mem[cells + 3 * other_stack])
            if other <= 0:
                return other
            other_stack = I(mem[cells + 3 * other_stack + 1])
    begin(mem)
    for which in range(2):
        entry = mem[L.AT_STATE] + L.S_WIDTH * (state if which == 0 else other)
        items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
        for i in range(mem[entry + L.S_LENGTH] // 2):
            done = touch(mem, mem[items + 2 * i], mem[items + 2 * i + 1])
            if done < 0:
                return done
    raw = close(mem)
    if raw <= 0:
        return raw
    return resolve_stack(mem, raw, stack)


@inner_kernel(
    I(MEM, I, I, nb.uint8[::1], nb.int32[::1], nb.boolean[::1], nb.int32[:, ::1]),
)
def advance(
    mem: Int32, config: int, token: int, token_data: UInt8, token_offset: Int32, ends: Bool, token_rows: Int32
) -> int:
    """The configuration after ``token``: -1 if it is not allowed, FINISHED after an end token, or an error.

    token_data/token_offset: the bytes of every token; ends [vocabulary] bool: end tokens.
    """
    if config == L.FINISHED or token < 0 or token >= ends.shape[0]:
        return -1
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = I(mem[at]), I(mem[at + 1])
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    if ends[token] and mem[entry + L.S_FLAGS] & L.ACCEPTS:
        return L.FINISHED
    by_bytes = I(0)
    by_bytes_stack = I(0)
    start, end = token_offset[token], token_offset[token + 1]
    if end > start:
        by_bytes = run_bytes(mem, state, stack, token_data, start, end)
        if by_bytes < 0:
            return by_bytes
        by_bytes_stack = I(mem[L.H_OUT])
    if mem[entry + L.S_FLAGS] & L.HAS_TOKENS:
        raw = token_step(mem, state, token_rows, token)
        if raw < 0:
            return raw
        if raw > 0:
            by_id = resolve_stack(mem, raw, stack)
            if by_id < 0:
                return by_id
            if by_bytes > 0:
                by_id = unite(mem, by_bytes, by_bytes_stack, by_id, I(mem[L.H_OUT]))
                if by_id < 0:
                    return by_id
            return configuration(mem, by_id, mem[L.H_OUT])
    if by_bytes == 0:
        return -1
    return configuration(mem, by_bytes, by_bytes_stack)


@inner_kernel(I(MEM, I))
def forced_byte(mem: Int32, state: int) -> int:
    """The only byte that can follow; -1 if none or several can, or the end, or a token by its id."""
    entry = mem[L.AT_STATE] + L.S_WIDTH * state
    if mem[entry + L.S_FLAGS] & (L.ACCEPTS | L.HAS_TOKENS):
        return -1
    items = mem[L.AT_POOL] + mem[entry + L.S_OFFSET]
    only = I(-1)
    for i in range(mem[entry + L.S_LENGTH] // 2):
        node = mem[items + 2 * i]
        if mem[mem[L.H_KIND] + node] != N_BYTE:
            return -1
        for e in range(mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]):
            packed = mem[mem[L.H_EDGE_BYTES] + e]
            if packed & 255 != packed >> 8 or (only >= 0 and only != packed & 255):
                return -1
            only = packed & 255
    return only


@kernel(I(MEM, I, nb.uint8[::1]))
def forced_bytes(mem: Int32, config: int, out: UInt8) -> int:
    """Write the bytes that must follow ``config`` into ``out``. Returns their number (at most len(out)), or an
    error."""
    if config == L.FINISHED:
        return 0
    at = mem[L.AT_CONFIG] + 3 * config
    state, stack = I(mem[at]), I(mem[at + 1])
    n = 0
    while n < out.shape[0]:
        byte = forced_byte(mem, state)
        if byte < 0:
            break
        out[n] = byte
        state = run_bytes(mem, state, stack, out, n, n + 1)
        if state <= 0:
            return state if state < 0 else I(L.FAULT)
        stack = I(mem[L.H_OUT])
        n += 1
    return n


@kernel(I(MEM, I, nb.uint8[::1]))
def advance_bytes(mem: Int32, config: int, data: UInt8) -> int:
    """The configuration after raw bytes, none of them taken as a token by its id: -1 if not allowed, or an error."""
    if config == L.FINISHED:
        return -1
    at = mem[L.AT_CONFIG] + 3 * config
    state = run_bytes(mem, I(mem[at]), I(mem[at + 1]), data, 0, data.shape[0])
    if state == 0:
        return -1
    if state < 0:
        return state
    return configuration(mem, state, mem[L.H_OUT])
