"""Turns normal forms into a Grammar: one rule for each node with arrays or objects, scalars in place.

The rules are made from a work list, so the depth of a schema costs no stack. A node has one rule, however often it is
referred to. Nodes that nothing satisfies are written like others: pruning drops unproductive rules and everything that
needs them.
"""

from __future__ import annotations

from collections.abc import Iterable

from dotllm import cancellation
from dotllm.errors import BudgetExceededError, SpecError
from dotllm.grammar.grammar import Expression, Grammar
from dotllm.languages.json_schema.algebra.algebra import SCHEMA, Algebra
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_CONSTANTS,
    ANYTHING,
    FALSE,
    FALSE_BIT,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    Node,
    NormalForm,
)
from dotllm.languages.json_schema.arrays.items import array_expression
from dotllm.languages.json_schema.json_text import JsonText
from dotllm.languages.json_schema.numbers.number_expression import number_expression
from dotllm.languages.json_schema.objects.members import object_expression
from dotllm.languages.json_schema.options import Options
from dotllm.languages.json_schema.reading.keywords import Keywords
from dotllm.languages.json_schema.strings import additional_keys
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.languages.json_schema.strings.string_text import string_expression
from dotllm.languages.json_schema.value_source import ValueSource

_CONSTANTS = ((NULL_BIT, b"null"), (FALSE_BIT, b"false"), (TRUE_BIT, b"true"))


class Emitter:
    """Turns nodes into expressions of one grammar."""

    def __init__(self, text: JsonText, keywords: Keywords, options: Options) -> None:
        self.grammar: Grammar = text.grammar
        self.keywords = keywords
        self.algebra: Algebra = keywords.algebra
        self.options = options
        self.text = text
        self.edges_left = options.budget.total_edges
        self._source = None if options.source is None else ValueSource(options.source, keywords.document.root)
        self._expressions: dict[Node, Expression] = {FALSE: text.grammar.never()}
        self._pending: list[tuple[Node, NormalForm, int]] = []

    def expression(self, node: Node) -> Expression:
        """The texts of a node, with all rules defined."""
        out = self.value(node)
        self.finish()
        return out

    def finish(self) -> None:
        """Define all rules that have been called."""
        while self._pending:
            cancellation.check()
            node, form, rule = self._pending.pop()
            self.grammar.define(rule, self._written(node, form))  # type: ignore[arg-type]  # a Rule that went through a tuple
        additional_keys.define(self.text.context)

    def value(self, node: Node) -> Expression:
        """The texts of a node; the rules it calls may be defined later."""
        result = self._expressions.get(node)
        if result is None:
            cancellation.check()
            form = self.algebra.form(node)
            if form is ANYTHING and self.text.anything is not None and self._source is None:
                result = self.text.anything
            elif form.arrays or form.objects:
                rule = self.grammar.rule(
                    "value" if form.arrays and form.objects else "array" if form.arrays else "object"
                )
                self._pending.append((node, form, rule))
                result = self.grammar.call(rule)
            else:
                result = self._written(node, form)
            self._expressions[node] = result
        return result

    def values(self, nodes: Iterable[Node]) -> list[Expression]:
        """`value` for each node; nearly all are known already."""
        known, value = self._expressions.get, self.value
        return [known(node) or value(node) for node in nodes]

    def spend(self, edges: int, keyword: str) -> None:
        """Count the edges of an automaton against the budget of the whole grammar. Raises BudgetExceededError."""
        self.edges_left -= edges
        if self.edges_left < 0:
            raise BudgetExceededError(
                f"the grammar has more than {self.options.budget.total_edges} edges",
                keyword=keyword,
                help="split it into several requests, each with its own schema",
            )

    def _alternatives(self, form: NormalForm) -> Expression:
        choices = self.constants(form)
        if form.number is not NO_NUMBER:
            choices += self.numbers(form)
        if form.string is not NO_STRING:
            choices.append(string_expression(self.strings(form), self.text.context))
        if form.arrays:
            choices += self.arrays(form)
        if form.objects:
            choices += self.objects(form)
        return self.grammar.alt(choices)

    def constants(self, form: NormalForm, among: int = ALL_CONSTANTS) -> list[Expression]:
        """The constants (null, false, true) of a form that are ``among`` these bits."""
        result = form.constants & among
        return [self.grammar.literal(text) for bit, text in _CONSTANTS if result & bit] if result else []

    def numbers(self, form: NormalForm) -> list[Expression]:
        """The numbers of a form: one expression, or none."""
        if form.number is NO_NUMBER:
            return []
        number = form.number if self._source is None else self._source.numbers(form.number)
        return [number_expression(number, self.text.context)]

    def strings(self, form: NormalForm) -> StringLanguage:
        """The strings of a form that may be written."""
        return form.string if self._source is None else self._source.strings(form.string)

    def arrays(self, form: NormalForm) -> list[Expression]:
        """The arrays of a form, constraint by constraint."""
        return [array_expression(self, constraint) for constraint in form.arrays]

    def objects(self, form: NormalForm) -> list[Expression]:
        """The objects of a form, constraint by constraint."""
        return [object_expression(self, constraint) for constraint in form.objects]

    def _written(self, node: Node, form: NormalForm) -> Expression:
        """The texts of a form; errors get the place of a sub-schema that they come from."""
        try:
            return self._alternatives(form)
        except SpecError as error:
            schema = next(self._schemas(node), None)
            located = error if error.location or schema is None else self.keywords.located(error, schema)
            raise located from error.__cause__

    def _schemas(self, node: Node):  # type: ignore[no-untyped-def]
        pending, seen = [node], set()
        while pending:  # bounded: by the nodes, each passed once
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            kind, payload = self.algebra.parts[node]
            if kind is SCHEMA:
                yield payload[0]
            elif isinstance(payload, int):
                pending.append(Node(payload))
            elif isinstance(payload, (frozenset, tuple)) and kind != "form":
                pending.extend(sorted(payload, reverse=True))
