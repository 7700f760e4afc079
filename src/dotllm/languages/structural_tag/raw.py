"""Strings that are written as they are, without some texts: the closing text that ends them, and excluded ones."""

from __future__ import annotations

from functools import lru_cache

from dotllm.automata.dfa import Budget, Dfa
from dotllm.automata.dfa.lower import dfa_to_grammar
from dotllm.charset import ANY_CHAR, CharSet
from dotllm.grammar import Expression, Grammar
from dotllm.languages.dispatch import tag_dispatch
from dotllm.languages.json_schema import string_network
from dotllm.languages.json_schema.excludes import holding_one_of
from dotllm.languages.json_schema.form import ANY_STRING
from dotllm.languages.json_schema.strings import StringLanguage


def raw_string(language: StringLanguage, grammar: Grammar, texts: tuple[str, ...]) -> Expression:
    """The strings of a language in which none of ``texts`` occurs."""
    if language is ANY_STRING:
        return tag_dispatch(grammar, [], texts, loop=True)
    values = [value for value in sorted(language.values) if not any(text in value for text in texts)]
    choices = [grammar.literals(value.encode() for value in values)]
    choices += [_of_length(dfa - _holding(texts), low, high, grammar) for dfa, low, high in language.parts()]
    return grammar.alt(choices)


def some_characters(grammar: Grammar, most: int, texts: tuple[str, ...]) -> Expression:
    """Up to ``most`` characters in which none of ``texts`` occurs."""
    if not texts:
        return grammar.repeat(grammar.chars(ANY_CHAR), 0, most)
    return _of_length(~_holding(texts), 0, most, grammar)


@lru_cache(maxsize=16)
def _holding(texts: tuple[str, ...]) -> Dfa:
    return holding_one_of(texts, Budget())


def _of_length(dfa: Dfa, low: int, high: int | None, grammar: Grammar) -> Expression:
    """The strings of ``dfa`` with ``low`` to ``high`` characters, which the machine counts, as in strings of JSON."""
    low, high = string_network.bounds(dfa, low, high)
    if high is not None and high * len(dfa) > string_network.FEW_STATES:
        return string_network.counting(grammar, string_network.limited(dfa, low, None), high, _character)
    return dfa_to_grammar(string_network.limited(dfa, low, high), grammar, grammar.chars)


def _character(grammar: Grammar, characters: CharSet, once: bool) -> Expression:
    return grammar.chars(characters)
