"""GBNF, the grammars of llama.cpp, and xgrammar's EBNF, which extends it (docs/grammars.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from dotllm import cancellation
from dotllm.charset import ANY_CHAR, CharSet, Range
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.languages.source import OPERATORS, Source, Token, TokenReader
from dotllm.languages.substring import substring_expression
from dotllm.languages.tag_dispatch import refuse_excluded, tag_dispatch, token_tag_dispatch
from dotllm.languages.token_names import TokenNames, token_expression

# Text of a GBNF or xgrammar EBNF grammar → tokens. White space and line ends have no meaning.

_TOKEN = re.compile(
    r"""
      (?P<SPACE>(?:[ \t\r\n\f]|\#[^\r\n]*)+)
    | (?P<STRING>"(?:[^"\\\n]|\\.)*")
    | (?P<CLASS>\[(?:[^\]\\\n]|\\.)*\])
    | (?P<TOKEN>!?<(?:\[\d+\]|[^<>\s]+)>)
    | (?P<NUMBER>\d++(?![A-Za-z_-]|\.[\w-]))
    | (?P<NAME>[\w-](?:[\w-]|\.(?=[\w-]))*)
    | (?P<SIGN>::=|[|()*+?{},.=])
    """,
    re.VERBOSE | re.ASCII,
)
_HINTS = {
    "[": "this character class does not end on its line; a line break in it is written \\n",
    "/": "comments begin with '#'",
    ":": "rules are defined with '::='",
    ";": "a rule ends where the next one begins, without a terminator",
}


def tokenise(source: Source) -> list[Token]:
    """The tokens of a grammar, ending in END. Raises InvalidSpecError where no token begins."""
    text, at, tokens = source.text, 0, []
    while at < len(text):
        cancellation.check()
        match = _TOKEN.match(text, at)
        if match is None:
            raise source.unexpected(at, _HINTS)
        kind = match.lastgroup
        assert kind is not None  # every alternative is a group
        if kind != "SPACE":
            tokens.append(Token(match.group() if kind == "SIGN" else kind, match.group(), at))
        at = match.end()
    tokens.append(Token("END", "", len(text)))
    return tokens


# String literals and character classes of GBNF and xgrammar EBNF.

_SIMPLE = {c: c for c in "\"\\/'?[]-"} | dict(zip("nrtbfav0e", "\n\r\t\b\f\a\v\0\x1b", strict=True))
_IN_CLASS = _SIMPLE | {c: c for c in "^$.*+(){}|"}
_HEX = re.compile(r"[0-9a-fA-F]*")
_DIGITS = {"x": 2, "u": 4, "U": 8}


def string(source: Source, begin: int, end: int) -> str:
    """The value of the string literal at ``begin:end``, quotes included."""
    text = source.text[begin + 1 : end - 1]
    if "\\" not in text:
        return text
    parts, at, stop = [], begin + 1, end - 1
    while at < stop:  # bounded: by the text
        character, at = _character(source, at, _SIMPLE)
        parts.append(character)
    return "".join(parts)


def character_class(source: Source, begin: int, end: int) -> CharSet:
    """The set of the character class at ``begin:end``, brackets included; ``[^]`` is any character."""
    at, stop = begin + 1, end - 1
    if at == stop:
        raise source.invalid(
            "the empty class [] has no agreed meaning: for llama.cpp it is the empty text, for others it "
            'matches nothing; write "" for the empty text',
            begin,
            "[]",
        )
    negated = source.text.startswith("^", at)
    at += negated
    ranges: list[Range | str | int] = []
    while at < stop:  # bounded: by the text
        first_at = at
        first, at = _character(source, at, _IN_CLASS)
        last = first
        if source.text.startswith("-", at) and at + 1 < stop:
            last, at = _character(source, at + 1, _IN_CLASS)
            if last < first:
                raise source.invalid(f"the range {first}-{last} ends before it begins", first_at)
        ranges.append((ord(first), ord(last)))
    charset = CharSet.of(*ranges)
    return ~charset if negated else charset


def _character(source: Source, at: int, simple: dict[str, str]) -> tuple[str, int]:
    """The character at ``at``, and the offset after it."""
    text = source.text
    if text[at] != "\\":
        return text[at], at + 1
    letter = text[at + 1]
    count = _DIGITS.get(letter)
    if count is None:
        character = simple.get(letter)
        if character is None:
            raise source.invalid(f"unknown escape \\{letter}", at)
        return character, at + 2
    match = _HEX.match(text, at + 2)
    digits = match.group() if match else ""
    if letter == "x" and len(digits) > 2:
        raise source.invalid(
            f"\\x{digits} is read differently by llama.cpp (two digits) and xgrammar (all of them): write \\u or \\U",
            at,
            "\\x",
        )
    code = int(digits[:count], 16) if len(digits) >= (1 if letter == "x" else count) else 0x110000
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise source.invalid(f"{text[at : at + 2 + count]} is not a character", at)
    return chr(code), at + 2 + min(count, len(digits))


# xgrammar's macros in EBNF: Token, ExcludeToken, TagDispatch, TokenTagDispatch, Regex, Substring.
#
# https://xgrammar.mlc.ai/docs/xgrammar_features/ebnf_grammar.html

MACROS = frozenset({"Token", "ExcludeToken", "TagDispatch", "TokenTagDispatch", "Regex", "Substring"})


class Macro(NamedTuple):
    """A use of a macro: its name, its positional arguments and its named ones. A tuple is a list."""

    name: Token
    values: list[Token | list[Token]]
    named: dict[str, tuple[Token, Token | list[Token]]]


# GBNF and xgrammar EBNF → Grammar, in one pass over the tokens.
#
# There is no recursion: for each open parenthesis a frame holds what has been read inside it.

WITHOUT_EFFECT = frozenset({"capture", "capture_name"})
ROOT = "root"
_NAMES = ("NAME", "NUMBER")  # (in GBNF a NUMBER may name a rule)


def ebnf_to_grammar(text: str, token_names: TokenNames | None = None) -> Grammar:
    """The grammar that ``text`` describes; ``token_names`` are the tokenizer's, if there is one.

    Raises InvalidSpecError for a text that is not a grammar and UnsupportedError for a grammar that cannot be
    enforced; ``location`` says where.
    """
    return _EbnfCompiler(text, token_names).compile()


@dataclass(slots=True)
class _EbnfFrame:
    """An open parenthesis: its finished alternatives, and the sequence so far."""

    at: int
    choices: list[Expression] = field(default_factory=list)
    parts: list[Expression] = field(default_factory=list)


class _EbnfCompiler(TokenReader):
    def __init__(self, text: str, token_names: TokenNames | None) -> None:
        source = Source(text)
        super().__init__(source, tokenise(source))
        self.token_names = token_names
        self.grammar = Grammar()
        self.rules: dict[str, Rule] = {}

    def compile(self) -> Grammar:
        for i, token in enumerate(self.tokens):
            if self._is_head(i):
                if token.text in self.rules:
                    raise self.source.invalid(f"rule {token.text} is defined twice", token.at, token.text)
                self.rules[token.text] = self.grammar.rule(token.text)
        if ROOT not in self.rules:
            defined = {token.text: token.at for i, token in enumerate(self.tokens) if self._is_head(i)}
            raise self.source.without_first_rule(ROOT, defined, "start", 'Lark: start: "…"')
        while self.token.kind != "END":
            cancellation.check()
            if not self._is_head(self.i):
                raise self.unexpected("a rule: name ::= …")
            rule = self.rules[self.token.text]
            self.i += 1
            if self.token.kind == "CLASS":
                self._check_options(self.token)
                self.i += 1
            self.i += 1
            self.grammar.define(rule, self._expression())
        self.grammar.start = self.grammar.call(self.rules[ROOT])
        return self.grammar

    def _is_head(self, i: int) -> bool:
        """Whether a rule begins here: ``name ::=`` or ``name[option] ::=``."""
        if self.tokens[i].kind not in _NAMES:
            return False
        following = [token.kind for token in self.tokens[i + 1 : i + 3]]
        return following[:1] == ["::="] or following == ["CLASS", "::="]

    def _check_options(self, token: Token) -> None:
        """Refuse all options but ``[capture]`` and ``[capture="…"]``, which, as in Lark, only say what to report."""
        for option in token.text[1:-1].split(","):
            name = option.split("=")[0].strip()
            if name not in WITHOUT_EFFECT:
                raise self.source.unsupported(f"the rule option {name} is not supported", token.at, name)

    def _expression(self) -> Expression:
        """Everything up to the next rule."""
        frames = [_EbnfFrame(self.token.at)]
        while True:  # bounded: by the text
            token, frame = self.token, frames[-1]
            if token.kind == "(":
                if self.tokens[self.i + 1].kind == "=":
                    raise self.source.unsupported("lookahead assertions are not supported", token.at, "(=")
                frames.append(_EbnfFrame(token.at))
                self.i += 1
            elif token.kind == ")" and len(frames) > 1:
                self.i += 1
                frames.pop()
                frames[-1].parts.append(self._repeated(self._close(frame)))
            elif token.kind == "|":
                self.i += 1
                frame.choices.append(self.grammar.seq(frame.parts))
                frame.parts = []
            elif token.kind == "END" or self._is_head(self.i):
                if len(frames) > 1:
                    raise self.source.invalid("'(' is never closed", frame.at)
                return self._close(frame)
            else:
                frame.parts.append(self._repeated(self._atom()))

    def _close(self, frame: _EbnfFrame) -> Expression:
        return self.grammar.alt([*frame.choices, self.grammar.seq(frame.parts)])

    def _atom(self) -> Expression:
        grammar, token = self.grammar, self.token
        end = token.at + len(token.text)
        if token.kind == "NAME" and token.text in MACROS and token.text not in self.rules:
            return self._expanded(self._macro())
        self.i += 1
        if token.kind == "STRING":
            return grammar.literal(string(self.source, token.at, end))
        if token.kind == "CLASS":
            return grammar.chars(character_class(self.source, token.at, end))
        if token.kind == ".":
            return grammar.chars(ANY_CHAR)
        if token.kind in _NAMES:
            return self._call(token)
        if token.kind == "TOKEN":
            name = token.text.removeprefix("!")
            tokens = token_expression(name, self.token_names, grammar, self.source, token.at)
            if name == token.text:
                return tokens
            ids, exclude = grammar.token_sets[grammar.a[tokens]]
            return grammar.tokens(ids, exclude=not exclude)
        self.i -= 1
        raise self.unexpected("an expression")

    def _call(self, name: Token) -> Expression:
        rule = self.rules.get(name.text)
        if rule is None:
            raise self.source.undefined("rule ", name.text, name.at, self.rules)
        return self.grammar.call(rule)

    def _repeated(self, expression: Expression) -> Expression:
        """The expression with the repetitions that follow it."""
        while True:  # bounded: by the text
            kind = self.token.kind
            if kind in OPERATORS:
                self.i += 1
                expression = self.grammar.repeat(expression, *OPERATORS[kind])
            elif kind == "{":
                expression = self.grammar.repeat(expression, *self.counts())
            else:
                return expression

    def _macro(self) -> Macro:
        """``Name(value, (value, value), key=value)``."""
        macro = Macro(self.token, [], {})
        self.i += 1
        self.expect("(", "'('")
        while self.token.kind != ")":  # bounded: by the text
            if self.token.kind == "NAME" and self.tokens[self.i + 1].kind == "=":
                key = self.token
                self.i += 2
                macro.named[key.text] = (key, self._value())
            else:
                macro.values.append(self._value())
            if self.token.kind != ",":
                break
            self.i += 1
        self.expect(")", "')'")
        return macro

    def _value(self) -> Token | list[Token]:
        token = self.token
        self.i += 1
        if token.kind != "(":
            if token.kind not in ("STRING", "NUMBER", "NAME"):
                self.i -= 1
                raise self.unexpected("a value")
            return token
        values = []
        while self.token.kind in ("STRING", "NUMBER", "NAME"):  # bounded: by the text
            values.append(self.token)
            self.i += 1
            if self.token.kind != ",":
                break
            self.i += 1
        self.expect(")", "')'")
        return values

    def _expanded(self, macro: Macro) -> Expression:
        """The expression a macro stands for. Raises InvalidSpecError for arguments it does not take."""
        name, grammar = macro.name.text, self.grammar
        if name in ("TagDispatch", "TokenTagDispatch"):
            return self._dispatch(macro, tokens=name == "TokenTagDispatch")
        for key, _ in macro.named.values():
            if name == "Regex" and key.text == "flags":
                raise self.source.unsupported(
                    "flags of Regex are not supported: write them into the expression, as (?i)", key.at, key.text
                )
            raise self.source.invalid(f"{name} has no argument {key.text}", key.at, key.text)
        if name in ("Token", "ExcludeToken"):
            ids = [self._number(macro, value) for value in macro.values]
            if not ids:
                raise self._wrong(macro)
            return grammar.tokens(ids, exclude=name == "ExcludeToken")
        texts = [self._string(macro, value) for value in macro.values]
        if name == "Substring":
            return substring_expression(texts, grammar)
        if len(texts) != 1:
            raise self._wrong(macro)
        from dotllm.languages.regex import regex_to_expression  # few grammars need it

        with self.source.inside(macro.name.at):
            return regex_to_expression(texts[0], grammar, search=False)

    def _dispatch(self, macro: Macro, *, tokens: bool) -> Expression:
        loop, excludes = True, []
        for name, (key, value) in macro.named.items():
            if name == "loop_after_dispatch" and isinstance(value, Token) and value.text in ("true", "false"):
                loop = value.text == "true"
            elif name == "excludes" and isinstance(value, list):
                excludes = value
            else:
                raise self.source.invalid(f"invalid argument {name} for {macro.name.text}", key.at, name)
        pairs = [self._pair(macro, value) for value in macro.values]
        if tokens:
            by_id = [(self._number(macro, tag), expression) for tag, expression in pairs]
            return token_tag_dispatch(self.grammar, by_id, [self._number(macro, x) for x in excludes], loop=loop)
        by_text = [(self._string(macro, tag), expression) for tag, expression in pairs]
        excluded = [self._string(macro, x) for x in excludes]
        with self.source.inside(macro.name.at):
            refuse_excluded((tag for tag, _ in by_text), excluded)
        return tag_dispatch(self.grammar, by_text, excluded, loop=loop)

    def _pair(self, macro: Macro, value: Token | list[Token]) -> tuple[Token, Expression]:
        if not isinstance(value, list) or len(value) != 2 or value[1].kind != "NAME":
            raise self._wrong(macro)
        return value[0], self._call(value[1])

    def _number(self, macro: Macro, value: Token | list[Token]) -> int:
        if not isinstance(value, Token) or value.kind != "NUMBER" or len(value.text) > 9:
            raise self._wrong(macro)
        return int(value.text)

    def _string(self, macro: Macro, value: Token | list[Token]) -> str:
        if not isinstance(value, Token) or value.kind != "STRING":
            raise self._wrong(macro)
        text = string(self.source, value.at, value.at + len(value.text))
        if not text and macro.name.text == "TagDispatch":
            raise self._wrong(macro)
        return text

    def _wrong(self, macro: Macro) -> Exception:
        name = macro.name
        return self.source.invalid(f"invalid arguments for {name.text}", name.at, name.text)
