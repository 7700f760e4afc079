"""LarkGrammar → Grammar: the rules, what is ignored between terminals, templates, embedded JSON Schemas and tokens.

The language is that of the context-free grammar over characters. There is no lexer: a terminal stands for every text
its expression matches, wherever the grammar has it. (A lexer that always takes the longest match would forbid some of
these texts; none that a lexer accepts is missing.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.errors import BudgetExceededError
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.grammar.kinds import ExpressionKind
from dotllm.languages.lark.parser import Parser
from dotllm.languages.lark.syntax import Definition, LarkNodeKind, is_terminal
from dotllm.languages.lark.terminals import Terminals
from dotllm.languages.token_names import TokenNames, token_expression

MAX_TEMPLATE_USES = 5_000

_TERMINAL_KINDS = (LarkNodeKind.LITERAL, LarkNodeKind.RANGE, LarkNodeKind.PATTERN, LarkNodeKind.STRUCTURED_REGEX)


def lark_to_grammar(text: str, token_names: TokenNames | None = None) -> Grammar:
    """The grammar that ``text`` describes; ``token_names`` are the tokenizer's, if there is one.

    Raises InvalidSpecError for what is no Lark grammar, UnsupportedError for what cannot be enforced; ``location`` says
    where.
    """
    return _LarkCompiler(text, token_names).compile()


class _LarkCompiler:
    def __init__(self, text: str, token_names: TokenNames | None) -> None:
        parser = Parser(text)
        self.source = parser.source
        self.document = parser.parse()
        self.token_names = token_names
        self.grammar = Grammar()
        self.terminals = Terminals(self.document, self.source, self.grammar)
        self.ignored: Expression | None = None
        self._lexemes: dict[Expression, Expression] = {}
        self._rules: dict[tuple[str, tuple[Expression, ...]], Rule] = {}
        self._agenda: list[tuple[Rule, Definition, tuple[Expression, ...]]] = []

    def compile(self) -> Grammar:
        options = self._options()
        start = self.document.rules.get("start")
        if start is None:
            raise self.source.invalid("the grammar has no rule 'start'", 0, "start", "unknown_rule")
        self._check_names()
        self.ignored = self._ignored(once=options.get("skip_repetition") == "once")
        grammar = self.grammar
        grammar.start = self._call("start", (), start.at)
        if self.ignored is not None and options.get("allow_initial_skip"):
            grammar.start = grammar.seq([self.ignored, grammar.start])
        while self._agenda:
            rule, definition, arguments = self._agenda.pop()
            if definition.lazy:
                body = self._lexeme(self.terminals.expression(definition))
            else:
                body = self._expression(definition, dict(zip(definition.parameters, arguments, strict=True)))
            grammar.define(rule, body)
        return grammar

    def _options(self) -> dict[str, Any]:
        options = self.document.options
        for name, value in options.items():
            if name == "allow_invalid_utf8" and value:
                raise self.source.unsupported("texts are always UTF-8", 0, name)
            if name not in ("no_forcing", "allow_initial_skip", "allow_invalid_utf8", "skip_repetition"):
                raise self.source.invalid(f"unknown option {name!r}", 0, name, "unknown_field")
        return options

    def _check_names(self) -> None:
        """Names must be defined everywhere, not only in what ``start`` reaches."""
        document = self.document
        templates = [definition for definition in document.rules.values() if definition.parameters]
        for i, node in enumerate(document.nodes):
            if node.kind is LarkNodeKind.NAME:
                name = node.value
                known = name in document.rules or name in document.terminals or name in document.imports
                if not known and not any(d.first <= i <= d.root and name in d.parameters for d in templates):
                    raise self.source.undefined("", name, node.at, document.names)

    # --- rules

    def _call(self, name: str, arguments: tuple[Expression, ...], at: int) -> Expression:
        rule = self._rules.get((name, arguments))
        if rule is None:
            definition = self.document.rules.get(name)
            if definition is None:
                raise self.source.undefined("", name, at, self.document.names)
            if len(definition.parameters) != len(arguments):
                raise self.source.invalid(f"{name} takes {len(definition.parameters)} arguments", at, name)
            rule = self._rules[name, arguments] = self.grammar.rule(name)
            self._agenda.append((rule, definition, arguments))
            if arguments and len(self._rules) > MAX_TEMPLATE_USES:
                raise BudgetExceededError(
                    f"template {name} is used with more than {MAX_TEMPLATE_USES} different arguments",
                    location=self.source.location(at),
                    keyword="template",
                )
        return self.grammar.call(rule)

    def _expression(self, definition: Definition, parameters: Mapping[str, Expression]) -> Expression:
        grammar, first = self.grammar, definition.first
        found: list[Expression] = []
        for node in self.document.nodes[first : definition.root + 1]:
            kind, value = node.kind, node.value
            parts = [found[child - first] for child in node.children]
            if kind is LarkNodeKind.SEQUENCE:
                expression = grammar.seq([part for part in parts if part != grammar.empty()])
            elif kind is LarkNodeKind.CHOICE:
                expression = grammar.alt(parts)
            elif kind is LarkNodeKind.REPEAT:
                expression = grammar.repeat(parts[0], *value)
            elif kind is LarkNodeKind.NAME:
                if value in parameters:
                    expression = parameters[value]
                elif is_terminal(value):
                    expression = self._lexeme(self.terminals.named(value, node.at))
                else:
                    expression = self._call(value, (), node.at)
            elif kind is LarkNodeKind.TEMPLATE:
                expression = self._call(value, tuple(parts), node.at)
            elif kind in _TERMINAL_KINDS:
                expression = self._lexeme(self.terminals.leaf(node))
            elif kind is LarkNodeKind.TOKEN:
                token = token_expression(value, self.token_names, grammar, self.source, node.at)
                expression = self._lexeme(token)
            elif kind is LarkNodeKind.JSON:
                expression = self._lexeme(self._json(value, node.at))
            elif kind is LarkNodeKind.REFERENCE:
                raise self.source.unsupported(
                    f"{value} refers to another grammar, and a request has only one", node.at, "@"
                )
            else:
                raise self.source.invalid(
                    f"{kind.value!r} is for terminals only (capital letters)", node.at, kind.value
                )
            found.append(expression)
        return found[-1]

    def _json(self, schema: Any, at: int) -> Expression:
        from dotllm.languages.json_schema import Options, schema_expression  # a large package, needed by few grammars

        if isinstance(schema, str):  # (which would be read as the text of a schema)
            raise self.source.invalid("a schema must be an object or a boolean", at, "%json")
        with self.source.inside(at):
            return schema_expression(schema, self.grammar, Options())

    # --- what is ignored

    def _lexeme(self, terminal: Expression) -> Expression:
        """A terminal and what may be ignored behind it."""
        if self.ignored is None or terminal == self.grammar.empty():
            return terminal
        found = self._lexemes.get(terminal)
        if found is None:
            found = self._lexemes[terminal] = self.grammar.seq([terminal, self.ignored])
        return found

    def _ignored(self, *, once: bool) -> Expression | None:
        """Any number of the things that are ignored, or (``once``) at most one."""
        grammar = self.grammar
        choices = [self.terminals.expression(definition) for definition in self.document.ignored]
        if not choices:
            return None
        if once:
            return grammar.optional(grammar.alt(choices))
        # (x+)* is x*: a loop in a loop would only make the machine's states larger.
        bodies = [
            Expression(grammar.a[x])
            if grammar.kind[x] == ExpressionKind.REPEAT and grammar.b[x] <= 1 and grammar.c[x] < 0
            else x
            for x in choices
        ]
        return grammar.repeat(grammar.alt(bodies))
