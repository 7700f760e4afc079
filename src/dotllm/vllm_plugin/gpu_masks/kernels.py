"""Triton kernels: masks out of a table on the device. Tests run them in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import triton
import triton.language as tl

from dotllm.vllm_plugin.gpu_masks.launch import Launcher
from dotllm.vllm_plugin.gpu_masks.upload import LONGEST, RUN

BLOCK = 8192  # tokens a program looks at


@triton.jit
def _mask_block(row, mask, words, vocabulary, BLOCK: tl.constexpr):
    """Set what ``mask`` does not allow to -inf in block program_id(1) of ``row`` (pointers)."""
    first = tl.program_id(1) * BLOCK
    word = first // 32 + tl.arange(0, BLOCK // 32)
    packed = tl.load(mask + word, mask=word < words, other=0)
    allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
    token = first + tl.arange(0, BLOCK)
    blocked = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < vocabulary)
    tl.store(row + token, -float("inf"), mask=blocked)


@triton.jit(do_not_specialize_on_alignment=["where", "slots"])
def _apply_rows(logits, logits_stride, where, slots, table, table_stride, vocabulary, BLOCK: tl.constexpr):
    """Program (i, b): block b of row where[i] of the logits, with row slots[i] of the table."""
    i = tl.program_id(0)
    slot = tl.load(slots + i).to(tl.int64)
    row = tl.load(where + i).to(tl.int64)
    if (slot >= 0) & (row >= 0):
        _mask_block(logits + row * logits_stride, table + slot * table_stride, table_stride, vocabulary, BLOCK)


@triton.jit(do_not_specialize=["row", "slot"])
def _apply_row(logits, logits_stride, row, slot, table, table_stride, vocabulary, BLOCK: tl.constexpr):
    """Program (0, b): block b of one row of the logits."""
    logits += tl.cast(row, tl.int64) * logits_stride
    _mask_block(logits, table + tl.cast(slot, tl.int64) * table_stride, table_stride, vocabulary, BLOCK)


_launch_rows = Launcher(_apply_rows)
_launch_row = Launcher(_apply_row)


def apply_rows(logits: Any, count: int, where: Any, slots: Any, table: Any) -> None:
    """Mask ``logits`` in place.

    logits: float [rows, vocabulary], last dimension contiguous. where: int32 [count or more], rows of logits, distinct.
    slots: int32 [count or more], a row of ``table`` each. (Either below 0: no mask. Both may lie in the host's pinned
    memory.) table: int32 [slots, words], 32 tokens a word; tokens beyond the last word are not allowed.
    """
    key, grid = _variant_and_blocks(logits, table)
    stride, words, vocabulary = logits.stride(0), table.stride(0), logits.shape[-1]
    _launch_rows(key, (count, *grid), logits, stride, where, slots, table, words, vocabulary, BLOCK)


def apply_row(logits: Any, row: int, slot: int, table: Any) -> None:
    """Mask one row of ``logits`` with row ``slot`` of ``table``, as `apply_rows`; nothing needs to travel for it."""
    key, grid = _variant_and_blocks(logits, table)
    stride, words, vocabulary = logits.stride(0), table.stride(0), logits.shape[-1]
    _launch_row(key, (1, *grid), logits, stride, row, slot, table, words, vocabulary, BLOCK)


def _variant_and_blocks(logits: Any, table: Any) -> tuple[Hashable, tuple[int, int]]:
    vocabulary = logits.shape[-1]
    aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
    return (logits.dtype, logits.stride(0), table.stride(0), vocabulary, aligned), (-(-vocabulary // BLOCK), 1)


@triton.jit(do_not_specialize_on_alignment=["runs", "stage", "first", "second"])
def _write_runs(runs, stage, first, second, BLOCK: tl.constexpr):
    """Program i: run i; see `upload`."""
    run = runs + 4 * tl.program_id(0)
    target, start, source, count = tl.load(run), tl.load(run + 1), tl.load(run + 2), tl.load(run + 3)
    i = tl.arange(0, BLOCK)
    values = tl.load(stage + source + i, mask=i < count, other=0)
    if target == 0:
        tl.store(first + start + i, values, mask=i < count)
    else:
        tl.store(second + start + i, values, mask=i < count)


_launch_writes = Launcher(_write_runs)


def write_runs(runs: Any, stage: Any, first: Any, second: Any) -> None:
    """Write ``runs`` of ``stage`` into ``first`` (target 0) and ``second`` (target 1). They must not overlap there.

    runs: int32 [n * RUN], see `upload.runs_of`. stage, first, second: int32, contiguous.
    """
    if len(runs):
        _launch_writes((), (len(runs) // RUN, 1, 1), runs, stage, first, second, LONGEST)
