"""The conditions on the strings of a language, their automata, and the questions that these answer.

Caches hold the latest automata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from sys import getsizeof
from typing import Literal, NamedTuple

from dotllm.automata.dfa import Budget, Dfa
from dotllm.languages.json_schema.strings import string_network
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.languages.regex import regex_to_bounded_dfas, regex_to_dfa
from dotllm.memo import memoised

# The conditions on the strings of a language: a length, patterns and formats that hold or do not, exceptions.

NO_TEXTS: frozenset[str] = frozenset()


class Atom(NamedTuple):
    """One condition: a pattern (its source), a format (its name), an automaton, or a beginning (one of several
    non-empty texts)."""

    kind: Literal["pattern", "format", "automaton", "beginning"]
    content: str | Dfa | tuple[str, ...]


class StringConstraint(NamedTuple):
    """Strings of ``low`` to ``high`` characters with all of ``having``, none of ``lacking``, and not ``excluded``."""

    low: int = 0
    high: int | None = None
    having: frozenset[Atom] = frozenset()
    lacking: frozenset[Atom] = frozenset()
    excluded: frozenset[str] = NO_TEXTS

    @property
    def simple(self) -> bool:
        """Whether it only bounds the length (and excludes single strings)."""
        return not self.having and not self.lacking

    @property
    def is_cofinite(self) -> bool:
        """Whether it only excludes single strings and strings with certain beginnings; then others always remain."""
        return not self.having and all(atom.kind == "beginning" for atom in self.lacking)

    def admits_length(self, length: int) -> bool:
        """Whether strings of ``length`` characters may belong."""
        return self.low <= length and (self.high is None or length <= self.high)


def in_order(constraints: Iterable[StringConstraint]) -> list[StringConstraint]:
    """``constraints`` in the same order in each process. (Of a set, ``repr`` shows the order of hashes.)"""
    return sorted(
        constraints,
        key=lambda constraint: (
            constraint.low,
            repr(constraint.high),
            *(sorted(map(repr, texts)) for texts in constraint[2:]),
        ),
    )


# Patterns that surely match something: anchors only at the ends, no look-around, \b or back-reference, and no class
# that can be empty. For others, the automaton decides.
_SURELY_MATCHES = re.compile(
    r"\^?(?:\\[^bBkpPucx0-9]|\[(?!\^)(?:[^\]\\]|\\[^pPux])+\]|\[\^[^\]\\]+\]|\((?:\?:)?(?!\?)|[^\\\[\]^$(])*\$?"
)

# Strings that hardly any pattern or list of names contains: a character and how often it is repeated.
_UNUSUAL = (("\x7f", 1), ("\x7f", 0), ("~", 2))

# Languages of at most this many strings are examined string by string.
_FEW = 16

# The most bytes that each cache, of automata and of results found with them, may take in a process (`Memo`). An
# automaton of a user's pattern may take a kilobyte or a megabyte.
_AUTOMATA_MEMO = 16 << 20
_SMALL_MEMO = 4 << 20

# The cost of a constraint's automaton, in steps of the algebra (about a microsecond each): steps for each condition,
# and moves of the automata's kernels for each step.
_STEPS_PER_CONDITION = 40
_MOVES_PER_STEP = 300


def contains(constraint: StringConstraint, text: str) -> bool:
    """Whether a string belongs."""
    return (
        constraint.admits_length(len(text))
        and text not in constraint.excluded
        and all(satisfies(text, atom) for atom in constraint.having)
        and not any(satisfies(text, atom) for atom in constraint.lacking)
    )


def format_length(atom: Atom) -> tuple[int, int | None]:
    """The lengths of a format's strings."""
    return 0, formats.FORMATS[str(atom.content)].longest


def _without_length(constraint: StringConstraint) -> StringConstraint:
    return constraint._replace(low=0, high=None)


def is_empty(constraint: StringConstraint, spend: Callable[[int], None]) -> bool:
    """Whether no string belongs. ``spend`` is called with the steps for the automaton, if one is needed."""
    if constraint.simple:
        return False  # `string_language` has handled the rest: there are more characters than excluded strings
    if not constraint.lacking and not constraint.excluded and len(constraint.having) == 1:
        (atom,) = constraint.having
        length = (constraint.low, constraint.high)
        if atom.kind == "format" and length == format_length(atom):
            return False
        if atom.kind == "pattern" and length == (0, None) and _SURELY_MATCHES.fullmatch(str(atom.content)):
            return False
    if any(contains(constraint, text) for text in _examples(constraint)):
        return False
    dfa, steps = _unlimited(_without_length(constraint))
    spend(steps)
    return not string_network.has_length(dfa, constraint.low, constraint.high)


def _examples(constraint: StringConstraint) -> Iterable[str]:
    """Strings that probably belong: testing them takes far less time than building an automaton of all conditions."""
    for atom in sorted(constraint.having, key=repr):
        if not _is_irregular(atom):
            shortest = _shortest(atom)
            return () if shortest is None else (shortest,)
    return tuple(char * max(constraint.low, length) for char, length in _UNUSUAL) if constraint.low < 64 else ()


