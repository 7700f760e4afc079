"""Kernels over a whole batch of guides: one call, many machines.

Machines are passed as the address and the size of their arenas; a kernel makes an array of each (`numba.carray`), so
the rest of the code sees ordinary bounds-checkable arrays. The Python side keeps the arenas alive during the call.
"""

from __future__ import annotations

from typing import Any

import numba as nb
from numba.core import cgutils, types
from numba.extending import intrinsic

from dotllm.arrays import Bool, Int32, Int64, UInt8
from dotllm.automata.machine.layout import CONFIG, FINISHED, FULL, H_FUEL, R
from dotllm.automata.machine.masks import find_row, known_row, remember_row
from dotllm.automata.machine.run import advance
from dotllm.index.token_space import END_ROW
from dotllm.jit import kernel

I = nb.int64
U8, I1, I2, B1, L1 = nb.uint8[::1], nb.int32[::1], nb.int32[:, ::1], nb.boolean[::1], nb.int64[::1]

NEEDS_ROW = -1  # of `known_rows`: the mask must be computed
ROWS_FULL = FULL - 64


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    """int64 → void pointer."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), codegen


@kernel(nb.void(L1, I1, I1))
def known_rows(machines: Int64, configs: Int32, out: Int32) -> None:
    """out[i] = the row of guide i, or NEEDS_ROW or an error. machines [n * 2]: address, size; configs [n]."""
    for i in range(configs.shape[0]):
        if configs[i] == FINISHED:
            out[i] = END_ROW
            continue
        mem = nb.carray(_pointer(machines[2 * i]), (machines[2 * i + 1],), nb.int32)
        out[i] = known_row(mem, configs[i])


@kernel(
    nb.void(L1, I1, L1, U8, I1, I1, I1, I1, I, I2, I2, I1, I1, I, I1, I1, I2),
)
def find_rows(
    machines: Int64, configs: Int32, token_row_addresses: Int64, t_byte: UInt8, t_depth: Int32, t_end: Int32,
    t_token_start: Int32, t_tokens: Int32, main_end: int, sets: Int32, set_rows: Int32,
    set_ints: Int32, eos: Int32, fuel: int, guides: Int32, codes: Int32, scratch: Int32,
) -> None:  # fmt: skip
    """Compute the missing masks of the guides listed in ``guides``: row into scratch[i], symbols consulted (or an
    error) into codes[i]. token_row_addresses [n * 2]: address and number of rows of each guide's token sets."""
    words = scratch.shape[1]
    for i in range(guides.shape[0]):
        g = guides[i]
        mem = nb.carray(_pointer(machines[2 * g]), (machines[2 * g + 1],), nb.int32)
        token_rows = nb.carray(_pointer(token_row_addresses[2 * g]), (token_row_addresses[2 * g + 1], words), nb.int32)
        mem[H_FUEL] = fuel
        at = mem[R + 3 * CONFIG] + 3 * configs[g]
        codes[i] = find_row(
            mem, t_byte, t_depth, t_end, t_token_start, t_tokens, main_end, sets, set_rows, set_ints, token_rows, eos,
            mem[at], mem[at + 1], scratch[i],
        )  # fmt: skip


@kernel(nb.void(L1, I1, I1, I1, I1))
def remember_rows(machines: Int64, configs: Int32, codes: Int32, rows: Int32, out: Int32) -> None:
    """`remember_row` for each guide with a code (symbols consulted) and a row; out[i]: 0, the code, or an error."""
    for i in range(configs.shape[0]):
        out[i] = min(codes[i], 0)
        if codes[i] >= 0 and rows[i] >= 0:
            mem = nb.carray(_pointer(machines[2 * i]), (machines[2 * i + 1],), nb.int32)
            out[i] = remember_row(mem, configs[i], codes[i], rows[i])


@kernel(nb.void(L1, I1, L1, I1, U8, I1, B1, I, I, I1))
def advance_batch(
    machines: Int64,
    configs: Int32,
    token_row_addresses: Int64,
    tokens: Int32,
    token_data: UInt8,
    token_offset: Int32,
    ends: Bool,
    words: int,
    fuel: int,
    out: Int32,
) -> None:
    """out[i] = the configuration of guide i after tokens[i], -1 if it is not allowed, or an error (see run.advance)."""
    for i in range(configs.shape[0]):
        mem = nb.carray(_pointer(machines[2 * i]), (machines[2 * i + 1],), nb.int32)
        token_rows = nb.carray(_pointer(token_row_addresses[2 * i]), (token_row_addresses[2 * i + 1], words), nb.int32)
        mem[H_FUEL] = fuel
        out[i] = advance(mem, configs[i], tokens[i], token_data, token_offset, ends, token_rows)


@kernel(nb.void(I2, I1, I2, I1))
def copy_rows(rows: Int32, numbers: Int32, bitmask: Int32, targets: Int32) -> None:
    """bitmask[targets[i]] = rows[numbers[i]] (a bitmask may be wider than a row: the rest is zero)."""
    words = min(rows.shape[1], bitmask.shape[1])
    for i in range(numbers.shape[0]):
        source = rows[numbers[i]]  # one-dimensional views: ten times the speed of indexing in two dimensions
        target = bitmask[targets[i]]
        for j in range(words):
            target[j] = source[j]
        for j in range(words, target.shape[0]):
            target[j] = 0
