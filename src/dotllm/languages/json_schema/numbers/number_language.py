"""Sets of JSON numbers, closed under and, or, not: bounds, integers, multipleOf, enum and const.

A language is a union of parts, one for each *constraint* (integer, multiple of, not a multiple of), each with the set
of reals in which it holds. That form is closed under the three operations, and almost always has one part. Values are
exact rationals, so `minimum: 0.1` means one tenth, and bounds may have 400 digits.

`number_expression` writes the numbers of a language.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor, gcd, lcm

from dotllm.errors import BudgetExceededError, InvalidSpecError
from dotllm.languages.json_schema.numbers.number_text import NumberConstraint
from dotllm.languages.json_schema.numbers.real_set import EMPTY_SET, EVERYTHING, Exact, Interval, RealSet, exact

JsonNumber = int | float | Decimal | Fraction

MAX_PARTS = 64
MAX_CANDIDATES = 20_000

_ANY = NumberConstraint()
_INTEGER = NumberConstraint(True, 1)


class NumberLanguage:
    """An immutable, hashable set of JSON numbers; equal if written with the same parts."""

    __slots__ = ("_hash", "parts")

    def __init__(self, parts: Iterable[tuple[NumberConstraint, RealSet]] = ()) -> None:
        self.parts: frozenset[tuple[NumberConstraint, RealSet]] = _canonical(parts)
        self._hash = hash(self.parts)

    @classmethod
    def interval(
        cls,
        low: JsonNumber | None = None,
        high: JsonNumber | None = None,
        *,
        low_open: bool = False,
        high_open: bool = False,
    ) -> NumberLanguage:
        """``low <= x <= high``, strictly where an end is open; None: unbounded."""
        first = None if low is None else exact(low)
        last = None if high is None else exact(high)
        return cls(((_ANY, RealSet.interval(first, last, low_open=low_open, high_open=high_open)),))

    @classmethod
    def integers_between(cls, low: int, high: int) -> NumberLanguage:
        """`INTEGERS` ∧ `interval`, the most common bounds in schemas, without the algebra."""
        if low > high:
            return NO_NUMBER
        out = cls.__new__(cls)
        out.parts = frozenset(((_INTEGER, RealSet(False, ((low, 0), (high, 1)))),))
        out._hash = hash(out.parts)
        return out

    @classmethod
    def multiple_of(cls, divisor: JsonNumber) -> NumberLanguage:
        """The multiples of ``divisor`` > 0. Raises InvalidSpecError if ``divisor`` is not positive."""
        step = exact(divisor)
        if step <= 0:
            raise InvalidSpecError(f"multipleOf must be greater than 0, not {divisor}", keyword="multipleOf")
        return cls(((NumberConstraint(False, step), EVERYTHING),))

    @classmethod
    def finite(cls, values: Iterable[JsonNumber]) -> NumberLanguage:
        """Exactly these values (enum, const)."""
        return cls(((_ANY, RealSet.points([exact(value) for value in values])),))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberLanguage) and self.parts == other.parts

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"NumberLanguage({sorted(self.parts)!r})"

    def __and__(self, other: NumberLanguage) -> NumberLanguage:
        if self is ANY_NUMBER or self == other:
            return other
        if other is ANY_NUMBER:
            return self
        return NumberLanguage((_both(a, b), x & y) for a, x in self.parts for b, y in other.parts)

    def __or__(self, other: NumberLanguage) -> NumberLanguage:
        if self == other:
            return self
        return NumberLanguage((*self.parts, *other.parts))

    def __invert__(self) -> NumberLanguage:
        out = ANY_NUMBER
        for constraint, numbers in self.parts:
            not_here = [(_ANY, ~numbers)]
            if constraint.step is not None:
                not_here.append((NumberConstraint(False, None, (constraint.step,)), numbers))
            not_here.extend((NumberConstraint(False, step), numbers) for step in constraint.not_steps)
            out = out & NumberLanguage(not_here)
        return out

    def is_empty(self) -> bool:
        """Whether the set is empty."""
        return not self.parts

    def contains(self, value: JsonNumber) -> bool:
        """Whether ``value`` belongs, however it is written."""
        number = exact(value)
        return any(number in numbers and satisfies(number, constraint) for constraint, numbers in self.parts)

    def listed(self) -> frozenset[Exact] | None:
        """All values, and perhaps others, if they are single points; else None."""
        values: set[Exact] = set()
        for _, numbers in self.parts:
            for low, high in numbers.intervals():
                if low is None or high is None or low[0] != high[0]:
                    return None
                values.add(low[0])
        return frozenset(values)

    def finite_values(self, limit: int) -> list[Exact] | None:
        """All values in order, or None if there are more than ``limit``."""
        result: set[Exact] = set()
        for constraint, numbers in self.parts:
            for interval in numbers.intervals():
                low, high = interval
                if low is None or high is None:
                    return None
                if low[0] == high[0]:
                    result.update(value for value in (low[0],) if satisfies(value, constraint))
                elif constraint.step is None:
                    return None
                else:
                    first, last = _multiples(interval, constraint.step)
                    assert first is not None and last is not None
                    if last - first > 2 * limit + MAX_CANDIDATES:
                        return None
                    values = (_simple(k * constraint.step) for k in range(first, last + 1))
                    result.update(value for value in values if satisfies(value, constraint))
                if len(result) > limit:
                    return None
        return sorted(result)


def _simple(value: Exact) -> Exact:
    return value.numerator if value.denominator == 1 else value


def _both(a: NumberConstraint, b: NumberConstraint) -> NumberConstraint:
    """The conjunction of two constraints."""
    step = _common(a.step, b.step) if a.step is not None and b.step is not None else a.step or b.step
    return NumberConstraint(a.integer or b.integer, step, tuple(sorted({*a.not_steps, *b.not_steps})))


def _common(a: Exact, b: Exact) -> Exact:
    """The least common multiple of two positive rationals."""
    if isinstance(a, int) and isinstance(b, int):
        return lcm(a, b)
    return _simple(Fraction(lcm(a.numerator, b.numerator), gcd(a.denominator, b.denominator)))


def _is_multiple(value: Exact, step: Exact) -> bool:
    return value % step == 0


def satisfies(value: Exact, constraint: NumberConstraint) -> bool:
    """Whether ``value`` is a multiple of the constraint's ``step`` and of none of its ``not_steps``."""
    return (constraint.step is None or _is_multiple(value, constraint.step)) and not any(
        _is_multiple(value, step) for step in constraint.not_steps
    )


