"""Decides membership in a set of numbers for a decimal whose digits are read from left to right.

A bound is compared digit by digit. After some digits there are two cases: *tight*, the digits are still a prefix of
some bound; *diverged*, membership depends only on how many digits follow. So the number of states is linear in the
digits of the bounds, whatever their size, and no value is ever converted to a machine number. Three readers share
this idea: `Digits` (integer part and fraction), `Mantissas` (scientific notation with one digit before the point,
where the exponent plays the part of the length) and `Residues` (multipleOf).
"""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import Any, TypeAlias

from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.languages.json_schema.numbers.real_set import Cut, Exact, RealSet

# A reader's state: hashable; its first member names its kind, which determines the other members. None: a dead state.
Key: TypeAlias = tuple[Any, ...]
FREE: Key = ("free",)  # every further digit is allowed
# Digits that lead to the same state, by the kind of state: all together, zero and the others, or each alone.
_TOGETHER = (tuple(range(10)),)
_ZERO_APART = ((0,), tuple(range(1, 10)))
_ONE_BY_ONE = tuple((digit,) for digit in range(10))
DIGIT_GROUPS = {*_TOGETHER, *_ZERO_APART, *_ONE_BY_ONE}
Part: TypeAlias = bool | tuple[bool, bool]
MAX_RESIDUE_WORK = 3_000_000  # digits of residues examined: about a second


def digit_groups(key: Key) -> tuple[tuple[int, ...], ...]:
    """The digits in groups; a reader in this state does not distinguish the digits of a group."""
    if key[0] in ("free", "length"):
        return _TOGETHER
    if key[0] == "tail":
        return _ZERO_APART
    if key[0] == "known":
        return _TOGETHER if all(isinstance(part, bool) for part in key[1]) else _ZERO_APART
    return _ONE_BY_ONE


def decimal_places(value: Exact) -> int:
    """The digits that ``value`` needs after the point. Raises UnsupportedError if it has no finite decimal form."""
    rest, twos, fives = value.denominator, 0, 0
    while rest % 2 == 0:  # bounded: by the digits of a number
        rest, twos = rest // 2, twos + 1
    while rest % 5 == 0:  # bounded: by the digits of a number
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        raise UnsupportedError(f"{value} has no finite decimal form", keyword="number")
    return max(twos, fives)


def _rest(numbers: RealSet, low: int, high: int) -> Part | None:
    """Membership of ``low <= v < high``: a bool, the pair (of ``low``, of the others), or None if neither fits."""
    whole = numbers.on((low, 0), (high, 0))
    if whole is not None:
        return whole
    others = numbers.on((low, 1), (high, 0))
    return None if others is None else (low in numbers, others)


