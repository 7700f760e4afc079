"""Finite unions of intervals of real numbers: the meaning of minimum, maximum, const and their negations.

A set is represented by its membership at minus infinity and by its *cuts*, the sorted places where membership
changes. A cut lies just below (side 0) or just above (side 1) an exact value, so open and closed ends, single points
and punctured intervals need no cases of their own, the complement is one flipped bit, and bounds of any size work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple, TypeAlias

from dotllm.errors import BudgetExceededError, InvalidSpecError

# An exact rational; an int if it is integral, which is faster (equal values have equal hashes in both types).
Exact: TypeAlias = int | Fraction
Cut: TypeAlias = tuple[Exact, int]
# An interval between two cuts; None is an infinity.
Interval: TypeAlias = tuple[Cut | None, Cut | None]

MAX_DIGITS = 2_000
"""The most digits before and after the point. Python writes integers of at most 4,300 digits
(``sys.set_int_max_str_digits``)."""
_MAX_BITS = int(MAX_DIGITS * 3.33)


def exact(value: int | float | Decimal | Fraction) -> Exact:
    """The rational that a JSON number stands for. A float means its shortest decimal form (0.1 is one tenth).

    Raises:
        InvalidSpecError: the value is not a finite number.
        BudgetExceededError: the number has too many digits.
    """
    if isinstance(value, bool):
        raise InvalidSpecError(f"{value} is not a number")
    if isinstance(value, int):
        if value.bit_length() > _MAX_BITS:
            raise BudgetExceededError(f"a number has more than {MAX_DIGITS:,} digits")
        return value
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 1e15:
            return int(value)
        value = Decimal(float.__repr__(value))  # subclasses have other forms: NumPy's is np.float64(0.1)
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise InvalidSpecError(f"{value} is not a JSON number")
        last = value.as_tuple().exponent
        if value.adjusted() > MAX_DIGITS or (isinstance(last, int) and last < -MAX_DIGITS):
            raise BudgetExceededError(f"the number {value:.20g} has more than {MAX_DIGITS:,} digits")
        value = Fraction(value)
    return value.numerator if value.denominator == 1 else value


class RealSet(NamedTuple):
    """``below``: membership at minus infinity; it flips at every cut of ``cuts`` (strictly increasing)."""

    below: bool
    cuts: tuple[Cut, ...]

    @classmethod
    def interval(
        cls, low: Exact | None, high: Exact | None, *, low_open: bool = False, high_open: bool = False
    ) -> RealSet:
        """From ``low`` to ``high`` (None: unbounded); empty if there is nothing between them."""
        first = None if low is None else (low, int(low_open))
        last = None if high is None else (high, int(not high_open))
        if first is None:
            return cls(True, () if last is None else (last,))
        if last is None:
            return cls(False, (first,))
        return cls(False, (first, last)) if first < last else EMPTY_SET

    @classmethod
    def points(cls, values: list[Exact]) -> RealSet:
        """Exactly these values."""
        return cls(False, tuple(cut for value in sorted(set(values)) for cut in ((value, 0), (value, 1))))

    @classmethod
    def from_intervals(cls, intervals: list[Interval]) -> RealSet:
        """The union of sorted, disjoint, non-touching intervals."""
        below = bool(intervals) and intervals[0][0] is None
        return cls(below, tuple(cut for ends in intervals for cut in ends if cut is not None))

    def __bool__(self) -> bool:
        return self.below or bool(self.cuts)

    def __invert__(self) -> RealSet:
        return RealSet(not self.below, self.cuts)

    def __and__(self, other: RealSet) -> RealSet:
        if not other.cuts:
            return self if other.below else EMPTY_SET
        if not self.cuts:
            return other if self.below else EMPTY_SET
        return _merge(self, other, lambda a, b: a and b)

    def __or__(self, other: RealSet) -> RealSet:
        return _merge(self, other, lambda a, b: a or b)

    def __contains__(self, value: object) -> bool:
        return self.below ^ bool(bisect_right(self.cuts, (value, 0)) & 1)

    @property
    def above(self) -> bool:
        """Membership at plus infinity."""
        return self.below ^ bool(len(self.cuts) & 1)

    def on(self, first: Cut, last: Cut) -> bool | None:
        """Membership of all values between two cuts, None if some belong and some do not."""
        at = bisect_right(self.cuts, first)
        if at < bisect_left(self.cuts, last):
            return None
        return self.below ^ bool(at & 1)

    def mirrored(self) -> RealSet:
        """The set of the negated values."""
        return RealSet(self.above, tuple((-value, 1 - side) for value, side in reversed(self.cuts)))

    def intervals(self) -> Iterator[Interval]:
        """The maximal intervals, in order."""
        ends: list[Cut | None] = [*([None] if self.below else []), *self.cuts, *([None] if self.above else [])]
        for i in range(0, len(ends), 2):
            yield ends[i], ends[i + 1]


EVERYTHING = RealSet(True, ())
EMPTY_SET = RealSet(False, ())


def _merge(a: RealSet, b: RealSet, keep: Callable[[bool, bool], bool]) -> RealSet:
    """Sweep the cuts of both sets; the result has a cut where ``keep`` of the two memberships changes."""
    in_a, in_b = a.below, b.below
    below = inside = keep(in_a, in_b)
    cuts: list[Cut] = []
    i = j = 0
    while i < len(a.cuts) or j < len(b.cuts):  # bounded: by the cuts of both
        from_a = j == len(b.cuts) or (i < len(a.cuts) and a.cuts[i] <= b.cuts[j])
        from_b = i == len(a.cuts) or (j < len(b.cuts) and b.cuts[j] <= a.cuts[i])
        cut = a.cuts[i] if from_a else b.cuts[j]
        if from_a:
            in_a, i = not in_a, i + 1
        if from_b:
            in_b, j = not in_b, j + 1
        if keep(in_a, in_b) != inside:
            inside = not inside
            cuts.append(cut)
    return RealSet(below, tuple(cuts))
