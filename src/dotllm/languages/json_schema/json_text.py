"""How a document is written: punctuation and white space. `spelling` says how strings are written, `number_text` how
numbers are.

White space is allowed between any two tokens, never before the first or after the last. By default it is what
formatters write: nothing, one space, or a line break and an indentation. So a model that has begun to write spaces must
soon continue the document. ``whitespace="any"`` allows any white space of JSON, up to a bound; ``whitespace_pattern``
replaces it; without ``any_whitespace`` there is none. Every value, bracket and comma is followed by its own white
space, so no two stretches of white space meet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from dotllm.automata.dfa import Dfa, dfa_to_grammar
from dotllm.charset import CharSet
from dotllm.errors import InvalidSpecError, SpecError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema.context import Context
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.strings.forbidden_substrings import forbidden_substrings
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_text import key_expression
from dotllm.languages.regex import regex_to_dfa, regex_to_expression

MAX_BLANKS, MAX_TABS = 32, 8
"""Of an indentation: 16 levels of two spaces, eight of four, or eight of one tab."""
MAX_WHITESPACE = 320
"""Characters between two tokens if any white space is allowed."""

_BLANK = " \t\n\r"
_BLANKS = Dfa.chars(CharSet.of(_BLANK)).star()
_PLAINLY_BLANK = re.compile(
    r"(?:(?:\[(?:[ \t\n\r]|\\[tnr])+\]|[ \t\n\r]|\\[tnr])(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})?)*", re.ASCII
)
_NOT_RAW_IN_KEYS = re.compile(r'[\0-\x1f"\\\ud800-\udfff]')


class JsonText:
    """The pieces of documents, for one grammar. Other styles of writing an object have the same methods."""

    def __init__(self, grammar: Grammar, options: Options) -> None:
        self.grammar = grammar
        self.whitespace = whitespace(grammar, options)
        self.context = Context(
            grammar, self.whitespace,
            forbidden=forbidden_substrings(options.excludes) if options.excludes else None,
            bounded_numbers=options.number_digits == "bounded",
        )  # fmt: skip
        self.anything: Expression | None = None  # any JSON value, once there is a rule for it
        self.comma = self._then_space(self._separator(options.separators[0], ","))
        self.object_open = self._then_space(grammar.literal(b"{"))
        self.object_close = grammar.literal(b"}")
        self.array_open = self._then_space(grammar.literal(b"["))
        self.array_close = grammar.literal(b"]")
        self._colon = colon = self._separator(options.separators[1], ":")
        self.spaced = self.whitespace != grammar.empty() or colon != grammar.literal(b":")
        if self.whitespace != grammar.empty():
            self._colon = grammar.seq([self.whitespace, colon, self.whitespace])

    def copied(self, grammar: Grammar) -> JsonText:
        """A copy for a grammar that begins with the grammar of this one (`Grammar.begin_with`)."""
        other = JsonText.__new__(JsonText)
        other.__dict__.update(self.__dict__)
        other.grammar, other.context = grammar, self.context.copied(grammar)
        return other

    def _separator(self, pattern: str, sign: str) -> Expression:
        if pattern == sign:
            return self.grammar.literal(sign)
        return dfa_to_grammar(separator_texts(pattern, sign), self.grammar, self.grammar.chars)

    def _then_space(self, token: Expression) -> Expression:
        return token if self.whitespace == self.grammar.empty() else self.grammar.seq([token, self.whitespace])

    def distinct_array_open(self) -> Expression:
        """The bracket of an array whose items guides remember."""
        return self._distinct_open(b"[", "uniqueItems")

    def _distinct_open(self, bracket: bytes, keyword: str) -> Expression:
        """A bracket for values whose parts guides remember because of ``keyword``; other styles refuse this keyword."""
        return self.grammar.seq([self.grammar.unique_open(bracket), self.whitespace])

    def item(self, value: Expression) -> Expression:
        """A value in an array and the white space after it."""
        return self.grammar.seq([value, self.whitespace]) if self.spaced else value

    def named_member(self, name: str, value: Expression) -> Expression:
        """A member whose key the schema names, and its white space. Raises InvalidSpecError for a lone surrogate."""
        if not _NOT_RAW_IN_KEYS.search(name):
            if self.context.forbidden is not None and not self.context.forbidden.admits(name):
                return self.grammar.never()
            key = b'"%s"' % name.encode()
            if not self.spaced:
                return self.grammar.seq([self.grammar.literal(key + b":"), value])
            return self.grammar.seq([self.grammar.literal(key), self._colon, value, self.whitespace])
        if not is_unicode(name):
            raise InvalidSpecError(f"the key {name!r} is not Unicode text", keyword="properties")
        return self.member(StringLanguage.finite([name]), value)

    def named_members(self, names: Sequence[str], values: Sequence[Expression]) -> Sequence[Expression]:
        """`named_member` for each. Nearly all members have named keys, so they are made many at a time."""
        joined = "".join(names)
        if not names or self.context.forbidden is not None or _NOT_RAW_IN_KEYS.search(joined):
            return [self.named_member(name, value) for name, value in zip(names, values, strict=True)]
        grammar, n = self.grammar, len(names)
        lengths = [*map(len, names)] if joined.isascii() else [len(name.encode()) for name in names]
        between = '""' if self.spaced else '":"'
        quoted = '"' + between.join(names) + between[:-1]
        keys = grammar.each_literal(quoted.encode(), [length + len(between) for length in lengths])
        if not self.spaced:
            parts = [self._colon] * (2 * n)
            parts[::2], parts[1::2] = keys, values
            return grammar.each_seq(2, parts)
        parts = [self._colon, self._colon, self.whitespace, self.whitespace] * n
        parts[::4], parts[2::4] = keys, values
        return grammar.each_seq(4, parts)

    def member(self, keys: StringLanguage, value: Expression) -> Expression:
        """A member whose key is one of ``keys``, and the white space after it."""
        key = key_expression(keys, self.context)
        return self.grammar.seq([key, self._colon, value, self.whitespace])

    def object(
        self,
        states: int,
        finals: Sequence[int],
        edges: Sequence[tuple[int, Expression, int]],
        distinct: str | None = None,
    ) -> Expression:
        """An object whose members are what a network reads from state 0; commas are on its edges. ``distinct``: because
        of this keyword, guides remember the object's keys, so that no key comes twice."""
        network = self.grammar.network(states, 0, finals, edges)
        opening = self.object_open if distinct is None else self._distinct_open(b"{", distinct)
        return self.grammar.seq([opening, network, self.object_close])