def _bytes_of(value: object, *arguments: object) -> int:
    """The approximate bytes that an entry of a `Memo` keeps alive: the value and its arguments, which users write."""
    total = 200
    for part in (value, *arguments):
        if isinstance(part, Dfa):
            total += part.nbytes
        elif isinstance(part, str):
            total += getsizeof(part)
        elif isinstance(part, (tuple, frozenset, list)):
            total += _bytes_of(*part) if part else 64
    return total


@memoised(_bytes_of, limit=_SMALL_MEMO)
def is_finite(constraint: StringConstraint) -> bool:
    """Whether finitely many strings belong. Raises `BudgetExceededError`."""
    return not constraint.is_cofinite and constraint_dfa(constraint).is_finite()


@memoised(_bytes_of, limit=_SMALL_MEMO)
def satisfies(text: str, atom: Atom) -> bool:
    """Whether a string satisfies one condition. Raises `InvalidSpecError`, `UnsupportedError` or
    `BudgetExceededError` for its pattern."""
    if atom.kind == "format":
        return formats.FORMATS[str(atom.content)].accepts(text)
    if isinstance(atom.content, tuple):
        return text.startswith(atom.content)
    return _automaton(atom).accepts(text)


def _automaton(atom: Atom) -> Dfa:
    if isinstance(atom.content, Dfa):
        return atom.content
    if isinstance(atom.content, tuple):
        return Dfa.literals(atom.content) + Dfa.anything()
    if atom.kind == "format":
        return formats.FORMATS[atom.content].dfa()  # cached there
    return _automaton_of_pattern(atom.content)


@memoised(_bytes_of, limit=_AUTOMATA_MEMO)
def _automaton_of_pattern(pattern: str) -> Dfa:
    return regex_to_dfa(pattern, search=True, dialect="ecma")


@memoised(_bytes_of, limit=_AUTOMATA_MEMO)
def bounded_automata(pattern: str) -> list[tuple[Dfa, int, int | None]] | None:
    """The strings that ``pattern`` matches as automata with bounds on the length; None if one automaton is enough."""
    return regex_to_bounded_dfas(pattern, search=True, dialect="ecma")


def _is_irregular(atom: Atom) -> bool:
    return atom.kind == "format" and formats.FORMATS[str(atom.content)].build is not None


def unlimited_dfa(constraint: StringConstraint) -> Dfa:
    """The automaton of a constraint without its lengths. Raises `BudgetExceededError`."""
    return _unlimited(_without_length(constraint))[0]


@memoised(_bytes_of, limit=_AUTOMATA_MEMO)
def _unlimited(constraint: StringConstraint) -> tuple[Dfa, int]:
    """`unlimited_dfa`, and the steps that it took."""
    budget = Budget()
    moves = budget.steps
    dfa = _combined(constraint, budget)
    conditions = 1 + len(constraint.having) + len(constraint.lacking)
    return dfa, _STEPS_PER_CONDITION * conditions + (moves - budget.steps) // _MOVES_PER_STEP


def _combined(constraint: StringConstraint, budget: Budget) -> Dfa:
    out = Dfa.anything()
    # In a fixed order, so that the outcome of a budget does not depend on hashes; irregular formats come last.
    for atom in sorted(constraint.having, key=lambda atom: (_is_irregular(atom), repr(atom))):
        if not _is_irregular(atom) or not formats.FORMATS[str(atom.content)].covers(out):
            out = out.intersection(_automaton(atom), budget)
    lacking = [_automaton(atom) for atom in sorted(constraint.lacking, key=repr)]
    if lacking or constraint.excluded:
        few = _few_strings(out)
        if few is not None:
            left = [
                text
                for text in few
                if text not in constraint.excluded and not any(dfa.accepts(text) for dfa in lacking)
            ]
            return out if len(left) == len(few) else Dfa.literals(left, budget)
    excluded = set(constraint.excluded)
    for dfa in lacking:
        few = _few_strings(dfa)
        if few is not None:
            excluded.update(few)
        else:
            out = ~dfa if out is Dfa.anything() else out.difference(dfa, budget)
    # Strings that do not belong anyway would only make the automata larger.
    excluded = {text for text in excluded if out.accepts(text)}
    return out.difference(Dfa.literals(excluded, budget), budget) if excluded else out


def _few_strings(dfa: Dfa) -> list[str] | None:
    """All strings; None if there are more than a few."""
    # With too many states, the answer is not worth its time.
    return None if len(dfa) > _FEW * _FEW else _few_strings_of_small(dfa)


@memoised(_bytes_of, limit=_SMALL_MEMO)
def _few_strings_of_small(dfa: Dfa) -> list[str] | None:
    if dfa.start and dfa.table[1:].any(axis=1).all():
        return None  # every state has a successor
    count = dfa.count()
    return None if count is None or count > _FEW else list(dfa.strings())


@memoised(_bytes_of, limit=_SMALL_MEMO)
def _shortest(atom: Atom) -> str | None:
    return _automaton(atom).shortest()


def constraint_dfa(constraint: StringConstraint) -> Dfa:
    """A whole constraint as one automaton. Raises `BudgetExceededError`."""
    return string_network.limited(unlimited_dfa(constraint), constraint.low, constraint.high)
