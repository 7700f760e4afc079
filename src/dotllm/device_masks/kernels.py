"""A Triton kernel: masks out of a table on the device. Tests run it in Triton's interpreter (TRITON_INTERPRET=1)."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dotllm.device_masks.launch import Launcher

BLOCK = 8192  # tokens a program looks at


@triton.jit(do_not_specialize_on_alignment=["where", "slots", "starts"])
def _apply_rows(
    logits,
    logits_stride,
    where,
    slots,
    starts,
    table,
    table_stride,
    vocabulary,
    MOST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Program (i, b): set what row slots[i] of the table does not allow to -inf, in block b of a row of the logits."""
    i = tl.program_id(0)
    slot = tl.load(slots + i).to(tl.int64)
    row = tl.load(where + i).to(tl.int64)
    if MOST > 1:
        place = tl.maximum(row, 0)
        begin = tl.load(starts + place // MOST).to(tl.int64)
        end = tl.load(starts + place // MOST + 1).to(tl.int64)
        found = begin + place % MOST
        row = tl.where((row >= 0) & (found < end), found, -1)
    if (slot >= 0) & (row >= 0):
        first = tl.program_id(1) * BLOCK
        word = first // 32 + tl.arange(0, BLOCK // 32)
        packed = tl.load(table + slot * table_stride + word, mask=word < table_stride, other=0)
        allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
        token = first + tl.arange(0, BLOCK)
        blocked = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < vocabulary)
        tl.store(logits + row * logits_stride + token, -float("inf"), mask=blocked)


_launch_rows = Launcher(_apply_rows)


def apply_rows(
    logits: Any, count: int, where: Any, slots: Any, table: Any, starts: Any = None, most_positions: int = 1
) -> None:
    """Mask ``logits`` in place.

    logits: float [rows, vocabulary], last dimension contiguous. where: int32 [count or more], rows of logits, distinct.
    slots: int32 [count or more], a row of ``table`` each. (Either below 0: no mask. Both may lie in the host's pinned
    memory.) table: int32 [slots, words], 32 tokens a word; tokens beyond the last word are not allowed.

    Where requests have up to ``most_positions`` rows of logits, and only the device knows how many, ``where`` is
    request * most_positions + position. starts: int32 [requests + 1], the first row of each; a position beyond those
    that a request has is not masked.
    """
    stride, words, vocabulary = logits.stride(0), table.stride(0), logits.shape[-1]
    aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
    _launch_rows(
        (logits.dtype, stride, words, vocabulary, aligned, most_positions), (count, -(-vocabulary // BLOCK), 1),
        logits, stride, where, slots, where if starts is None else starts, table, words, vocabulary, most_positions,
        BLOCK,
    )  # fmt: skip
