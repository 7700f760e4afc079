"""Strings that are written as they are, up to a closing text that they cannot contain."""

from __future__ import annotations

from dotllm.automata.charset import CharSet
from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.lower import dfa_to_grammar
from dotllm.grammar import Expression, Grammar
from dotllm.languages.dispatch import tag_dispatch
from dotllm.languages.json_schema import string_network
from dotllm.languages.json_schema.form import ANY_STRING
from dotllm.languages.json_schema.strings import StringLanguage
from dotllm.languages.regex import regex_to_dfa

_BUDGET = Budget()


def raw_string(language: StringLanguage, grammar: Grammar, close: str) -> Expression:
    """The strings of a language in which ``close`` does not occur."""
    if language is ANY_STRING:
        return tag_dispatch(grammar, [], [close], loop=True)
    escaped = "".join(f"\\u{{{ord(character):x}}}" for character in close)
    ends: Dfa = regex_to_dfa(escaped, search=True, budget=_BUDGET)
    choices = [grammar.literals(value.encode() for value in sorted(language.values) if close not in value)]
    choices += [_of_length(dfa - ends, low, high, grammar) for dfa, low, high in language.parts()]
    return grammar.alt(choices)


def _of_length(dfa: Dfa, low: int, high: int | None, grammar: Grammar) -> Expression:
    """The strings of ``dfa`` with ``low`` to ``high`` characters, which the machine counts, as in strings of JSON."""
    low, high = string_network.bounds(dfa, low, high)
    if high is not None and high * len(dfa) > string_network.FEW_STATES:
        return string_network.counting(grammar, string_network.limited(dfa, low, None), high, _character)
    return dfa_to_grammar(string_network.limited(dfa, low, high), grammar, grammar.chars)


def _character(grammar: Grammar, characters: CharSet, once: bool) -> Expression:
    return grammar.chars(characters)
