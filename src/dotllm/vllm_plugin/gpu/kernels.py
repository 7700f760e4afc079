"""Triton kernels: masks out of a table on the device. Tests run them in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dotllm.vllm_plugin.gpu.launch import Launcher

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


@triton.jit
def _scatter(heap, at, values, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < count
    tl.store(heap + tl.load(at + i, mask=inside, other=0), tl.load(values + i, mask=inside, other=0), mask=inside)


def scatter(heap: Any, at: Any, values: Any) -> None:
    """heap[at] = values, all int32; ``at`` distinct."""
    if len(at):
        _scatter[(triton.cdiv(len(at), 1024),)](heap, at, values, len(at), BLOCK=1024)