class Digits:
    """Reads ``0`` or ``[1-9][0-9]*`` and an optional fraction; knows which texts have a value in ``numbers``.

    Only the values >= 0 of the set count; all cuts must be finite decimals.
    """

    def __init__(self, numbers: RealSet) -> None:
        self.places = max((decimal_places(value) for value, _ in numbers.cuts), default=0)
        self.unit = 10**self.places
        # Scaled to integers: Fractions are slow.
        self.scaled = RealSet(numbers.below, tuple((int(value * self.unit), side) for value, side in numbers.cuts))
        # Integer parts of these lengths meet a cut; of any other length, all belong or none does.
        self.special = {len(str(value // self.unit)) for value, _ in self.scaled.cuts if value >= 0}
        self.longest = max(self.special, default=0)
        self.of_length = [
            None if n in self.special else self._between(10 ** (n - 1), 10**n) for n in range(1, self.longest + 1)
        ]
        self.above = numbers.above

    def _between(self, low: int, high: int) -> bool | None:
        return self.scaled.on((low * self.unit, 0), (high * self.unit, 0))

    def first(self, digit: int) -> Key | None:
        """The state after the first digit of the integer part; ``0`` ends it."""
        return self._prefix(1, digit) if digit else ("zero",)

    def step(self, key: Key, digit: int) -> Key | None:
        """The state after one more digit of the integer part."""
        if key[0] == "zero":
            return None
        if key[0] == "tight":
            _, length, prefix = key
            return self._prefix(length + 1, prefix * 10 + digit)
        return self._diverged(key[1][1:])

    def _prefix(self, length: int, prefix: int) -> Key | None:
        future = self.of_length[length - 1 :]
        for n in self.special:
            if n >= length:
                scale = 10 ** (n - length)
                known = future[n - length] = self._between(prefix * scale, (prefix + 1) * scale)
                if known is None:
                    return ("tight", length, prefix)
        while future and future[-1] == self.above:  # bounded: by the digits of a number
            future.pop()
        return self._diverged(tuple(future))

    def _diverged(self, future: tuple[bool | None, ...]) -> Key | None:
        """``future[i]``: membership if i more digits follow; beyond its end, it is ``above``."""
        return ("length", future) if self.above or True in future else None

    def accepts(self, key: Key) -> bool:
        """Whether the integer read so far may be the whole number."""
        if key[0] == "length":
            return key[1][0] if key[1] else self.above
        value = 0 if key[0] == "zero" else key[2]
        return value * self.unit in self.scaled

    def point(self, key: Key) -> Key | None:
        """The state after the decimal point (at least one digit must follow)."""
        if key[0] == "length":
            return FREE if self.accepts(key) else None
        return self._fraction((0 if key[0] == "zero" else key[2]) * self.unit, 0)

    def _fraction(self, value: int, read: int) -> Key | None:
        rest = _rest(self.scaled, value, value + 10 ** (self.places - read))
        if rest is None:
            return ("fraction", value, read)
        if isinstance(rest, bool):
            return FREE if rest else None
        return ("tail", *rest)

    def fraction_step(self, key: Key, digit: int) -> Key | None:
        """The state after one more digit of the fraction."""
        if key[0] == "fraction":
            _, value, read = key
            return self._fraction(value + digit * 10 ** (self.places - read - 1), read + 1)
        if key[0] == "tail" and digit:
            return FREE if key[2] else None
        return key

    def fraction_accepts(self, key: Key) -> bool:
        """Whether the number may end here."""
        if key[0] == "fraction":
            return key[1] in self.scaled
        return key[0] == "free" or bool(key[1])


class Mantissas:
    """Reads ``d.ddd`` with d > 0 and says which exponents put its value into ``numbers`` (only values > 0 count)."""

    def __init__(self, numbers: RealSet) -> None:
        cuts: list[tuple[int, int, Cut]] = []  # exponent, number of digits, (digits, side)
        places = max((decimal_places(value) for value, _ in numbers.cuts), default=0)
        for value, side in numbers.cuts:
            if value > 0:
                digits = int(value * 10**places)
                size = len(str(digits))
                cuts.append((size - 1 - places, size, (digits, side)))
        self.size = max((size for _, size, _ in cuts), default=1)
        self.exponents: list[int] = []
        self.decades: list[RealSet] = []
        inside = self.near_zero = bool(numbers.on((0, 1), (Fraction(1, 10 ** (places + 1)), 0)))
        for exponent in sorted({exponent for exponent, _, _ in cuts}):
            scaled = tuple((d * 10 ** (self.size - size), side) for e, size, (d, side) in cuts if e == exponent)
            self.exponents.append(exponent)
            self.decades.append(RealSet(inside, scaled))
            inside = inside ^ bool(len(scaled) & 1)

    def first(self, digit: int) -> Key:
        """The state after the digit before the point."""
        return self._prefix(digit, 1)

    def step(self, key: Key, digit: int) -> Key:
        """The state after one more digit."""
        if key[0] == "tight":
            return self._prefix(key[1] * 10 + digit, key[2] + 1)
        if digit == 0:
            return key
        return ("known", tuple(part if isinstance(part, bool) else part[1] for part in key[1]))

    def _prefix(self, prefix: int, read: int) -> Key:
        scale = 10 ** (self.size - read)
        parts = tuple(_rest(decade, prefix * scale, (prefix + 1) * scale) for decade in self.decades)
        return ("tight", prefix, read) if None in parts else ("known", parts)

    def allowed_exponents(self, key: Key) -> RealSet:
        """The exponents (integers) that may follow this mantissa."""
        if key[0] == "tight":
            value = key[1] * 10 ** (self.size - key[2])
            allowed = [value in decade for decade in self.decades]
        else:
            allowed = [part if isinstance(part, bool) else part[0] for part in key[1]]
        inside = self.near_zero
        cuts: list[Cut] = []
        for i, exponent in enumerate(self.exponents):
            if allowed[i] != inside:
                cuts.append((exponent, 0))
                inside = not inside
            after = self.decades[i].above
            if after != inside and exponent + 1 not in self.exponents[i + 1 : i + 2]:
                cuts.append((exponent + 1, 0))
                inside = not inside
        return RealSet(self.near_zero, tuple(cuts))


class Residues:
    """Reads a plain decimal modulo several steps: a multiple of each of ``steps`` and of none of ``others``.

    A step s with k decimal places is the integer m = s * 10**k; after j <= k digits of the fraction only the residue
    modulo m / gcd(m, 10**(k-j)) matters, and after k digits only zeros keep a multiple a multiple.
    """

    def __init__(self, steps: tuple[Exact, ...], others: tuple[Exact, ...]) -> None:
        self.wanted = [True] * len(steps) + [False] * len(others)
        self.places: list[int] = []
        self.moduli: list[list[int]] = []
        for step in (*steps, *others):
            k = decimal_places(step)
            whole = int(step * 10**k)
            self.places.append(k)
            self.moduli.append([whole // gcd(whole, 10 ** (k - j)) for j in range(k + 1)])
        self.most_places = max(self.places, default=0)
        self._alike: list[dict[object, int]] = [{} for _ in self.places]
        self._after: list[dict[int, int]] = [{} for _ in self.places]  # 10 * residue + digit → `_representative`
        self._work_left = MAX_RESIDUE_WORK
        self.start: tuple[int, ...] = (0,) * len(self.places)

    def step(self, state: tuple[int, ...], digit: int) -> tuple[int, ...]:
        """The state after one more digit of the integer part."""
        after: list[int] = []
        for which, (known, residue) in enumerate(zip(self._after, state, strict=True)):
            read = 10 * residue + digit
            successor = known.get(read)
            if successor is None:
                successor = known[read] = self._representative(which, read % self.moduli[which][0])
            after.append(successor)
        return tuple(after)

    def _representative(self, which: int, residue: int) -> int:
        """One residue for all with the same future (modulo 1000 only 4 differ). Raises BudgetExceededError."""
        if self.places[which]:
            return residue
        modulus = self.moduli[which][0]
        future: list[int | None] = []
        scale, at = 1, residue
        while scale < modulus:  # bounded: by the digits of a number
            missing = -at % modulus  # the digits that would complete a multiple, if they fit
            future.append(missing if missing < scale else None)
            scale, at = scale * 10, at * 10 % modulus
        future.append(at)
        self._work_left -= len(future)
        if self._work_left < 0:
            raise BudgetExceededError(
                f"deciding multiples of a number with {len(future):,} digits takes too much work",
                keyword="multipleOf",
            )
        return self._alike[which].setdefault(tuple(future), residue)

    def accepts(self, state: tuple[int, ...]) -> bool:
        """Whether the integer read so far satisfies all conditions."""
        return all((r == 0) == wanted for r, wanted in zip(state, self.wanted, strict=True))

    def point(self, state: tuple[int, ...]) -> Key | None:
        """The state after the decimal point. For a step without decimal places it only matters whether the integer is a
        multiple."""
        out = tuple(r if k or r == 0 else -1 for k, r in zip(self.places, state, strict=True))
        if any(r == -1 and wanted for r, wanted in zip(out, self.wanted, strict=True)):
            return None
        return (0, *out)

    def fraction_step(self, key: Key, digit: int) -> Key | None:
        """The state after one more digit of the fraction. The residue -1 means: certainly not a multiple."""
        if len(key) == 1:
            return key
        read = key[0]
        out = [min(read + 1, self.most_places)]
        for k, moduli, wanted, r in zip(self.places, self.moduli, self.wanted, key[1:], strict=True):
            if r != -1 and read < k:
                r = (10 * r + digit) % moduli[read + 1]
            elif digit:
                if wanted:
                    return None
                r = -1
            out.append(r)
        return tuple(out)

    def fraction_accepts(self, key: Key) -> bool:
        """Whether the number may end here."""
        return all((r == 0) == wanted for r, wanted in zip(key[1:], self.wanted, strict=True))
