"""Sets of strings, closed under and, or, not: lengths, patterns, formats, enum, const and propertyNames.

A language is a finite set of values and a union of *constraints*. A constraint consists of bounds on the length,
patterns and formats that hold or do not hold, and excluded strings. This form is symbolic: nothing is computed until
a question needs it, and the common cases (any string, a length, one pattern, one format, a list of values) never
build an automaton. The others go through the algebra of `Dfa` (`string_automata`).

Lengths count code points (JSON Schema Validation §6.3). `string_text` writes the strings.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

from dotllm.automata.dfa import Classes, Dfa, union_of
from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.strings import spelling
from dotllm.languages.json_schema.strings.formats import registry as formats
from dotllm.languages.json_schema.strings.string_automata import (
    NO_TEXTS,
    Atom,
    StringConstraint,
    bounded_automata,
    constraint_dfa,
    contains,
    in_order,
    is_empty,
    is_finite,
    unlimited_dfa,
)
from dotllm.memo import memoised

# A union of more constraints than this becomes one automaton.
MAX_CONSTRAINTS = 16
FEW_LANGUAGES = 8
"""Up to this many are examined one by one; they keep their conditions, and so their names."""

FEWER_GROUPS = "let patterns share one schema, anchor them with ^, or list the keys in properties"
"""The remedy if the keys of an object fall into too many groups."""

# As the caches of `string_automata`.
_CLASSES_MEMO = 16 << 20

Name = TypeVar("Name", bound=Hashable)


def _unmetered(steps: int) -> None:
    """Counts nothing."""


class StringLanguage:
    """An immutable, hashable set of strings; equal if written with the same constraints and values."""

    __slots__ = ("_hash", "constraints", "values")

    def __init__(self, constraints: Iterable[StringConstraint] = (), values: Iterable[str] = ()) -> None:
        self.constraints: frozenset[StringConstraint]
        self.values: frozenset[str]
        self.constraints, self.values = _canonical(list(constraints), set(values))
        self._hash = 0  # computed on first use

    # -- constructors --------------------------------------------------------------------------------------------------

    @classmethod
    def length(cls, low: int = 0, high: int | None = None) -> StringLanguage:
        """The strings of ``low`` to ``high`` (None: any number of) code points."""
        return cls((StringConstraint(low, high),))

    @classmethod
    def pattern(cls, source: str) -> StringLanguage:
        """The strings in which the ECMA-262 regular expression ``source`` matches somewhere (it is not anchored).

        ``source`` is read when a question or the grammar needs it. If it has a look-ahead, it is read immediately,
        which may raise `InvalidSpecError` or `UnsupportedError`.
        """
        if "(?=" in source or "(?!" in source:
            parts = bounded_automata(source)
            if parts is not None:
                having = [frozenset((Atom("automaton", dfa),)) for dfa, _, _ in parts]
                return cls(
                    StringConstraint(low, high, words) for words, (_, low, high) in zip(having, parts, strict=True)
                )
        return cls((StringConstraint(having=frozenset((Atom("pattern", source),))),))

    @classmethod
    def format(cls, name: str) -> StringLanguage | None:
        """The strings of a standard format; None if the name is unknown, which makes it an annotation."""
        known = formats.find(name)
        if known is None:
            return None
        return cls((StringConstraint(0, known.longest, frozenset((Atom("format", known.name),))),))

    @classmethod
    def automaton(cls, dfa: Dfa) -> StringLanguage:
        """The strings of ``dfa``."""
        return cls((StringConstraint(having=frozenset((Atom("automaton", dfa),))),))

    @classmethod
    def finite(cls, values: Iterable[str]) -> StringLanguage:
        """Exactly these strings. Raises `InvalidSpecError` for a string with a lone surrogate."""
        return cls((), values)

    @classmethod
    def excluding(cls, names: Iterable[str]) -> StringLanguage:
        """Every string but these."""
        excluded = frozenset(names)
        return cls((StringConstraint(excluded=excluded),)) if excluded else ANY_STRING

    @classmethod
    def further_keys(cls, names: Iterable[str], declared: Iterable[str]) -> StringLanguage:
        """Every string but ``names`` and those that begin with one of ``declared``, a subset of ``names``."""
        excluded, beginnings = frozenset(names), tuple(sorted(filter(None, declared)))
        if not beginnings:
            return cls.excluding(excluded)
        lacking = frozenset((Atom("beginning", beginnings),))
        return cls((StringConstraint(lacking=lacking, excluded=excluded),))

    @classmethod
    def union(cls, languages: Iterable[StringLanguage]) -> StringLanguage:
        """The strings of any of many languages."""
        constraints: list[StringConstraint] = []
        values: set[str] = set()
        for language in languages:
            constraints += language.constraints
            values |= language.values
        return cls(constraints, values) if constraints or values else NO_STRING

    # -- algebra -------------------------------------------------------------------------------------------------------

    def __and__(self, other: StringLanguage) -> StringLanguage:
        if self == other or other is ANY_STRING:
            return self
        if self is ANY_STRING:
            return other
        if (
            not self.constraints and not other.constraints
        ):  # enum meets enum: the algebra of schemas does this very often
            both = self.values & other.values
            return StringLanguage((), both) if both else NO_STRING
        constraints = [_both(a, b) for a in self.constraints for b in other.constraints]
        values = [v for v in self.values if other.contains(v)] + [v for v in other.values if self.contains(v)]
        return StringLanguage(constraints, values)

    def __or__(self, other: StringLanguage) -> StringLanguage:
        if self == other:
            return self
        return StringLanguage((*self.constraints, *other.constraints), self.values | other.values)

    def __invert__(self) -> StringLanguage:
        out = StringLanguage.excluding(self.values) if self.values else ANY_STRING
        for constraint in self.constraints:
            out = out & _complement(constraint)
        return out

    # -- questions -----------------------------------------------------------------------------------------------------

    def is_empty(self, spend: Callable[[int], None] = _unmetered) -> bool:
        """Whether no string belongs. May build automata (see the module); one pattern or format alone does not.

        ``spend`` is called with the steps that this takes, even if the automaton is cached; it may raise.
        """
        return not self.values and all(is_empty(constraint, spend) for constraint in self.constraints)

    def is_disjoint(self, other: StringLanguage, spend: Callable[[int], None] = _unmetered) -> bool:
        """Whether no string belongs to both. May build automata, as `is_empty`."""
        if not self.constraints and not other.constraints:
            return self.values.isdisjoint(other.values)
        return (self & other).is_empty(spend)

    def contains(self, text: str) -> bool:
        """Whether ``text`` belongs."""
        return text in self.values or any(contains(constraint, text) for constraint in self.constraints)

    def finite_values(self, limit: int) -> list[str] | None:
        """All strings in order, or None if there are more than ``limit``."""
        result = set(self.values)
        for constraint in self.constraints:
            if constraint.is_cofinite:  # it has about a million strings, or more
                return None
            dfa = constraint_dfa(constraint)
            count = dfa.count()
            if count is None or count > limit:
                return None
            result.update(dfa.strings())
        return sorted(result) if len(result) <= limit else None

    def is_finite(self) -> bool:
        """Whether the language is finite. May build automata."""
        return all(map(is_finite, self.constraints))

    def parts(self) -> Iterator[tuple[Dfa, int, int | None]]:
        """An automaton and the bounds of the length, for each part of the language other than its ``values``."""
        for constraint in in_order(self.constraints):
            yield unlimited_dfa(constraint), constraint.low, constraint.high

    def dfa(self) -> Dfa:
        """The language as one automaton. Raises `BudgetExceededError`."""
        return union_of([*map(constraint_dfa, self.constraints), *([Dfa.literals(self.values)] if self.values else [])])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, StringLanguage) and self.constraints == other.constraints and self.values == other.values
        )

    def __hash__(self) -> int:
        result = self._hash
        if not result:
            result = self._hash = hash((self.constraints, self.values))
        return result

    def __repr__(self) -> str:
        return f"StringLanguage({in_order(self.constraints)!r}, {sorted(self.values)!r})"


def _bytes_of_classes(classes: Classes, languages: Sequence[StringLanguage]) -> int:
    return classes.nbytes + 500 * len(languages)


def are_many(languages: Iterable[StringLanguage]) -> bool:
    """Whether `together` pays off for ``languages``: they are more than a few, and none limits the length (which
    takes a state for each character)."""
    count = 0
    for language in languages:
        if any(constraint.low or constraint.high is not None for constraint in language.constraints):
            return False
        count += 1
    return count > FEW_LANGUAGES


@memoised(_bytes_of_classes, limit=_CLASSES_MEMO)
def together(languages: tuple[StringLanguage, ...]) -> Classes:
    """The automaton that tells to which of many languages a string belongs. Raises `BudgetExceededError`."""
    try:
        return Classes([language.dfa() for language in languages], "all patterns together")
    except BudgetExceededError as error:
        raise BudgetExceededError(
            "the automaton of all patterns of keys together is too large",
            keyword="patternProperties",
            help=FEWER_GROUPS,
        ) from error


def divided(
    languages: Sequence[StringLanguage], name_of: Callable[[frozenset[int]], Name]
) -> list[tuple[StringLanguage, Name]]:
    """A partition of all strings by the name of the set of ``languages`` (as indices) that they belong to; no part is
    empty. Raises `BudgetExceededError`."""
    return [(StringLanguage.automaton(dfa), name) for name, dfa in together(tuple(languages)).parts(name_of).items()]


def _both(a: StringConstraint, b: StringConstraint) -> StringConstraint:
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return StringConstraint(
        max(a.low, b.low), high, a.having | b.having, a.lacking | b.lacking, (a.excluded | b.excluded) or NO_TEXTS
    )


def _complement(constraint: StringConstraint) -> StringLanguage:
    out = [StringConstraint(lacking=frozenset((atom,))) for atom in constraint.having]
    out.extend(StringConstraint(having=frozenset((atom,))) for atom in constraint.lacking)
    if constraint.low:
        out.append(StringConstraint(0, constraint.low - 1))
    if constraint.high is not None:
        out.append(StringConstraint(constraint.high + 1))
    return StringLanguage(out, constraint.excluded)


def _canonical(
    constraints: list[StringConstraint], values: set[str]
) -> tuple[frozenset[StringConstraint], frozenset[str]]:
    """Drop the empty, repeated and contained constraints that are recognised without automata."""
    for value in values:
        if not value.isascii():
            spelling.quoted(value)  # raises if it is not Unicode text
    if len(constraints) > 1 or (
        constraints and (constraints[0].excluded or constraints[0].high == 0 or constraints[0].lacking)
    ):
        constraints = _reduced(constraints, values)
    elif constraints and constraints[0].high is not None and constraints[0].low > constraints[0].high:
        constraints = []
    if constraints and values:
        _give_back(constraints, values)
    if len(constraints) > MAX_CONSTRAINTS:
        dfa = union_of([constraint_dfa(constraint) for constraint in constraints])
        constraints = [StringConstraint(having=frozenset((Atom("automaton", dfa),)))] if dfa else []
    return frozenset(constraints), frozenset(values)


def _reduced(constraints: list[StringConstraint], values: set[str]) -> list[StringConstraint]:
    """Drop empty constraints, and constraints that another one contains; join adjacent ranges of lengths. If only the
    empty string is left of a constraint, add it to ``values``.
    """
    alive: list[StringConstraint] = []
    for constraint in constraints:
        if (constraint.high is not None and constraint.low > constraint.high) or constraint.having & constraint.lacking:
            continue
        if constraint.high == 0:
            if contains(constraint, ""):
                values.add("")
            continue
        if constraint.excluded and (constraint.low or constraint.high is not None):
            excluded = frozenset(text for text in constraint.excluded if constraint.admits_length(len(text)))
            constraint = constraint._replace(excluded=excluded)
        alive.append(constraint)
    if len(alive) < 2:
        return alive
    # Constraints that differ only in their lengths are merged into as few as possible.
    alike: dict[tuple[object, ...], list[tuple[int, int | None]]] = {}
    for constraint in alive:
        alike.setdefault(tuple(constraint[2:]), []).append((constraint.low, constraint.high))
    joined = [
        StringConstraint(low, high, *conditions)  # type: ignore[arg-type]  # the last three fields of a constraint
        for conditions, lengths in alike.items()
        for low, high in _union_of_lengths(lengths)
    ]
    return [a for a in joined if not any(a != b and _contains(b, a) for b in joined)]


def _union_of_lengths(lengths: list[tuple[int, int | None]]) -> list[tuple[int, int | None]]:
    out: list[tuple[int, int | None]] = []
    for low, high in sorted(lengths, key=lambda length: length[0]):
        if out:
            before = out[-1][1]
            if before is None:
                break
            if low <= before + 1:
                out[-1] = (out[-1][0], None if high is None else max(before, high))
                continue
        out.append((low, high))
    return out


def _contains(wide: StringConstraint, narrow: StringConstraint) -> bool:
    """Whether every string of ``narrow`` is in ``wide``, judging by their form."""
    return (
        wide.low <= narrow.low
        and (wide.high is None or (narrow.high is not None and narrow.high <= wide.high))
        and wide.having <= narrow.having
        and wide.lacking <= narrow.lacking
        and wide.excluded <= narrow.excluded
    )


def _give_back(constraints: list[StringConstraint], values: set[str]) -> None:
    """Drop values that a constraint on the length alone admits, and no longer exclude them there."""
    for i, constraint in enumerate(constraints):
        if not constraint.simple:
            continue
        back = {value for value in values if constraint.admits_length(len(value))}
        if back:
            values -= back
            constraints[i] = constraint._replace(excluded=constraint.excluded - back)


ANY_STRING = StringLanguage((StringConstraint(),))
NO_STRING = StringLanguage()