def _multiples(interval: Interval, step: Exact) -> tuple[int | None, int | None]:
    """The first and last k with k * step in the interval (None: no bound); first > last if there are none."""
    low, high = interval
    first = last = None
    if low is not None:
        value, side = low
        first = floor(value / Fraction(step)) + 1 if side else ceil(value / Fraction(step))
    if high is not None:
        value, side = high
        last = floor(value / Fraction(step)) if side else ceil(value / Fraction(step)) - 1
    return first, last


def _snapped(numbers: RealSet, step: Exact) -> RealSet:
    """The same multiples of ``step``, in closed intervals that begin and end at multiples: a unique form."""
    if not numbers.cuts:
        return numbers
    if step == 1 and _ends_at_integers(numbers):
        return numbers
    out: list[Interval] = []
    reached: int | None = None
    for interval in numbers.intervals():
        first, last = _multiples(interval, step)
        if first is not None and last is not None and first > last:
            continue
        begin = None if first is None else (_simple(first * step), 0)
        end = None if last is None else (_simple(last * step), 1)
        if out and first is not None and reached is not None and first <= reached + 1:
            out[-1] = (out[-1][0], end)
        else:
            out.append((begin, end))
        reached = last
    return RealSet.from_intervals(out)


def _ends_at_integers(numbers: RealSet) -> bool:
    """Whether each interval is closed, has integer ends and does not touch the next, as `_snapped` ensures."""
    inside = numbers.below
    before: Exact | None = None
    for value, side in numbers.cuts:
        if side != inside or not isinstance(value, int) or (before is not None and value == before + 1 and not inside):
            return False
        inside, before = not inside, value
    return True


