r"""Texts that no string of a document may hold, keys included: ``excludes`` of a structural tag's ``json_schema``.

Readers of tool calls that look for a closing text (``</tool_call>``) look for it in strings, too. So what counts is the
string as it is written, escapes included, between its quotes: ``<`` is another text than ``\u003c``. (xgrammar 0.2.8,
`structural_tag.py`, JSONSchemaFormat, has the same rule, but lets strings with a pattern or format hold the texts.)

The language of a string meets that of the strings whose spelling holds none of the texts. Strings with a condition and
keys have canonical spellings (see `spelling`), and a value of which only one holds a text is left out; a string without
any condition may be written in all ways that hold none.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from dotllm.automata.charset import CharSet
from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.nfa import Nfa
from dotllm.languages.json_schema.spelling import MUST_ESCAPE, RAW, spellings_of_escaped
from dotllm.languages.json_schema.strings import StringLanguage
from dotllm.languages.regex import regex_to_dfa

# RFC 8259 §7, without unpaired surrogates: the same as `spelling.any_character`, any number of times.
_ANY_SPELLING = (
    r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|u[dD][0-7][0-9a-fA-F]{2}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}))*"
)


class Excludes(NamedTuple):
    """What is left of all strings."""

    texts: tuple[str, ...]
    spelled: Dfa
    """what may stand between the quotes, in any spelling"""
    strings: StringLanguage
    """those of which no canonical spelling holds one of the texts"""

    def admits(self, name: str) -> bool:
        """Whether a string that needs no escapes may be written."""
        return not any(text in name for text in self.texts)


@lru_cache(maxsize=64)
def without(texts: tuple[str, ...]) -> Excludes:
    """All strings but those that hold one of ``texts``, none of which is empty. Raises BudgetExceeded."""
    budget = Budget()
    holding = holding_one_of(texts, budget)
    spelled = regex_to_dfa(_ANY_SPELLING, search=False, budget=budget).difference(holding, budget)
    return Excludes(texts, spelled, StringLanguage.automaton(~_spelled_with(holding, budget)))


def holding_one_of(texts: tuple[str, ...], budget: Budget) -> Dfa:
    """The strings in which one of ``texts`` stands. Raises BudgetExceeded."""
    if not texts:
        return Dfa.never()
    return regex_to_dfa("|".join(map(re.escape, texts)), search=True, budget=budget)


def _spelled_with(holding: Dfa, budget: Budget) -> Dfa:
    """The strings of which some canonical spelling is in ``holding``: its automaton, read a character at a time."""
    nfa = Nfa(budget)
    for _ in range(len(holding.table)):
        nfa.state()
    alphabet, rows = holding.alphabet, holding.rows
    raw = [alphabet.charset(1 << cls) & RAW for cls in range(alphabet.size)]
    escaped = [point for low, high in MUST_ESCAPE.ranges for point in range(low, high + 1)]
    ways = [
        (CharSet.of(point), [alphabet.encode(way).tolist() for way in spellings_of_escaped(point)]) for point in escaped
    ]
    for state in range(len(rows)):
        for cls, charset in enumerate(raw):
            if charset:
                nfa.edge(state, charset, rows[state][cls])
        for charset, spellings in ways:
            for target in {_after(rows, state, spelling) for spelling in spellings}:
                nfa.edge(state, charset, target)
    nfa.starts.append(holding.start)
    nfa.finals.extend(holding.accepting.nonzero()[0].tolist())
    return nfa.determinise("excluded texts")


def _after(rows: list[list[int]], state: int, spelling: list[int]) -> int:
    for cls in spelling:
        state = rows[state][cls]
    return state
