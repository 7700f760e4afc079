"""Terminals: regular languages, written with names, ``&`` and ``~`` in addition to the usual operators.

A terminal becomes an expression of the Grammar part by part. Only operands of ``&``, ``~`` and ``lazy`` go through the
DFA algebra, because only they need it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import chain

from dotllm import cancellation
from dotllm.automata.dfa import Budget, Dfa, dfa_to_grammar, union_of
from dotllm.charset import CharSet
from dotllm.grammar import Expression, Grammar
from dotllm.grammar.kinds import ExpressionKind
from dotllm.languages.lark.lexer_habits import MAY_HAVE_NO_EFFECT, impossible, without_effect
from dotllm.languages.lark.parser import Definition, LarkGrammar, LarkNode, LarkNodeKind
from dotllm.languages.regex import regex_to_dfa, regex_to_expression
from dotllm.languages.source import Source
from dotllm.languages.substring import substring_expression, words_of
from dotllm.suggestions import did_you_mean

# The terminals of Lark's library ``common``, as regular expressions.
#
# Lark writes C_COMMENT and ESCAPED_STRING with lazy quantifiers, which say when its lexer stops, not what a comment is.
# Here these terminals match the texts that Lark's lexer returns.
#
# https://github.com/lark-parser/lark/blob/master/lark/grammars/common.lark

_DECIMAL = r"(?:[0-9]+\.[0-9]*|\.[0-9]+)"
_EXPONENT = r"[eE][+\-]?[0-9]+"
_FLOAT = rf"(?:[0-9]+{_EXPONENT}|{_DECIMAL}(?:{_EXPONENT})?)"
_NUMBER = rf"(?:{_FLOAT}|[0-9]+)"

COMMON = {
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[0-9a-fA-F]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "DECIMAL": _DECIMAL,
    "_EXP": _EXPONENT,
    "FLOAT": _FLOAT,
    "SIGNED_FLOAT": rf"[+\-]?{_FLOAT}",
    "NUMBER": _NUMBER,
    "SIGNED_NUMBER": rf"[+\-]?{_NUMBER}",
    "ESCAPED_STRING": r'"(?:[^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[a-zA-Z]",
    "WORD": r"[a-zA-Z]+",
    "CNAME": r"[a-zA-Z_][a-zA-Z0-9_]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(?:\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}


INLINE_WEIGHT = 200  # a terminal used more than once is copied up to this size (about NFA nodes), else shared as a rule
_SPECIAL = frozenset(".^$*+?{}[]\\|()")
_FLAGS = frozenset("imsxu")


class Terminals:
    """The terminals of one grammar, compiled on first use."""

    def __init__(self, document: LarkGrammar, source: Source, grammar: Grammar) -> None:
        self.document = document
        self.source = source
        self.grammar = grammar
        self.budget = Budget()  # of the current definition
        definitions = chain(document.rules.values(), document.terminals.values())
        self._has_lazy = any(definition.lazy for definition in definitions)
        self._expressions: dict[str, Expression] = {}
        self._dfas: dict[str, Dfa] = {}
        self._defined: dict[int, Dfa] = {}  # by the definition's offset
        self._weights: dict[str, int] = {}
        self._uses: dict[str, int] = {}
        for node in document.nodes:
            if node.kind is LarkNodeKind.NAME:
                self._uses[node.value] = self._uses.get(node.value, 0) + 1

    def named(self, name: str, at: int) -> Expression:
        """The terminal of that name."""
        for ready in self._in_order(name, at, self._expressions):
            self._expressions[ready] = self._compiled(ready)
        return self._expressions[name]

    def expression(self, definition: Definition) -> Expression:
        """A whole definition as a terminal."""
        self.budget = Budget()
        with self.source.inside(definition.at):
            return self._expression(definition)

    def _expression(self, definition: Definition) -> Expression:
        if definition.lazy:
            return self.lower(self._definition_dfa(definition))
        return self._expression_of(definition.first, definition.root)

    def leaf(self, node: LarkNode) -> Expression:
        """A terminal that is a single node without children (and not a name)."""
        grammar, value = self.grammar, node.value
        if node.kind is LarkNodeKind.LITERAL and not value[1]:
            return grammar.literal(value[0])
        if node.kind is LarkNodeKind.RANGE:
            return grammar.chars(CharSet.of((ord(value[0]), ord(value[1]))))
        if node.kind is LarkNodeKind.STRUCTURED_REGEX:
            return self._structured(node)
        if node.kind in (LarkNodeKind.LITERAL, LarkNodeKind.PATTERN):
            pattern = self._pattern(node)
            with self.source.inside(node.at, self._first(node, pattern)):
                return regex_to_expression(pattern, grammar, search=False, budget=self.budget)
        raise self.source.invalid(f"a terminal cannot contain a {node.kind.value}", node.at, node.kind.value)

    def dfa(self, definition: Definition) -> Dfa:
        """The automaton of a whole definition."""
        self.budget = Budget()
        with self.source.inside(definition.at):
            return self._definition_dfa(definition)

    def node_dfa(self, number: int) -> Dfa:
        """The automaton of one node without children."""
        self.budget = Budget()
        return self._dfa_of(number, number)

    def lower(self, dfa: Dfa) -> Expression:
        """An automaton as an expression of the grammar."""
        return dfa_to_grammar(dfa, self.grammar, self.grammar.chars)

    # --- names

    def _children(self, name: str) -> list[tuple[str, int]]:
        definition = self.document.terminals.get(name)
        if definition is None:
            return []
        nodes = self.document.nodes[definition.first : definition.root + 1]
        return [(node.value, node.at) for node in nodes if node.kind is LarkNodeKind.NAME]

    def _in_order(self, name: str, at: int, done: Container[str]) -> Iterator[str]:
        """List the terminals that ``name`` consists of, parts first and itself last, except those in ``done``; the
        caller adds each to ``done`` as it comes. Depth first, iterative.

        Yields:
            Their names.
        """
        if name in done:
            return
        path: dict[str, Iterator[tuple[str, int]]] = {name: iter(self._children(name))}
        self._check(name, at)
        while path:
            cancellation.check()
            current = next(reversed(path))
            for child, child_at in path[current]:
                if child in path:
                    raise self.source.invalid(f"terminal {child} contains itself; make it a rule", child_at, child)
                if child not in done:
                    self._check(child, child_at)
                    path[child] = iter(self._children(child))
                    break
            else:
                del path[current]
                yield current

    def _check(self, name: str, at: int) -> None:
        if name not in self.document.terminals and name not in self.document.imports:
            raise self.source.invalid(f"a terminal cannot use {name}, a rule or a parameter", at, name)

    def _compiled(self, name: str) -> Expression:
        before = len(self.grammar)
        definition = self.document.terminals.get(name)
        if definition is not None:
            expression = self.expression(definition)
        else:
            expression = regex_to_expression(self._imported(name), self.grammar, search=False)
        weight = self._weight(before) + sum(self._weights[child] for child, _ in self._children(name))
        if self._uses[name] > 1 and weight > INLINE_WEIGHT:
            rule = self.grammar.rule(name)
            self.grammar.define(rule, expression)
            expression, weight = self.grammar.call(rule), 1
        self._weights[name] = weight
        return expression

    def _weight(self, first: int) -> int:
        """The approximate number of NFA nodes of the expressions from ``first`` on, without the expressions they
        refer to."""
        grammar = self.grammar
        total = 0
        for node in range(first, len(grammar)):
            kind = grammar.kind[node]
            if kind in (ExpressionKind.LITERAL, ExpressionKind.NETWORK):
                total += grammar.b[node]
            elif kind == ExpressionKind.CHARS:
                total += len(grammar.charsets[grammar.a[node]].ranges)
            total += 1
        return total

    def _imported(self, name: str) -> str:
        library_name, at = self.document.imports[name]
        pattern = COMMON.get(library_name)
        if pattern is None:
            raise self.source.invalid(
                f"the library 'common' has no {library_name}", at, "%import", help=did_you_mean(library_name, COMMON)
            )
        return pattern

    # --- as expressions

    def _expression_of(self, first: int, root: int) -> Expression:
        nodes, grammar = self.document.nodes, self.grammar
        below_algebra = [False] * (root - first + 1)
        for i in range(root, first - 1, -1):
            if below_algebra[i - first] or nodes[i].kind in (LarkNodeKind.AND, LarkNodeKind.NOT):
                for child in nodes[i].children:
                    below_algebra[child - first] = True
        built: list[Expression] = []
        for i in range(first, root + 1):
            node = nodes[i]
            parts = [built[child - first] for child in node.children]
            if below_algebra[i - first]:
                expression = grammar.never()  # not used: an ancestor is built from its DFA
            elif node.kind in (LarkNodeKind.AND, LarkNodeKind.NOT):
                expression = self.lower(self._dfa_of(first, i))
            elif node.kind is LarkNodeKind.SEQUENCE:
                expression = grammar.seq(parts)
            elif node.kind is LarkNodeKind.CHOICE:
                expression = grammar.alt(parts)
            elif node.kind is LarkNodeKind.REPEAT:
                expression = grammar.repeat(parts[0], *node.value)
            elif node.kind is LarkNodeKind.NAME:
                expression = self.named(node.value, node.at)
            else:
                expression = self.leaf(node)
            built.append(expression)
        return built[root - first]

    def _structured(self, node: LarkNode) -> Expression:
        value = node.value
        if not isinstance(value, dict) or len(value) != 1:
            raise self.source.invalid("%regex needs an object with one member", node.at, "%regex")
        key, content = next(iter(value.items()))
        if key == "substring_chunks" and isinstance(content, list) and all(isinstance(x, str) for x in content):
            return substring_expression(content, self.grammar)
        if key == "substring_words" and isinstance(content, str):
            return substring_expression(words_of(content), self.grammar)
        if key == "substring_chars" and isinstance(content, str):
            return substring_expression(content, self.grammar)
        raise self.source.invalid(f"%regex: {key!r} is unknown or has a value of the wrong type", node.at, "%regex")

    # --- as automata

    def _definition_dfa(self, definition: Definition) -> Dfa:
        known = self._defined.get(definition.at)
        if known is not None:
            return known
        dfa = self._dfa_of(definition.first, definition.root)
        if definition.suffix is not None:
            dfa = dfa.concat(self._dfa_of(definition.first, definition.suffix), self.budget)
        if definition.lazy:  # no proper prefix matches
            dfa = dfa.difference(dfa.concat(Dfa.length(1, None), self.budget), self.budget)
        self._defined[definition.at] = dfa
        return dfa

    def _dfa_of(self, first: int, root: int) -> Dfa:
        nodes, budget = self.document.nodes, self.budget
        needed = {root}
        for i in range(root, first - 1, -1):
            if i in needed and not self._is_words(i):
                needed.update(nodes[i].children)
        dfas: dict[int, Dfa] = {}
        for i in sorted(needed):
            node = nodes[i]
            if self._is_words(i):
                dfas[i] = Dfa.literals((nodes[child].value[0] for child in node.children), budget)
                continue
            parts = [dfas[child] for child in node.children]
            if node.kind is LarkNodeKind.NOT:
                dfa = parts[0].complement()
            elif node.kind is LarkNodeKind.AND:
                dfa = parts[0]
                for part in parts[1:]:
                    dfa = dfa.intersection(part, budget)
            elif node.kind is LarkNodeKind.SEQUENCE:
                dfa = _sequence_of(parts, budget)
            elif node.kind is LarkNodeKind.CHOICE:
                dfa = union_of(parts, budget)
            elif node.kind is LarkNodeKind.REPEAT:
                minimum, maximum = node.value
                dfa = parts[0].repeat(minimum, maximum, budget)
            elif node.kind is LarkNodeKind.NAME:
                dfa = self.named_dfa(node.value, node.at)
            elif node.kind is LarkNodeKind.LITERAL and not node.value[1]:
                dfa = Dfa.literal(node.value[0])
            elif node.kind is LarkNodeKind.RANGE:
                dfa = Dfa.chars(CharSet.of((ord(node.value[0]), ord(node.value[1]))))
            elif node.kind in (LarkNodeKind.LITERAL, LarkNodeKind.PATTERN):
                pattern = self._pattern(node)
                with self.source.inside(node.at, self._first(node, pattern)):
                    dfa = regex_to_dfa(pattern, search=False, budget=budget)
            elif node.kind is LarkNodeKind.STRUCTURED_REGEX:
                raise self.source.unsupported("%regex under '&', '~' or lazy is not supported", node.at, "%regex")
            else:
                raise self.source.invalid(f"a terminal cannot contain a {node.kind.value}", node.at, node.kind.value)
            dfas[i] = dfa
        return dfas[root]

    def _is_words(self, number: int) -> bool:
        """Whether a node is a choice of plain strings, which become one automaton in one step."""
        nodes, node = self.document.nodes, self.document.nodes[number]
        return node.kind is LarkNodeKind.CHOICE and all(
            nodes[child].kind is LarkNodeKind.LITERAL and not nodes[child].value[1] for child in node.children
        )

    def named_dfa(self, name: str, at: int) -> Dfa:
        """The automaton of the terminal of that name."""
        for ready in self._in_order(name, at, self._dfas):
            definition = self.document.terminals.get(ready)
            if definition is not None:
                self._dfas[ready] = self._definition_dfa(definition)
            else:
                self._dfas[ready] = regex_to_dfa(self._imported(ready), search=False)
        return self._dfas[name]

    def _pattern(self, node: LarkNode) -> str:
        """The regular expression of a PATTERN, or of a LITERAL that ignores case.

        ``\\d``, ``\\w`` and ``\\s`` are Unicode's, as in Lark and llguidance.
        """
        text, option = node.value
        if node.kind is LarkNodeKind.LITERAL:
            return "(?ui)" + "".join("\\" + c if c in _SPECIAL else c for c in text)
        unknown = set(option) - _FLAGS
        if unknown:
            raise self.source.unsupported(f"regex flag {min(unknown)!r} is not supported", node.at, "flags")
        pattern = f"(?u{option.replace('u', '')}){text}"
        if MAY_HAVE_NO_EFFECT.search(text):
            look = impossible(pattern)
            if look:
                wrong = f"no text matches this regular expression, because {look} looks beyond it"
                help = "write what must come there into the rule, or into the same expression"
                raise self.source.invalid(wrong, node.at, "look-around", "unsatisfiable", help)
            said = without_effect(pattern, lazy=self._has_lazy)
            if said:
                self.grammar.warnings[self.source.location(node.at)] = said
        return pattern

    @staticmethod
    def _first(node: LarkNode, pattern: str) -> int:
        """The place of offset 0 of ``pattern``: after the slash, minus the length of the flags put before the
        expression."""
        return node.at + 1 + len(node.value[0]) - len(pattern)


def _sequence_of(automata: list[Dfa], budget: Budget) -> Dfa:
    """The concatenation of automata, built as a balanced tree."""
    level = automata or [Dfa.epsilon()]
    while len(level) > 1:
        pairs = [level[i].concat(level[i + 1], budget) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]
