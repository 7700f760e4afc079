"""Launches a Triton kernel in every step, at little cost to the host.

Triton looks at each argument of each launch (its type, whether it is a multiple of 16, …) to find the variant that was
compiled for it, which takes some 50 µs on the host: 3 % of a step of a small model, whose pace the host sets. Here the
caller guarantees that all arguments with the same ``key`` need the same variant. So the variant is found once, and
later launches call its ``run`` directly, as Triton would. Tensors are passed as addresses (Triton would ask the driver
about each of them), and the hooks of profilers are left out. A launch takes 7 µs (H200, Triton 3.6).

https://github.com/triton-lang/triton/blob/release/3.6.x/python/triton/runtime/jit.py (JITFunction.run)
https://github.com/triton-lang/triton/blob/release/3.6.x/python/triton/compiler/compiler.py (CompiledKernel.__getitem__)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import triton
import triton.language as tl

Grid = tuple[int, int, int]


class Launcher:
    """See the module. One per kernel."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._variants: dict[Hashable, Callable[[Grid, list[int]], None]] = {}

    def __call__(self, key: Hashable, grid: Grid, *arguments: Any) -> None:
        """Launch with ``arguments``, all of them positional, compile-time constants too."""
        launch = self._variants.get(key)
        if launch is not None:
            launch(grid, [a if type(a) is int else a.data_ptr() for a in arguments])
            return
        launched = self._kernel[grid](*arguments)
        if hasattr(launched, "__getitem__"):  # (the interpreter returns nothing)
            self._variants[key] = _launch_of(launched)


def _launch_of(variant: Any) -> Callable[[Grid, list[int]], None]:
    """A function that launches a compiled kernel on the current stream."""
    from triton.runtime import driver

    run, function, packed = (getattr(variant, name, None) for name in ("run", "function", "packed_metadata"))
    if not callable(run) or not function or packed is None:  # another release of Triton
        return lambda grid, arguments: variant[grid](*arguments)
    stream, device = driver.active.get_current_stream, driver.active.get_current_device
    return lambda grid, arguments: run(*grid, stream(device()), function, packed, None, None, None, *arguments)


# A Triton kernel that masks logits with rows of a table on the device. Tests run it in Triton's interpreter
# (TRITON_INTERPRET=1).


BLOCK = 8192  # tokens that one program looks at


@triton.jit(do_not_specialize_on_alignment=["where", "slots", "fresh", "brought", "starts"])
def _apply_rows(
    logits,
    logits_stride,
    where,
    slots,
    fresh,
    brought,
    starts,
    table,
    table_stride,
    vocabulary,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, b): in block b of row where[i], set to -inf the logits that row slots[i] of the table forbids. The
    table first gets this row from brought[fresh[i]], unless fresh[i] is below 0."""
    i = tl.program_id(0)
    slot = tl.load(slots + i).to(tl.int64)
    row = tl.load(where + i).to(tl.int64)
    new = tl.load(fresh + i).to(tl.int64)
    if MOST > 1:
        place = tl.maximum(row, 0)
        begin = tl.load(starts + place // MOST).to(tl.int64)
        end = tl.load(starts + place // MOST + 1).to(tl.int64)
        found = begin + place % MOST
        row = tl.where((row >= 0) & (found < end), found, -1)
    if slot >= 0:
        first = tl.program_id(1) * BLOCK
        word = first // 32 + tl.arange(0, BLOCK // 32)
        inside = word < table_stride
        kept = table + slot * table_stride + word
        packed = tl.load(tl.where(new >= 0, brought + new * table_stride + word, kept), mask=inside, other=0)
        if new >= 0:
            tl.store(kept, packed, mask=inside)
        if row >= 0:
            allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
            token = first + tl.arange(0, BLOCK)
            blocked = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < vocabulary)
            tl.store(logits + row * logits_stride + token, -float("inf"), mask=blocked)


_launch_rows = Launcher(_apply_rows)


def apply_rows(
    logits: Any, count: int, where: Any, slots: Any, fresh: Any, brought: Any, table: Any, starts: Any = None,
    most_positions: int = 1,
) -> None:  # fmt: skip
    """Mask ``logits`` in place.

    logits: float [rows, vocabulary], last dimension contiguous. where: int32 [count or more], rows of logits, distinct.
    slots: int32 [count or more], the row of ``table`` for each. (If either is below 0, there is no mask.) fresh: int32
    [count or more], the row of ``brought`` that the table gets first at this slot; below 0: it has its row. brought:
    int32 [rows, words]. (All four may lie in the host's pinned memory.) table: int32 [slots, words], 32 tokens a word;
    tokens beyond the last word are not allowed.

    If requests have up to ``most_positions`` rows of logits, and only the device knows how many, ``where`` is request *
    most_positions + position. starts: int32 [requests + 1], the first row of each request; positions that a request
    does not have are not masked.
    """
    stride, words, vocabulary = logits.stride(0), table.stride(0), logits.shape[-1]
    aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
    _launch_rows(
        (logits.dtype, stride, words, vocabulary, aligned, most_positions), (count, -(-vocabulary // BLOCK), 1),
        logits, stride, where, slots, fresh, brought, where if starts is None else starts, table, words, vocabulary,
        most_positions, BLOCK,
    )  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=["where", "starts", "minus", "sums"])
def _log_sums(
    logits,
    logits_stride,
    where,
    starts,
    minus,
    sums,
    vocabulary,
    SUBTRACT: tl.constexpr,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program i: the logarithm of the sum of exponentials of the row of logits at where[i], less minus[i]."""
    i = tl.program_id(0)
    place = tl.load(where + i).to(tl.int64)
    row = tl.maximum(place, 0)
    length = tl.where(place >= 0, vocabulary, 0)
    if MOST > 1:
        begin = tl.load(starts + row // MOST).to(tl.int64)
        end = tl.load(starts + row // MOST + 1).to(tl.int64)
        row = begin + row % MOST
        length = tl.where(row < end, length, 0)
    most, total = tl.full((), -1e38, tl.float32), tl.zeros((), tl.float32)  # (finite: a block may have only -inf)
    for first in range(0, vocabulary, BLOCK):
        token = first + tl.arange(0, BLOCK)
        values = tl.load(logits + row * logits_stride + token, mask=token < length, other=-float("inf")).to(tl.float32)
        before, most = most, tl.maximum(most, tl.max(values, 0))
        total = total * tl.exp(before - most) + tl.sum(tl.exp(values - most), 0)
    sum_ = most + tl.log(total)
    if SUBTRACT:
        sum_ -= tl.load(minus + i)
    tl.store(sums + i, sum_)


_launch_sums = Launcher(_log_sums)


def log_sums(
    logits: Any, count: int, where: Any, sums: Any, minus: Any = None, starts: Any = None, most_positions: int = 1
) -> None:
    """Write the log-sum-exps of some rows to ``sums``, float32 [count or more].

    logits, where, starts, most_positions: as in `apply_rows`. minus: float32 [count], subtracted. The sum of a row that
    there is not is -inf, and NaN less another such. (``where`` and ``sums`` may lie in the host's pinned memory.)
    """
    stride, vocabulary, subtracts = logits.stride(0), logits.shape[-1], minus is not None
    _launch_sums(
        (logits.dtype, stride, vocabulary, logits.data_ptr() % 16 == 0, subtracts, most_positions), (count, 1, 1),
        logits, stride, where, where if starts is None else starts, minus if subtracts else where, sums, vocabulary,
        subtracts, most_positions, BLOCK,
    )  # fmt: skip
