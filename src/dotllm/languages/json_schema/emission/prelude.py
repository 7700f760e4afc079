"""The part that the grammars of nearly all schemas share, built once for each set of options and then copied.

It holds any JSON value, any string, number and key, white space, and the default edges of keys. These are half of the
nodes of an ordinary schema's grammar; building them one by one took half of the time from a schema to its grammar. A
copy takes a few microseconds. Parts that a schema does not need cost nothing later, because lowering follows only what
the start needs.

A grammar that begins with something else (a structural tag, a Lark grammar) gets each part when it needs it.
"""

from __future__ import annotations

from functools import lru_cache

from dotllm.grammar.analysis import analyse
from dotllm.grammar.grammar import Grammar
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import TRUE
from dotllm.languages.json_schema.emission.emitter import Emitter
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.numbers.number_expression import number_expression
from dotllm.languages.json_schema.numbers.number_language import INTEGERS
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.dialect import dialect_named
from dotllm.languages.json_schema.reading.document import Document
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings import additional_keys

_DEFAULT = Options()


def from_prelude(grammar: Grammar, options: Options) -> JsonText:
    """The pieces of documents for ``grammar``. Raises `InvalidSpecError` or `UnsupportedError` because of the pattern
    of white space."""
    if not grammar.is_new:
        return JsonText(grammar, options)
    prelude = _prelude(
        options._replace(
            order=_DEFAULT.order, additional_properties=_DEFAULT.additional_properties,
            default_dialect=_DEFAULT.default_dialect, budget=_DEFAULT.budget, source=None,
        )
    )  # fmt: skip
    grammar.begin_with(prelude.grammar)
    return prelude.copied(grammar)


@lru_cache(maxsize=16)
def _prelude(options: Options) -> JsonText:
    text = JsonText(Grammar(), options)
    keywords = Keywords(Document(True, dialect_named(options.default_dialect)), Algebra(options.budget), options)
    text.anything = Emitter(text, keywords, options).expression(TRUE)
    number_expression(INTEGERS, text.context)
    additional_keys.build_ahead(text.context)
    analyse(text.grammar)
    return text
