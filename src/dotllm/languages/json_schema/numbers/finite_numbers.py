"""Numbers that every reader of JSON reads as finite. ``1e400`` is a number in RFC 8259, but most readers make it
infinite.

Python's reader does so, and its writer then writes ``Infinity``, which is not JSON. So with `Options.finite_numbers` a
number with a fraction or an exponent has at most `MOST_DIGITS` digits before its point, and an exponent below 200 (if
it is negative, above -1000). One automaton with this rule serves all sets of numbers; an exact bound on the value would
need another one for each set. Readers read integers exactly, however long, so integers stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.numbers.number_text import ByteNetwork, NumberConstraint, magnitudes, trimmed
from dotllm.languages.json_schema.numbers.real_set import RealSet

MOST_DIGITS = 40
MAX_STATES = 60_000

_DIGITS = sum(1 << byte for byte in b"0123456789")
_SMALL, _LARGE = sum(1 << byte for byte in b"01"), sum(1 << byte for byte in b"23456789")
_POINT, _PLUS, _MINUS = (1 << byte for byte in b".+-")
_MARK = 1 << ord("e") | 1 << ord("E")

# Where in a text without a sign: up to `MOST_DIGITS` digits have been read, or more, or what follows.
_LONG = MOST_DIGITS + 1
_FRACTION, _EXPONENT, _PLUS_READ, *_MORE = range(_LONG + 1, _LONG + 8)
"""``_MORE[n]``: up to n digits of the exponent may follow."""


def is_finite(number: bytes) -> bool:
    """Whether the text of a number is read as a finite one, or as an integer."""
    return not set(b".eE").intersection(number) or math.isfinite(float(number))


@lru_cache(maxsize=1024)
def finite_magnitudes(numbers: RealSet, constraint: NumberConstraint) -> ByteNetwork:
    """`magnitudes` without the texts that may not be read as finite numbers. Raises `BudgetExceededError` as it
    does."""
    found = magnitudes(numbers, constraint)
    return found if constraint.integer else _finite(found)


def _finite(network: ByteNetwork) -> ByteNetwork:
    """The texts of ``network`` that are such numbers: the product of two automata.

    Raises:
        BudgetExceededError: the automaton has too many states.
    """
    head = 3 + int(network.layout[2])
    finals = set(network.layout[3:head].tolist())
    ways: list[list[tuple[int, int]]] = [[] for _ in range(network.states)]
    for source, symbol, target in network.layout[head:].reshape(-1, 3).tolist():
        ways[source].append((network.symbols[symbol], target))
    start = (int(network.layout[1]), 0)
    ids = {start: 0}
    edges: list[dict[int, int]] = []
    for at, read in (queue := [start]):
        here: dict[int, int] = {}
        for symbols, target in ways[at]:
            for some, after in _after(read):
                if not symbols & some:
                    continue
                state = (target, after)
                if state not in ids:
                    if len(ids) >= MAX_STATES:
                        raise BudgetExceededError(
                            f"the numbers need more than {MAX_STATES} states", keyword="multipleOf"
                        )
                    ids[state] = len(ids)
                    queue.append(state)
                here[ids[state]] = here.get(ids[state], 0) | symbols & some
        edges.append(here)
    return trimmed(edges, {number for (at, _), number in ids.items() if at in finals})


def _after(read: int) -> Iterator[tuple[int, int]]:
    """Bytes that may follow in a finite number, and where they lead. (That it is a number the other automaton says.)"""
    if read <= _LONG:
        yield _DIGITS, min(read + 1, _LONG)
    if read < _LONG:
        yield _POINT, _FRACTION
    if read == _FRACTION:
        yield _DIGITS, _FRACTION
    if read < _LONG or read == _FRACTION:
        yield _MARK, _EXPONENT
    if read == _EXPONENT:
        yield _PLUS, _PLUS_READ
        yield _MINUS, _MORE[3]
    if read in (_EXPONENT, _PLUS_READ):
        yield _SMALL, _MORE[2]
        yield _LARGE, _MORE[1]
    if read in _MORE[1:]:
        yield _DIGITS, read - 1
