"""Saves an index as a file, with everything it has found so far, and loads it.

In order: `verify_nfa` and `first_invalid_region` (are all numbers valid as places in memory?), `restore` (fills the
arena), `dump` and `load` (the format).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64
from dotllm.automata.kinds import HEAD, N_ACCEPT, N_BYTE, N_CALL, N_END, N_ENTER, N_PLAIN, N_TOKENS, NfaArray
from dotllm.automata.machine import layout as L
from dotllm.automata.machine import layout as at
from dotllm.automata.machine.arena import DEFAULT_LIMIT, contents, fill_triples, laid_out
from dotllm.automata.machine.intern import rehash_lists
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.ways import MOST
from dotllm.charset import CharSet
from dotllm.index.mask_table import END_ROW, is_empty
from dotllm.index.token_space import RowOwner, TokenSpace
from dotllm.index.walkable import TokenSets
from dotllm.jit import I, inner_kernel, kernel
from dotllm.system import joined
from dotllm.vocabulary import Vocabulary

# Kernels: verify that all numbers of a saved automaton are valid places in memory.

BYTES = 256

# (to Numba, members of an IntEnum are not constants)
KIND, A, B, CHARSET = int(NfaArray.KIND), int(NfaArray.A), int(NfaArray.B), int(NfaArray.CHARSET)
EDGE_START, EDGE_BYTES, EDGE_TARGET = int(NfaArray.EDGE_START), int(NfaArray.EDGE_BYTES), int(NfaArray.EDGE_TARGET)
CLOSURE_START, CLOSURE = int(NfaArray.CLOSURE_START), int(NfaArray.CLOSURE)
LOOP_BODY, LOOP_AFTER, LOOP_MIN, LOOP_MAX = (
    int(NfaArray.LOOP_BODY), int(NfaArray.LOOP_AFTER), int(NfaArray.LOOP_MIN), int(NfaArray.LOOP_MAX),
)  # fmt: skip
CLASS_OF, CLASS_BYTE = int(NfaArray.CLASS_OF), int(NfaArray.CLASS_BYTE)
PARTS = HEAD - 2


@inner_kernel(nb.boolean(MEM, I, I, I, I))
def within(numbers: Int32, first: int, end: int, low: int, high: int) -> bool:
    """Whether low <= number < high for all of numbers[first:end]."""
    part = numbers[first:end]
    least, most = nb.int32(high - 1), nb.int32(low)
    for i in range(part.shape[0]):  # (to the end: a loop that may end at each number cannot use vector instructions)
        least = min(least, part[i])
        most = max(most, part[i])
    return low <= least and most < high


@inner_kernel(nb.boolean(MEM, I, I, I))
def ascending(numbers: Int32, first: int, end: int, most: int) -> bool:
    """Whether the non-empty slice numbers[first:end] is non-decreasing, from 0 to at most ``most``."""
    part = numbers[first:end]
    falls = 0
    for i in range(1, part.shape[0]):
        falls += part[i] < part[i - 1]
    return falls == 0 and part[0] >= 0 and part[part.shape[0] - 1] <= most


@inner_kernel(nb.boolean(MEM, I, I, I))
def verify_nodes(block: Int32, nodes: int, loops: int, token_sets: int) -> bool:
    """Whether the two ints of every node are in the ranges of its kind (see `NodeKind`)."""
    for node in range(nodes):
        kind = block[block[KIND] + node]
        a, b = I(block[block[A] + node]), I(block[block[B] + node])
        if kind < N_PLAIN or kind > N_ACCEPT:
            return False
        if kind == N_CALL:
            if not (0 <= a < nodes and 0 <= b < nodes):
                return False
        elif kind == N_TOKENS:
            if not (0 <= a < token_sets and 0 <= b < nodes):
                return False
        elif kind == N_ENTER or kind == N_END:
            if not 0 <= a < loops:
                return False
            first, last = abs(b), I(0)
            if block[block[LOOP_MIN] + a] < 0:  # a counted network: this many further transitions
                if first >= nodes or block[block[B] + first] < 0:
                    return False
                last = first + block[block[B] + first]
            elif block[block[LOOP_MAX] + a] < -1:  # an unordered sequence: this many parts
                parts = -2 - block[block[LOOP_MAX] + a]
                last = first + parts - 1
                if kind == N_END and b < 0 and not 0 <= node - first - parts < parts:
                    return False
            if last >= nodes:
                return False
    return True


@kernel(nb.boolean(MEM, I, I))
def verify_nfa(block: Int32, charsets: int, token_sets: int) -> bool:
    """Whether the ``block`` of an `Nfa` is valid, with these numbers of character sets and token sets."""
    if block.shape[0] < HEAD or block[0] != HEAD or block[PARTS] != block.shape[0]:
        return False
    if not ascending(block, 0, PARTS + 1, block.shape[0]):
        return False
    nodes, edges = block[A] - block[KIND], block[EDGE_TARGET] - block[EDGE_BYTES]
    closures, loops = block[LOOP_BODY] - block[CLOSURE], block[LOOP_AFTER] - block[LOOP_BODY]
    classes = block[PARTS] - block[CLASS_BYTE]
    if nodes < 2 or not 1 <= classes <= BYTES:  # (a machine uses the nodes 0 and 1 whatever the automaton says)
        return False
    for part in range(PARTS):
        size = block[part + 1] - block[part]
        if part <= CHARSET:
            expected = nodes
        elif part == EDGE_START or part == CLOSURE_START:
            expected = nodes + 1
        elif part == EDGE_BYTES or part == EDGE_TARGET:
            expected = edges
        elif part == CLOSURE:
            expected = closures
        elif part <= LOOP_MAX:
            expected = loops
        else:
            expected = BYTES if part == CLASS_OF else classes
        if size != expected:
            return False
    return (
        0 <= block[PARTS + 1] < nodes
        and within(block, block[CHARSET], block[CHARSET + 1], -1, charsets)
        and ascending(block, block[EDGE_START], block[EDGE_START + 1], edges)
        and within(block, block[EDGE_BYTES], block[EDGE_BYTES + 1], 0, BYTES * BYTES)
        and within(block, block[EDGE_TARGET], block[EDGE_TARGET + 1], 0, nodes)
        and ascending(block, block[CLOSURE_START], block[CLOSURE_START + 1], closures)
        and within(block, block[CLOSURE], block[CLOSURE + 1], 0, nodes)
        and within(block, block[LOOP_BODY], block[LOOP_AFTER + 1], 0, nodes)
        and within(block, block[CLASS_OF], block[CLASS_OF + 1], 0, classes)
        and within(block, block[CLASS_BYTE], block[CLASS_BYTE + 1], 0, BYTES)
        and verify_nodes(block, nodes, loops, token_sets)
    )


# Kernels: verify that all numbers of a saved arena are valid places in memory.
#
# A checksum detects accidents; it does not say who wrote a file. So every number of a saved index is checked before a
# kernel works on it. For every index that passes these checks, no kernel reads or writes outside its arrays, and none
# loops for ever. The checks do not prove that the index is right: a forged file may allow texts that its specification
# does not.
#
# One pass over the file suffices. Each rule concerns an entry and the entries it refers to, and new entries that the
# machine makes from valid ones are valid, too. Most rules concern ranges. The others are:
#
# * Order. An entry comes after the entries that it is built from (a frame set after those that its frames stand on, a
#   stack after the one below, a memo after the one it continues). So nothing is part of itself.
# * Arity. The arity of a frame set is the number of frame sets that the symbol below must offer (its highest hole,
#   plus one). The arity of a state or a symbol is the largest arity of its frame sets. A symbol offers its own number
#   of frame sets. Nothing lies on a symbol that offers less than its arity, and the result of a step, a return or a
#   memo has no larger arity than its source allows.

ALL_VALID = -1
INVALID_WAYS = -3
_HAS_PARTS = -1  # in place of an arity: the frame set consists of parts (see `closure.part_set`)
_WIDTH = np.array(L.WIDTH, np.int64)

L1, I1, I2 = nb.int64[::1], nb.int32[::1], nb.int32[:, ::1]


@inner_kernel(nb.boolean(MEM))
def verify_frames(mem: Int32) -> bool:
    """Whether the labels of frames, and the frame sets that the frames stand on, exist."""
    frames, sets = mem[L.AT_FRAME], mem[L.USED_FRAMESET]
    nodes, loops = mem[L.H_NODES], mem[L.H_LOOP_AFTER] - mem[L.H_LOOP_BODY]
    if mem[L.USED_FRAME] < 1 or mem[frames] != L.HOLE or mem[frames + 1] != -1 or mem[frames + 2] != 0:
        return False
    for i in range(1, mem[L.USED_FRAME]):
        label, count, parent = mem[frames + 3 * i], mem[frames + 3 * i + 1], mem[frames + 3 * i + 2]
        if label >= 2 * nodes or label <= L.LOOP - loops or parent < 0 or parent >= sets:
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
    """Whether states, frame sets and symbols are lists within the pool, and the first list of each kind is empty."""
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
    """The largest arity of the frame sets mem[first:end:every]; -1 if any of them is not a frame set, or has parts."""
    arity = I(0)
    for i in range(first, end, every):
        fs = mem[i]
        if fs < 0 or fs >= arities.shape[0] or arities[fs] == _HAS_PARTS:
            return -1
        arity = max(arity, arities[fs])
    return arity


@inner_kernel(nb.boolean(MEM, L1, L1))
def find_symbol_arities(mem: Int32, arities: Int64, symbol_arities: Int64) -> bool:
    """Set the arity of every symbol, and in the arena whether the symbol only renames holes. True: all are valid."""
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
            frame_set = sets + 2 * mem[j]
            if mem[frame_set + 1] != 1 or mem[frames + 3 * mem[pool + mem[frame_set]]] != L.HOLE:
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
        if core == 0:  # the dead state, or a state that was begun when memory ran out
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
            if after != before:  # neighbouring classes mostly lead to the same state
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
    """Whether the cell below every cell comes before it, is one less deep, and offers its arity."""
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
        other = a if kind == L.T_CANON else b  # the symbol below the value offers at least the arity of this symbol
        if kind == L.T_COMPOSE and c == 1:  # 1 + symbol; 0: see `run.merge_symbols`
            if value == 0:
                return True
            value -= 1
        if not among(value, symbols) or not among(a, symbols) or not among(other, symbols):
            return False
        entries = mem[L.AT_SYMBOL]
        same = mem[entries + 3 * value + 1] == mem[entries + 3 * a + 1]
        return same and symbol_arities[value] <= symbol_arities[other]
    # a memo comes after the memo that it continues, so a look-up ends
    return kind == L.T_MEMO and value > a and among(value, mem[L.USED_MEMO])


@inner_kernel(nb.boolean(MEM))
def verify_ways(mem: Int32) -> bool:
    """Whether every way begins with an edge of its node, or continues at a node."""
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
    """The first region that is not valid (or INVALID_WAYS), in an arena whose automaton is valid; ALL_VALID if there is
    none.

    Hash tables are not checked: ``triples`` int32 [n, 5] has the entries that will fill one of them. rows: how many
    rows of masks there are. The flag of symbols that only rename holes is written, not checked, as it follows from
    other entries.
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