def whitespace(grammar: Grammar, options: Options) -> Expression:
    """The white space between two tokens. Raises `InvalidSpecError` for a pattern that is not a regular expression, or
    as `_blank_part` does."""
    if options.whitespace_pattern is not None:
        try:
            blanks = regex_to_expression(options.whitespace_pattern, grammar, search=False)
            blank = _blank_part(options.whitespace_pattern)
            if blank is not None:
                blanks = dfa_to_grammar(blank, grammar, grammar.chars)
        except SpecError as error:
            raise error.replaced(
                message=f"whitespace_pattern: {error.message}", location=None, keyword="whitespace_pattern"
            ) from None
        rule = grammar.rule("whitespace")
        grammar.define(rule, blanks)
        return grammar.call(rule)
    if not options.any_whitespace:
        return grammar.empty()
    if options.whitespace == "any":
        return grammar.repeat(grammar.bytes_in(b" \t\n\r"), 0, MAX_WHITESPACE)
    return grammar.once(("formatted white space", None), lambda: _formatted(grammar))


def _formatted(grammar: Grammar) -> Expression:
    """Nothing, one space, or a line break and an indentation; the latter is a rule, so its 40 states exist once."""
    line_break = grammar.alt([grammar.literal(b"\n"), grammar.literal(b"\r\n")])
    blanks = grammar.repeat(grammar.literal(b" "), 0, MAX_BLANKS)
    tabs = grammar.repeat(grammar.literal(b"\t"), 1, MAX_TABS)
    rule = grammar.rule("line break and indentation")
    grammar.define(rule, grammar.seq([line_break, grammar.alt([blanks, tabs])]))
    return grammar.optional(grammar.alt([grammar.literal(b" "), grammar.call(rule)]))


@lru_cache(maxsize=1)
def _spaces() -> Dfa:
    """All texts of Unicode white space."""
    return Dfa.chars(CharSet.of("".join(filter(str.isspace, map(chr, range(0x110000)))))).star()


@lru_cache(maxsize=64)
def separator_texts(pattern: str, sign: str) -> Dfa:
    """The texts of ``pattern`` that are ``sign`` with white space of JSON around it.

    Raises:
        InvalidSpecError: there are none, or ``pattern`` matches more than ``sign`` with Unicode white space around it.
    """
    every, middle = regex_to_dfa(pattern, search=False), Dfa.literal(sign)
    result = every & (_BLANKS + middle + _BLANKS)
    if result.is_empty() or not (every - (_spaces() + middle + _spaces())).is_empty():
        raise InvalidSpecError(f"must match {sign!r} with nothing but white space around it, or the text is not JSON")
    return result


@lru_cache(maxsize=64)
def _blank_part(pattern: str) -> Dfa | None:
    """The texts of ``pattern`` that are white space of JSON; None if all of them are.

    ``\\s`` also matches form feeds and no-break spaces. JSON does not allow them, so they are left out.

    Raises:
        InvalidSpecError: no text is left, or ``pattern`` matches characters that are not white space.
    """
    if _PLAINLY_BLANK.fullmatch(pattern):  # whatever its counts, even if too large for an automaton
        return None
    every = regex_to_dfa(pattern, search=False)
    blank = every & _BLANKS
    if (other := (every - _BLANKS).shortest()) is None:
        return None
    other = (every - _spaces()).shortest() or (other if blank.is_empty() else "")
    if other:
        wrong = next(character for character in other if character not in _BLANK)
        raise InvalidSpecError(f"{wrong!r} (U+{ord(wrong):04X}) is not JSON white space ([ \\t\\n\\r])")
    return blank
