"""Nondeterministic automata over character sets: the first form of a regular expression."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotllm import cancellation
from dotllm.charset import MAX_CODE_POINT, CharSet, Range
from dotllm.errors import BudgetExceededError
from dotllm.memo import memoised

# Alphabets of character classes: a partition of all Unicode scalar values into classes that no automaton tells apart.
#
# The classes ("minterms") of some CharSets are the non-empty intersections of the sets and their complements, so an
# automaton has a dozen columns instead of 1.1 million. Classes are numbered by their smallest code point; that makes
# the numbering canonical. The surrogates, which no text contains, are hidden inside the interval below them: no
# interval starts in U+D801..DFFF, and one that would start at U+D800 starts at U+E000.

Ints = NDArray[np.int32]


_FAR = 1 << 31
"""Larger than any code point, and than any mark that callers of `minterms` use beyond the code points."""

# Maximum number of unions of classes that an alphabet remembers.
_MAX_SETS = 256


class Alphabet:
    """``class_of[i]`` is the class of the code points ``starts[i] .. starts[i + 1] - 1``; immutable, hashable."""

    def __init__(self, starts: tuple[int, ...], class_of: tuple[int, ...]) -> None:
        """Neighbours must differ in class, and classes must be numbered by first appearance (see `partition`)."""
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
        result = self._sets.get(classes)
        if result is None:
            ranges: list[Range] = []
            ends = (*self.starts[1:], MAX_CODE_POINT + 1)
            for start, end, cls in zip(self.starts, ends, self.class_of, strict=False):
                if classes >> cls & 1:
                    ranges.append((start, end - 1))
            result = CharSet.of(*ranges)
            if len(self._sets) < _MAX_SETS:
                self._sets[classes] = result
        return result

    def beyond_ascii(self, classes: int) -> CharSet:
        """`charset` without its members in ASCII."""
        result = self._beyond.get(classes)
        if result is None:
            first = bisect_right(self.starts, 0x80) - 1
            starts, ends = [0x80, *self.starts[first + 1 :]], (*self.starts[first + 1 :], MAX_CODE_POINT + 1)
            intervals = zip(starts, ends, self.class_of[first:], strict=True)
            result = CharSet.of(*[(start, end - 1) for start, end, cls in intervals if classes >> cls & 1])
            if len(self._beyond) < _MAX_SETS:
                self._beyond[classes] = result
        return result

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
    """The alphabet in which code points share a class if their intervals have equal ``keys``; and the key of each
    class."""
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


def _nbytes(*alphabets: Alphabet) -> int:
    """The approximate bytes of ``alphabets``, and of as many arrays or lists of their classes."""
    return sum(300 * (1 + len(alphabet.starts)) for alphabet in alphabets)


@memoised(lambda result, charsets, *_: _nbytes(result[0]) + sum(charset.nbytes for charset in charsets), limit=8 << 20)
def minterms(charsets: tuple[CharSet, ...], last: int = MAX_CODE_POINT) -> tuple[Alphabet, list[int]]:
    """The classes of ``charsets``, and for each class the bit set of the charsets that contain it.

    ``last`` is the largest code point; a caller may use marks of its own beyond Unicode's.
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


@memoised(lambda result, a, b: _nbytes(result[0], a, b), limit=8 << 20)
def joint(a: Alphabet, b: Alphabet) -> tuple[Alphabet, Ints, Ints]:
    """The coarsest alphabet that is finer than both, and for each of its classes those of ``a`` and ``b`` that contain
    it."""
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
    """``alphabet`` with class c renamed to ``target[c]``; several may get the same name (in order of first use)."""
    renamed = target.tolist()
    return partition(alphabet.starts, [renamed[cls] for cls in alphabet.class_of])[0]


# A bound on the work of a computation: a count, not a clock, so the same input always ends the same way.


# Maximum number of entries of one transition table; minimising holds several copies of it.
_MAX_ENTRIES = 2_000_000
# Maximum number of explosions that are tried again. Their own steps, 30 ms at most each, are not taken from the budget.
_MOST_RETRIES = 16


