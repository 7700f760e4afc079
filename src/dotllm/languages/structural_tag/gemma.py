"""JSON Schemas for arguments in Gemma 4's notation: JSON with bare keys, and with raw strings between two marks.

``{city:<|"|>Osaka<|"|>,days:3,near:[<|"|>Kobe<|"|>]}``, at every depth. The mark ``<|"|>`` is a special token of the
model's tokenizer, so a string may contain quotes and line breaks, but not the mark.

A key ends at its colon, and readers count brackets and braces to find the end of a nested value, in keys as well. So
keys that contain one of these are refused under ``properties`` and otherwise not written.

As in `styles`, the normal form of the schema says which values are allowed; only the text differs. (xgrammar has named
this style ``gemma`` since 0.2.9. Google, "Function calling with Gemma 4", ai.google.dev/gemma/docs.)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from dotllm.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.normal_form import NO_STRING, NormalForm
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.structural_tag.styles import Arguments, Text, not_compared, not_found, raw_string, written

STYLE = "gemma"
QUOTE = '<|"|>'
_READABLE = r"[^\s:,{}\[\]<>\x00-\x1f\x7f-\x9f]"
_KEYS = StringLanguage.pattern(rf"^{_READABLE}+( {_READABLE}+)*$")
"""The keys that are written without being named."""
_UNREADABLE = re.compile(r"^$|^[\s,]|\s$|[:{}\[\]]")


def gemma_expression(schema: Any, grammar: Grammar, options: Options, write: Text) -> Expression:
    """The objects that ``schema`` allows. ``write`` writes fixed text (special tokens by id)."""
    return written(schema, grammar, options, lambda keywords, options: _Gemma(grammar, keywords, options, write))


class _Gemma(Arguments):
    text: _Text

    def __init__(self, grammar: Grammar, keywords: Keywords, options: Options, write: Text) -> None:
        super().__init__(_Text(grammar, options, write), keywords, options)

    def _alternatives(self, form: NormalForm) -> Expression:
        choices = [*self.constants(form), *self.numbers(form), *self.arrays(form), *self.objects(form)]
        if form.string is not NO_STRING:
            raw = raw_string(self.strings(form), self.grammar, (QUOTE, *self.options.excludes))
            choices.append(self.grammar.seq([self.text.quote, raw, self.text.quote]))
        return self.grammar.alt(choices)


class _Text(JsonText):
    """The punctuation is JSON's; only the keys differ."""

    def __init__(self, grammar: Grammar, options: Options, write: Text) -> None:
        super().__init__(grammar, options)
        self.quote = write(QUOTE)
        self.excludes = options.excludes

    def _distinct_open(self, bracket: bytes, keyword: str) -> Expression:
        raise not_compared(keyword)

    def named_member(self, name: str, value: Expression) -> Expression:
        if _UNREADABLE.search(name) or QUOTE in name:
            raise not_found(name)
        if any(text in name for text in self.excludes):
            return self.grammar.never()
        return self._member(self.grammar.literal(name), value)

    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]:
        return [self.named_member(name, value) for name, value in zip(names, values, strict=True)]

    def member(self, keys: StringLanguage, value: Expression) -> Expression:
        return self._member(raw_string(keys & _KEYS, self.grammar, self.excludes), value)

    def _member(self, key: Expression, value: Expression) -> Expression:
        return self.grammar.seq([key, self._colon, value, self.whitespace])
