"""Sets of Unicode scalar values, as sorted ranges, and their UTF-8 byte sequences.

A ``CharSet`` is the meaning of a character class of a regex, a grammar or a JSON string. Surrogates (U+D800-DFFF) are
never members: they have no UTF-8 form (RFC 3629 §3). The split of a range into byte-range sequences follows the
table of RFC 3629 §4, so overlong forms cannot appear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dotllm.arrays import Bool
from dotllm.memo import memoised

MAX_CODE_POINT = 0x10FFFF
Range = tuple[int, int]


def _normalise(ranges: Iterable[Range]) -> tuple[Range, ...]:
    merged: list[Range] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def _without_surrogates(ranges: Iterable[Range]) -> Iterator[Range]:
    for low, high in ranges:
        if low < 0xD800:
            yield low, min(high, 0xD7FF)
        if high > 0xDFFF:
            yield max(low, 0xE000), min(high, MAX_CODE_POINT)


class CharSet(NamedTuple):
    """An immutable, hashable set of code points: sorted, disjoint, non-adjacent inclusive ranges."""

    ranges: tuple[Range, ...]

    @classmethod
    def of(cls, *ranges: Range | str | int) -> CharSet:
        """``CharSet.of("abc", (0x30, 0x39), 0xE9)``: characters of a string, inclusive ranges, single code points."""
        result: list[Range] = []
        for item in ranges:
            if isinstance(item, str):
                result.extend((ord(c), ord(c)) for c in item)
            elif isinstance(item, int):
                result.append((item, item))
            else:
                result.append(item)
        return cls(_normalise(_without_surrogates(result)))

    def __or__(self, other: CharSet) -> CharSet:
        return CharSet(_normalise(self.ranges + other.ranges))

    def __and__(self, other: CharSet) -> CharSet:
        out: list[Range] = []
        i = j = 0
        while i < len(self.ranges) and j < len(other.ranges):
            low = max(self.ranges[i][0], other.ranges[j][0])
            high = min(self.ranges[i][1], other.ranges[j][1])
            if low <= high:
                out.append((low, high))
            if self.ranges[i][1] < other.ranges[j][1]:
                i += 1
            else:
                j += 1
        return CharSet(tuple(out))

    def __invert__(self) -> CharSet:
        """Complement in the set of all Unicode scalar values."""
        out: list[Range] = []
        at = 0
        for low, high in self.ranges:
            if low > at:
                out.append((at, low - 1))
            at = high + 1
        if at <= MAX_CODE_POINT:
            out.append((at, MAX_CODE_POINT))
        return CharSet(_normalise(_without_surrogates(out)))

    def __sub__(self, other: CharSet) -> CharSet:
        return self & ~other

    def __contains__(self, code_point: object) -> bool:
        return isinstance(code_point, int) and any(low <= code_point <= high for low, high in self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    @property
    def size(self) -> int:
        """The number of code points in the set."""
        return sum(high - low + 1 for low, high in self.ranges)

    @property
    def nbytes(self) -> int:
        """The approximate bytes of its ranges. (Users' classes may have tens of thousands.)"""
        return 128 * (1 + len(self.ranges))

    def utf8(self) -> tuple[tuple[Range, ...], ...]:
        """The set as byte-range sequences, each of 1 to 4 inclusive byte ranges; disjoint, in code point order."""
        return _utf8(self)


ANY_CHAR = CharSet.of((0, MAX_CODE_POINT))


def living_characters(alive: Bool) -> CharSet:
    """The characters whose UTF-8 form has only bytes that are ``alive`` [256]."""
    if alive[:0xC0].all() and alive[0xC2:0xF5].all():  # the case of nearly all vocabularies
        return ANY_CHAR
    spelt = np.zeros(MAX_CODE_POINT + 2, np.bool_)
    spelt[:0x80] = alive[:0x80]
    for length, low, high, lead in (
        (2, 0x80, 0x7FF, 0xC0),
        (3, 0x800, 0xFFFF, 0xE0),
        (4, 0x10000, MAX_CODE_POINT, 0xF0),
    ):
        points = np.arange(low, high + 1)
        spelt[low : high + 1] = alive[lead | points >> 6 * (length - 1)]
        for place in range(length - 1):
            spelt[low : high + 1] &= alive[0x80 | points >> 6 * place & 0x3F]
    edges = np.flatnonzero(np.diff(spelt, prepend=False)).tolist()
    return CharSet.of(*((low, end - 1) for low, end in zip(edges[::2], edges[1::2], strict=True)))


@memoised(lambda sequences, charset: charset.nbytes + 250 * len(sequences), limit=16 << 20)
def _utf8(charset: CharSet) -> tuple[tuple[Range, ...], ...]:
    out: list[tuple[Range, ...]] = []
    for low, high in charset.ranges:
        for limit_low, limit_high in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, MAX_CODE_POINT)):
            first, last = max(low, limit_low), min(high, limit_high)
            if first <= last:
                _split(first, last, out)
    return tuple(out)


def _split(low: int, high: int, out: list[tuple[Range, ...]]) -> None:
    """Append byte-range sequences for low..high, whose UTF-8 forms have the same number of bytes."""
    a, b = chr(low).encode(), chr(high).encode()
    _split_bytes(a, b, (), out)


def _split_bytes(a: bytes, b: bytes, prefix: tuple[Range, ...], out: list[tuple[Range, ...]]) -> None:
    if len(a) == 1:
        out.append((*prefix, (a[0], b[0])))
        return
    if a[0] == b[0]:
        _split_bytes(a[1:], b[1:], (*prefix, (a[0], a[0])), out)
        return
    rest = len(a) - 1
    first, last = a[0], b[0]
    lowest, highest = bytes([0x80] * rest), bytes([0xBF] * rest)
    if a[1:] != lowest:
        _split_bytes(a[1:], highest, (*prefix, (first, first)), out)
        first += 1
    tail: bytes | None = None
    if b[1:] != highest:
        tail = b[1:]
        last -= 1
    if first <= last:
        out.append((*prefix, (first, last), *([(0x80, 0xBF)] * rest)))
    if tail is not None:
        _split_bytes(lowest, tail, (*prefix, (b[0], b[0])), out)
