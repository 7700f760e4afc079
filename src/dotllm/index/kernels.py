"""Kernels over a whole batch of guides: one call, many machines.

Machines are passed as addresses and sizes (see `GrammarIndex.machine`). A kernel makes an array of each
(`numba.carray`), so the rest of the code sees ordinary arrays whose bounds can be checked. The Python side keeps the
arenas alive during the call.
"""

from __future__ import annotations

from typing import Any

import numba as nb
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dotllm import allocate
from dotllm.arrays import Bool, Int32, Int64, UInt8
from dotllm.automata.machine import layout as L
from dotllm.automata.machine.layout import MEM
from dotllm.automata.machine.masks import known_row
from dotllm.automata.machine.run import advance
from dotllm.index.callers import NO_CONFIGURATION, NOT_DISTINCT, OTHER_VOCABULARY, OUT_OF_RANGE, TOO_NARROW, WRONG_COUNT
from dotllm.index.mask_table import END_ROW
from dotllm.jit import inner_kernel, kernel

I = nb.int64
U8, I1, I2, B1, L1 = nb.uint8[::1], nb.int32[::1], nb.int32[:, ::1], nb.boolean[::1], nb.int64[::1]

MACHINE = 5
"""Words of a machine: address and size of its arena, address and number of the rows of its token sets, and a number
that identifies its token space."""
NEEDS_ROW = -1  # not a row: the mask must be computed


@intrinsic
def pointer(typing_context: Any, address: Any) -> Any:
    """int64 → void pointer."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


@intrinsic
def fetch(typing_context: Any, address: Any) -> Any:
    """Let the processor load the cache line at an address (int64), which need not be valid, without waiting for it."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        line, flag = builder.inttoptr(arguments[0], cgutils.voidptr_t), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, flag, flag, flag])
        to_read, keep, data = flag(0), flag(3), flag(1)
        builder.call(
            builder.module.declare_intrinsic("llvm.prefetch", [cgutils.voidptr_t], kind), [line, to_read, keep, data]
        )
        return context.get_dummy_value()

    return types.void(types.int64), codegen


@kernel(I(MEM))
def address(mem: Int32) -> int:
    """The address of an arena. (``mem.ctypes.data`` takes several times as long.)"""
    return mem.ctypes.data


@inner_kernel(nb.void(I1, L1, L1, I1, I2, U8, I1, B1))
def _fetch_all(
    places: Int32, tokens: Int64, machines: Int64, configs: Int32, trails: Int32,
    token_data: UInt8, token_offset: Int32, ends: Bool,
) -> None:  # fmt: skip
    """Load into the cache what `advance_running` reads first for each guide. One guide's loads wait for each other, as
    each says where the next one is, so a stage does one of them for all guides, as far as a token's first byte. (With
    cold caches, `advance_running` then takes 0.83 times as long for 32 guides, and 0.71 for 256.)"""
    for stage in range(4):
        for i in range(places.shape[0]):
            p, token = places[i], tokens[i]
            if p < 0 or token < 0 or token >= ends.shape[0]:
                continue
            at = machines[MACHINE * p]
            if stage == 0:
                for field in (L.H_OUT, L.H_CLASS_OF, L.AT_DELTA, L.AT_CONFIG):
                    fetch(at + 4 * field)
                fetch(nb.int64(token_offset.ctypes.data) + 4 * token)
                fetch(nb.int64(ends.ctypes.data) + token)
                fetch(nb.int64(trails.ctypes.data) + 4 * trails.shape[1] * p)
                continue
            if token_offset[token] == token_offset[token + 1]:
                continue
            mem = nb.carray(pointer(at), (machines[MACHINE * p + 1],), nb.int32)
            config = mem[L.AT_CONFIG] + 3 * configs[p]
            if stage == 1:
                fetch(at + 4 * config)
                fetch(nb.int64(token_data.ctypes.data) + token_offset[token])
                continue
            state, delta = mem[config], mem[L.AT_DELTA]
            entry = delta + state * mem[L.H_CLASSES] + mem[mem[L.H_CLASS_OF] + token_data[token_offset[token]]]
            if stage == 2:
                fetch(at + 4 * (mem[L.AT_STATE] + L.S_WIDTH * state))
                fetch(at + 4 * entry)
            else:
                fetch(at + 4 * (mem[L.AT_STATE] + L.S_WIDTH * mem[entry]))
                fetch(nb.int64(trails.ctypes.data) + 4 * (trails.shape[1] * p + trails[p, 0] + 1))


