"""Triton kernels of walking: the mask of wherever the GPU knows a request to be, and the way from there by a token.

A request's place is known either from the engine core (``places``, behind by a step or more) or from the GPU's own last
walk (``walked``, same columns). Which one holds is decided by length: a place is where the grammar is after so many
tokens, and the model runner's own count of tokens says how many there are. If neither fits, or the place has no mask
yet, the request sits this step out: it samples nothing, as if its token had been a rejected draft, and runs again in
the next step.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dotllm.vllm_plugin.gpu.launch import Launcher

BLOCK = 8192  # tokens a program of the mask looks at

# as in walk_message and index.gpu_tables; Triton wants them as constants
_PLACE = tl.constexpr(8)
_ALL = tl.constexpr(-1)
_MISSING = tl.constexpr(-2)
_CAPACITY = tl.constexpr(256)
_HEADER = tl.constexpr(257)
_EXPANDED = tl.constexpr(1)
_CAN_FINISH = tl.constexpr(2)
_TAKES_TOKENS = tl.constexpr(4)


@triton.jit
def _place_of(slot, length, places, walked):
    """Where slot's place of this length is: a pointer, and whether there is one."""
    known = places + slot * _PLACE
    mine = walked + slot * _PLACE
    epoch = tl.load(known)
    use_known = tl.load(known + 1) == length
    use_mine = (tl.load(mine + 1) == length) & (tl.load(mine) == epoch)
    return tl.where(use_known, known, mine), use_known | use_mine


@triton.jit(do_not_specialize_on_alignment=["slots", "state_of", "lengths", "places", "walked"])
def _apply_masks(
    logits,
    logits_stride,
    slots,
    state_of,
    lengths,
    places,
    walked,
    table,
    table_stride,
    vocabulary,
    BLOCK: tl.constexpr,
):
    """Program (i, b): mask block b of row i of the logits. slots[i]: -1 for an unconstrained request."""
    i = tl.program_id(0)
    slot = tl.load(slots + i)
    if slot >= 0:
        length = tl.load(lengths + tl.load(state_of + i))
        place, there = _place_of(slot, length, places, walked)
        mask = tl.load(place + 5)
        if there & (mask >= 0):
            first = tl.program_id(1) * BLOCK
            word = first // 32 + tl.arange(0, BLOCK // 32)
            packed = tl.load(table + mask.to(tl.int64) * table_stride + word, mask=word < table_stride, other=0)
            allowed = (packed[:, None] >> tl.arange(0, 32)[None, :]) & 1
            token = first + tl.arange(0, BLOCK)
            blocked = (tl.reshape(allowed, (BLOCK,)) == 0) & (token < vocabulary)
            tl.store(logits + i.to(tl.int64) * logits_stride + token, -float("inf"), mask=blocked)


@triton.jit(
    do_not_specialize_on_alignment=[
        "slots", "state_of", "lengths", "places", "walked", "heap", "token_data", "token_offset", "ends", "sampled",
        "num_sampled", "num_rejected",
    ]
)  # fmt: skip
def _walk(
    slots, state_of, lengths, places, walked, heap, token_data, token_offset, ends, sampled, num_sampled, num_rejected
):
    """Program i: take request i's sampled token, or its whole sample if its place was not known."""
    i = tl.program_id(0)
    slot = tl.load(slots + i)
    if slot >= 0:  # noqa: SIM102  # the second load is only for slots: Triton evaluates both sides of `and`
        if tl.load(num_sampled + i) > 0:
            length = tl.load(lengths + tl.load(state_of + i))
            place, there = _place_of(slot, length, places, walked)
            epoch = tl.load(places + slot * _PLACE)
            base = tl.load(place + 2)
            columns = tl.load(place + 3)
            config = tl.load(place + 4)
            mask = tl.load(place + 5)
            if there & (mask != _MISSING):
                token = tl.load(sampled + i).to(tl.int32)
                start = tl.load(token_offset + token)
                end = tl.load(token_offset + token + 1)
                is_end = (tl.load(ends + token // 32) >> (token % 32)) & 1
                rows = heap + base + _HEADER
                # no table (columns 0): no capacity, so nothing is read and nothing known
                capacity = tl.load(heap + base + _CAPACITY, mask=columns > 0, other=0)
                flags = tl.load(rows + config * columns + 1, mask=config < capacity, other=0)
                after = config
                mask_after = tl.full((), _MISSING, tl.int32)
                if (is_end == 1) & ((flags & _CAN_FINISH) != 0):
                    after = tl.full((), 0, tl.int32)
                    mask_after = tl.full((), _ALL, tl.int32)
                else:
                    going = ((flags & _TAKES_TOKENS) == 0) & (end > start)
                    at = start
                    while (at < end) & going:
                        here = rows + after * columns
                        known = (after < capacity) & (after > 0)
                        going = known & ((tl.load(here + 1, mask=known, other=0) & _EXPANDED) != 0)
                        byte = tl.load(token_data + at).to(tl.int32)
                        cls = tl.load(heap + base + byte)
                        after = tl.load(here + 2 + cls, mask=going, other=0)
                        at += 1
                    known = going & (after > 0) & (after < capacity)
                    mask_after = tl.load(rows + after * columns, mask=known, other=_MISSING)
                mine = walked + slot * _PLACE
                tl.store(mine, epoch)
                tl.store(mine + 1, length + 1)
                tl.store(mine + 2, base)
                tl.store(mine + 3, columns)
                tl.store(mine + 4, after)
                tl.store(mine + 5, mask_after)
            else:
                tl.store(num_sampled + i, 0)
                tl.store(num_rejected + i, 1)


_launch_masks = Launcher(_apply_masks)
_launch_walk = Launcher(_walk, num_warps=1)


def apply_masks(logits: Any, slots: Any, state_of: Any, lengths: Any, places: Any, walked: Any, table: Any) -> None:
    """Mask ``logits`` [n, vocabulary] in place.

    slots: int32 [n], the slot of each row's request (-1: not constrained). state_of: int32 [n], its index in
    ``lengths``, int32, tokens so far. places, walked: int32 [slots, PLACE]. table: int32 [masks, words].
    """
    rows, vocabulary = logits.shape
    if rows:
        stride, words = logits.stride(0), table.stride(0)
        aligned = logits.data_ptr() % 16 == 0 and table.data_ptr() % 16 == 0
        _launch_masks(
            (logits.dtype, state_of.dtype, lengths.dtype, stride, words, vocabulary, aligned),
            (rows, -(-vocabulary // BLOCK), 1),
            logits, stride, slots, state_of, lengths, places, walked, table, words, vocabulary, BLOCK,
        )  # fmt: skip


def walk(
    slots: Any, state_of: Any, lengths: Any, places: Any, walked: Any, heap: Any, token_data: Any, token_offset: Any,
    ends: Any, sampled: Any, num_sampled: Any, num_rejected: Any
) -> None:  # fmt: skip
    """Take the sampled tokens, int64 [n, 1]; ``num_sampled`` and ``num_rejected`` become 0 and 1 where one must not
    count.

    heap: int32, the byte tables (see `index.gpu_tables`): at each BASE 256 classes, the number of rows, then rows.
    Other arguments as in `apply_masks` and `walk_message.Tokens`. ``lengths`` are those before this token.
    """
    rows = len(slots)
    if rows:
        _launch_walk(
            (state_of.dtype, lengths.dtype, sampled.dtype, num_sampled.dtype, num_rejected.dtype), (rows, 1, 1),
            slots, state_of, lengths, places, walked, heap, token_data, token_offset, ends, sampled, num_sampled,
            num_rejected,
        )  # fmt: skip
