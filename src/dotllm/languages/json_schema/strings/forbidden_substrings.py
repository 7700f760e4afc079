r"""Texts that no string or key of a document may contain: ``excludes`` of a structural tag's ``json_schema``.

Readers of tool calls look for a closing text (``</tool_call>``) inside strings, too. So a string is checked as it is
written between its quotes, escapes included: ``<`` and ``\u003c`` are different texts. (xgrammar 0.2.8,
`structural_tag.py`, JSONSchemaFormat, has the same rule, but lets strings with a pattern or format contain the
texts.)

A string with no condition but its length may have any spelling that contains none of the texts (`inside`). Its
automaton reads one raw or escaped character at a time and tracks the state of the automaton that searches for the
texts. Other strings, and keys, have canonical spellings (see `spelling`); a value is left out if one of its spellings
contains a text (`ForbiddenSubstrings.strings`).
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.dfa import dfa_to_grammar
from dotllm.automata.dfa.nfa import NfaBuilder
from dotllm.charset import CharSet
from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.strings.spelling import MUST_ESCAPE, RAW, spellings_of_escaped
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_network import MAX_LENGTH
from dotllm.languages.regex import regex_to_dfa

# One escape of RFC 8259 §7, without unpaired surrogates, as in `spelling.any_character`.
_ESCAPE = (
    r'\\(?:["\\/bfnrt]|u[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|u[dD][0-7][0-9a-fA-F]{2}'
    r"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})"
)

_IN_ESCAPES = frozenset('\\"/bfnrtu0123456789abcdefABCDEF')
_MAX_EDGES = 20_000  # a tenth of a second
_MAX_IN_ESCAPES = 64  # states; each is split by the states that escapes lead to

# A lower limit on the length is counted state by state.
_MAX_STATES = 4_096


class ForbiddenSubstrings(NamedTuple):
    """The strings without the forbidden substrings."""

    texts: tuple[str, ...]
    raw: tuple[tuple[int, CharSet, int], ...]
    """edges of the automaton of written strings (state 0 is dead, 1 the start, all but 0 final): raw characters"""
    escaped: tuple[tuple[int, Dfa, int], ...]
    """edges of the same automaton: one escape each"""
    states: int
    strings: StringLanguage
    """the strings of which no canonical spelling contains one of the texts"""

    def admits(self, name: str) -> bool:
        """Whether a string that needs no escapes may be written."""
        return not any(text in name for text in self.texts)


@lru_cache(maxsize=16)
def forbidden_substrings(texts: tuple[str, ...]) -> ForbiddenSubstrings:
    """All strings but those that contain one of ``texts``; none of these is empty. Raises BudgetExceededError."""
    budget = Budget()
    containing = containing_one_of(texts, budget)
    lacking = ~containing
    if sum(len(set(row)) for row in lacking.rows) > _MAX_EDGES:
        raise BudgetExceededError("there are too many excluded texts, or they are too long", keyword="excludes")
    raw, escaped = _raw_edges(lacking), _escape_edges(texts, lacking, budget)
    strings = StringLanguage.automaton(~_some_spelling_in(containing, budget))
    return ForbiddenSubstrings(texts, raw, escaped, len(lacking.table), strings)


def containing_one_of(texts: tuple[str, ...], budget: Budget) -> Dfa:
    """The strings that contain one of ``texts``. Raises BudgetExceededError."""
    if not texts:
        return Dfa.never()
    return regex_to_dfa("|".join(map(re.escape, texts)), search=True, budget=budget)


def inside(grammar: Grammar, forbidden: ForbiddenSubstrings, low: int, high: int | None) -> Expression | None:
    """The content of a string of ``low`` to ``high`` characters, in any spelling; None if it takes too many states."""
    states = forbidden.states
    if (low + 1) * states > _MAX_STATES:
        return None
    edges = [(source, grammar.chars(charset), target) for source, charset, target in forbidden.raw]
    for source, dfa, target in forbidden.escaped:
        escape = grammar.once(("escape", dfa), partial(dfa_to_grammar, dfa, grammar, grammar.chars))
        edges.append((source, escape, target))
    # A layer of states for each character that must still come, and one in which the string may end.
    layered = [
        (layer * states + source, character, min(layer + 1, low) * states + target)
        for layer in range(low + 1)
        for source, character, target in edges
    ]
    finals = range(low * states + 1, (low + 1) * states)
    return grammar.network((low + 1) * states, 1, finals, layered, 0 if high is None else min(high, MAX_LENGTH))


def _raw_edges(lacking: Dfa) -> tuple[tuple[int, CharSet, int], ...]:
    edges = []
    for state, row in enumerate(lacking.rows):
        for target in sorted(set(row) - {0}):
            classes = sum(1 << cls for cls, to in enumerate(row) if to == target)
            charset = lacking.alphabet.charset(classes) & RAW
            if charset:
                edges.append((state, charset, target))
    return tuple(edges)


def _escape_edges(texts: tuple[str, ...], lacking: Dfa, budget: Budget) -> tuple[tuple[int, Dfa, int], ...]:
    escape = regex_to_dfa(_ESCAPE, search=False, budget=budget)
    states = range(1, len(lacking.table))
    if not any(text[0] in _IN_ESCAPES or "\\" in text for text in texts):
        # No text continues or begins inside an escape: ``</tool_call>``.
        return tuple((state, escape, lacking.start) for state in states)
    if len(states) > _MAX_IN_ESCAPES:
        raise BudgetExceededError(
            "there are too many excluded texts that may occur in escapes, or they are too long", keyword="excludes"
        )
    edges = []
    alike: dict[Dfa, Dfa] = {}
    for state in states:
        left, target = escape, lacking.start
        others = iter(states)
        while left:
            reached = np.zeros(len(lacking.table), np.bool_)
            reached[target] = True
            leading = Dfa.of_table(lacking.alphabet, lacking.table, reached, state, budget, "excluded texts")
            part = left.intersection(leading, budget)
            if part:
                edges.append((state, alike.setdefault(part, part), target))
                left = left.difference(part, budget)
            other = next(others, None)
            if other is None:
                break
            target = other
    return tuple(edges)


def _some_spelling_in(containing: Dfa, budget: Budget) -> Dfa:
    """The strings with some canonical spelling in ``containing``: its automaton, reading one character at a time."""
    nfa = NfaBuilder(budget)
    for _ in range(len(containing.table)):
        nfa.state()
    alphabet, rows = containing.alphabet, containing.rows
    points = [point for low, high in MUST_ESCAPE.ranges for point in range(low, high + 1)]
    written = [[alphabet.encode(way).tolist() for way in spellings_of_escaped(point)] for point in points]
    for state, charset, target in _raw_edges(containing):
        nfa.edge(state, charset, target)
    for state in range(len(rows)):
        for point, spellings in zip(points, written, strict=True):
            for target in {_after(rows, state, spelling) for spelling in spellings}:
                nfa.edge(state, CharSet.of(point), target)
    nfa.starts.append(containing.start)
    nfa.finals.extend(containing.accepting.nonzero()[0].tolist())
    return Dfa.of_nfa(nfa.arrays("excluded texts"), nfa.budget, "excluded texts")


def _after(rows: list[list[int]], state: int, spelling: list[int]) -> int:
    for cls in spelling:
        state = rows[state][cls]
    return state
