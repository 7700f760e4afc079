"""JSON Schemas for arguments that a model writes entirely in markup, including nested objects and arrays.

``cohere_xml``: ``<cofl:value name="key" type="raw|json|list|dict">…</cofl:value>``; a list item has no name. Strings
are raw; numbers, booleans and null are JSON; keys are escaped like XML attributes.

``minimax_m3_xml``: ``]<]minimax[>[<key>…]<]minimax[>[</key>``, with array items under the key ``item``; values are
raw and do not show their type. A key is written twice, which a context-free grammar can express only for keys that it
knows. So keys that a schema does not name are not written, and a schema that describes such keys is refused.

As in `styles`, the normal form of the schema says which values are allowed; only the text differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dotllm.automata.dfa.dfa import dfa_to_grammar
from dotllm.charset import CharSet
from dotllm.errors import UnsupportedError
from dotllm.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_OBJECT,
    NO_NUMBER,
    NO_STRING,
    ArrayConstraint,
    NormalForm,
    ObjectConstraint,
)
from dotllm.languages.json_schema.algebra.objects import closed
from dotllm.languages.json_schema.arrays.items import array_expression
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.objects.members import object_expression
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.structural_tag.styles import Arguments, not_compared, raw_string, written

Text = Callable[[str], Expression]
"""Writes fixed text (special tokens by id)."""

COHERE, MINIMAX_M3 = "cohere_xml", "minimax_m3_xml"
STYLES = (COHERE, MINIMAX_M3)
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
MARK = "]<]minimax[>["
_MOST_NAMES = 1_000
_SOME_KEY = StringLanguage.length(1, None)


def markup_expression(schema: Any, grammar: Grammar, options: Options, style: str, write: Text) -> Expression:
    """The objects that ``schema`` allows, in one of `STYLES`."""
    writer = _Cohere if style == COHERE else _MinimaxM3
    return written(
        schema, grammar, options, lambda keywords, options: writer(grammar, keywords, options, write),
        always_closed=style == MINIMAX_M3,
    )  # fmt: skip


class _Markup(Arguments):
    """Values and their pieces; a piece is followed by its white space, as in `JsonText`."""

    spaced_items = True
    """Whether white space may follow an item."""

    def __init__(self, grammar: Grammar, keywords: Keywords, options: Options, write: Text) -> None:
        super().__init__(JsonText(grammar, options), keywords, options)
        self.write = write
        self.space = self.text.whitespace
        self.text = _Pieces(self, self.text)

    def outermost(self, form: NormalForm) -> list[Expression]:
        return [self.members(constraint) for constraint in form.objects]

    def scalars(self, form: NormalForm) -> list[Expression]:
        """Numbers, booleans and null."""
        return [*self.constants(form), *self.numbers(form)]

    def members(self, constraint: ObjectConstraint) -> Expression:
        """The inside of an object."""
        raise NotImplementedError

    def item(self, value: Expression) -> Expression:
        """An item of an array, without the white space after it."""
        raise NotImplementedError

    def named(self, name: str, value: Expression) -> Expression:
        """A member, without the white space after it."""
        raise NotImplementedError

    def keyed(self, keys: StringLanguage, value: Expression) -> Expression:
        """A member with a key that the schema does not name."""
        raise NotImplementedError


class _Pieces(JsonText):
    """The punctuation for `object_expression` and `array_expression`: no brackets, no commas."""

    def __init__(self, writer: _Markup, json: JsonText) -> None:
        self.writer = writer
        self.grammar = writer.grammar
        self.anything = None
        self.whitespace, self.context, self.spaced = json.whitespace, json.context, json.spaced
        self.comma = self.object_open = self.object_close = self.array_open = self.array_close = self.grammar.empty()

    def _distinct_open(self, bracket: bytes, keyword: str) -> Expression:
        raise not_compared(keyword)

    def item(self, value: Expression) -> Expression:
        item = self.writer.item(value)
        return self.grammar.seq([item, self.whitespace]) if self.writer.spaced_items else item

    def named_member(self, name: str, value: Expression) -> Expression:
        return self.grammar.seq([self.writer.named(name, value), self.whitespace])

    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]:
        return [self.named_member(name, value) for name, value in zip(names, values, strict=True)]

    def member(self, keys: StringLanguage, value: Expression) -> Expression:
        return self.grammar.seq([self.writer.keyed(keys, value), self.whitespace])


class _Cohere(_Markup):
    spaced_items = False

    def _alternatives(self, form: NormalForm) -> Expression:
        """The expression of a value from its type to the closing mark."""
        grammar, close = self.grammar, "</cofl:value>"
        choices = []

        def typed(kind: str, content: Sequence[Expression]) -> None:
            choices.append(grammar.seq([self.write(f' type="{kind}">'), *content, self.write(close)]))

        if form.string is not NO_STRING:
            typed("raw", [raw_string(self.strings(form), grammar, (close,))])
        scalars = self.scalars(form)
        if scalars:
            typed("json", [self.space, grammar.alt(scalars), self.space])
        if form.arrays:
            typed("list", [self.space, grammar.alt(self.arrays(form)), self.space])
        if form.objects:
            typed("dict", [grammar.alt([self.members(constraint) for constraint in form.objects])])
        return grammar.alt(choices)

    def members(self, constraint: ObjectConstraint) -> Expression:
        return self.grammar.seq([self.space, object_expression(self, constraint)])

    def item(self, value: Expression) -> Expression:
        return self.grammar.seq([self.write("<cofl:value"), value])

    def named(self, name: str, value: Expression) -> Expression:
        key = "".join(_ESCAPES.get(character, character) for character in name)
        return self.grammar.seq([self.write(f'<cofl:value name="{key}"'), value])

    def keyed(self, keys: StringLanguage, value: Expression) -> Expression:
        key = dfa_to_grammar((keys & _SOME_KEY).dfa(), self.grammar, self._character)
        return self.grammar.seq([self.write('<cofl:value name="'), key, self.write('"'), value])

    def _character(self, characters: CharSet) -> Expression:
        special = CharSet.of("\0" + "".join(_ESCAPES))
        plain = self.grammar.chars(characters - special)
        escaped = [
            self.grammar.literal(text) for character, text in _ESCAPES.items() if CharSet.of(character) & characters
        ]
        return self.grammar.alt([plain, *escaped])


class _MinimaxM3(_Markup):
    def _alternatives(self, form: NormalForm) -> Expression:
        if form.arrays and form.objects and form.string is not NO_STRING and form.number is not NO_NUMBER:
            raise UnsupportedError(
                f"{MINIMAX_M3} cannot tell the types of values apart: give the value a single type", keyword="type"
            )
        choices = self.scalars(form)
        if form.string is not NO_STRING:
            choices.append(raw_string(self.strings(form), self.grammar, (MARK,)))
        choices += [self._items(constraint) for constraint in form.arrays]
        choices += [self.members(constraint) for constraint in form.objects]
        return self.grammar.alt(choices)

    def _items(self, constraint: ArrayConstraint) -> Expression:
        """The items of an array; an empty array is the empty text, without white space."""
        items = array_expression(self, constraint._replace(minimum=max(1, constraint.minimum)))
        return self._or_nothing(array_expression(self, constraint._replace(maximum=0)), items)

    def members(self, stated: ObjectConstraint) -> Expression:
        # Close the object first: with a minimum of one member, an object without members would stay open.
        constraint = closed(self.algebra, stated)
        if constraint is None:
            return self.grammar.never()
        if constraint == ANY_OBJECT:  # "any object" (a tool without parameters): nothing can be written
            return self.grammar.empty()
        inner = object_expression(self, constraint._replace(minimum=max(1, constraint.minimum)))
        return self._or_nothing(object_expression(self, constraint._replace(maximum=0)), inner)

    def _or_nothing(self, nothing: Expression, inner: Expression) -> Expression:
        return self.grammar.alt([nothing, self.grammar.seq([self.space, inner])])

    def item(self, value: Expression) -> Expression:
        return self.named("item", value)

    def named(self, name: str, value: Expression) -> Expression:
        return self.grammar.seq([self.write(f"{MARK}<{name}>"), value, self.write(f"{MARK}</{name}>")])

    def keyed(self, keys: StringLanguage, value: Expression) -> Expression:
        names = keys.finite_values(_MOST_NAMES)
        if names is None:
            raise UnsupportedError(
                f"{MINIMAX_M3} cannot write keys that the schema does not name",
                keyword="additionalProperties",
                help="name them under properties",
            )
        return self.grammar.alt([self.named(name, value) for name in names])
