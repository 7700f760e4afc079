"""The conditions on the strings of a language: a length, patterns and formats that hold or do not, exceptions."""

from __future__ import annotations

from typing import Literal, NamedTuple

from dotllm.automata.dfa import Dfa

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
