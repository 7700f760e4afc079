"""Sets of strings, closed under and, or, not: lengths, patterns, formats, enum, const and propertyNames.

A language is a finite set of values and a union of *clauses*; a clause is a length together with patterns and formats
that hold and that do not hold, and single strings left out. That form is symbolic: nothing is computed until a question
needs it, and the common cases (any string, a length, one pattern, one format, a list of values) never build an
automaton. The others go through the algebra of `Dfa`; the automata of the latest thousand clauses are kept.

Lengths count code points (JSON Schema Validation §6.3). How the strings are written is in `string_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dotllm.automata.dfa import Dfa, union_of
from dotllm.languages.json_schema.strings import formats, spelling
from dotllm.languages.json_schema.strings.string_automata import clause_dfa, contains, is_empty, unlimited_dfa
from dotllm.languages.json_schema.strings.string_constraints import NO_TEXTS, Atom, Clause

# A union of more clauses than this becomes one automaton.
MAX_CLAUSES = 16


def _unmetered(steps: int) -> None:
    """Work that nobody counts."""


class StringLanguage:
    """An immutable, hashable set of strings; equal if written with the same clauses and values."""

    __slots__ = ("_hash", "clauses", "values")

    def __init__(self, clauses: Iterable[Clause] = (), values: Iterable[str] = ()) -> None:
        self.clauses: frozenset[Clause]
        self.values: frozenset[str]
        self.clauses, self.values = _canonical(list(clauses), set(values))
        self._hash = 0  # found when it is first asked for

    # -- constructors --------------------------------------------------------------------------------------------------

    @classmethod
    def any(cls) -> StringLanguage:
        """Every string."""
        return _EVERY_STRING

    @classmethod
    def nothing(cls) -> StringLanguage:
        """No string."""
        return _NO_STRING

    @classmethod
    def length(cls, low: int = 0, high: int | None = None) -> StringLanguage:
        """``low`` to ``high`` (None: any number of) code points."""
        return cls((Clause(low, high),))

    @classmethod
    def pattern(cls, source: str) -> StringLanguage:
        """The strings in which the ECMA-262 regular expression ``source`` matches somewhere (it is not anchored).

        It is only read when a question or the grammar needs it; then it may raise `InvalidSpec` or `Unsupported`.
        """
        return cls((Clause(having=frozenset((Atom("pattern", source),))),))

    @classmethod
    def format(cls, name: str) -> StringLanguage | None:
        """The strings of a standard format; None if the name is unknown, which makes it an annotation."""
        known = formats.find(name)
        if known is None:
            return None
        return cls((Clause(0, known.longest, frozenset((Atom("format", known.name),))),))

    @classmethod
    def automaton(cls, dfa: Dfa) -> StringLanguage:
        """The strings of ``dfa``."""
        return cls((Clause(having=frozenset((Atom("automaton", dfa),))),))

    @classmethod
    def finite(cls, values: Iterable[str]) -> StringLanguage:
        """Exactly these strings. Raises `InvalidSpec` for one that is no Unicode text (a lone surrogate)."""
        return cls((), values)

    @classmethod
    def excluding(cls, names: Iterable[str]) -> StringLanguage:
        """Every string but these."""
        excluded = frozenset(names)
        if not excluded:
            return _EVERY_STRING
        # Already in canonical form; there is one for nearly every object.
        out = cls.__new__(cls)
        out.clauses, out.values, out._hash = frozenset((Clause(excluded=excluded),)), NO_TEXTS, 0
        return out

    # -- algebra -------------------------------------------------------------------------------------------------------

    def __and__(self, other: StringLanguage) -> StringLanguage:
        if self == other or other is _EVERY_STRING:
            return self
        if self is _EVERY_STRING:
            return other
        if not self.clauses and not other.clauses:  # enum meets enum: the algebra of schemas does this very often
            both = self.values & other.values
            return StringLanguage((), both) if both else _NO_STRING
        clauses = [_both(a, b) for a in self.clauses for b in other.clauses]
        values = [v for v in self.values if other.contains(v)] + [v for v in other.values if self.contains(v)]
        return StringLanguage(clauses, values)

    def __or__(self, other: StringLanguage) -> StringLanguage:
        if self == other:
            return self
        return StringLanguage((*self.clauses, *other.clauses), self.values | other.values)

    def __invert__(self) -> StringLanguage:
        out = StringLanguage.excluding(self.values) if self.values else _EVERY_STRING
        for clause in self.clauses:
            out = out & _complement(clause)
        return out

    # -- questions -----------------------------------------------------------------------------------------------------

    def is_empty(self, spend: Callable[[int], None] = _unmetered) -> bool:
        """Whether no string belongs. May build automata (see the module); one pattern or format alone does not.

        ``spend`` is told the steps that takes, also where a cache knows the automaton: it may raise.
        """
        return not self.values and all(is_empty(clause, spend) for clause in self.clauses)

    def is_disjoint(self, other: StringLanguage, spend: Callable[[int], None] = _unmetered) -> bool:
        """Whether no string belongs to both. May build automata, as `is_empty`."""
        if not self.clauses and not other.clauses:
            return self.values.isdisjoint(other.values)
        return (self & other).is_empty(spend)

    def contains(self, text: str) -> bool:
        """Whether ``text`` belongs."""
        return text in self.values or any(contains(clause, text) for clause in self.clauses)

    def finite_values(self, limit: int) -> list[str] | None:
        """All strings in order, or None if there are more than ``limit``."""
        found = set(self.values)
        for clause in self.clauses:
            if clause.simple:  # at least one of a million characters
                return None
            dfa = clause_dfa(clause)
            count = dfa.count()
            if count is None or count > limit:
                return None
            found.update(dfa.strings())
        return sorted(found) if len(found) <= limit else None

    def parts(self) -> Iterator[tuple[Dfa, int, int | None]]:
        """An automaton and the bounds of the length, for each part of the language beside its ``values``."""
        for clause in sorted(self.clauses, key=repr):
            yield unlimited_dfa(clause), clause.low, clause.high

    def dfa(self) -> Dfa:
        """The language as one automaton. Raises `BudgetExceeded`."""
        return union_of([*map(clause_dfa, self.clauses), *([Dfa.literals(self.values)] if self.values else [])])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StringLanguage) and self.clauses == other.clauses and self.values == other.values

    def __hash__(self) -> int:
        found = self._hash
        if not found:
            found = self._hash = hash((self.clauses, self.values))
        return found

    def __repr__(self) -> str:
        return f"StringLanguage({sorted(self.clauses, key=repr)!r}, {sorted(self.values)!r})"


def _both(a: Clause, b: Clause) -> Clause:
    high = a.high if b.high is None else b.high if a.high is None else min(a.high, b.high)
    return Clause(
        max(a.low, b.low), high, a.having | b.having, a.lacking | b.lacking, (a.excluded | b.excluded) or NO_TEXTS
    )


def _complement(clause: Clause) -> StringLanguage:
    out = [Clause(lacking=frozenset((atom,))) for atom in clause.having]
    out.extend(Clause(having=frozenset((atom,))) for atom in clause.lacking)
    if clause.low:
        out.append(Clause(0, clause.low - 1))
    if clause.high is not None:
        out.append(Clause(clause.high + 1))
    return StringLanguage(out, clause.excluded)


def _canonical(clauses: list[Clause], values: set[str]) -> tuple[frozenset[Clause], frozenset[str]]:
    """Without empty, repeated and contained clauses, as far as that is seen without automata."""
    for value in values:
        if not value.isascii():
            spelling.quoted(value)  # raises if it is not a text
    if len(clauses) > 1 or (clauses and (clauses[0].excluded or clauses[0].high == 0 or clauses[0].lacking)):
        clauses = _reduced(clauses, values)
    elif clauses and clauses[0].high is not None and clauses[0].low > clauses[0].high:
        clauses = []
    if clauses and values:
        _give_back(clauses, values)
    if len(clauses) > MAX_CLAUSES:
        dfa = union_of([clause_dfa(clause) for clause in clauses])
        clauses = [Clause(having=frozenset((Atom("automaton", dfa),)))] if dfa else []
    return frozenset(clauses), frozenset(values)


def _reduced(clauses: list[Clause], values: set[str]) -> list[Clause]:
    """Drop empty clauses and those that another contains; join lengths that touch. Adds the empty string to ``values``
    where it is all that is left of a clause."""
    alive: list[Clause] = []
    for clause in clauses:
        if (clause.high is not None and clause.low > clause.high) or clause.having & clause.lacking:
            continue
        if clause.high == 0:
            if contains(clause, ""):
                values.add("")
            continue
        if clause.excluded and (clause.low or clause.high is not None):
            excluded = frozenset(text for text in clause.excluded if clause.admits_length(len(text)))
            clause = clause._replace(excluded=excluded)
        alive.append(clause)
    if len(alive) < 2:
        return alive
    # Clauses that differ in their lengths only become as few as possible.
    alike: dict[tuple[object, ...], list[tuple[int, int | None]]] = {}
    for clause in alive:
        alike.setdefault(tuple(clause[2:]), []).append((clause.low, clause.high))
    joined = [
        Clause(low, high, *conditions)  # type: ignore[arg-type]  # the last three fields of a clause
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


def _contains(wide: Clause, narrow: Clause) -> bool:
    """Whether every string of ``narrow`` is in ``wide``, seen from their form."""
    return (
        wide.low <= narrow.low
        and (wide.high is None or (narrow.high is not None and narrow.high <= wide.high))
        and wide.having <= narrow.having
        and wide.lacking <= narrow.lacking
        and wide.excluded <= narrow.excluded
    )


def _give_back(clauses: list[Clause], values: set[str]) -> None:
    """Values that a clause about lengths only has already, or has just left out, need not be listed."""
    for i, clause in enumerate(clauses):
        if not clause.simple:
            continue
        back = {value for value in values if clause.admits_length(len(value))}
        if back:
            values -= back
            clauses[i] = clause._replace(excluded=clause.excluded - back)


_EVERY_STRING = StringLanguage((Clause(),))
_NO_STRING = StringLanguage()
