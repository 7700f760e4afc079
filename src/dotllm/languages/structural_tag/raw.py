"""Strings that are written as they are, without some texts: the closing text that ends them, and excluded ones."""

from __future__ import annotations

from functools import lru_cache

from dotllm.automata.dfa import Budget, Dfa
from dotllm.charset import ANY_CHAR
from dotllm.grammar import Expression, Grammar
from dotllm.languages.dispatch import tag_dispatch
from dotllm.languages.json_schema.extension import ANY_STRING, StringLanguage, containing_one_of, strings_of_length


def raw_string(language: StringLanguage, grammar: Grammar, texts: tuple[str, ...]) -> Expression:
    """The strings of a language in which none of ``texts`` occurs."""
    if language is ANY_STRING:
        return tag_dispatch(grammar, [], texts, loop=True)
    values = [value for value in sorted(language.values) if not any(text in value for text in texts)]
    choices = [grammar.literals(value.encode() for value in values)]
    choices += [strings_of_length(grammar, dfa - _holding(texts), low, high) for dfa, low, high in language.parts()]
    return grammar.alt(choices)


def some_characters(grammar: Grammar, most: int, texts: tuple[str, ...]) -> Expression:
    """Up to ``most`` characters in which none of ``texts`` occurs."""
    if not texts:
        return grammar.repeat(grammar.chars(ANY_CHAR), 0, most)
    return strings_of_length(grammar, ~_holding(texts), 0, most)


@lru_cache(maxsize=16)
def _holding(texts: tuple[str, ...]) -> Dfa:
    return containing_one_of(texts, Budget())
