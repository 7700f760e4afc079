"""Lexicographic order of many byte strings that live in one buffer.

A radix sort on seven bytes at a time packed into one integer, refined only where strings tie (MSD order of LSD passes).
Comparison sorts of 131,072 tokens cost some 70 ms in NumPy and Python; this one costs a few milliseconds, so that the
suffix tries of a character set (``charset_table``) can be built while a request waits.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from dotllm.vocabulary.arrays import Bytes, Ints

KEY_BYTES = 7
"""Bytes of a string in one key; with 4 bits of length a key is a non-negative int64 (Numba makes floats of uint64)."""
SMALL_RUN = 32
"""Runs up to this length are sorted by insertion."""


@njit("int64(uint8[::1], int64, int64)", cache=True, nogil=True)
def _key(data: Bytes, at: int, end: int) -> int:
    """Seven bytes from ``at``, then how many there are (8: more), so that a prefix sorts before its extensions."""
    key = 0
    for i in range(at, at + KEY_BYTES):
        key = key << 8
        if i < end:
            key |= data[i]
    return (key << 4) | max(0, min(end - at, KEY_BYTES + 1))


@njit("boolean(uint8[::1], int64, int64, int64, int64)", cache=True, nogil=True)
def _less(data: Bytes, a: int, a_end: int, b: int, b_end: int) -> bool:
    while a < a_end and b < b_end:
        if data[a] != data[b]:
            return bool(data[a] < data[b])
        a += 1
        b += 1
    return a == a_end and b < b_end


@njit("void(uint8[::1], int32[::1], int32[::1], int32[::1], int64, int64, int64)", cache=True, nogil=True)
def _insertion_sort(data: Bytes, starts: Ints, lengths: Ints, order: Ints, low: int, high: int, skip: int) -> None:
    for i in range(low + 1, high):
        item = order[i]
        at, end = np.int64(starts[item]) + skip, np.int64(starts[item]) + lengths[item]
        j = i
        while j > low:
            before = order[j - 1]
            start = np.int64(starts[before])
            if not _less(data, at, end, start + skip, start + lengths[before]):
                break
            order[j] = before
            j -= 1
        order[j] = item


@njit(
    "void(int64[::1], int32[::1], int64[::1], int32[::1], int64, int64)",
    cache=True,
    nogil=True,
)
def _radix_sort(keys: Ints, order: Ints, spare_keys: Ints, spare_order: Ints, low: int, high: int) -> None:
    """Sort ``keys[low:high]`` and ``order`` alongside, stable; eight bits a pass, none where all keys agree."""
    counts = np.zeros((8, 256), np.int32)
    for i in range(low, high):
        key = keys[i]
        for digit in range(8):
            counts[digit, (key >> (8 * digit)) & 255] += 1
    flipped = False
    for digit in range(8):
        shift = 8 * digit
        first = keys[low] if not flipped else spare_keys[low]
        if counts[digit, (first >> shift) & 255] == high - low:
            continue
        at = low
        for value in range(256):
            count = counts[digit, value]
            counts[digit, value] = at
            at += count
        if flipped:
            for i in range(low, high):
                value = (spare_keys[i] >> shift) & 255
                to = counts[digit, value]
                counts[digit, value] = to + 1
                keys[to] = spare_keys[i]
                order[to] = spare_order[i]
        else:
            for i in range(low, high):
                value = (keys[i] >> shift) & 255
                to = counts[digit, value]
                counts[digit, value] = to + 1
                spare_keys[to] = keys[i]
                spare_order[to] = order[i]
        flipped = not flipped
    if flipped:
        keys[low:high] = spare_keys[low:high]
        order[low:high] = spare_order[low:high]


@njit("int32[::1](uint8[::1], int32[::1], int32[::1])", cache=True, nogil=True)
def sort_strings(data: Bytes, starts: Ints, lengths: Ints) -> Ints:
    """The stable order of strings ``data[starts[i] : starts[i] + lengths[i]]`` by their bytes: int32[n] of indices."""
    n = len(starts)
    order = np.arange(n).astype(np.int32)
    keys, spare_keys = np.empty(n, np.int64), np.empty(n, np.int64)
    spare_order = np.empty(n, np.int32)
    runs = [(0, n, 0)]  # low, high, bytes known to be equal
    while len(runs) > 0:
        low, high, skip = runs.pop()
        if high - low <= SMALL_RUN:
            _insertion_sort(data, starts, lengths, order, low, high, skip)
            continue
        for i in range(low, high):
            start = np.int64(starts[order[i]])
            keys[i] = _key(data, start + skip, start + lengths[order[i]])
        _radix_sort(keys, order, spare_keys, spare_order, low, high)
        i = low
        while i < high:
            j = i + 1
            while j < high and keys[j] == keys[i]:
                j += 1
            if j - i > 1 and (keys[i] & 15) > KEY_BYTES:
                runs.append((i, j, skip + KEY_BYTES))
            i = j
    return order
