"""JSON values in a form in which equal ones are equal: JSON Schema's equality (Core §4.2.2), whatever the spelling.

A string is a ``str``; all else is a tuple that begins with its kind. A number is its sign, its digits without zeros at
either end, and the exponent of the last digit: exact for any exponent, where a `Fraction` would have to be written out.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

Value = str | tuple[Any, ...]
"""``("word", b"true")``, ``("number", negative, digits, exponent)``, ``("array", items)``, ``("object", members)``."""

ZERO: Value = ("number", False, "", 0)


def _integer(text: str) -> int:
    """As ``int``, without Python's limit on digits."""
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    number = 0
    for at in range(0, len(digits), 4000):
        part = digits[at : at + 4000]
        number = number * 10 ** len(part) + int(part)
    return sign * number


def number(text: str) -> Value:
    """The value of a number as it is written."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return ZERO
    last = len(digits) - len(significant) - len(fraction) + (_integer(exponent) if exponent else 0)
    return ("number", mantissa.startswith("-"), significant, last)


def number_may_equal(text: str, value: Value) -> bool:
    """Whether a number that begins with ``text`` can be equal to ``value``, written in some way of RFC 8259."""
    if value[0] != "number" or isinstance(value, str):
        return False
    _, negative, significant, _ = value
    mantissa, exponent, _ = text.lower().partition("e")
    digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
    if not significant:
        return not digits
    if text.startswith("-") != negative:
        return False
    if exponent:
        return bool(digits.rstrip("0") == significant)
    return bool((significant + "0" * len(digits)).startswith(digits))


def _with(some: tuple[str, ...], one: str) -> tuple[str, ...]:
    at = bisect_left(some, one)
    return (*some[:at], one, *some[at:])


class Seen:
    """The items of an array so far, in order. Immutable: adding one makes another."""

    __slots__ = ("items", "members", "numbers", "others", "strings")

    def __init__(self, items: tuple[Value, ...] = (), before: Seen | None = None) -> None:
        """``before``: without the last item."""
        self.items = items
        self.strings: tuple[str, ...] = before.strings if before else ()
        """those that are strings, sorted"""
        self.numbers: tuple[str, ...] = before.numbers if before else ()
        """the digits of those that are numbers, behind their sign, sorted"""
        self.others: tuple[Value, ...] = before.others if before else ()
        """all but the strings"""
        self.members = frozenset(items)
        for item in items[-1:]:
            if isinstance(item, str):
                self.strings = _with(self.strings, item)
            else:
                self.others = (*self.others, item)
                if item[0] == "number":
                    self.numbers = _with(self.numbers, "-" * item[1] + item[2])

    def may_have_string(self, text: str) -> bool:
        """Whether some item is a string that begins with ``text``."""
        at = bisect_left(self.strings, text)
        return at < len(self.strings) and self.strings[at].startswith(text)

    def may_have_number(self, text: str) -> bool:
        """Whether some item is a number that one beginning with ``text`` may be equal to (see `number_may_equal`)."""
        if not self.numbers:
            return False
        mantissa, exponent, _ = text.lower().partition("e")
        digits = mantissa.lstrip("-").replace(".", "").lstrip("0")
        if not digits:
            return not exponent or self.numbers[0] == "" or "" in self.numbers
        wanted = "-" * text.startswith("-") + digits
        whole = wanted.rstrip("0")
        at = bisect_left(self.numbers, whole)
        if at < len(self.numbers) and self.numbers[at] == whole:
            return True
        at = bisect_left(self.numbers, wanted)
        return not exponent and at < len(self.numbers) and self.numbers[at].startswith(wanted)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and (self is other or self.items == other.items)

    def __hash__(self) -> int:
        return hash(self.members)  # which a frozenset remembers

    def __len__(self) -> int:
        return len(self.items)
