"""Triton kernels: masks out of a table on the device. Tests run them in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dotllm.vllm_plugin.gpu.launch import Launcher
from dotllm.vllm_plugin.gpu.upload import LONGEST, RUN

BLOCK = 8192  # tokens a program looks at


@triton.jit(do_not_specialize_on_alignment=["where", "slots"])
def _apply_rows(logits, logits_stride, where, slots, table, table_stride, vocabulary, BLOCK: tl.constexpr):
    """Program (i, b): in row where[i] of logits, block b, set what table[slots[i]] does not allow to -inf."""
    i = tl.program_id(0)
    slot = tl.load(slots + i).to(tl.int64)
    if slot >= 0:
        row = tl.load(where + i).to(tl.int64)
        first = tl.program_id(1) * BLOCK
        word = first // 32 + tl.arange(0, BLOCK // 32)
        packed = tl.load(table + slot * table_stride + word, mask=word < table_stride, other=0)
        allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
        token = first + tl.arange(0, BLOCK)
        blocked = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < vocabulary)
        tl.store(logits + row * logits_stride + token, -float("inf"), mask=blocked)


_launch_rows = Launcher(_apply_rows)


def apply_rows(logits: Any, where: Any, slots: Any, table: Any) -> None:
    """Mask ``logits`` in place.

    logits: float [rows, vocabulary], last dimension contiguous. where: int32 [n], rows of logits, distinct. slots:
    int32 [n], a row of ``table`` each, or below 0 for no mask. table: int32 [slots, words], 32 tokens a word; tokens
    beyond the last word are not allowed.
    """
    rows, vocabulary = len(where), logits.shape[-1]
    if rows:
        stride, words = logits.stride(0), table.stride(0)
        aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
        _launch_rows(
            (logits.dtype, stride, words, vocabulary, aligned), (rows, -(-vocabulary // BLOCK), 1),
            logits, stride, where, slots, table, words, vocabulary, BLOCK,
        )  # fmt: skip


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
