"""Format: a named language of strings. If it is regular, as nearly all are, a pattern defines it; else a function
builds it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, Protocol

from dotllm.automata.dfa import Dfa
from dotllm.errors import UnsupportedError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.regex import regex_to_dfa


class Builder(Protocol):
    """Makes the content of a format's strings."""

    def __call__(self, grammar: Grammar, least: int = 0) -> Expression:
        """An expression of ``grammar``."""


class Format(NamedTuple):
    """``pattern`` is a regular expression for the whole string (ECMA-262; Python's `re` reads it in the same way).

    ``unless`` is a regular expression for excluded strings. ``longest`` limits the length; as a part of the pattern,
    it would multiply the states. Instead of a pattern, a format that is not regular has ``build``, which makes its
    content (of at least ``least`` characters, 0 or 1), and ``decide``, which tells whether a string has the format.
    """

    name: str
    reference: str
    pattern: str
    unless: str | None = None
    longest: int | None = None
    build: Builder | None = None
    decide: Callable[[str], bool] | None = None

    def dfa(self) -> Dfa:
        """The language without its length limit, built once per process; UnsupportedError if it is not regular."""
        if self.build is not None:
            raise UnsupportedError(
                f"format {self.name!r} is not a regular language and cannot be combined with other conditions",
                keyword="format",
                help="leave out the format, or the pattern, lengths and other conditions next to it",
            )
        return _dfa(self)

    def covers(self, language: Dfa) -> bool:
        """Whether all strings of ``language`` are known to have this format."""
        return (self.longest is None) and (language - _dfa(self)).is_empty()

    def accepts(self, text: str) -> bool:
        """Whether ``text`` has this format."""
        if self.decide is not None:
            return self.decide(text)
        return (self.longest is None or len(text) <= self.longest) and self.dfa().accepts(text)


@cache
def _dfa(known: Format) -> Dfa:
    dfa = regex_to_dfa(known.pattern, search=False, dialect="ecma")
    return dfa if known.unless is None else dfa - regex_to_dfa(known.unless, search=False, dialect="ecma")
