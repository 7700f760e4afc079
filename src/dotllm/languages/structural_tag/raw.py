"""Strings that are written as they are, up to a closing text that they cannot contain."""

from __future__ import annotations

from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.lower import dfa_to_grammar
from dotllm.grammar import Expression, Grammar
from dotllm.languages.dispatch import tag_dispatch
from dotllm.languages.json_schema.form import ANY_STRING
from dotllm.languages.json_schema.strings import StringLanguage
from dotllm.languages.regex import regex_to_dfa

_BUDGET = Budget()


def raw_string(language: StringLanguage, grammar: Grammar, close: str) -> Expression:
    """The strings of a language in which ``close`` does not occur."""
    if language is ANY_STRING:
        return tag_dispatch(grammar, [], [close], loop=True)
    values = language.finite_values(10_000)
    if values is not None:
        return grammar.literals(value.encode() for value in values if close not in value)
    escaped = "".join(f"\\u{{{ord(character):x}}}" for character in close)
    ends: Dfa = regex_to_dfa(escaped, search=True, budget=_BUDGET)
    return dfa_to_grammar(language.dfa() - ends, grammar, grammar.chars)