def _canonical(parts: Iterable[tuple[NumberConstraint, RealSet]]) -> frozenset[tuple[NumberConstraint, RealSet]]:
    """One set for each constraint, snapped to its step, no empty or contained ones. Raises BudgetExceededError."""
    union: dict[NumberConstraint, RealSet] = {}
    for constraint, numbers in parts:
        if numbers:
            simple = _simplified(constraint)
            if simple is not None:
                union[simple] = union[simple] | numbers if simple in union else numbers
    if len(union) > MAX_PARTS:
        raise BudgetExceededError(
            f"the conditions distinguish more than {MAX_PARTS} kinds of numbers",
            keyword="multipleOf",
            help="combine fewer ranges and divisors",
        )
    for constraint, numbers in list(union.items()):
        if constraint.step is not None:
            numbers = union[constraint] = _snapped(numbers, constraint.step)
        if constraint.not_steps:
            numbers = union[constraint] = _without_excluded_ends(constraint, numbers)
        if not numbers:
            del union[constraint]
    if len(union) > 1:
        for constraint in list(union):
            if any(
                _narrower(constraint, union[constraint], other, union[other]) for other in union if other != constraint
            ):
                del union[constraint]
    return frozenset(union.items())


def _simplified(constraint: NumberConstraint) -> NumberConstraint | None:
    """``constraint`` without the conditions that follow from others; None if no number satisfies it."""
    if not constraint.not_steps:
        return constraint
    if constraint.step is None:
        others = {
            s for s in constraint.not_steps if not any(s != t and _is_multiple(s, t) for t in constraint.not_steps)
        }
    else:
        # A multiple of both step and s is a multiple of their least common multiple.
        others = {_common(constraint.step, s) for s in constraint.not_steps}
        if constraint.step in others:
            return None
        others = {s for s in others if not any(s != t and _is_multiple(s, t) for t in others)}
    return NumberConstraint(constraint.integer, constraint.step, tuple(sorted(others)))


def _without_excluded_ends(constraint: NumberConstraint, numbers: RealSet) -> RealSet:
    """Drop the bounded intervals in which every candidate is excluded, so that an empty set is recognised.

    Raises `BudgetExceededError` if that takes more than 20,000 candidates.
    """
    kept: list[Interval] = []
    for interval in numbers.intervals():
        low, high = interval
        if low is not None and high is not None:
            if low[0] == high[0]:
                if not satisfies(low[0], constraint):
                    continue
            elif constraint.step is not None and not _some_member(interval, constraint):
                continue
        kept.append(interval)
    return RealSet.from_intervals(kept)


def _some_member(interval: Interval, constraint: NumberConstraint) -> bool:
    assert constraint.step is not None
    first, last = _multiples(interval, constraint.step)
    assert first is not None and last is not None
    # Usually the first or the second candidate is a member: each of not_steps is a proper multiple of the step.
    for tried, k in enumerate(range(first, last + 1)):
        if tried > MAX_CANDIDATES:
            raise BudgetExceededError(
                "almost every number of a range is excluded", keyword="multipleOf", help="list the others in an enum"
            )
        if not any(_is_multiple(k * constraint.step, step) for step in constraint.not_steps):
            return True
    return False


def _narrower(a: NumberConstraint, x: RealSet, b: NumberConstraint, y: RealSet) -> bool:
    """Whether every text of (a, x) is also a text of (b, y)."""
    return (
        (a.integer or not b.integer)
        and (b.step is None or (a.step is not None and _is_multiple(a.step, b.step)))
        and set(b.not_steps) <= set(a.not_steps)
        and x & ~y == EMPTY_SET
    )


ANY_NUMBER = NumberLanguage(((_ANY, EVERYTHING),))
INTEGERS = NumberLanguage(((_INTEGER, EVERYTHING),))
"""``type: integer``: integral values, written as integers."""
NO_NUMBER = NumberLanguage()
