"""GBNF and xgrammar EBNF → Grammar, in one pass over the tokens.

No recursion: a frame per open parenthesis holds what has been read inside it.
"""

from __future__ import annotations

from dotllm.charset import ANY_CHAR
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.languages.ebnf.characters import character_class, string
from dotllm.languages.ebnf.lexer import EbnfToken, tokenise
from dotllm.languages.ebnf.macros import MACROS, Macro, expand
from dotllm.languages.source import Source
from dotllm.languages.token_names import TokenNames, token_expression

MAX_COUNT = 2**30 - 1
ROOT = "root"
_NAMES = ("NAME", "NUMBER")

_OPERATORS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def ebnf_to_grammar(text: str, token_names: TokenNames | None = None) -> Grammar:
    """The grammar that ``text`` describes; ``token_names`` are the tokenizer's, if there is one.

    Raises InvalidSpecError for what is no grammar, UnsupportedError for what cannot be enforced; ``location`` says
    where.
    """
    return _EbnfCompiler(text, token_names).compile()


class _EbnfFrame:
    """An open parenthesis: the alternatives before, and the sequence so far."""

    __slots__ = ("at", "choices", "parts")

    def __init__(self, at: int) -> None:
        self.at = at
        self.choices: list[Expression] = []
        self.parts: list[Expression] = []


class _EbnfCompiler:
    def __init__(self, text: str, token_names: TokenNames | None) -> None:
        self.source = Source(text)
        self.tokens = tokenise(self.source)
        self.i = 0
        self.token_names = token_names
        self.grammar = Grammar()
        self.rules: dict[str, Rule] = {}

    @property
    def token(self) -> EbnfToken:
        return self.tokens[self.i]

    def compile(self) -> Grammar:
        for i, token in enumerate(self.tokens):
            if self._is_head(i):
                if token.text in self.rules:
                    raise self.source.invalid(f"rule {token.text} is defined twice", token.at, token.text)
                self.rules[token.text] = self.grammar.rule(token.text)
        if ROOT not in self.rules:
            raise self.source.invalid(f"the grammar has no rule {ROOT!r}", 0, ROOT, "unknown_rule")
        while self.token.kind != "END":
            if not self._is_head(self.i):
                raise self._unexpected("a rule: name ::= …")
            rule = self.rules[self.token.text]
            self.i += 1
            if self.token.kind == "CLASS":
                option = self.token.text[1:-1].split("=")[0].strip()
                raise self.source.unsupported(f"the rule option {option} is not supported", self.token.at, option)
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

    def _expression(self) -> Expression:
        """Everything up to the next rule."""
        frames = [_EbnfFrame(self.token.at)]
        while True:
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
            return expand(self._macro(), grammar, self.rules, self.source)
        self.i += 1
        if token.kind == "STRING":
            return grammar.literal(string(self.source, token.at, end))
        if token.kind == "CLASS":
            return grammar.chars(character_class(self.source, token.at, end))
        if token.kind == ".":
            return grammar.chars(ANY_CHAR)
        if token.kind in _NAMES:
            rule = self.rules.get(token.text)
            if rule is None:
                raise self.source.undefined("rule ", token.text, token.at, self.rules)
            return grammar.call(rule)
        if token.kind == "TOKEN":
            name = token.text.removeprefix("!")
            found = token_expression(name, self.token_names, grammar, self.source, token.at)
            if name == token.text:
                return found
            ids, exclude = grammar.token_sets[grammar.a[found]]
            return grammar.tokens(ids, exclude=not exclude)
        self.i -= 1
        raise self._unexpected("an expression")

    def _repeated(self, expression: Expression) -> Expression:
        """The expression with the repetitions that stand behind it."""
        while True:
            kind = self.token.kind
            if kind in _OPERATORS:
                self.i += 1
                expression = self.grammar.repeat(expression, *_OPERATORS[kind])
            elif kind == "{":
                expression = self.grammar.repeat(expression, *self._bounds())
            else:
                return expression

    def _bounds(self) -> tuple[int, int | None]:
        at = self.token.at
        self.i += 1
        low = 0 if self.token.kind == "," else self._count()
        high: int | None = low
        if self.token.kind == ",":
            self.i += 1
            high = self._count() if self.token.kind == "NUMBER" else None
        self._expect("}", "'}'")
        if high is not None and high < low:
            raise self.source.invalid(f"at least {low} and at most {high} times is never", at)
        return low, high

    def _count(self) -> int:
        token = self._expect("NUMBER", "a number")
        if len(token.text) > 10 or int(token.text) > MAX_COUNT:
            raise self.source.invalid(f"{token.text} repetitions are too many", token.at)
        return int(token.text)

    def _macro(self) -> Macro:
        """``Name(value, (value, value), key=value)``."""
        macro = Macro(self.token, [], {})
        self.i += 1
        self._expect("(", "'('")
        while self.token.kind != ")":
            if self.token.kind == "NAME" and self.tokens[self.i + 1].kind == "=":
                key = self.token
                self.i += 2
                macro.named[key.text] = (key, self._value())
            else:
                macro.values.append(self._value())
            if self.token.kind != ",":
                break
            self.i += 1
        self._expect(")", "')'")
        return macro

    def _value(self) -> EbnfToken | list[EbnfToken]:
        token = self.token
        self.i += 1
        if token.kind != "(":
            if token.kind not in ("STRING", "NUMBER", "NAME"):
                self.i -= 1
                raise self._unexpected("a value")
            return token
        values = []
        while self.token.kind in ("STRING", "NUMBER", "NAME"):
            values.append(self.token)
            self.i += 1
            if self.token.kind != ",":
                break
            self.i += 1
        self._expect(")", "')'")
        return values

    def _expect(self, kind: str, what: str) -> EbnfToken:
        token = self.token
        if token.kind != kind:
            raise self._unexpected(what)
        self.i += 1
        return token

    def _unexpected(self, what: str) -> Exception:
        token = self.token
        found = "the end of the grammar" if token.kind == "END" else repr(token.text)
        return self.source.invalid(f"expected {what}, found {found}", token.at)
