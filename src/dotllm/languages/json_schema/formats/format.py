"""Format: a named regular language of strings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from dotllm.automata.dfa import Dfa
from dotllm.languages.regex import regex_to_dfa


class Format(NamedTuple):
    """``pattern`` is a regular expression for the whole string (ECMA-262, and Python's `re` reads it alike).

    ``refine`` says what a pattern says badly: it takes the automaton of ``pattern`` and returns the one of the format.
    """

    name: str
    reference: str
    pattern: str
    refine: Callable[[Dfa], Dfa] | None = None

    def dfa(self) -> Dfa:
        """The language; built once per process."""
        return _dfa(self)

    def accepts(self, text: str) -> bool:
        """Whether ``text`` has this format."""
        return self.dfa().accepts(text)


@cache  # there are as many as there are formats
def _dfa(known: Format) -> Dfa:
    dfa = regex_to_dfa(known.pattern, search=False, dialect="ecma")
    return dfa if known.refine is None else known.refine(dfa)
