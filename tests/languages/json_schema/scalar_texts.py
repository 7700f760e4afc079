"""Helpers of the tests of scalar languages: the texts of a language, judged by the oracle `tests.grammar.reference`."""

from __future__ import annotations

import json
from collections.abc import Callable

from dotllm import Index
from dotllm.grammar import Grammar
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.numbers.number_expression import number_expression
from dotllm.languages.json_schema.numbers.number_language import NumberLanguage
from dotllm.languages.json_schema.strings import additional_keys
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_text import key_expression, string_expression
from tests.grammar.reference import accepts
from tests.languages.json_schema.verdicts import byte_vocabulary


def grammar_of(language: NumberLanguage | StringLanguage, *, as_key: bool = False) -> Grammar:
    """The grammar whose texts are those of ``language``."""
    grammar = Grammar()
    context = Context(grammar, grammar.empty(), bounded_numbers=False)
    if as_key:
        assert isinstance(language, StringLanguage)
        grammar.start = key_expression(language, context)
        additional_keys.define(context)
    else:
        grammar.start = (
            string_expression(language, context)
            if isinstance(language, StringLanguage)
            else number_expression(language, context)
        )
    return grammar


def acceptor(language: NumberLanguage | StringLanguage, *, as_key: bool = False) -> Callable[[str], bool]:
    """A predicate: whether a text belongs to the language."""
    grammar = grammar_of(language, as_key=as_key)
    return lambda text: accepts(grammar, text.encode())


def machine_acceptor(language: NumberLanguage | StringLanguage) -> Callable[[str], bool]:
    """The same predicate, by the machine instead of the reference recogniser."""
    index = Index.from_grammar_object(grammar_of(language), byte_vocabulary())

    def accepts_text(text: str) -> bool:
        config = index.advance_bytes(index.guide().config, text.encode())
        return config >= 0 and index.can_finish(config)

    return accepts_text


def spelled(text: str) -> str:
    """A string as serialisers write it."""
    return json.dumps(text, ensure_ascii=False)