class Budget:
    """Limits of the DFA algebra. ``steps`` is spent operation by operation; ``states`` limits each automaton;
    ``retries`` is the number of explosions that may still be tried again (`Dfa.of_nfa`).

    A step is one elementary move of a kernel (such as one transition examined) and takes a few nanoseconds; the default
    stops an exploding determinisation after about 30 ms. Give one instance to all operations that serve one pattern, or
    one combination of patterns. (A specification may have thousands of patterns, each within its budget. Only the time
    limit of a compile bounds their sum, so spending a budget also checks for cancellation.)
    """

    __slots__ = ("retries", "states", "steps")

    def __init__(self, states: int = 20_000, steps: int = 10_000_000) -> None:
        cancellation.check()
        self.states = states
        self.steps = steps
        self.retries = _MOST_RETRIES

    def states_over(self, classes: int) -> int:
        """The maximum number of states of an automaton over this many character classes."""
        return min(self.states, _MAX_ENTRIES // classes)

    def spend(self, steps: int, what: str) -> None:
        """Take ``steps`` from the budget; raises BudgetExceededError when it is exhausted."""
        cancellation.check()
        self.steps -= steps
        if self.steps < 0:
            self.steps = 0
            raise self.exceeded(what)

    def exceeded(self, what: str) -> BudgetExceededError:
        """The error for an operation that ran out of states or steps."""
        return BudgetExceededError(
            f"the automaton of {what} exceeds its budget (at most {self.states:,} states); simplify the pattern",
            keyword="budget",
        )


# Maximum of character classes times labels.
_MAX_MEMBERSHIPS = 16_000_000


class NfaArrays(NamedTuple):
    """An NFA of ``states`` states over the classes of ``alphabet``. All arrays are int32.

    Label l stands for the classes ``labels[1][labels[0][l] : labels[0][l + 1]]``.
    """

    alphabet: Alphabet
    edges: tuple[Ints, Ints, Ints]
    """Source, label, target: [edges] each."""
    epsilons: tuple[Ints, Ints]
    """Source, target: [epsilon edges] each."""
    labels: tuple[Ints, Ints]
    starts: Ints
    finals: Ints
    states: int


def _ints(values: array[int]) -> Ints:
    return np.frombuffer(values, np.int32) if values else np.empty(0, np.int32)


class NfaBuilder:
    """States 0..n-1, edges over CharSets, epsilon edges, any number of start and final states."""

    def __init__(self, budget: Budget, last: int = MAX_CODE_POINT) -> None:
        """``last``: see `minterms`."""
        self.budget = budget
        self.last = last
        self.states = 0
        self.source, self.label, self.target = array("i"), array("i"), array("i")
        self.epsilon_source, self.epsilon_target = array("i"), array("i")
        self.starts, self.finals = array("i"), array("i")
        self._labels: dict[CharSet, int] = {}

    def state(self) -> int:
        """A new state. NFAs have the same limit on states as DFAs; raises BudgetExceededError."""
        if self.states >= self.budget.states:
            raise self.budget.exceeded("the pattern")
        self.states += 1
        return self.states - 1

    def edge(self, source: int, charset: CharSet, target: int) -> None:
        """``target`` may follow ``source`` after one character out of ``charset``."""
        self.source.append(source)
        self.label.append(self._labels.setdefault(charset, len(self._labels)))
        self.target.append(target)

    def epsilon(self, source: int, target: int) -> None:
        """``target`` may follow ``source`` without reading anything."""
        self.epsilon_source.append(source)
        self.epsilon_target.append(target)

    def arrays(self, what: str = "the pattern") -> NfaArrays:
        """The whole NFA, with character sets as sets of classes. Raises BudgetExceededError, which names ``what``."""
        alphabet, members = minterms(tuple(self._labels), self.last) if self._labels else (ONE_CLASS, [0])
        if alphabet.size * len(self._labels) > _MAX_MEMBERSHIPS:
            raise self.budget.exceeded(what)
        width = len(self._labels) // 8 + 1
        raw = np.frombuffer(b"".join([inside.to_bytes(width, "little") for inside in members]), np.uint8)
        inside = np.unpackbits(raw.reshape(-1, width), axis=1, bitorder="little")
        label, classes = np.nonzero(inside.T[: len(self._labels)])
        starts = np.searchsorted(label, np.arange(len(self._labels) + 1)).astype(np.int32)
        edges = _ints(self.source), _ints(self.label), _ints(self.target)
        epsilons = _ints(self.epsilon_source), _ints(self.epsilon_target)
        labels = starts, classes.astype(np.int32)
        return NfaArrays(alphabet, edges, epsilons, labels, _ints(self.starts), _ints(self.finals), self.states)
