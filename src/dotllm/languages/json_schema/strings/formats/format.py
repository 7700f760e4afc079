"""Format: a named language of strings, nearly always regular; then a pattern defines it, else a function that builds
it."""

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
        ...


class Format(NamedTuple):
    """``pattern`` is a regular expression for the whole string (ECMA-262; Python's `re` reads it in the same way).

    ``unless`` is one for strings that are excluded; ``longest`` limits the length, apart from the pattern because that
    would multiply its states. A format that is not regular has ``build``, its content (of at least ``least``
    characters, 0 or 1) as an expression of a grammar, and ``decide``, whether a string has it, instead of a pattern.
    """

    name: str
    reference: str
    pattern: str
    unless: str | None = None
    longest: int | None = None
    build: Builder | None = None
    decide: Callable[[str], bool] | None = None

    def dfa(self) -> Dfa:
        """The language without its limit of length; built once per process.

        Raises:
            UnsupportedError: the format is not regular.
        """
        if self.build is not None:
            raise UnsupportedError(
                f"format {self.name!r} is not a regular language and cannot be combined with other conditions",
                keyword="format",
            )
        return _dfa(self)

    def covers(self, language: Dfa) -> bool:
        """Whether all strings of ``language`` are seen to have this format."""
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