# Kernels: restore an arena from a saved index, without the GIL.
#
# A thread loads an index while the engine's loop runs, often while a request waits for the index
# (`compilation.process`). Any time spent in Python here would be taken from that loop.

TABLES = (L.LISTS, L.TRIPLES)
"""Regions that are hash tables. They are not saved (only the entries of TRIPLES are), but filled again."""
SCRATCH = (L.BUFFER, L.LOCAL)
"""Scratch regions, without content between two calls."""
FOUND_AGAIN = (L.PLACES, L.TAILS)
"""Regions that are filled when they are first needed."""
UNSAVED = TABLES + SCRATCH + FOUND_AGAIN


DOES_NOT_FIT = -2


@kernel(I(MEM, MEM, nb.int64[::1], I))
def restore(mem: Int32, saved: Int32, lengths: Int64, rows: int) -> int:
    """Fill the regions of an arena and its hash tables. Returns ALL_VALID, or the first region with invalid numbers
    (`first_invalid_region`), or DOES_NOT_FIT if a region's capacity is less than its length.

    saved: the parts that `dump` wrote between the automaton and the rows of masks, back to back: the entries of
    TRIPLES, the shortest ways (or nothing), then the saved regions; lengths int64 [parts]: the number of ints in each
    part; rows: the number of rows.
    """
    source, part = lengths[0] + lengths[1], 2
    if lengths[1] != 0:
        if lengths[1] != L.WAY_ARRAYS * mem[L.H_NODES]:
            return DOES_NOT_FIT
        mem[mem[L.H_WAY_COST] : mem[L.H_WAY_COST] + lengths[1]] = saved[lengths[0] : source]
        mem[L.H_HAS_WAYS] = 1
    mem[L.USED_PLACES] = mem[L.USED_TAILS] = 1
    for r in range(L.REGIONS):
        if r in UNSAVED:
            continue
        start, count = mem[L.R + 3 * r], lengths[part]
        if count % _WIDTH[r] != 0 or count > mem[L.R + 3 * r + 1] * _WIDTH[r]:
            return DOES_NOT_FIT
        for i in range(count):
            mem[start + i] = saved[source + i]
        if r != L.DELTA:
            mem[L.R + 3 * r + 2] = count // _WIDTH[r]
        source += count
        part += 1
    triples = allocate.copied_ints(saved[: lengths[0]]).reshape((lengths[0] // 5, 5))
    region = first_invalid_region(mem, triples, rows)
    if region == ALL_VALID:
        fill_triples(mem, triples)
        rehash_lists(mem)
    return region


@kernel(nb.boolean(MEM, nb.int32[:, ::1]))
def unpack_rows(packed: Int32, rows: Int32) -> bool:
    """Fill rows of masks int32 [n, words] (zeroed) from their differences (see `_pack_rows`). False: the differences
    are damaged, or a row allows no token."""
    count, words = rows.shape
    position = 0
    for i in range(count):
        if position + 2 > packed.shape[0]:
            return False
        reference, n = packed[position], packed[position + 1]
        position += 2
        if reference < -1 or reference >= i or n < 0 or n > words or position + 2 * n > packed.shape[0]:
            return False
        if reference >= 0:
            for k in range(words):
                rows[i, k] = rows[reference, k]
        for k in range(n):
            word = packed[position + k]
            if word < 0 or word >= words:
                return False
            rows[i, word] = packed[position + n + k]
        position += 2 * n
        if is_empty(rows[i]):
            return False
    return True


@kernel(nb.void(MEM, MEM, I))
def renumber_rows(mem: Int32, renumber: Int32, end_row: int) -> None:
    """Replace the row numbers in an arena (see `row_numbers`) with the numbers in this process; end_row: the number
    for the configuration after the end."""
    configs, states, memos = mem[L.AT_CONFIG], mem[L.AT_STATE], mem[L.AT_MEMO]
    for i in range(mem[L.USED_CONFIG]):
        row = mem[configs + 3 * i + 2]
        if row >= 0:
            mem[configs + 3 * i + 2] = renumber[row]
    for i in range(mem[L.USED_STATE]):
        row = mem[states + L.S_WIDTH * i + L.S_MEMO]
        if row >= 0:
            mem[states + L.S_WIDTH * i + L.S_MEMO] = renumber[row]
    for i in range(mem[L.USED_MEMO]):
        row = mem[memos + i]
        if row >= 0:
            mem[memos + i] = renumber[row]
    mem[configs + 2] = end_row


# An Index as a file: the automaton, and everything found so far, so that another process starts warm.
#
# Layout: MAGIC, lengths of header and payload (uint64, little-endian), the CRC-32 of both (uint32), the header (JSON),
# the payload: int32 arrays back to back. Bytes after the payload are not read (caches keep a trailer there, with a
# stronger checksum). Only the parts of the arena that are in use are written (hash tables are rebuilt). Mask rows are
# written as differences, because most are either nearly empty or nearly equal to another row.
#
# No pickle. The checksum detects accidents (a truncated file, a flipped bit); it proves nothing about who wrote the
# file. So all numbers that are used as places in memory are checked (`verify_nfa`, `first_invalid_region`), and a
# forged file does not crash the process. It can still allow any text, so load only files from people you trust. The
# caches authenticate their entries if they have a secret (`compilation.disk`).

_T = TypeVar("_T", bound=RowOwner)
Make = Callable[[Int32, Vocabulary, TokenSets, list[CharSet], frozenset[int]], _T]
"""The constructor of an index."""

MAGIC = b"dotllmIX"
VERSION = 6
_START = len(MAGIC) + 8 + 8 + 4
_SAVED = [r for r in range(at.REGIONS) if r not in UNSAVED]
_PARTS = len(_SAVED) + 4
_END = at.H_CLASS_BYTE + 1  # the slot with the end of the automaton
_LEAST_SCRATCH = 512  # ints: a region is never smaller (`arena`)


def row_numbers(mem: Int32) -> list[Int32]:
    """Views of all row numbers (or negative marks) in the arena, each int32 [n]."""
    return _row_numbers({r: contents(mem, r) for r in (at.CONFIG, at.STATE, at.MEMO)})


def _row_numbers(regions: Mapping[int, Int32]) -> list[Int32]:
    return [regions[at.CONFIG][2::3], regions[at.STATE][at.S_MEMO :: at.S_WIDTH], regions[at.MEMO]]


def _pack_rows(rows: Int32) -> list[Int32]:
    """Each row as (reference, n, n word positions, n words): its differences from the row before it, or from zero
    (reference -1)."""
    out: list[Int32] = []
    previous = np.zeros(rows.shape[1], np.int32)
    for i, row in enumerate(rows):
        reference = -1
        where = np.nonzero(row)[0]
        if i:
            other = np.nonzero(row != previous)[0]
            if len(other) < len(where):
                reference, where = i - 1, other
        out.append(np.array([reference, len(where)], np.int32))
        out.append(where.astype(np.int32))
        out.append(row[where])
        previous = row
    return out


class Snapshot(NamedTuple):
    """What is saved of an arena: copies, except of the NFA part, which may be 90 MB and does not change."""

    head: list[int]
    """The first numbers of the block of the `Nfa` that the arena was made from (`arena.lay_out`)."""
    nfa: Int32
    """A view of the other numbers, of which only ``charset_numbers`` may change."""
    charset_numbers: Int32
    """The numbers of the tables of charsets, by node."""
    triples: Int32
    """The occupied entries of the hash table of triples, int32 [n, 5], without those about regions that are not
    saved."""
    ways: Int32
    """The shortest ways (see `ways.find_ways`); empty if they have not been found."""
    regions: dict[int, Int32]
    """The contents of the regions."""
    scratch: list[int]
    """The capacities of SCRATCH."""


def result_bytes(mem: Int32) -> int:
    """About how many bytes of results `snapshot` copies."""
    used = mem[at.R + 2 : at.R + 3 * at.REGIONS : 3].tolist()
    used[at.DELTA] = used[at.STATE] * int(mem[at.H_CLASSES])
    return 4 * sum(used[r] * at.WIDTH[r] for r in _SAVED)


def snapshot(mem: Int32) -> Snapshot:
    """Copy what is saved of an arena. Hold the lock of its index."""
    first, end = int(mem[at.H_KIND]), int(mem[_END])
    head = [*(mem[at.H_KIND : _END + 1] - first + HEAD).tolist(), int(mem[at.H_START])]
    triples = contents(mem, at.TRIPLES).reshape(-1, at.WIDTH[at.TRIPLES])
    ways = int(mem[at.H_WAY_COST])
    return Snapshot(
        head,
        mem[first:end],
        mem[mem[at.H_CHARSET] : mem[at.H_CHARSET] + mem[at.H_NODES]].copy(),
        triples[(triples[:, 0] != 0) & (triples[:, 0] <= at.T_CELL)],
        mem[ways : ways + (at.WAY_ARRAYS * int(mem[at.H_NODES]) if mem[at.H_HAS_WAYS] else 0)].copy(),
        {r: contents(mem, r).copy() for r in _SAVED},
        [int(mem[at.R + 3 * r + 1]) for r in SCRATCH],
    )


def dump(
    saved: Snapshot,
    vocabulary: Vocabulary,
    token_sets: TokenSets,
    charsets: Sequence[CharSet],
    charset_numbers: Int32,
    unique_nodes: frozenset[int],
) -> bytes:
    """The content of the file of an index with these parts. ``saved``: this function changes it; ``charset_numbers``:
    the numbers of the tables of ``charsets`` when the snapshot was taken, -1 for sets without tables."""
    space = TokenSpace.of(vocabulary)
    views = _row_numbers(saved.regions)
    numbers = sorted({int(n) for view in views for n in np.unique(view[view >= 0])})
    renumber = np.full(max(numbers, default=0) + 1, -1, np.int32)
    renumber[numbers] = np.arange(len(numbers), dtype=np.int32)
    for view in views:
        known = view >= 0
        view[known] = renumber[view[known]]
    of_number = np.full(len(space.sets) + 1, -1, np.int32)  # (the last one is for nodes without a set)
    of_number[charset_numbers[charset_numbers >= 0]] = np.nonzero(charset_numbers >= 0)[0]
    block = np.concatenate((np.array(saved.head, np.int32), saved.nfa))
    block[block[NfaArray.CHARSET] : block[NfaArray.CHARSET + 1]] = of_number[saved.charset_numbers]
    packed = _pack_rows(space.rows[numbers])
    rows = np.concatenate(packed) if packed else np.zeros(0, np.int32)
    parts = [block, saved.triples.ravel(), saved.ways, *saved.regions.values(), rows]
    header = {
        "version": VERSION,
        "layout": at.MAGIC,
        "vocabulary": vocabulary.fingerprint,
        "scratch": saved.scratch,
        "lengths": [len(part) for part in parts],
        "rows": len(numbers),
        "token_sets": [[sorted(ids), exclude] for ids, exclude in token_sets],
        "unique_nodes": sorted(unique_nodes),
        "charsets": [list(map(list, c.ranges)) for c in charsets],
    }
    raw = json.dumps(header, separators=(",", ":")).encode()
    lengths = len(raw).to_bytes(8, "little") + (4 * sum(map(len, parts))).to_bytes(8, "little")
    # (the checksum of an index from a compile process is computed twice while a request waits; BLAKE2 took 0.2 ms for
    # that)
    return joined((MAGIC, lengths, _checksum(raw, *(part.data for part in parts)), raw, *parts))


def _checksum(*parts: bytes | memoryview) -> bytes:
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum.to_bytes(4, "little")


def load(raw: bytes, vocabulary: Vocabulary, make: Make[_T]) -> _T:
    """The result of ``make`` for the index in the bytes of a file.

    Raises:
        ValueError: the file is damaged, or of another version or vocabulary.
    """
    if len(raw) < _START or raw[: len(MAGIC)] != MAGIC:
        raise ValueError("not an index file")
    header_length, payload_length = (int.from_bytes(raw[at_ : at_ + 8], "little") for at_ in (8, 16))
    body = memoryview(raw)[_START : _START + header_length + payload_length]
    if len(body) != header_length + payload_length or _checksum(body) != raw[24:_START]:
        raise ValueError("damaged index: checksum")
    try:
        header: dict[str, Any] = json.loads(bytes(body[:header_length]))
        version = (header["version"], header["layout"])
        if version != (VERSION, at.MAGIC):
            raise ValueError(f"index of another version, {version}: make it again from its specification")
        if header["vocabulary"] != vocabulary.fingerprint:
            raise ValueError("index of another vocabulary: make it again with this one")
        numbers = np.empty(payload_length // 4, np.int32)
        numbers.view(np.uint8)[:] = np.frombuffer(body, np.uint8, offset=header_length)
        return _load(header, numbers, vocabulary, make)
    except (LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"damaged index: header ({type(error).__name__}: {error})") from error


def _load(header: dict[str, Any], numbers: Int32, vocabulary: Vocabulary, make: Make[_T]) -> _T:
    lengths = [int(length) for length in header["lengths"]]
    if len(lengths) != _PARTS or min(lengths) < 0 or sum(lengths) != len(numbers):
        raise ValueError("damaged index: parts")
    block_end, rows_at = lengths[0], len(numbers) - lengths[-1]
    space = TokenSpace.of(vocabulary)
    charsets = [CharSet(tuple((int(low), int(high)) for low, high in ranges)) for ranges in header["charsets"]]
    token_sets = [(frozenset(ids), bool(exclude)) for ids, exclude in header["token_sets"]]
    row_count = int(header["rows"])
    if not 0 <= row_count <= len(space.rows):
        raise ValueError("damaged index: more masks than there is room for")
    block = numbers[:block_end]
    if not verify_nfa(block, len(charsets), len(token_sets)):
        raise ValueError("damaged index: automaton")
    unique_nodes = frozenset(map(int, header["unique_nodes"]))
    if any(not 0 <= node < block[1] - block[0] for node in unique_nodes):
        raise ValueError("damaged index: automaton")
    space.make_room()
    since = space.times_freed
    used = set(block[block[NfaArray.CHARSET] : block[NfaArray.CHARSET + 1]].tolist())
    of_charset = np.array([_number(c, space) if i in used else -1 for i, c in enumerate(charsets)], np.int32)
    mem = _arena(block, of_charset, lengths, header["scratch"], space.max_token_bytes)
    region = int(restore(mem, numbers[block_end:rows_at], np.array(lengths[1:-1], np.int64), row_count))
    if region != ALL_VALID:
        raise ValueError(f"damaged index: numbers of region {region}")
    rows = np.zeros((row_count, space.words), np.int32)
    if not unpack_rows(numbers[rows_at:], rows):
        raise ValueError("damaged index: mask rows")
    index = make(mem, vocabulary, token_sets, charsets, unique_nodes)
    with index.lock:  # (until it has its rows, so that none of them is freed: `TokenSpace.collect`)
        renumber_rows(mem, space.intern_all(rows), END_ROW)
    space.forget_freed(index, since)
    return index


def _number(charset: CharSet, space: TokenSpace) -> int:
    """`TokenSpace.charset_number` for a set from a file: only sets that `CharSet.of` makes have a UTF-8 form."""
    known = space.known_charset(charset)
    if known >= 0:
        return known
    if not charset or CharSet.of(*charset.ranges) != charset:
        raise ValueError("damaged index: character sets")
    return space.charset_number(charset)


def _arena(block: Int32, of_charset: Int32, lengths: list[int], scratch: list[int], max_token_bytes: int) -> Int32:
    """An arena with this automaton and empty regions, each one and a half times as large as in a file.

    lengths: the lengths of all parts of the file; scratch: the capacities of SCRATCH in the file.

    Raises:
        ValueError: the file's parts have lengths that no arena has.
    """
    used = [0] * at.REGIONS
    for r, length in zip(_SAVED, lengths[3:-1], strict=True):
        used[r] = length // at.WIDTH[r]
    classes = int(block[NfaArray.CLASS_BYTE + 1] - block[NfaArray.CLASS_BYTE])
    triples, more = divmod(lengths[1], at.WIDTH[at.TRIPLES])
    fits = not more and used[at.DELTA] == used[at.STATE] * classes
    capacity = [count + count // 2 + 64 for count in used]
    capacity[at.DELTA] = capacity[at.STATE] * classes
    for r, entries in zip(TABLES, (used[at.STATE] + used[at.FRAMESET] + used[at.SYMBOL], triples), strict=True):
        capacity[r] = 1 << max(9, (4 * entries).bit_length())
    for r, size in zip(SCRATCH, map(int, scratch), strict=True):
        capacity[r] = size
        fits = fits and _LEAST_SCRATCH <= size <= DEFAULT_LIMIT // at.WIDTH[r]
    if not fits or capacity[at.LOCAL].bit_count() != 1:  # (a walk's cells are found by their hash)
        raise ValueError("damaged index: parts")
    return laid_out(block, of_charset, capacity, max_token_bytes)


__all__ = ["Snapshot", "dump", "load", "result_bytes", "row_numbers", "snapshot"]
