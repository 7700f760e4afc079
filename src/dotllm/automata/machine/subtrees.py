"""Finds which bytes are below each node of a token trie, and how far down they go.

Where a grammar returns to the same place after most characters, a mask allows nearly all tokens. If there are only such
characters below a node, all tokens below it are allowed, and a walk can skip the subtree (see `walk`). Where characters
are counted, the height of the subtree must not exceed what may still come.
"""

from __future__ import annotations

import numpy as np

from dotllm import allocate
from dotllm.arrays import Int32, Int64, UInt8
from dotllm.jit import kernel

_OTHER = 0  # the bit for everything else: control characters, bytes that are not UTF-8, nodes inside a character
CONTROL = 0x20
_BEYOND_ASCII = 16  # the bit for the first of these groups of first bytes
_GROUPS = (0xC2, 0xC3, 0xE0, 0xE1, 0xE2, 0xE3, 0xE4, 0xED, 0xEE, 0xF0)
"""The first byte of each group of characters beyond ASCII. Sets such as `\\S` leave a few of them out."""
FIRST_LEAD, LAST_LEAD = 0xC2, 0xF4
"""The first and the last byte that begin a character beyond ASCII."""


def _bits() -> Int64:
    bits = np.arange(256)
    bits[:CONTROL] = bits[0x80:] = _OTHER
    for control in b"\t\n\r":
        bits[control] = control
    for group, lead in enumerate(_GROUPS):
        bits[lead : LAST_LEAD + 1] = _BEYOND_ASCII + group
    return bits


BIT = _bits()
"""The bit for each byte: below 64 a bit of the first of two integers, from 64 on one of the second. Bytes with the same
bit are told apart only below it."""
HEIGHT_AT, HIGHEST = 26, 63
"""The height begins at this bit of the first integer (`BIT` uses none of 26 to 31). `HIGHEST` means 63 or more."""


@kernel("int64[:, ::1](uint8[::1], int32[::1], int32[::1])")
def bytes_below(byte: UInt8, depth: Int32, end: Int32) -> Int64:
    """For each node of a trie, int64 [nodes, 2]: the set of bytes below it (see `BIT`). From bit `HEIGHT_AT` on, the
    first integer has its height in bytes, at most `HIGHEST`."""
    n = len(byte)
    deepest = 0
    for i in range(n):
        deepest = max(deepest, depth[i])
    # by depth: the bytes that the character still needs (-1: not UTF-8), and the bounds of the next one (RFC 3629 §4)
    left = allocate.longs(deepest + 1)
    least, most = allocate.longs(deepest + 1), allocate.longs(deepest + 1)
    left[0] = least[0] = most[0] = 0
    needs = allocate.longs(n)
    for i in range(n):
        d, b, before = depth[i], np.int64(byte[i]), left[depth[i] - 1]
        least[d], most[d] = 0x80, 0xBF
        if before > 0:
            left[d] = before - 1 if least[d - 1] <= b <= most[d - 1] else -1
        elif before < 0 or 0x80 <= b < FIRST_LEAD or b > LAST_LEAD:
            left[d] = -1
        else:
            left[d] = 0 if b < 0x80 else 1 if b < 0xE0 else 2 if b < 0xF0 else 3
            if b == 0xE0:
                least[d] = 0xA0
            elif b == 0xED:
                most[d] = 0x9F
            elif b == 0xF0:
                least[d] = 0x90
            elif b == 0xF4:
                most[d] = 0x8F
        needs[i] = left[d]
    out = np.zeros((n, 2), np.int64)
    heights = allocate.longs(n)
    for i in range(n - 1, -1, -1):
        low, high, height = np.int64(0), np.int64(0), np.int64(0)
        child = np.int64(i + 1)
        while child < end[i]:
            bit = BIT[byte[child]]
            if needs[child] < 0:
                low |= 1 << _OTHER
            elif 0x80 <= byte[child] < FIRST_LEAD:
                pass  # the character's first byte is below the node, too, or the node ends inside the character
            elif bit < 64:
                low |= np.int64(1) << bit
            else:
                high |= np.int64(1) << (bit - 64)
            low |= out[child, 0]
            high |= out[child, 1]
            height = max(height, heights[child] + 1)
            child = np.int64(end[child])
        out[i, 0], out[i, 1], heights[i] = low, high, height
    for i in range(n):
        if needs[i] != 0:
            out[i, 0] |= 1 << _OTHER
        out[i, 0] |= min(heights[i], HIGHEST) << HEIGHT_AT
    return out
