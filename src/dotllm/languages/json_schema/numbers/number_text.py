"""The JSON texts of a set of numbers, as a finite automaton over bytes.

RFC 8259 §6 gives the grammar: ``int [frac] [exp]``. These texts are written for a set:

* integers: digits only, no fraction, no exponent;
* other numbers, decimal notation: any digits, any trailing zeros, exactly the texts whose value is in the set;
* other numbers, exponents: any exponent if scale does not matter to the set (no bound but 0); else scientific
  notation with one digit other than 0 before the point, as Python, JavaScript, C and Java print it. (With an
  arbitrary mantissa, the texts of a bounded range are not a regular language.) With multipleOf: decimal notation
  only. With bounded numbers (see `bounded_numbers`), exponents are so small that no number is read as infinite, and
  none but zero as zero;
* ``-0`` only where negative numbers are allowed as well, so a model that may only write 0 does not begin with a minus.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.numbers.number_digits import (
    DIGIT_GROUPS,
    Digits,
    Key,
    Mantissas,
    Residues,
    digit_groups,
)
from dotllm.languages.json_schema.numbers.real_set import EVERYTHING, Exact, RealSet

MAX_STATES = 12_000
MANY_DIGITS = 20  # from here on the general method is faster

_POSITIVE = RealSet(False, ((0, 1),))
_NOT_NEGATIVE = RealSet(False, ((0, 0),))
# Exponents of bounded numbers: after a mantissa with one digit other than 0 before its point, and after any mantissa
# of 64 characters.
_GREATEST, _LEAST = 307, -323
_AFTER_ONE_DIGIT = RealSet.interval(-_GREATEST, _GREATEST)
_AFTER_ANY = RealSet.interval(-199, 199)
# Sets of bytes, as bits.
_DIGIT = tuple(1 << byte for byte in b"0123456789")
_ANY_DIGIT = sum(_DIGIT)
_BYTES_OF = {group: sum(_DIGIT[digit] for digit in group) for group in DIGIT_GROUPS}
_POINT, _PLUS, _MINUS = (1 << byte for byte in b".+-")
_EXPONENT_MARK = 1 << ord("e") | 1 << ord("E")


class NumberConstraint(NamedTuple):
    """The conditions on a number in addition to membership in a set."""

    integer: bool = False  # written as an integer; then ``step`` is an integer too
    step: Exact | None = None  # a multiple of this
    not_steps: tuple[Exact, ...] = ()  # a multiple of none of these


_INTEGER = NumberConstraint(True, 1)


class ByteNetwork(NamedTuple):
    """A finite automaton over bytes: the layout of `Grammar.network`, with indices into ``symbols`` for expressions."""

    states: int
    symbols: tuple[int, ...]  # sets of bytes, as bits
    layout: NDArray[np.int32]  # its edges in the order of their sources

    def copy_into(self, grammar: Grammar, most_characters: int = 0) -> Expression:
        """The automaton as an expression of at most ``most_characters`` characters (0: no limit)."""
        layout = self.layout.copy()
        edges = layout[4 + layout[2] :: 3]
        edges[:] = np.array(grammar.sets(self.symbols), np.int32)[edges]
        return grammar.flat_network(layout.tobytes(), most_characters) if layout[2] else grammar.never()


@lru_cache(maxsize=1024)
def magnitudes(numbers: RealSet, constraint: NumberConstraint, bounded: bool = False) -> ByteNetwork:
    """The unsigned texts of the members >= 0 of ``numbers`` that satisfy ``constraint``. ``bounded``: only texts with
    exponents that readers accept.

    Raises:
        BudgetExceededError: the automaton has more than `MAX_STATES` (multipleOf with a large denominator or
            numerator).
    """
    ends = _ends(numbers) if constraint == _INTEGER else None
    if ends is not None:
        return _integers_up_to(*ends) if ends[0] < 2 and ends[1] else _integers(*ends)
    texts = _Magnitudes(numbers, constraint, bounded)
    ids: dict[Key, int] = {("start",): 0}
    queue: deque[Key] = deque(ids)
    finals: set[int] = set()
    edges: list[dict[int, int]] = []  # target → set of bytes
    while queue:
        key = queue.popleft()
        grouped: dict[int, int] = {}
        for symbols, target in texts.successors(key):
            at = ids.get(target)
            if at is None:
                if len(ids) >= MAX_STATES:
                    raise BudgetExceededError(
                        f"the numbers need more than {MAX_STATES} states",
                        keyword="multipleOf",
                        help="use a multipleOf with fewer digits, or a narrower range",
                    )
                at = ids[target] = len(ids)
                queue.append(target)
            grouped[at] = grouped.get(at, 0) | symbols
        edges.append(grouped)
        if texts.accepts(key):
            finals.add(len(edges) - 1)
    return trimmed(edges, finals)


def _ends(numbers: RealSet) -> tuple[int, int] | None:
    """The ends of a set that is one closed interval between integers of moderate size."""
    if len(numbers.cuts) != 2:
        return None
    ((low, high),) = numbers.intervals()
    if low is None or high is None or low[1] or not high[1]:
        return None
    first, last = low[0], high[0]
    if not isinstance(first, int) or not isinstance(last, int) or not 0 <= first <= last < 10**MANY_DIGITS:
        return None
    return first, last


def _integers_up_to(first: int, last: int) -> ByteNetwork:
    """The integers from ``first``, 0 or 1, to ``last`` > 0: two chains, of the digits of ``last`` and of free digits.

    All bounds with equally many digits share one layout; the bytes on its edges are looked up.
    """
    digits = [ord(digit) - 48 for digit in str(last)]
    states, layout = _two_chains(len(digits))
    symbols = [_DIGIT[0] if first == 0 else 0, _ANY_DIGIT]
    for digit in digits:
        symbols += _COMPARED[digit]
    symbols[2] &= ~_DIGIT[0]  # the first digit is not zero
    return ByteNetwork(states, tuple(symbols), layout)


_COMPARED = tuple(
    (sum(_DIGIT[:digit]), _DIGIT[digit], sum(_DIGIT[digit + 1 :])) for digit in range(10)
)  # the bytes of the digits below, at and above each


@lru_cache(maxsize=MANY_DIGITS)
def _two_chains(n: int) -> tuple[int, NDArray[np.int32]]:
    """States and layout of `_integers_up_to` for n digits. Symbols: zero, any digit, then three for each digit of the
    bound: the digits below it, the digit itself, and the digits above it."""
    layout = [2 * n + 1, 0, 2 * n, *range(1, 2 * n + 1)]  # all states but the start are final
    # State k: the first k digits of ``last`` have been read; state n + 1 + r: up to r more digits may follow.
    for k in range(n):
        layout += (k, 2 + 3 * k, 2 * n - k, k, 3 + 3 * k, k + 1)
        if k < n - 1:
            layout += (k, 4 + 3 * k, 2 * n - k - 1)
    layout += (0, 0, n + 1)
    for r in range(1, n):
        layout += (n + 1 + r, 1, n + r)
    return 2 * n + 1, np.array(layout, np.int32)


def _integers(first: int, last: int) -> ByteNetwork:
    """The integers from ``first`` to ``last``, the most common bounds in schemas, in a tenth of the usual time.

    A state describes what may follow: for each number of digits, the interval in which they lie.
    """
    start = tuple(
        (digits, max(first, 10 ** (digits - 1) if digits > 1 else 0), min(last, 10**digits - 1))
        for digits in range(len(str(first)), len(str(last)) + 1)
    )
    ids = {start: 0}
    finals: list[int] = []
    layout: list[int] = []
    symbols: dict[int, int] = {}
    for state in (queue := [start]):
        place = ids[state]
        cuts = {0, 10}
        for digits, low, high in state:
            if digits:
                unit = 10 ** (digits - 1)
                cuts |= {low // unit, low // unit + 1, high // unit, high // unit + 1}
            else:
                finals.append(place)
        grouped: dict[int, int] = {}
        for digit, end in pairwise(sorted(cuts)):
            target = []
            for digits, low, high in state:
                if digits:
                    unit = 10 ** (digits - 1)
                    rest_low, rest_high = max(low - digit * unit, 0), min(high - digit * unit, unit - 1)
                    if rest_low <= rest_high:
                        target.append((digits - 1, rest_low, rest_high))
            if not target:
                continue
            after = tuple(target)
            if after not in ids:
                ids[after] = len(ids)
                queue.append(after)
            mask = ((1 << end) - (1 << digit)) << ord("0")
            grouped[ids[after]] = grouped.get(ids[after], 0) | mask
        for to, mask in grouped.items():
            layout += (place, symbols.setdefault(mask, len(symbols)), to)
    head = [len(ids), 0, len(finals), *finals]
    return ByteNetwork(len(ids), tuple(symbols), np.array(head + layout, np.int32))


def trimmed(edges: list[dict[int, int]], finals: set[int]) -> ByteNetwork:
    """Drop the states from which no final state is reached."""
    sources: list[list[int]] = [[] for _ in edges]
    for source, out in enumerate(edges):
        for target in out:
            sources[target].append(source)
    alive = set(finals)
    stack = list(finals)
    while stack:  # bounded: by MAX_STATES
        for source in sources[stack.pop()]:
            if source not in alive:
                alive.add(source)
                stack.append(source)
    alive.add(0)
    number = {old: new for new, old in enumerate(sorted(alive))}
    symbols: dict[int, int] = {}
    layout = [len(number), 0, len(finals), *(number[state] for state in sorted(finals))]
    for source in sorted(alive):
        for target, mask in edges[source].items():
            if target in alive:
                layout += (number[source], symbols.setdefault(mask, len(symbols)), number[target])
    return ByteNetwork(len(number), tuple(symbols), np.array(layout, np.int32))


class _Exponents:
    """A set of exponents and its readers: for the digits after a plus sign or no sign, and after a minus sign.

    Many numbers have the same exponents (all that readers accept), so the successors of their states are cached.
    """

    def __init__(self, allowed: RealSet) -> None:
        self.has_zero = 0 in allowed
        self.signed = (Digits(allowed), Digits(allowed.mirrored()))
        self.after: dict[Key, list[tuple[int, Key]]] = {}


_exponents = lru_cache(maxsize=64)(_Exponents)


class _Magnitudes:
    """The automaton, state by state: keys are tuples whose first member names the place in the number."""

    def __init__(self, numbers: RealSet, constraint: NumberConstraint, bounded: bool) -> None:
        numbers = numbers & _NOT_NEGATIVE
        self.bounded = bounded
        self.integer = constraint.integer
        self.digits = Digits(numbers)
        steps = () if constraint.step is None else (constraint.step,)
        # Digits without a fraction are multiples of 1 whether or not we count.
        self.residues = Residues(tuple(s for s in steps if not (constraint.integer and s == 1)), constraint.not_steps)
        plain = constraint.integer or constraint.step is not None
        # No bound but 0: a change of scale leads from member to member.
        self.any_exponent = not plain and not constraint.not_steps and numbers in (_NOT_NEGATIVE, _POSITIVE)
        scientific = RealSet(False, ()) if plain or self.any_exponent else numbers & _POSITIVE
        if constraint.not_steps:  # numbers between 0 and the smallest step are not multiples
            scientific = scientific & RealSet.interval(None, min(constraint.not_steps), high_open=True)
        self.mantissas = Mantissas(scientific) if scientific else None
        self.within = _AFTER_ONE_DIGIT
        if bounded and self.mantissas is not None and self.mantissas.exponents:
            least = max(min(self.mantissas.exponents[0], -_GREATEST), _LEAST)
            self.within = RealSet.interval(least, max(self.mantissas.exponents[-1], _GREATEST))
        self.zero_exponent = not plain and not self.any_exponent and not constraint.not_steps and 0 in numbers
        self.exponents: dict[RealSet, _Exponents] = {}

    def accepts(self, key: Key) -> bool:
        where = key[0]
        if where in ("integer", "digit"):
            return self.digits.accepts(key[1]) and self.residues.accepts(key[2])
        if where in ("fraction", "digit fraction"):
            return self.digits.fraction_accepts(key[1]) and self.residues.fraction_accepts(key[2])
        if where == "exponent zeros":
            return bool(key[1].has_zero)
        if where == "exponent":
            return bool(key[1].signed[key[2]].accepts(key[3]))
        return bool(where == "any exponent")

    def successors(self, key: Key) -> Iterator[tuple[int, Key]]:
        where = key[0]
        if where in ("exponent mark", "exponent sign", "exponent zeros", "exponent"):
            known: dict[Key, list[tuple[int, Key]]] = key[1].after
            if key not in known:
                known[key] = list(self._exponent(key))
            yield from known[key]
        elif where == "start":
            yield from self._first_digits()
        elif where in ("integer", "digit"):
            yield from self._integer(key)
        elif where in ("point", "fraction", "digit point", "digit fraction"):
            yield from self._fraction(key)
        elif where in ("mantissa", "mantissa point", "mantissa fraction"):
            yield from self._mantissa(key)
        elif where in ("zero", "zero point", "zero fraction"):
            yield from self._zero(key)
        elif where == "any exponent mark":
            yield _PLUS | _MINUS, ("any exponent sign",)
            yield _ANY_DIGIT, ("any exponent",)
        else:
            yield _ANY_DIGIT, ("any exponent",)

    def _first_digits(self) -> Iterator[tuple[int, Key]]:
        for digit in range(10):
            byte = _DIGIT[digit]
            after = self.digits.first(digit)
            if after is not None:
                where = "digit" if digit and self.any_exponent and self.bounded else "integer"
                yield byte, (where, after, self.residues.step(self.residues.start, digit))
            if digit and self.mantissas is not None:
                yield byte, ("mantissa", self.mantissas.first(digit))
        if self.zero_exponent:
            yield _DIGIT[0], ("zero",)

    def _integer(self, key: Key) -> Iterator[tuple[int, Key]]:
        where, at, residues = key
        for group in digit_groups(at):
            after = self.digits.step(at, group[0])
            if after is None:
                continue
            if residues:
                for digit in group:
                    yield _DIGIT[digit], ("integer", after, self.residues.step(residues, digit))
            else:
                yield _BYTES_OF[group], ("integer", after, residues)
        if not self.integer:
            fraction, rest = self.digits.point(at), self.residues.point(residues)
            if fraction is not None and rest is not None:
                yield _POINT, ("point" if where == "integer" else "digit point", fraction, rest)
        if self.any_exponent and self.accepts(key):
            yield _EXPONENT_MARK, self._any_exponent(where)

    def _fraction(self, key: Key) -> Iterator[tuple[int, Key]]:
        where, at, residues = key
        then = "fraction" if where in ("point", "fraction") else "digit fraction"
        for group in digit_groups(at):
            after = self.digits.fraction_step(at, group[0])
            if after is None:
                continue
            for digits in zip(group) if self.residues.start else (group,):
                rest = self.residues.fraction_step(residues, digits[0])
                if rest is not None:
                    yield _BYTES_OF[digits], (then, after, rest)
        if where == then and self.any_exponent and self.accepts(key):
            yield _EXPONENT_MARK, self._any_exponent(where)

    def _mantissa(self, key: Key) -> Iterator[tuple[int, Key]]:
        where, at = key
        assert self.mantissas is not None
        if where == "mantissa":
            yield _POINT, ("mantissa point", at)
        else:
            for group in digit_groups(at):
                symbols = sum(_DIGIT[digit] for digit in group)
                yield symbols, ("mantissa fraction", self.mantissas.step(at, group[0]))
        if where != "mantissa point":
            allowed = self.mantissas.allowed_exponents(at)
            if self.bounded:
                allowed = allowed & self.within
            if allowed:
                yield _EXPONENT_MARK, self._exponent_mark(allowed)

    def _zero(self, key: Key) -> Iterator[tuple[int, Key]]:
        """Zero times a power of ten."""
        if key[0] == "zero":
            yield _POINT, ("zero point",)
        else:
            yield _DIGIT[0], ("zero fraction",)
        if key[0] != "zero point":
            yield _EXPONENT_MARK, self._any_exponent("zero")

    def _any_exponent(self, where: str) -> Key:
        """The state after an exponent mark if scale does not matter to the set."""
        if not self.bounded:
            return ("any exponent mark",)
        return self._exponent_mark(_AFTER_ONE_DIGIT if where in ("digit", "digit fraction") else _AFTER_ANY)

    def _exponent_mark(self, allowed: RealSet) -> Key:
        if allowed == EVERYTHING:
            return ("any exponent mark",)
        return ("exponent mark", self.exponents.setdefault(allowed, _exponents(allowed)))

    @staticmethod
    def _exponent(key: Key) -> Iterator[tuple[int, Key]]:
        """An exponent from a set of integers; leading zeros are allowed (RFC 8259 §6, and Python writes e-07)."""
        where, which = key[0], key[1]
        if where == "exponent mark":
            yield _PLUS, ("exponent sign", which, 0)
            yield _MINUS, ("exponent sign", which, 1)
        negative = 0 if where == "exponent mark" else key[2]
        digits = which.signed[negative]
        if where == "exponent":
            for group in digit_groups(key[3]):
                after = digits.step(key[3], group[0])
                if after is not None:
                    yield sum(_DIGIT[digit] for digit in group), ("exponent", which, negative, after)
            return
        yield _DIGIT[0], ("exponent zeros", which, negative)
        for digit in range(1, 10):
            after = digits.first(digit)
            if after is not None:
                yield _DIGIT[digit], ("exponent", which, negative, after)
