"""Launches a Triton kernel in every step, at little cost to the host.

Triton inspects each argument at each launch (its type, whether it is a multiple of 16, …) to find the variant that was
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


BLOCK = 8192  # tokens that one program masks
_BLOCK = tl.constexpr(BLOCK)


_HAS_PLACES, _HAS_NEW = 1, 2


@triton.jit(
    do_not_specialize=["given"], do_not_specialize_on_alignment=["where", "slots", "fresh", "brought", "starts"]
)
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
    given,
    MOST: tl.constexpr,
):
    """Program (i, b): in block b of row where[i], set to -inf the logits that row slots[i] of the table forbids. The
    table first gets this row from brought[fresh[i]], unless fresh[i] is below 0. ``given``: `_HAS_PLACES` if there is
    ``where`` (without it, the row is i * MOST), plus `_HAS_NEW` if there are ``fresh`` and ``brought``."""
    i = tl.program_id(0)
    slot = tl.load(slots + i).to(tl.int64)
    row = tl.load(where + i, mask=(given & 1) != 0, other=i * MOST).to(tl.int64)
    new = tl.load(fresh + i, mask=(given & 2) != 0, other=-1).to(tl.int64)
    if MOST > 1:
        place = tl.maximum(row, 0)
        begin = tl.load(starts + place // MOST).to(tl.int64)
        end = tl.load(starts + place // MOST + 1).to(tl.int64)
        at = begin + place % MOST
        row = tl.where((row >= 0) & (at < end), at, -1)
    if slot >= 0:
        first = tl.program_id(1) * _BLOCK
        word = first // 32 + tl.arange(0, _BLOCK // 32)
        inside = word < table_stride
        kept = table + slot * table_stride + word
        packed = tl.load(tl.where(new >= 0, brought + new * table_stride + word, kept), mask=inside, other=0)
        if new >= 0:
            tl.store(kept, packed, mask=inside)
        if row >= 0:
            allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
            token = first + tl.arange(0, _BLOCK)
            blocked = (tl.reshape(allowed, (_BLOCK,)) == 0) & (token < vocabulary)
            tl.store(logits + row * logits_stride + token, -float("inf"), mask=blocked)


_launch_rows = Launcher(_apply_rows)


def apply_rows(
    logits: Any, count: int, slots: Any, table: Any, where: Any = None, fresh: Any = None, brought: Any = None,
    starts: Any = None, most_positions: int = 1,
) -> None:  # fmt: skip
    """Mask ``logits`` in place.

    logits: float [rows, vocabulary], last dimension contiguous. slots: int32 [count or more], a row of ``table`` for
    each. table: int32 [slots, words], 32 tokens a word; tokens beyond the last word are not allowed. where: int32
    [count or more], rows of logits, distinct; None: the first row of each request. (Where a slot or a place is below 0,
    nothing is masked.) fresh: int32 [count or more], the row of ``brought`` that the table gets first at this slot;
    below 0: the slot has its row; None: all slots have. brought: int32 [rows, words]. (``slots``, ``where``, ``fresh``
    and ``brought`` may lie in the host's pinned memory.)

    If requests have up to ``most_positions`` rows of logits, and only the device knows how many, ``where`` is request *
    most_positions + position. starts: int32 [requests + 1], the first row of each request; positions that a request
    does not have are not masked.
    """
    stride, words, vocabulary = logits.stride(0), table.stride(0), logits.shape[-1]
    aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
    given = (0 if where is None else _HAS_PLACES) + (0 if fresh is None else _HAS_NEW)
    # (a pointer that nothing is read from is any pointer)
    _launch_rows(
        (logits.dtype, stride, words, vocabulary, aligned, most_positions), (count, -(-vocabulary // BLOCK), 1),
        logits, stride, slots if where is None else where, slots, slots if fresh is None else fresh,
        table if brought is None else brought, slots if starts is None else starts, table, words, vocabulary, given,
        most_positions,
    )  # fmt: skip


SUMMED = 4096  # logits that one program sums


@triton.jit(do_not_specialize_on_alignment=["where", "starts"])
def _log_sums(
    logits,
    logits_stride,
    where,
    starts,
    sums,
    blocks,
    vocabulary,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, b): the logarithm of the sum of exponentials over block b of the row of logits at where[i]."""
    i = tl.program_id(0)
    place = tl.load(where + i).to(tl.int64)
    row = tl.maximum(place, 0)
    length = tl.where(place >= 0, vocabulary, 0)
    if MOST > 1:
        begin = tl.load(starts + row // MOST).to(tl.int64)
        end = tl.load(starts + row // MOST + 1).to(tl.int64)
        row = begin + row % MOST
        length = tl.where(row < end, length, 0)
    token = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(logits + row * logits_stride + token, mask=token < length, other=-float("inf")).to(tl.float32)
    most = tl.max(values, 0)
    most = tl.where(most == -float("inf"), 0.0, most)  # (nothing is allowed in this block)
    tl.store(sums + i * blocks + tl.program_id(1), most + tl.log(tl.sum(tl.exp(values - most), 0)))


_launch_sums = Launcher(_log_sums)


def log_sums(logits: Any, count: int, where: Any, sums: Any, starts: Any = None, most_positions: int = 1) -> None:
    """Write the log-sum-exp of each block of `SUMMED` logits of some rows to ``sums``, float32 [count, blocks].

    logits, where, starts, most_positions: as in `apply_rows`. The sums of a row that does not exist are -inf.
    """
    stride, blocks, vocabulary = logits.stride(0), sums.shape[1], logits.shape[-1]
    aligned = logits.data_ptr() % 16 == 0 and sums.data_ptr() % 16 == 0
    _launch_sums(
        (logits.dtype, stride, blocks, vocabulary, aligned, most_positions), (count, blocks, 1),
        logits, stride, where, where if starts is None else starts, sums, blocks, vocabulary, most_positions, SUMMED,
    )  # fmt: skip


@triton.jit(do_not_specialize_on_alignment=["differences"])
def _log_differences(before, after, differences, blocks, BLOCKS: tl.constexpr):
    """Program i: the log-sum-exp of row i of ``after``, minus that of ``before``."""
    i = tl.program_id(0)
    block = tl.arange(0, BLOCKS)
    inside = block < blocks
    old = tl.load(before + i * blocks + block, mask=inside, other=-float("inf"))
    new = tl.load(after + i * blocks + block, mask=inside, other=-float("inf"))
    most_old, most_new = tl.max(old, 0), tl.max(new, 0)
    most_new = tl.where(most_new == -float("inf"), 0.0, most_new)  # (the mask leaves nothing)
    ratio = tl.log(tl.sum(tl.exp(new - most_new), 0)) - tl.log(tl.sum(tl.exp(old - most_old), 0))
    tl.store(differences + i, most_new - most_old + ratio)


_launch_differences = Launcher(_log_differences)


def log_differences(before: Any, after: Any, differences: Any) -> None:
    """Write the log-sum-exp of each row of ``after``, minus that of the same row of ``before``, to ``differences``.

    before, after: float32 [rows, blocks], as `log_sums` writes them. differences: float32 [rows or more]; may lie in
    the host's pinned memory. (NaN for a row that does not exist.)
    """
    count, blocks = before.shape
    most = 1 << (blocks - 1).bit_length()
    _launch_differences((blocks, most), (count, 1, 1), before, after, differences, blocks, most)
