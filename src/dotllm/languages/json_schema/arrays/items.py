"""Turns constraints on arrays into automata over their items, as networks of the grammar."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from dotllm.errors import BudgetExceededError
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra.normal_form import FALSE, TRUE, ArrayConstraint, Node, item_of
from dotllm.languages.json_schema.algebra.partition import partition_by
from dotllm.languages.json_schema.arrays.runtime_unique import distinct_array_open
from dotllm.languages.json_schema.arrays.unique import all_different, unique_expression
from dotllm.languages.json_schema.writer import Writer

Edge = tuple[int, Expression, int]


def array_expression(writer: Writer, constraint: ArrayConstraint) -> Expression:
    """The texts of the arrays that a constraint allows."""
    if constraint.unique and all_different(writer.algebra, constraint):
        constraint = constraint._replace(unique=False)
    array_open = writer.text.array_open
    if constraint.unique or constraint.repeated:
        listed = unique_expression(writer, constraint)
        if listed is not None:
            return listed
        array_open = distinct_array_open(writer, constraint)
    if constraint.contains or constraint.negated:
        return _ItemAutomaton(writer, constraint).expression(array_open)
    return sequence(writer, constraint, array_open)


def sequence(writer: Writer, constraint: ArrayConstraint, array_open: Expression) -> Expression:
    """The common case: a sequence of items with bounds on its length."""
    grammar, text = writer.grammar, writer.text
    prefix, minimum, maximum = constraint.prefix, constraint.minimum, constraint.maximum
    if maximum is not None:
        prefix = prefix[:maximum]
    n = len(prefix)
    rest = FALSE if maximum is not None and maximum <= n else constraint.rest
    if not n:
        if rest == FALSE:
            inside = grammar.empty() if not minimum else grammar.never()
        else:
            item = text.item(writer.value(rest))
            more = grammar.seq([text.comma, item])
            inside = grammar.seq(
                [item, grammar.repeat(more, max(minimum - 1, 0), None if maximum is None else maximum - 1)]
            )
            if not minimum:
                inside = grammar.optional(inside)
        return grammar.seq([array_open, inside, text.array_close])
    # State i: i items are written; n + 1: the end.
    skip = grammar.empty()
    edges: list[Edge] = []
    for i, node in enumerate(prefix):
        item = text.item(writer.value(node))
        edges.append((i, grammar.seq([text.comma, item]) if i else item, i + 1))
        if i >= minimum:
            edges.append((i, skip, n + 1))
    if rest != FALSE:
        more = grammar.seq([text.comma, text.item(writer.value(rest))])
        tail = grammar.repeat(more, max(minimum - n, 0), None if maximum is None else maximum - n)
        edges.append((n, tail, n + 1))
    elif minimum <= n:
        edges.append((n, skip, n + 1))
    writer.spend(len(edges), "items")
    return grammar.seq([array_open, grammar.network(n + 2, 0, (n + 1,), edges), text.array_close])


class ItemState(NamedTuple):
    """``length``: items so far, capped where it no longer matters; ``counts``: matches of each `contains`, capped
    likewise; ``undecided``: the excluded constraints that all items so far satisfy."""

    length: int
    counts: tuple[int, ...]
    undecided: frozenset[int]


class _ItemAutomaton:
    """Arrays with `contains` or excluded constraints, state by state."""

    def __init__(self, writer: Writer, constraint: ArrayConstraint) -> None:
        self.writer = writer
        self.constraint = constraint
        self.keyword = "not" if constraint.negated else "contains"
        limits = [1]  # so that the first state, in which no comma precedes the item, is never reached again
        for limited in (constraint, *constraint.negated):
            limits.extend((limited.minimum, len(limited.prefix)))
            if limited.maximum is not None:
                limits.append(limited.maximum + 1)
        self.length_limit = max(limits)
        self.caps = tuple(c.minimum if c.maximum is None else c.maximum for c in constraint.contains)
        self.edges: list[Edge] = []
        self.numbers: dict[ItemState, int] = {}
        self.pending: list[ItemState] = []
        self._items: dict[tuple[Node, bool], Expression] = {}
        self._meets: dict[tuple[Node, ...], Node] = {}

    def expression(self, array_open: Expression) -> Expression:
        """Build the automaton of all reachable states. Raises BudgetExceededError if it has too many edges."""
        grammar, text = self.writer.grammar, self.writer.text
        self._number(ItemState(0, (0,) * len(self.caps), frozenset(range(len(self.constraint.negated)))))
        finals: list[int] = []
        limit = self.writer.options.budget.edges
        while self.pending:
            state = self.pending.pop()
            number = self.numbers[state]
            if self._accepts(state):
                finals.append(number)
            if self.constraint.maximum is None or state.length < self.constraint.maximum:
                for node, after in self._steps(state):
                    self.edges.append((number, self._item(node, number == 0), self._number(after)))
            if len(self.edges) > limit:
                raise BudgetExceededError(
                    f"an array needs an automaton of more than {limit} edges",
                    keyword=self.keyword,
                    help="lower the numbers of minContains, maxContains, minItems and maxItems",
                )
        self.writer.spend(len(self.edges), self.keyword)
        network = grammar.network(len(self.numbers), 0, finals, self.edges)
        return grammar.seq([array_open, network, text.array_close])

    def _number(self, state: ItemState) -> int:
        number = self.numbers.get(state)
        if number is None:
            number = self.numbers[state] = len(self.numbers)
            self.pending.append(state)
        return number

    def _steps(self, state: ItemState) -> Iterator[tuple[Node, ItemState]]:
        """The possible schemas of the next item, each with the state after it."""
        algebra, constraint = self.writer.algebra, self.constraint
        mine = item_of(constraint, state.length)
        if mine == FALSE:
            return
        length = min(state.length + 1, self.length_limit)
        # For each `contains`: pairs of a node that the item must satisfy and the count after it.
        choices: list[list[tuple[Node, int]]] = []
        for c, count in zip(constraint.contains, state.counts, strict=True):
            if c.maximum is None:
                choices.append([(TRUE, count)] + ([(c.node, count + 1)] if count < c.minimum else []))
            else:
                choices.append(
                    [(algebra.complement(c.node), count)] + ([(c.node, count + 1)] if count < c.maximum else [])
                )
        by_node: dict[Node, set[int]] = {}
        for j in state.undecided:
            by_node.setdefault(item_of(constraint.negated[j], state.length), set()).add(j)
        for picked in product(*choices):
            item = self._met((mine, *[node for node, _ in picked]))
            if item == FALSE:
                continue
            counts = tuple(count for _, count in picked)
            for value, others in partition_by(algebra, item, by_node):
                gone = {j for other in others for j in by_node[other]}
                yield value, ItemState(length, counts, state.undecided - gone)

    def _met(self, nodes: tuple[Node, ...]) -> Node:
        """The conjunction of ``nodes``, cached (many states need the same one); FALSE if no value satisfies it."""
        result = self._meets.get(nodes)
        if result is None:
            self.writer.algebra.spend(len(nodes))
            result = self.writer.algebra.all_of(nodes)
            if result != nodes[0] and self.writer.algebra.is_empty(result):
                result = FALSE
            self._meets[nodes] = result
        return result

    def _accepts(self, state: ItemState) -> bool:
        constraint = self.constraint
        return (
            state.length >= constraint.minimum
            and all(count >= c.minimum for c, count in zip(constraint.contains, state.counts, strict=True))
            and all(self._is_broken_by_length(constraint.negated[j], state.length) for j in state.undecided)
        )

    @staticmethod
    def _is_broken_by_length(excluded: ArrayConstraint, length: int) -> bool:
        return length < excluded.minimum or (excluded.maximum is not None and length > excluded.maximum)

    def _item(self, node: Node, first: bool) -> Expression:
        result = self._items.get((node, first))
        if result is None:
            text = self.writer.text
            result = text.item(self.writer.value(node))
            if not first:
                result = self.writer.grammar.seq([text.comma, result])
            self._items[node, first] = result
        return result
