"""LarkGrammar → Grammar: rules, ignored text between terminals, templates, embedded JSON Schemas and tokens.

The grammar is context-free over characters. There is no lexer: a terminal stands for every text that its expression
matches, wherever it occurs in the grammar. (A lexer that always takes the longest match would forbid some of these
texts; every text that it accepts is accepted here.) `lazy` says which texts a lazy terminal removes from others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from dotllm import cancellation
from dotllm.automata.dfa import Dfa
from dotllm.errors import BudgetExceededError
from dotllm.grammar import Expression, Grammar, Rule
from dotllm.grammar.kinds import ExpressionKind
from dotllm.languages.lark.lazy import Uses, json_texts
from dotllm.languages.lark.parser import Definition, LarkGrammar, LarkNode, LarkNodeKind, Parser, is_terminal
from dotllm.languages.lark.terminals import Terminals
from dotllm.languages.source import Source
from dotllm.languages.token_names import TokenNames, token_expression
from dotllm.suggestions import did_you_mean

MAX_TEMPLATE_USES = 5_000

_OPTIONS = ("no_forcing", "allow_initial_skip", "allow_invalid_utf8", "ignore_once")
"""The options that are true or false."""
_ONCE = "skip_repetition"
_TERMINAL_KINDS = (LarkNodeKind.LITERAL, LarkNodeKind.RANGE, LarkNodeKind.PATTERN, LarkNodeKind.STRUCTURED_REGEX)


def lark_to_grammar(text: str, token_names: TokenNames | None = None) -> Grammar:
    """The grammar that ``text`` describes; ``token_names`` are the tokenizer's, if there is one.

    Raises InvalidSpecError for a text that is not a Lark grammar and UnsupportedError for a grammar that cannot be
    enforced; ``location`` says where.
    """
    parser = Parser(text)
    document = parser.parse()
    grammar = Grammar()
    uses = Uses(grammar, parser.source) if _has_lazy(document) else None
    grammar.start = _LarkCompiler(document, parser.source, grammar, token_names, uses).compile()
    if uses is not None:
        uses.define()
    return grammar


def _has_lazy(document: LarkGrammar) -> bool:
    """Whether the grammar, or one nested in it, has a lazy rule or terminal."""
    todo = [document]
    while todo:  # bounded: by the text
        document = todo.pop()
        if any(definition.lazy for group in (document.rules, document.terminals) for definition in group.values()):
            return True
        todo += [node.value for node in document.nodes if node.kind is LarkNodeKind.GRAMMAR]
    return False


class _Template(NamedTuple):
    """A template that is an argument of another template."""

    name: str


Argument = Expression | _Template


class _LarkCompiler:
    def __init__(
        self, document: LarkGrammar, source: Source, grammar: Grammar, token_names: TokenNames | None, uses: Uses | None
    ) -> None:
        self.document = document
        self.source = source
        self.grammar = grammar
        self.token_names = token_names
        self.uses = uses
        """None: no terminal is lazy."""
        self.terminals = Terminals(document, source, grammar)
        self.ignored: Expression | None = None
        self._arguments = {
            child for node in document.nodes if node.kind is LarkNodeKind.TEMPLATE for child in node.children
        }
        self._lexemes: dict[Expression, Expression] = {}
        self._rules: dict[tuple[str, tuple[Argument, ...]], Rule] = {}
        self._agenda: list[tuple[Rule, Definition, tuple[Argument, ...]]] = []

    def compile(self) -> Expression:
        """The expression of the whole grammar."""
        options = self._options()
        start = self.document.rules.get("start")
        if start is None:
            defined = {name: rule.at for name, rule in (*self.document.rules.items(), *self.document.terminals.items())}
            raise self.source.without_first_rule("start", defined, "root", 'EBNF: root ::= "…"')
        self._check_names()
        self.ignored = self._ignored(once=options.get("ignore_once", False) or _ONCE in options)
        grammar = self.grammar
        whole = self._call("start", (), start.at)
        if self.ignored is not None and options.get("allow_initial_skip"):
            whole = grammar.seq([self.ignored, whole])
        while self._agenda:
            cancellation.check()
            rule, definition, arguments = self._agenda.pop()
            if definition.lazy:
                expression, texts = self.terminals.expression(definition), partial(self.terminals.dfa, definition)
                body = self._lexeme(self._used(expression, definition.name, definition.at, texts, lazy=True))
            else:
                body = self._expression(definition, dict(zip(definition.parameters, arguments, strict=True)))
            grammar.define(rule, body)
        return whole

    def _options(self) -> dict[str, Any]:
        """The options by name. Raises InvalidSpecError for an unknown name or value, UnsupportedError for bytes."""
        for name, (value, at) in self.document.options.items():
            if name == _ONCE:
                if value != "once":
                    raise self.source.invalid(f'{name} must be "once"', at, name, "invalid_value", "or leave it out")
            elif name not in _OPTIONS:
                help = did_you_mean(name, (*_OPTIONS, _ONCE)) or f"the options are {', '.join((*_OPTIONS, _ONCE))}"
                raise self.source.invalid(f"unknown option {name!r}", at, name, "unknown_field", help)
            elif not isinstance(value, bool):
                raise self.source.invalid(f"{name} must be true or false", at, name, "invalid_value")
            elif name == "allow_invalid_utf8" and value:
                raise self.source.unsupported("texts are always UTF-8", at, name)
        return {name: value for name, (value, _) in self.document.options.items()}

    def _check_names(self) -> None:
        """Check that all names are defined, not only those that ``start`` reaches."""
        document = self.document
        parameters = {
            (i, name)
            for definition in document.rules.values()
            for name in definition.parameters
            for i in range(definition.first, definition.root + 1)
            if document.nodes[i].value == name
        }
        for i, node in enumerate(document.nodes):
            if node.kind in (LarkNodeKind.NAME, LarkNodeKind.TEMPLATE):
                name = node.value
                known = name in document.rules or name in document.terminals or name in document.imports
                if not known and (i, name) not in parameters:
                    raise self.source.undefined("", name, node.at, document.names)

    # --- rules

    def _call(self, name: str, arguments: tuple[Argument, ...], at: int) -> Expression:
        rule = self._rules.get((name, arguments))
        if rule is None:
            definition = self.document.rules.get(name)
            if definition is None:  # a terminal: all names are defined
                wrong = f"{name} is not a rule: the names of terminals are in capitals and take no arguments"
                raise self.source.invalid(wrong, at, name)
            if len(definition.parameters) != len(arguments):
                wrong = f"{name} gets {len(arguments)} arguments instead of {len(definition.parameters)}"
                raise self.source.invalid(wrong, at, name)
            rule = self._rules[name, arguments] = self.grammar.rule(name)
            self._agenda.append((rule, definition, arguments))
            if arguments and len(self._rules) > MAX_TEMPLATE_USES:
                raise BudgetExceededError(
                    f"template {name} is used with more than {MAX_TEMPLATE_USES} different arguments",
                    location=self.source.location(at),
                    keyword="template",
                )
        return self.grammar.call(rule)

    def _expression(self, definition: Definition, parameters: Mapping[str, Argument]) -> Expression:
        grammar, first = self.grammar, definition.first
        built: list[Argument] = []
        for i, node in enumerate(self.document.nodes[first : definition.root + 1], first):
            kind, value = node.kind, node.value
            if kind in (LarkNodeKind.NAME, LarkNodeKind.TEMPLATE):
                arguments = tuple(built[child - first] for child in node.children)
                built.append(self._named(node, i, arguments, parameters))
                continue
            parts = [self._no_template(built[child - first], node.at) for child in node.children]
            if kind is LarkNodeKind.SEQUENCE:
                expression = grammar.seq([part for part in parts if part != grammar.empty()])
            elif kind is LarkNodeKind.CHOICE:
                expression = grammar.alt(parts)
            elif kind is LarkNodeKind.REPEAT:
                expression = grammar.repeat(parts[0], *value)
            elif kind in _TERMINAL_KINDS:
                texts = partial(self.terminals.node_dfa, i)
                expression = self._lexeme(self._used(self.terminals.leaf(node), kind.value, node.at, texts))
            elif kind is LarkNodeKind.TOKEN:
                token = token_expression(value, self.token_names, grammar, self.source, node.at)
                expression = self._lexeme(self._used(token, value, node.at, None, is_regular=False))
            elif kind is LarkNodeKind.JSON:
                schema = self._json(value, node.at)
                expression = self._lexeme(self._used(schema, "%json", node.at, json_texts, is_regular=False))
            elif kind is LarkNodeKind.GRAMMAR:
                inner = _LarkCompiler(value, self.source, grammar, self.token_names, self.uses)
                expression = self._lexeme(inner.compile())
            elif kind is LarkNodeKind.REFERENCE:
                raise self.source.unsupported(
                    f"{value} refers to another grammar, and a request has only one", node.at, "@"
                )
            else:
                raise self.source.invalid(
                    f"{kind.value!r} is allowed only in terminals (names in capitals)", node.at, kind.value
                )
            built.append(expression)
        return self._no_template(built[-1], definition.at)

    def _named(
        self, node: LarkNode, number: int, arguments: tuple[Argument, ...], parameters: Mapping[str, Argument]
    ) -> Argument:
        """The expression that a name stands for, with its arguments."""
        name = node.value
        if name in parameters:
            bound = parameters[name]
            if isinstance(bound, _Template) and node.kind is LarkNodeKind.TEMPLATE:
                return self._call(bound.name, arguments, node.at)
            if node.kind is LarkNodeKind.TEMPLATE:
                raise self.source.invalid(f"the argument for {name} is not a template", node.at, name)
            return bound
        if node.kind is LarkNodeKind.TEMPLATE:
            return self._call(name, arguments, node.at)
        if is_terminal(name):
            return self._lexeme(self._terminal(node))
        definition = self.document.rules.get(name)
        if definition is not None and definition.parameters and number in self._arguments:
            return _Template(name)
        return self._call(name, (), node.at)

    def _no_template(self, argument: Argument, at: int) -> Expression:
        if isinstance(argument, _Template):
            raise self.source.invalid(f"the template {argument.name} needs arguments here", at, argument.name)
        return argument

    # --- terminals; if some are lazy, each use is separate

    def _used(
        self,
        expression: Expression,
        name: str,
        at: int,
        texts: Callable[[], Dfa] | None,
        *,
        lazy: bool = False,
        is_regular: bool = True,
    ) -> Expression:
        """The expression of a terminal at one place of the grammar (`Use`)."""
        if self.uses is None:
            return expression
        lower = self.terminals.lower if is_regular else None
        return self.uses.add(expression, name, at, texts, lazy=lazy, lower=lower)

    def _terminal(self, node: LarkNode) -> Expression:
        name, definition = node.value, self.document.terminals.get(node.value)
        lazy = definition is not None and definition.lazy
        texts = partial(self.terminals.named_dfa, name, node.at)
        return self._used(self.terminals.named(name, node.at), name, node.at, texts, lazy=lazy)

    def _json(self, schema: Any, at: int) -> Expression:
        from dotllm.languages.json_schema import Options, schema_expression  # a large package, needed by few grammars

        if isinstance(schema, str):  # (a str would be read as the text of a schema)
            raise self.source.invalid("a schema must be an object or a boolean", at, "%json")
        with self.source.inside(at):
            # (as in llguidance; a request's options do not apply to grammars)
            return schema_expression(schema, self.grammar, Options(additional_properties="open"))

    # --- ignored text

    def _lexeme(self, terminal: Expression) -> Expression:
        """A terminal, followed by ignored text."""
        if self.ignored is None or terminal == self.grammar.empty():
            return terminal
        lexeme = self._lexemes.get(terminal)
        if lexeme is None:
            lexeme = self._lexemes[terminal] = self.grammar.seq([terminal, self.ignored])
        return lexeme

    def _ignored(self, *, once: bool) -> Expression | None:
        """Any number of ignored texts, or (``once``) at most one."""
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
