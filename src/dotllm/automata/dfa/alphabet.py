"""Alphabets of character classes: a partition of all Unicode scalar values into classes that no automaton tells apart.

The classes ("minterms") of some CharSets are the non-empty intersections of the sets and their complements, so an
automaton has a dozen columns instead of 1.1 million. Classes are numbered by their smallest code point; that makes the
numbering canonical. The surrogates, which no text contains, are hidden inside the interval below them: no interval
starts in U+D801..DFFF, and one that would start at U+D800 starts at U+E000.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm.charset import MAX_CODE_POINT, CharSet, Range

Ints = NDArray[np.int32]


_FAR = 1 << 31
"""Larger than any code point, and than what callers of `minterms` keep beyond them."""

# Unions of classes that an alphabet remembers.
_MAX_SETS = 256


class Alphabet:
    """``class_of[i]`` is the class of the code points ``starts[i] .. starts[i + 1] - 1``; immutable, hashable."""

    def __init__(self, starts: tuple[int, ...], class_of: tuple[int, ...]) -> None:
        """Neighbours must differ in class, and classes be numbered by first appearance (see `partition`)."""
        self.starts = starts
        self.class_of = class_of
        self.size = max(class_of) + 1
        self._hash = hash((starts, class_of))
        self._sets: dict[int, CharSet] = {}
        self._beyond: dict[int, CharSet] = {}

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Alphabet) and self.starts == other.starts and self.class_of == other.class_of
        )

    def __hash__(self) -> int:
        return self._hash

    def index(self, code_point: int) -> int:
        """The class of a scalar value."""
        return self.class_of[bisect_right(self.starts, code_point) - 1]

    def charset(self, classes: int) -> CharSet:
        """The union of the classes whose bits are set in ``classes``."""
        found = self._sets.get(classes)
        if found is None:
            ranges: list[Range] = []
            ends = (*self.starts[1:], MAX_CODE_POINT + 1)
            for start, end, cls in zip(self.starts, ends, self.class_of, strict=False):
                if classes >> cls & 1:
                    ranges.append((start, end - 1))
            found = CharSet.of(*ranges)
            if len(self._sets) < _MAX_SETS:
                self._sets[classes] = found
        return found

    def beyond_ascii(self, classes: int) -> CharSet:
        """The same set without its members in ASCII."""
        found = self._beyond.get(classes)
        if found is None:
            first = bisect_right(self.starts, 0x80) - 1
            starts, ends = [0x80, *self.starts[first + 1 :]], (*self.starts[first + 1 :], MAX_CODE_POINT + 1)
            intervals = zip(starts, ends, self.class_of[first:], strict=True)
            found = CharSet.of(*[(start, end - 1) for start, end, cls in intervals if classes >> cls & 1])
            self._beyond[classes] = found
        return found

    @cached_property
    def sizes(self) -> list[int]:
        """Number of code points per class."""
        return [self.charset(1 << cls).size for cls in range(self.size)]

    def encode(self, text: str) -> Ints:
        """int32[len(text)]: the class of each character."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int32)
        starts, class_of = self.arrays
        return class_of[np.searchsorted(starts, points, side="right") - 1]

    @cached_property
    def arrays(self) -> tuple[Ints, Ints]:
        """``starts`` and ``class_of``."""
        return np.array(self.starts, np.int32), np.array(self.class_of, np.int32)


def partition(starts: Sequence[int], keys: Sequence[Any]) -> tuple[Alphabet, list[Any]]:
    """The alphabet in which code points are alike when their intervals' ``keys`` are; and the key of each class."""
    number: dict[Any, int] = {}
    kept_starts: list[int] = []
    kept_classes: list[int] = []
    for start, key in zip(starts, keys, strict=False):
        cls = number.setdefault(key, len(number))
        if not kept_classes or kept_classes[-1] != cls:
            kept_starts.append(start)
            kept_classes.append(cls)
    return Alphabet(tuple(kept_starts), tuple(kept_classes)), list(number)


ONE_CLASS = Alphabet((0,), (0,))


@lru_cache(maxsize=256)
def minterms(charsets: tuple[CharSet, ...], last: int = MAX_CODE_POINT) -> tuple[Alphabet, list[int]]:
    """The classes of ``charsets``, and for each class the bit set of the charsets it lies in.

    ``last`` is the largest code point there is; beyond Unicode's a caller may keep marks of its own.
    """
    toggles: dict[int, int] = {0: 0}
    for i, charset in enumerate(charsets):
        bit = 1 << i
        for low, high in charset.ranges:
            toggles[low] = toggles.get(low, 0) ^ bit
            after = high + 1
            if after == 0xD800:
                after = 0xE000
            if after <= last:
                toggles[after] = toggles.get(after, 0) ^ bit
    starts = sorted(toggles)
    inside = 0
    keys = []
    for start in starts:
        inside ^= toggles[start]
        keys.append(inside)
    return partition(starts, keys)


@lru_cache(maxsize=512)
def joint(a: Alphabet, b: Alphabet) -> tuple[Alphabet, Ints, Ints]:
    """The coarsest alphabet finer than both; and the class of ``a`` and of ``b`` each of its classes lies in."""
    number: dict[tuple[int, int], int] = {}
    starts: list[int] = []
    classes: list[int] = []
    i = j = at = 0
    last = -1
    ends_a, ends_b = (*a.starts[1:], _FAR), (*b.starts[1:], _FAR)
    while at < _FAR:
        cls = number.setdefault((a.class_of[i], b.class_of[j]), len(number))
        if cls != last:
            starts.append(at)
            classes.append(cls)
            last = cls
        end_a, end_b = ends_a[i], ends_b[j]
        at = min(end_a, end_b)
        i += end_a == at
        j += end_b == at
    both, pairs = Alphabet(tuple(starts), tuple(classes)), list(number)
    columns = np.array(pairs, np.int32)
    return both, np.ascontiguousarray(columns[:, 0]), np.ascontiguousarray(columns[:, 1])


def merge_classes(alphabet: Alphabet, target: Ints) -> Alphabet:
    """``alphabet`` with class c renamed ``target[c]``, where several may get one name (in order of first use)."""
    renamed = target.tolist()
    return partition(alphabet.starts, [renamed[cls] for cls in alphabet.class_of])[0]
