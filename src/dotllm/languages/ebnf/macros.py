"""xgrammar's macros in EBNF: Token, ExcludeToken, TagDispatch, TokenTagDispatch, Regex, Substring.

https://xgrammar.mlc.ai/docs/xgrammar_features/ebnf_grammar.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from dotllm.grammar import Expression, Grammar, Rule
from dotllm.languages.dispatch import refuse_excluded, tag_dispatch, token_tag_dispatch
from dotllm.languages.ebnf.characters import string
from dotllm.languages.ebnf.lexer import EbnfToken
from dotllm.languages.source import Source
from dotllm.languages.substring import substring_expression

MACROS = frozenset({"Token", "ExcludeToken", "TagDispatch", "TokenTagDispatch", "Regex", "Substring"})


class Macro(NamedTuple):
    """A use of a macro: its name, its positional and its named arguments, a tuple as a list."""

    name: EbnfToken
    values: list[EbnfToken | list[EbnfToken]]
    named: dict[str, tuple[EbnfToken, EbnfToken | list[EbnfToken]]]


def expand(macro: Macro, grammar: Grammar, rules: Mapping[str, Rule], source: Source) -> Expression:
    """The expression a macro stands for. Raises InvalidSpecError for arguments it does not take."""
    return _Expansion(macro, grammar, rules, source).expression()


class _Expansion:
    def __init__(self, macro: Macro, grammar: Grammar, rules: Mapping[str, Rule], source: Source) -> None:
        self.macro = macro
        self.grammar = grammar
        self.rules = rules
        self.source = source

    def expression(self) -> Expression:
        name, grammar = self.macro.name.text, self.grammar
        if name in ("TagDispatch", "TokenTagDispatch"):
            return self._dispatch(tokens=name == "TokenTagDispatch")
        for key, _ in self.macro.named.values():
            raise self.source.invalid(f"{name} has no argument {key.text}", key.at, key.text)
        if name in ("Token", "ExcludeToken"):
            ids = [self._number(value) for value in self.macro.values]
            if not ids:
                raise self._wrong()
            return grammar.tokens(ids, exclude=name == "ExcludeToken")
        texts = [self._string(value) for value in self.macro.values]
        if name == "Substring":
            return substring_expression(texts, grammar)
        if len(texts) != 1:
            raise self._wrong()
        from dotllm.languages.regex import regex_to_expression  # few grammars need it

        with self.source.inside(self.macro.name.at):
            return regex_to_expression(texts[0], grammar, search=False)

    def _dispatch(self, *, tokens: bool) -> Expression:
        loop, excludes = True, []
        for name, (key, value) in self.macro.named.items():
            if name == "loop_after_dispatch" and isinstance(value, EbnfToken) and value.text in ("true", "false"):
                loop = value.text == "true"
            elif name == "excludes" and isinstance(value, list):
                excludes = value
            else:
                raise self.source.invalid(f"{self.macro.name.text} has no such argument {name}", key.at, name)
        pairs = [self._pair(value) for value in self.macro.values]
        if tokens:
            by_id = [(self._number(tag), expression) for tag, expression in pairs]
            return token_tag_dispatch(self.grammar, by_id, [self._number(x) for x in excludes], loop=loop)
        by_text = [(self._string(tag), expression) for tag, expression in pairs]
        excluded = [self._string(x) for x in excludes]
        with self.source.inside(self.macro.name.at):
            refuse_excluded((tag for tag, _ in by_text), excluded)
        return tag_dispatch(self.grammar, by_text, excluded, loop=loop)

    def _pair(self, value: EbnfToken | list[EbnfToken]) -> tuple[EbnfToken, Expression]:
        if not isinstance(value, list) or len(value) != 2 or value[1].kind != "NAME":
            raise self._wrong()
        rule = self.rules.get(value[1].text)
        if rule is None:
            raise self.source.undefined("rule ", value[1].text, value[1].at, self.rules)
        return value[0], self.grammar.call(rule)

    def _number(self, value: EbnfToken | list[EbnfToken]) -> int:
        if not isinstance(value, EbnfToken) or value.kind != "NUMBER" or len(value.text) > 9:
            raise self._wrong()
        return int(value.text)

    def _string(self, value: EbnfToken | list[EbnfToken]) -> str:
        if not isinstance(value, EbnfToken) or value.kind != "STRING":
            raise self._wrong()
        text = string(self.source, value.at, value.at + len(value.text))
        if not text and self.macro.name.text == "TagDispatch":
            raise self._wrong()
        return text

    def _wrong(self) -> Exception:
        name = self.macro.name
        return self.source.invalid(f"{name.text} does not take such arguments", name.at, name.text)