@kernel(I(I1, L1, L1, I1, I2, I1, U8, I1, B1, I, I, I1))
def advance_running(
    places: Int32, tokens: Int64, machines: Int64, configs: Int32, trails: Int32, rows: Int32,
    token_data: UInt8, token_offset: Int32, ends: Bool, words: int, fuel: int, others: Int32,
) -> int:  # fmt: skip
    """Let the guide at places[i] (below 0: there is none) take tokens[i]. Returns how many have not, or have ended.

    others [n]: the positions i of those that have not taken their token, where nothing has changed, and ~i of
    those that have taken it, and ended. machines [places * MACHINE]; configs, rows [places]. trails [places, 1 + most]:
    how many earlier configurations are listed for a place, then those configurations. rows[p]: the row of the mask, or
    NEEDS_ROW.
    """
    count = 0
    _fetch_all(places, tokens, machines, configs, trails, token_data, token_offset, ends)
    for i in range(places.shape[0]):
        p, after = places[i], nb.int64(-1)
        if p >= 0 and trails[p, 0] + 1 < trails.shape[1]:
            at = MACHINE * p
            mem = nb.carray(pointer(machines[at]), (machines[at + 1],), nb.int32)
            token_rows = nb.carray(pointer(machines[at + 2]), (machines[at + 3], words), nb.int32)
            mem[L.H_FUEL] = fuel
            after = advance(mem, configs[p], tokens[i], token_data, token_offset, ends, token_rows)
            if after >= 0:
                trails[p, 0] += 1
                trails[p, trails[p, 0]] = configs[p]
                configs[p] = after
                if after != L.FINISHED:
                    rows[p] = max(known_row(mem, after), NEEDS_ROW)
        if after <= L.FINISHED:
            others[count] = ~i if after == L.FINISHED else i
            count += 1
    return count


@kernel(I(L1, I1, I1))
def known_rows(machines: Int64, configs: Int32, out: Int32) -> int:
    """out[i] = the row of guide i, or NEEDS_ROW. Returns how many are NEEDS_ROW, or OTHER_VOCABULARY or
    NO_CONFIGURATION.

    machines [n * MACHINE], configs [n].
    """
    missing = 0
    for i in range(configs.shape[0]):
        if machines[MACHINE * i + 4] != machines[4]:
            return OTHER_VOCABULARY
        if configs[i] == L.FINISHED:
            out[i] = END_ROW
            continue
        mem = nb.carray(pointer(machines[MACHINE * i]), (machines[MACHINE * i + 1],), nb.int32)
        if configs[i] < 0 or configs[i] >= mem[L.USED_CONFIG]:
            return NO_CONFIGURATION
        out[i] = max(known_row(mem, configs[i]), NEEDS_ROW)
        if out[i] < 0:
            missing += 1
    return missing


@inner_kernel(I(L1, I1))
def check_configurations(machines: Int64, configs: Int32) -> int:
    """0 if the guides are of one vocabulary and their indexes have their configurations; otherwise the error."""
    for i in range(configs.shape[0]):
        at = MACHINE * i
        if machines[at + 4] != machines[4]:
            return OTHER_VOCABULARY
        mem = nb.carray(pointer(machines[at]), (machines[at + 1],), nb.int32)
        if configs[i] < 0 or configs[i] >= mem[L.USED_CONFIG]:
            return NO_CONFIGURATION
    return 0


