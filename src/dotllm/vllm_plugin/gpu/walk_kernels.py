"""The Triton kernel of walking: where the token that a request has just run leads, and the mask of that place.

One launch a step, between the forward pass and sampling. Each request's place is after ``length`` tokens; the last of
them is the one that the model has just been given. A place is known

* from the engine core (``places``), which is behind by a step or more but knows all that comes in from outside: a
  prompt, a preempted request, text that was entered; or
* by a walk from the place one token before, which the engine core knew or this kernel has left in ``walked``.

What holds is decided by length: a place says after how many tokens it is, and the model runner counts them. If
nothing fits, or the place has no mask yet, the request sits this step out: it has sampled nothing, as if its token had
been a rejected draft, and runs again in the next step. A request that is not constrained yet, because it reasons first,
has a place that no token leads away from (`walk_message.FREE`).

**Why before sampling, and not after it** (as it was: one launch for the masks, one after sampling for the walk). The
host sets the pace of a small model, and a launch is some 25 µs of a step of 1,500. The token is on the device anyway
when the next step needs to know where it led. And who samples nothing is known before sampling then, so this kernel
also writes what vLLM would need a launch of its own for (`sampling`): a constrained step has as many launches as a free
one.

**Many programs a request.** Program (i, b) masks block b of row i, and every one of them walks the token itself: some
loads a byte, from the same few cache lines. The first one leaves the place for the next step. That is the other of two
places that each slot has in ``walked``, by whether the length is odd, so that no program reads what another one of
the same launch is writing.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from dotllm.vllm_plugin.gpu_masks.kernels import BLOCK, _mask_block
from dotllm.vllm_plugin.gpu_masks.launch import Launcher, plain

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
def _walk(heap, base, columns, config, token, token_data, token_offset, ends):
    """(configuration, mask) after ``token``; the mask is _MISSING where the table does not say."""
    start = tl.load(token_offset + token)
    end = tl.load(token_offset + token + 1)
    is_end = (tl.load(ends + token // 32) >> (token % 32)) & 1
    rows = heap + base + _HEADER
    # no table (columns 0): no capacity, so nothing is read and nothing known
    capacity = tl.load(heap + base + _CAPACITY, mask=columns > 0, other=0)
    flags = tl.load(rows + config * columns + 1, mask=(config > 0) & (config < capacity), other=0)
    after = config
    mask = tl.full((), _MISSING, tl.int32)
    if (is_end == 1) & ((flags & _CAN_FINISH) != 0):
        after = tl.full((), 0, tl.int32)
        mask = tl.full((), _ALL, tl.int32)
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
        mask = tl.load(rows + after * columns, mask=known, other=_MISSING)
    return after, mask


@triton.jit(
    do_not_specialize_on_alignment=[
        "last", "input_ids", "state_of", "seq_lens", "prefill", "num_sampled", "num_rejected", "slots", "lengths",
        "places", "walked", "heap", "token_data", "token_offset", "ends",
    ]
)  # fmt: skip
def _follow_and_mask(
    logits,
    last,
    input_ids,
    state_of,
    seq_lens,
    prefill,
    num_sampled,
    num_rejected,
    slots,
    lengths,
    places,
    walked,
    heap,
    token_data,
    token_offset,
    ends,
    table,
    table_stride,
    logits_stride,
    vocabulary,
    BLOCK: tl.constexpr,
):
    """Program (i, b): request i, block b of the vocabulary. slots[i]: -1 for an unconstrained request."""
    i = tl.program_id(0)
    block = tl.program_id(1)
    slot = tl.load(slots + i)
    state = tl.load(state_of + i)
    there = slot < 0
    if slot >= 0:
        length = tl.load(lengths + state)
        known = places + slot * _PLACE
        mine = walked + slot * (2 * _PLACE)
        before = mine + ((length - 1) & 1) * _PLACE
        epoch = tl.load(known)
        known_length = tl.load(known + 1)
        is_here = known_length == length
        is_before = known_length == length - 1
        is_walked = (tl.load(before) == epoch) & (tl.load(before + 1) == length - 1)
        place = tl.where(is_here | is_before, known, before)
        base = tl.load(place + 2)
        columns = tl.load(place + 3)
        config = tl.load(place + 4)
        mask = tl.load(place + 5)
        stays = (config < 0) & (is_before | is_walked)  # FREE
        if (is_here | stays) == 0:
            mask = tl.full((), _MISSING, tl.int32)
            if is_before | is_walked:
                token = tl.load(input_ids + tl.load(last + i)).to(tl.int32)
                config, mask = _walk(heap, base, columns, config, token, token_data, token_offset, ends)
        there = mask != _MISSING
        if mask >= 0:
            row = logits + i.to(tl.int64) * logits_stride
            _mask_block(row, table + mask.to(tl.int64) * table_stride, table_stride, vocabulary, BLOCK)
        if block == 0:
            here = mine + (length & 1) * _PLACE
            tl.store(here, epoch)
            tl.store(here + 1, length)
            tl.store(here + 2, base)
            tl.store(here + 3, columns)
            tl.store(here + 4, config)
            tl.store(here + 5, mask)
    if block == 0:
        samples = tl.load(seq_lens + i) >= tl.load(prefill + state)  # else it is in the middle of its prompt
        tl.store(num_sampled + i, (samples & there).to(tl.int32))
        tl.store(num_rejected + i, (samples & (there == 0)).to(tl.int32))


_launch = Launcher(_follow_and_mask)


class Batch(NamedTuple):
    """The arguments that are others in each step, device tensors; n requests."""

    last: Any
    """int [n]: where the last token of each request stands in ``input_ids``"""
    input_ids: Any
    """int32: the tokens that the model has just been given"""
    state_of: Any
    """int [n]: where a request is in ``Fixed.lengths`` and ``prefill``"""
    seq_lens: Any
    """int32 [n]: tokens that each request has run, this step's included"""
    prefill: Any
    """int32 [states]: tokens before which nothing is sampled"""
    num_sampled: Any
    """int32 [n], written: 1 or 0 tokens"""
    num_rejected: Any
    """int32 [n], written: 1 where the step has to be repeated"""


