"""Numbers that every JSON reader accepts and reads as what they are: `Options.number_digits` "bounded", the default.

RFC 8259 §6 sets no limit and warns about readers that have one. Models do run on: an integer may grow to thousands of
digits, and Python's parser refuses more than 4,300. ``1e400`` becomes infinite in most readers; Python's writer then
writes ``Infinity``, which is not JSON. ``7e-76577`` becomes 0, which ``exclusiveMinimum: 0`` forbids. So here:

* a number has at most `MOST_CHARACTERS` characters without its sign, or as many as the schema's own numbers need (the
  machine counts them, so this takes no states);
* numbers are finite as doubles (`number_text` limits the exponents, `as_read` the sets), and so are integers, which
  JavaScript reads as doubles; larger numbers are allowed only if the schema has no other members;
* an open end excludes the double that it is read as, not only its exact value (`as_read`). A closed end needs no such
  care, because rounding preserves the order.

Single values (enum, const) are written as the schema gives them.
"""

from __future__ import annotations

import math
import sys
from decimal import Decimal
from functools import lru_cache

from dotllm.languages.json_schema.numbers.number_digits import decimal_places
from dotllm.languages.json_schema.numbers.number_text import NumberConstraint
from dotllm.languages.json_schema.numbers.real_set import Cut, Exact, Interval, RealSet, exact

MOST_CHARACTERS = 64
SURE_DIGITS = 15
"""Different decimals of this many digits are different doubles (IEEE 754: 15 for binary64), so a number that must not
be a multiple is not read as one either."""
_MANY = 300  # characters; a number of fewer is rounded neither to 0 nor to infinity
_SPARE = 4  # digits in addition to those of bounds and steps, so that a set with members keeps some

_GREATEST = exact(Decimal(repr(sys.float_info.max)))
_FINITE = RealSet.interval(-_GREATEST, _GREATEST)
_NOT_NEGATIVE = RealSet(False, ((0, 0),))
_LEAST = exact(Decimal(repr(5e-324)))


def is_finite(number: bytes) -> bool:
    """Whether the text of a number is read as a finite number or as an integer."""
    return not set(b".eE").intersection(number) or math.isfinite(float(number))


@lru_cache(maxsize=1024)  # as for `magnitudes`, which is called with it
def most_characters(numbers: RealSet, constraint: NumberConstraint) -> int:
    """The most characters of a number's text without its sign; 0 if the set itself bounds them."""
    if constraint.integer and not numbers.below and not numbers.above:
        return 0
    steps: list[Exact] = [*constraint.not_steps, *([] if constraint.step is None else [constraint.step])]
    values: list[Exact] = [value if value >= 0 else -value for value, _ in numbers.cuts]
    least = MOST_CHARACTERS
    if constraint.not_steps and not constraint.integer:  # the members nearest to 0 are enough
        least, values = SURE_DIGITS, [] if numbers.below else values[:1]
    return max(
        least,
        sum(_characters(step) for step in steps) + max((_characters(value) for value in values), default=0) + _SPARE,
    )


def _characters(value: Exact) -> int:
    return len(str(math.floor(value))) + decimal_places(value) + 1


def as_read(numbers: RealSet, constraint: NumberConstraint) -> RealSet:
    """The members of ``numbers`` that are read as finite doubles in it; open ends move to the next double."""
    if constraint.integer:
        return _finite_integers(numbers, constraint)
    if not numbers.cuts:
        return numbers
    if constraint.not_steps:  # (no two numbers of SURE_DIGITS digits are the same double)
        halves = (numbers & _NOT_NEGATIVE, (numbers & ~_NOT_NEGATIVE).mirrored())
        is_short = all(most_characters(half, constraint) < _MANY for half in halves if half)
        return numbers if is_short else numbers & _FINITE
    is_short = most_characters(numbers, constraint) < _MANY
    if not is_short:
        numbers = numbers & _FINITE
    intervals: list[Interval] = []
    for low, high in numbers.intervals():
        begin = _moved(low, math.inf, is_short) if low is not None and low[1] else low
        end = _moved(high, -math.inf, is_short) if high is not None and not high[1] else high
        if begin is None or end is None or begin < end:
            intervals.append((begin, end))
    return RealSet.from_intervals(intervals)


def _finite_integers(numbers: RealSet, constraint: NumberConstraint) -> RealSet:
    """Integers are read exactly or as doubles, so only those that are finite as doubles are kept, if there are any. A
    step as large as the greatest double may have no finite multiple in the set, so then the set stays as it is."""
    is_short = most_characters(numbers, constraint) < _MANY and all(abs(value) < 10**_MANY for value, _ in numbers.cuts)
    if is_short or (constraint.step is not None and constraint.step >= 10**_MANY):
        return numbers
    return (numbers & _FINITE) or numbers


def _moved(cut: Cut, towards: float, is_short: bool) -> Cut:
    """An open end, moved to a closed end at the next double."""
    side = int(towards < 0)
    if cut[0] == 0:
        return cut if is_short else (_LEAST if not side else -_LEAST, side)
    following = math.nextafter(float(cut[0]), towards)
    return (exact(Decimal(repr(following))) if math.isfinite(following) else cut[0], side)
