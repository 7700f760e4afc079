"""Kernels: can the numbers of a saved arena be used as places in memory?

A checksum finds accidents; it does not say who wrote a file. So every number of a saved index is checked before a
kernel works on it. Whatever these checks accept, no kernel reads or writes outside of its arrays, and none loops for
ever. They do not say that the index is right: a made-up file may allow what its specification does not.

One pass over the file suffices. Every rule is about an entry and the entries it refers to, and what the machine makes
of entries that obey the rules obeys them again. Most rules are about ranges. The others:

* Order. What is built of something else comes behind it (a frame set behind those that its frames stand on, a stack
  behind the one below, a memo behind the one it continues). So nothing is a part of itself.
* Arity. The arity of a frame set is the number of frame sets that the symbol below must offer (its highest hole, plus
  one). The arity of a state or a symbol is the largest of its frame sets'. A symbol offers its own number of frame
  sets. Nothing lies on a symbol that offers less than its arity, and the result of a step, a return or a memo has no
  larger arity than its source allows.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64
from dotllm.automata.kinds import N_BYTE
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.plans.ways import MOST
from dotllm.index.storage.verify_nfa import within
from dotllm.jit import I, inner_kernel

ALL_VALID = -1
INVALID_WAYS = -3
WAY_ARRAYS = L.H_WAY_BEGIN + 1 - L.H_WAY_COST
_HAS_PARTS = -1  # instead of an arity: the frame set is one of parts (see `closure.part_set`)
_WIDTH = np.array(L.WIDTH, np.int64)

L1, I1, I2 = nb.int64[::1], nb.int32[::1], nb.int32[:, ::1]


@inner_kernel(nb.boolean(MEM))
def verify_frames(mem: Int32) -> bool:
    """Whether the labels of frames exist, and the frame sets they stand on."""
    frames, sets = mem[L.AT_FRAME], mem[L.USED_FRAMESET]
    nodes, loops = mem[L.H_NODES], mem[L.H_LOOP_AFTER] - mem[L.H_LOOP_BODY]
    if mem[L.USED_FRAME] < 1 or mem[frames] != L.HOLE or mem[frames + 1] != -1 or mem[frames + 2] != 0:
        return False
    for i in range(1, mem[L.USED_FRAME]):
        label, count, parent = mem[frames + 3 * i], mem[frames + 3 * i + 1], mem[frames + 3 * i + 2]
        if label >= nodes or label <= L.LOOP - loops or parent < 0 or parent >= sets:
            return False
        if label == L.HOLE and count < 0:
            return False
        if label <= L.LOOP:
            low, high = mem[mem[L.H_LOOP_MIN] + L.LOOP - label], mem[mem[L.H_LOOP_MAX] + L.LOOP - label]
            if low >= 0 and high < -1 and (count < 0 or count >= sets):  # an unordered sequence: its used parts
                return False
    return True


@inner_kernel(nb.boolean(MEM))
def verify_lists(mem: Int32) -> bool:
    """Whether states, frame sets and symbols are lists in the pool, which is long enough for all of them, and the
    first of each is empty."""
    left = I(mem[L.USED_POOL])
    pool = left
    for region in (L.STATE, L.FRAMESET, L.SYMBOL):
        entries, width = mem[L.R + 3 * region], _WIDTH[region]
        if mem[L.R + 3 * region + 2] < 1 or mem[entries + L.S_LENGTH] != 0:
            return False
        for i in range(mem[L.R + 3 * region + 2]):
            offset, length = I(mem[entries + width * i + L.S_OFFSET]), I(mem[entries + width * i + L.S_LENGTH])
            left -= length
            if offset < 0 or length < 0 or offset + length > pool or left < 0:
                return False
    return True


@inner_kernel(nb.boolean(MEM, L1))
def find_frame_set_arities(mem: Int32, arities: Int64) -> bool:
    """Set the arity of every frame set. True: all of them are valid."""
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    count = mem[L.USED_FRAME]
    for i in range(arities.shape[0]):
        first, n = pool + mem[sets + 2 * i], mem[sets + 2 * i + 1]
        if n > 0 and mem[first] < 0:
            if not within(mem, first, first + n, -(2**31), 0):
                return False
            arities[i] = _HAS_PARTS
            continue
        for j in range(first, first + n):
            if mem[j] < 1 or mem[j] >= count:
                return False
            frame = frames + 3 * mem[j]
            label = mem[frame]
            if label == L.HOLE:
                arities[i] = max(arities[i], I(mem[frame + 1]) + 1)
            elif label != L.ROOT:
                parent = mem[frame + 2]
                if parent >= i or arities[parent] == _HAS_PARTS:
                    return False
                arities[i] = max(arities[i], arities[parent])
    return True


@inner_kernel(I(MEM, I, I, I, L1))
def max_arity(mem: Int32, first: int, end: int, every: int, arities: Int64) -> int:
    """The largest arity of the frame sets mem[first:end:every]; -1: some are no frame sets, or have parts."""
    arity = I(0)
    for i in range(first, end, every):
        fs = mem[i]
        if fs < 0 or fs >= arities.shape[0] or arities[fs] == _HAS_PARTS:
            return -1
        arity = max(arity, arities[fs])
    return arity


@inner_kernel(nb.boolean(MEM, L1, L1))
def find_symbol_arities(mem: Int32, arities: Int64, symbol_arities: Int64) -> bool:
    """Set the arity of every symbol, and in the arena whether it only renames holes. True: all are valid."""
    sets, pool, frames = mem[L.AT_FRAMESET], mem[L.AT_POOL], mem[L.AT_FRAME]
    for i in range(symbol_arities.shape[0]):
        entry = mem[L.AT_SYMBOL] + 3 * i
        first = pool + mem[entry]
        end = first + mem[entry + 1]
        symbol_arities[i] = max_arity(mem, first, end, 1, arities)
        if symbol_arities[i] < 0:
            return False
        bare = 1
        for j in range(first, end):
            one = sets + 2 * mem[j]
            if mem[one + 1] != 1 or mem[frames + 3 * mem[pool + mem[one]]] != L.HOLE:
                bare = 0
        mem[entry + 2] = bare
    return True


@inner_kernel(nb.boolean(MEM, L1, L1, L1, I))
def verify_states(mem: Int32, arities: Int64, symbol_arities: Int64, state_arities: Int64, rows: int) -> bool:
    """Set the arity of every state. True: all are valid. rows: how many rows of masks there are."""
    states, symbols, count = mem[L.AT_STATE], mem[L.AT_SYMBOL], state_arities.shape[0]
    for i in range(count):
        entry = states + L.S_WIDTH * i
        first, length = mem[L.AT_POOL] + mem[entry + L.S_OFFSET], mem[entry + L.S_LENGTH]
        if length % 2 != 0:
            return False
        for j in range(first, first + length, 2):
            if mem[j] < 0 or mem[j] >= mem[L.H_NODES]:
                return False
        state_arities[i] = max_arity(mem, first + 1, first + length, 2, arities)
        if state_arities[i] < 0 or mem[entry + L.S_MEMO] < L.MEMO_DEEPER or mem[entry + L.S_MEMO] >= rows:
            return False
    for i in range(count):
        entry = states + L.S_WIDTH * i
        core, push, holes = mem[entry + L.S_CORE], mem[entry + L.S_PUSH], mem[entry + L.S_HOLES]
        if core < 0 or core >= count or push < -1 or push >= symbol_arities.shape[0]:
            return False
        if core == 0:  # the dead one, or one that was begun when memory ended
            if push != 0 or holes != 0 or mem[entry + L.S_FLAGS] != 0:
                return False
        elif mem[entry + L.S_FLAGS] & L.PENDING:
            if core != i or push >= 0:
                return False
        elif push < 0:
            if core != i or holes != state_arities[i]:
                return False
        else:
            other = states + L.S_WIDTH * core
            if mem[other + L.S_CORE] != core or mem[other + L.S_PUSH] >= 0 or mem[other + L.S_FLAGS] & L.PENDING:
                return False
            if mem[symbols + 3 * push + 1] != mem[other + L.S_HOLES] or symbol_arities[push] > state_arities[i]:
                return False
    return True


@inner_kernel(nb.boolean(MEM, L1))
def verify_transitions(mem: Int32, state_arities: Int64) -> bool:
    """Whether every transition leads to a state of no larger arity."""
    classes, count = I(mem[L.H_CLASSES]), state_arities.shape[0]
    first = I(mem[L.AT_DELTA])
    for i in range(count):
        before = nb.int32(L.UNKNOWN)
        for j in range(first, first + classes):
            after = mem[j]
            if after != before:  # mostly neighbouring classes lead to one state
                before = after
                if after < L.UNKNOWN or after >= count or (after > 0 and state_arities[after] > state_arities[i]):
                    return False
        first += classes
    return True


@inner_kernel(nb.boolean(MEM, I, I, L1))
def fits(mem: Int32, arity: int, stack: int, symbol_arities: Int64) -> bool:
    """Whether ``stack`` exists and the symbol on its top offers ``arity`` frame sets."""
    if stack < 0 or stack >= mem[L.USED_STACK]:
        return False
    symbol = mem[mem[L.AT_STACK] + 3 * stack]
    return 0 <= symbol < symbol_arities.shape[0] and arity <= mem[mem[L.AT_SYMBOL] + 3 * symbol + 1]


@inner_kernel(nb.boolean(MEM, L1))
def verify_stacks(mem: Int32, symbol_arities: Int64) -> bool:
    """Whether every cell is one deeper than the cell below, which comes before it and offers its arity."""
    cells = mem[L.AT_STACK]
    if mem[L.USED_STACK] < 1 or mem[cells] != 0 or mem[cells + 1] != 0 or mem[cells + 2] != 0:
        return False
    for i in range(1, mem[L.USED_STACK]):
        symbol, below = mem[cells + 3 * i], mem[cells + 3 * i + 1]
        if symbol < 0 or symbol >= symbol_arities.shape[0] or below < 0 or below >= i:
            return False
        if mem[cells + 3 * i + 2] != mem[cells + 3 * below + 2] + 1:
            return False
        if not fits(mem, symbol_arities[symbol], below, symbol_arities):
            return False
    return True


@inner_kernel(nb.boolean(MEM, L1, L1, I))
def verify_configurations(mem: Int32, state_arities: Int64, symbol_arities: Int64, rows: int) -> bool:
    """Whether every configuration is a state on a stack that offers its arity."""
    configs, count = mem[L.AT_CONFIG], mem[L.USED_CONFIG]
    if count <= L.INITIAL:
        return False
    for i in range(count):
        state, stack, row = mem[configs + 3 * i], mem[configs + 3 * i + 1], mem[configs + 3 * i + 2]
        if state < 0 or state >= state_arities.shape[0] or row < L.MEMO_DEEPER or row >= rows:
            return False
        if not fits(mem, state_arities[state], stack, symbol_arities):
            return False
    return True


@inner_kernel(nb.boolean(I, I), inlined=True)
def among(number: int, count: int) -> bool:
    """Whether 0 <= number < count."""
    return 0 <= number < count


@inner_kernel(nb.boolean(MEM, I1, L1, L1, L1))
def verify_triple(mem: Int32, triple: Int32, arities: Int64, symbol_arities: Int64, state_arities: Int64) -> bool:
    """Whether the value of a memo fits its key. triple int32 [5]: (kind + 1, a, b, c, value)."""
    kind, a, b, c, value = triple[0] - 1, triple[1], triple[2], triple[3], triple[4]
    sets, symbols, states = arities.shape[0], symbol_arities.shape[0], state_arities.shape[0]
    if kind == L.T_FRAME or kind == L.T_STACK or kind == L.T_CONFIG:
        region = L.FRAME if kind == L.T_FRAME else (L.STACK if kind == L.T_STACK else L.CONFIG)
        if not among(value, mem[L.R + 3 * region + 2]):
            return False
        entry = mem[L.R + 3 * region] + 3 * value
        return mem[entry] == a and mem[entry + 1] == b and (kind != L.T_FRAME or mem[entry + 2] == c)
    if kind == L.T_REDUCE:
        return among(value, states) and among(b, symbols) and state_arities[value] <= symbol_arities[b]
    if kind == L.T_SUBST:
        return among(value, sets) and among(b, symbols) and 0 <= arities[value] <= symbol_arities[b]
    if kind == L.T_CANON_FRAMES:
        return among(value, sets) and among(a, sets) and 0 <= arities[value] <= arities[a]
    if kind == L.T_UNION:
        return (
            among(value, sets) and among(a, sets) and among(b, sets)
            and 0 <= arities[value] <= max(arities[a], arities[b])
        )  # fmt: skip
    if kind == L.T_CANON or kind == L.T_COMPOSE:
        other = a if kind == L.T_CANON else b  # what the value lies on offers at least the arity of this one
        if kind == L.T_COMPOSE and c == 1:  # 1 + symbol; 0: see `run.merge_symbols`
            if value == 0:
                return True
            value -= 1
        if not among(value, symbols) or not among(a, symbols) or not among(other, symbols):
            return False
        entries = mem[L.AT_SYMBOL]
        same = mem[entries + 3 * value + 1] == mem[entries + 3 * a + 1]
        return same and symbol_arities[value] <= symbol_arities[other]
    # behind the memo it continues, so that a look-up comes to an end
    return kind == L.T_MEMO and value > a and among(value, mem[L.USED_MEMO])


@inner_kernel(nb.boolean(MEM))
def verify_ways(mem: Int32) -> bool:
    """Whether every way begins with an edge of its node, or goes on at a node."""
    nodes = I(mem[L.H_NODES])
    for node in range(nodes):
        choice, low, high = mem[mem[L.H_WAY_CHOICE] + node], nb.int32(0), nb.int32(nodes)
        if mem[mem[L.H_KIND] + node] == N_BYTE:
            low, high = mem[mem[L.H_EDGE_START] + node], mem[mem[L.H_EDGE_START] + node + 1]
        if choice != -1 and not low <= choice < high:
            return False
    for array, low, high in (
        (L.H_WAY_COST, 0, MOST + 1), (L.H_WAY_BYTE, -1, 256), (L.H_WAY_AFTER, -1, nodes), (L.H_WAY_BEGIN, -1, nodes),
    ):  # fmt: skip
        if not within(mem, mem[array], mem[array] + nodes, low, high):
            return False
    return True


@inner_kernel(I(MEM, I2, I))
def first_invalid_region(mem: Int32, triples: Int32, rows: int) -> int:
    """The first region that is not valid (or INVALID_WAYS), of an arena whose automaton is; ALL_VALID if there is none.

    Hash tables are not checked: ``triples`` int32 [n, 5] is what one of them is to be filled with. rows: how many rows
    of masks there are. The flag of symbols that only rename holes is written, not checked, as it follows from others.
    """
    if mem[L.H_HAS_WAYS] == 1 and not verify_ways(mem):
        return INVALID_WAYS
    if not verify_lists(mem):
        return L.POOL
    if not verify_frames(mem):
        return L.FRAME
    arities = allocate.zero_longs(mem[L.USED_FRAMESET])
    if not find_frame_set_arities(mem, arities):
        return L.FRAMESET
    symbol_arities = allocate.zero_longs(mem[L.USED_SYMBOL])
    if not find_symbol_arities(mem, arities, symbol_arities):
        return L.SYMBOL
    state_arities = allocate.zero_longs(mem[L.USED_STATE])
    if not verify_states(mem, arities, symbol_arities, state_arities, rows):
        return L.STATE
    if not verify_transitions(mem, state_arities):
        return L.DELTA
    if not verify_stacks(mem, symbol_arities):
        return L.STACK
    if not verify_configurations(mem, state_arities, symbol_arities, rows):
        return L.CONFIG
    memos = mem[L.AT_MEMO]
    if not within(mem, memos, memos + mem[L.USED_MEMO], L.MEMO_DEEPER, rows):
        return L.MEMO
    for i in range(triples.shape[0]):
        if triples[i, 0] != 0 and not verify_triple(mem, triples[i], arities, symbol_arities, state_arities):
            return L.TRIPLES
    return ALL_VALID
