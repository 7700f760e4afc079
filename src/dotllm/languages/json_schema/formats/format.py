"""Format: a named regular language of strings."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from dotllm.automata.dfa import Dfa
from dotllm.languages.regex import regex_to_dfa


class Format(NamedTuple):
    """``pattern`` is a regular expression for the whole string (ECMA-262, and Python's `re` reads it alike).

    ``unless`` is one for strings that are excluded; ``longest`` limits the length, apart from the pattern because that
    would multiply its states.
    """

    name: str
    reference: str
    pattern: str
    unless: str | None = None
    longest: int | None = None

    def dfa(self) -> Dfa:
        """The language without its limit of length; built once per process."""
        return _dfa(self)

    def accepts(self, text: str) -> bool:
        """Whether ``text`` has this format."""
        return (self.longest is None or len(text) <= self.longest) and self.dfa().accepts(text)


@cache  # there are as many as there are formats
def _dfa(known: Format) -> Dfa:
    dfa = regex_to_dfa(known.pattern, search=False, dialect="ecma")
    return dfa if known.unless is None else dfa - regex_to_dfa(known.unless, search=False, dialect="ecma")