@kernel(I(L1, I1, L1, U8, I1, B1, I, I, I1))
def advance_batch(
    machines: Int64,
    configs: Int32,
    tokens: Int64,
    token_data: UInt8,
    token_offset: Int32,
    ends: Bool,
    words: int,
    fuel: int,
    out: Int32,
) -> int:
    """out[i] = the configuration of guide i after tokens[i], -1 if it is not allowed, or an error (see run.advance).

    Returns 0. On WRONG_COUNT or an error of `check_configurations`, nothing has been done.
    """
    if tokens.shape[0] != configs.shape[0]:
        return WRONG_COUNT
    wrong = check_configurations(machines, configs)
    if wrong < 0:
        return wrong
    for i in range(configs.shape[0]):
        at = MACHINE * i
        mem = nb.carray(pointer(machines[at]), (machines[at + 1],), nb.int32)
        token_rows = nb.carray(pointer(machines[at + 2]), (machines[at + 3], words), nb.int32)
        mem[L.H_FUEL] = fuel
        out[i] = advance(mem, configs[i], tokens[i], token_data, token_offset, ends, token_rows)
    return 0


@kernel(I(MEM, I, I, U8, I1, B1, I2))
def advance_one(
    mem: Int32, config: int, token: int, token_data: UInt8, token_offset: Int32, ends: Bool, token_rows: Int32
) -> int:
    """`run.advance`, for Python."""
    return advance(mem, config, token, token_data, token_offset, ends, token_rows)


@inner_kernel(nb.void(I1, I1), inlined=True)
def copy_row(row: Int32, target: Int32) -> None:
    """Copy a row to a row of a bitmask, which may be wider; its other words become zero."""
    words = min(row.shape[0], target.shape[0])
    for i in range(words):
        target[i] = row[i]
    for i in range(words, target.shape[0]):
        target[i] = 0


@kernel(nb.void(I2, I1, I2, L1, B1))
def copy_rows(rows: Int32, numbers: Int32, bitmask: Int32, targets: Int64, written: Bool) -> None:
    """bitmask[targets[i]] = rows[numbers[i]] (no row: all zero), except where ``written``."""
    for i in range(numbers.shape[0]):
        if not written[i]:
            if numbers[i] < 0:
                bitmask[targets[i]][:] = 0
            else:
                copy_row(rows[numbers[i]], bitmask[targets[i]])


@kernel(I(L1, I1, I2, I2, L1, I1, nb.boolean))
def fill_known(
    machines: Int64, configs: Int32, rows: Int32, bitmask: Int32, targets: Int64, out: Int32, all_of_it: bool
) -> int:
    """`known_rows`. If no row is missing, and these rows are ``all_of_it``, also bitmask[targets[i]] = rows[out[i]].

    On an error (see `callers`) nothing has been written; other writers of the bitmask rely on this.
    """
    if bitmask.shape[1] < rows.shape[1]:
        return TOO_NARROW
    if targets.shape[0] != configs.shape[0]:
        return WRONG_COUNT
    rising, before = True, -1
    for i in range(targets.shape[0]):
        if targets[i] < 0 or targets[i] >= bitmask.shape[0]:
            return OUT_OF_RANGE
        rising = rising and targets[i] > before
        before = targets[i]
    if not rising:
        taken = allocate.zero_flags(bitmask.shape[0])
        for i in range(targets.shape[0]):
            if taken[targets[i]]:
                return NOT_DISTINCT
            taken[targets[i]] = True
    missing = known_rows(machines, configs, out)
    if missing == 0 and all_of_it:
        for i in range(targets.shape[0]):
            copy_row(rows[out[i]], bitmask[targets[i]])
    return missing


@kernel([I(I2, I, I2, I), I(I2, I, nb.int32[:, :], I)])
def write_row(rows: Int32, number: int, bitmask: Int32, target: int) -> int:
    """bitmask[target] = rows[number], its other words zero. Returns 0, or an error (see `callers`)."""
    words = rows.shape[1]
    if bitmask.shape[1] < words:
        return TOO_NARROW
    if target < 0 or target >= bitmask.shape[0]:
        return OUT_OF_RANGE
    for i in range(words):
        bitmask[target, i] = rows[number, i]
    for i in range(words, bitmask.shape[1]):
        bitmask[target, i] = 0
    return 0
