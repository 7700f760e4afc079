"""Lexicographic order of many byte strings that live in one buffer.

A radix sort on seven bytes at a time packed into one integer, refined only where strings tie (MSD order of LSD passes).
Comparison sorts of 131,072 tokens cost some 70 ms in NumPy and Python; this one costs a few milliseconds, so that the
suffix tries of a character set (``charset_table``) can be built while a request waits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dotllm import allocate
from dotllm.jit import inner_kernel, kernel
from dotllm.vocabulary.arrays import Bytes, Ints, U

KEY_BYTES = 7
"""Bytes of a string in one key; with 4 bits of length a key is a non-negative int64 (Numba makes floats of uint64)."""
SMALL_RUN = 32
"""Runs up to this length are sorted by insertion."""


@inner_kernel("int64(uint8[::1], uint64, uint64)", inlined=True)
def _key(data: Bytes, at: Any, end: Any) -> Any:
    """Seven bytes from ``at``, then how many there are (8: more), so that a prefix sorts before its extensions."""
    key = np.int64(0)
    count = min(end - at, U(KEY_BYTES + 1)) if at < end else U(0)
    stop = at + min(count, U(KEY_BYTES))
    while at < stop:
        key = key << 8 | data[at]
        at += U(1)
    missing = KEY_BYTES - np.int64(min(count, U(KEY_BYTES)))
    return (key << (8 * missing) << 4) | np.int64(count)


@inner_kernel("boolean(uint8[::1], uint64, uint64, uint64, uint64)", inlined=True)
def _less(data: Bytes, a: Any, a_end: Any, b: Any, b_end: Any) -> bool:
    while a < a_end and b < b_end:
        if data[a] != data[b]:
            return bool(data[a] < data[b])
        a += U(1)
        b += U(1)
    return bool(a >= a_end and b < b_end)


@inner_kernel("void(uint8[::1], int32[::1], int32[::1], int32[::1], int64, int64, int64)")
def _insertion_sort(data: Bytes, starts: Ints, lengths: Ints, order: Ints, low: int, high: int, skip: int) -> None:
    for i in range(U(low + 1), U(high)):
        item = order[i]
        start = U(starts[U(item)])
        at, end = start + U(skip), start + U(lengths[U(item)])
        j = i
        while j > U(low):
            before = order[j - U(1)]
            start = U(starts[U(before)])
            if not _less(data, at, end, start + U(skip), start + U(lengths[U(before)])):
                break
            order[j] = before
            j -= U(1)
        order[j] = item


@inner_kernel("void(int64[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64)")
def _pass(keys: Ints, order: Ints, to_keys: Ints, to_order: Ints, counts: Ints, shift: int) -> None:
    """Move everything to its place by the eight bits at ``shift``; counts: int32[256] of each value."""
    at = np.int32(0)
    for value in range(U(256)):
        count = counts[value]
        counts[value] = at
        at += count
    for i in range(U(len(keys))):
        value = U((keys[i] >> shift) & 255)
        to = U(counts[value])
        counts[value] += np.int32(1)
        to_keys[to] = keys[i]
        to_order[to] = order[i]


@inner_kernel("void(int64[::1], int32[::1], int64[::1], int32[::1])")
def _radix_sort(keys: Ints, order: Ints, spare_keys: Ints, spare_order: Ints) -> None:
    """Sort ``keys`` and ``order`` alongside, stable; eight bits a pass, none where all keys agree."""
    counts = allocate.zero_int_rows(8, 256)
    for i in range(U(len(keys))):
        key = keys[i]
        for digit in range(U(8)):
            counts[digit, U(key & 255)] += np.int32(1)
            key >>= 8
    flipped = False
    for digit in range(8 if len(keys) > 0 else 0):
        if counts[digit, (keys[0] >> (8 * digit)) & 255] == len(keys):
            continue
        if flipped:
            _pass(spare_keys, spare_order, keys, order, counts[digit], 8 * digit)
        else:
            _pass(keys, order, spare_keys, spare_order, counts[digit], 8 * digit)
        flipped = not flipped
    if flipped:
        for i in range(U(len(keys))):  # a slice assignment would take Numba seconds to compile
            keys[i] = spare_keys[i]
            order[i] = spare_order[i]


@kernel("int32[::1](uint8[::1], int32[::1], int32[::1])")
def sort_strings(data: Bytes, starts: Ints, lengths: Ints) -> Ints:
    """The stable order of strings ``data[starts[i] : starts[i] + lengths[i]]`` by their bytes: int32[n] of indices."""
    n = len(starts)
    order = allocate.ints(n)
    for i in range(U(n)):
        order[i] = i
    keys, spare_keys = allocate.longs(n), allocate.longs(n)
    spare_order = allocate.ints(n)
    # Runs still to sort: low, high, bytes known to be equal. They are disjoint and larger than SMALL_RUN.
    runs = np.empty((n // SMALL_RUN + 1, 3), np.int64)
    runs[0, 0], runs[0, 1], runs[0, 2] = 0, n, 0
    pending = 1
    while pending > 0:
        pending -= 1
        low, high, skip = runs[pending, 0], runs[pending, 1], runs[pending, 2]
        for i in range(low, high):
            start = U(starts[U(order[i])])
            keys[i] = _key(data, start + U(skip), start + U(lengths[U(order[i])]))
        _radix_sort(keys[low:high], order[low:high], spare_keys[low:high], spare_order[low:high])
        i = low
        while i < high:
            j = i + 1
            while j < high and keys[j] == keys[i]:
                j += 1
            if j - i > 1 and (keys[i] & 15) > KEY_BYTES:
                if j - i <= SMALL_RUN:
                    _insertion_sort(data, starts, lengths, order, i, j, skip + KEY_BYTES)
                else:
                    runs[pending, 0], runs[pending, 1], runs[pending, 2] = i, j, skip + KEY_BYTES
                    pending += 1
            i = j
    return order