class Fixed:
    """The arguments that stay the same until something outgrows its place, and what follows from them.

    A step of a small model leaves none of our code in the processor's caches, so that asking a tensor for anything
    takes a microsecond: strides, types and addresses are asked once.
    """

    def __init__(
        self, slots: Any, lengths: Any, places: Any, walked: Any, heap: Any, tokens: tuple[Any, Any, Any], table: Any
    ) -> None:
        """slots: int32 [n or more], the slot of each request of a batch (-1: not constrained).
        lengths: int32 [states], tokens so far by request state.
        places: int32 [slots, PLACE]; walked: int32 [slots, 2, PLACE].
        heap: int32, the byte tables (see `index.gpu_tables`): at each BASE 256 classes, the number of rows, then rows.
        tokens: the arrays of `walk_message.Tokens`.
        table: int32 [masks, words]."""
        self.lengths, self.places, self.heap, self.table = lengths, places, heap, table
        self._arguments: tuple[Any, ...] = (slots, lengths, places, walked, heap, *tokens, table, table.stride(0))
        self._launch: Any = None

    def follow_and_mask(self, logits: Any, requests: int, batch: Batch) -> None:
        """Mask ``logits`` [requests, vocabulary] in place, and say who has sampled."""
        address = logits.data_ptr()
        if self._launch is None or address % 16 != self._alignment:
            self._prepare(logits, batch)
            if self._launch is None:
                _launch(self._key, (requests, self._blocks, 1), logits, *batch, *self._behind)
                return
        self._launch((requests, self._blocks, 1), [address, *plain(batch), *self._addresses])

    def _prepare(self, logits: Any, batch: Batch) -> None:
        """Find out how to launch."""
        vocabulary, stride = logits.shape[-1], logits.stride(0)
        self._blocks = -(-vocabulary // BLOCK)
        self._alignment = logits.data_ptr() % 16
        self._behind = (*self._arguments, stride, vocabulary, BLOCK)
        self._addresses = plain(self._behind)
        types = (logits.dtype, batch.last.dtype, batch.input_ids.dtype, batch.state_of.dtype, self.lengths.dtype)
        self._key = (types, stride, vocabulary, self._alignment, self.table.data_ptr() % 16, self.table.stride(0))
        self._launch = _launch.variant(self._key)
