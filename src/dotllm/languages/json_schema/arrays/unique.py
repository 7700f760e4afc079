"""``uniqueItems`` enforced by an automaton: arrays whose items have finitely many values.

An automaton can remember the used values only if they are few: an enum, booleans, a short range of integers. An array
without a tuple or a bound on its length is an unordered sequence of the values. With either, the automaton has a
state for each set of used values. Items that can never be equal (a tuple of different types) need neither. The rest
is left to the guides (`runtime_unique`).
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

from dotllm.errors import BudgetExceededError, UnsupportedError
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.disjointness import are_disjoint
from dotllm.languages.json_schema.algebra.normal_form import (
    FALSE,
    FALSE_BIT,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    ArrayConstraint,
    Node,
    ObjectConstraint,
    item_of,
)
from dotllm.languages.json_schema.reading.json_values import form_of_values
from dotllm.languages.json_schema.writer import ArrayWriter

MAX_VALUES = 1000  # the most values that are listed
MAX_EDGES = 25_000  # of one automaton: all subsets of 12 values
MAX_COMPARED = 12  # positions of a tuple that are compared with each other

Value = tuple[Any, ...]
"""A JSON value in a form in which equal values compare equal: ("null",), ("number", 1), ("object", frozenset of
members), …"""


def all_different(algebra: Algebra, constraint: ArrayConstraint) -> bool:
    """Whether no two items of an array can be equal."""
    if constraint.maximum is None or constraint.maximum > MAX_COMPARED:
        return False
    items = [item_of(constraint, i) for i in range(constraint.maximum)]
    return all(are_disjoint(algebra, a, b) for i, a in enumerate(items) for b in items[:i])


def unique_expression(writer: ArrayWriter, constraint: ArrayConstraint) -> Expression | None:
    """The texts of the arrays that a ``unique`` or ``repeated`` constraint allows; None if it is ``unique`` and an
    automaton is not enough.

    Raises:
        UnsupportedError: ``uniqueItems`` is combined with ``contains`` or ``not``, or ``repeated`` applies to too
        many values.
        BudgetExceededError: the automaton of ``repeated`` has too many edges.
    """
    if constraint.negated or constraint.contains:
        raise UnsupportedError(
            "uniqueItems cannot be combined with contains, or with a 'not' that concerns arrays",
            keyword="uniqueItems",
            help="remove one of them, or check it after the answer",
        )
    grammar, text = writer.grammar, writer.text
    positions = len(constraint.prefix) + (item_of(constraint, len(constraint.prefix)) != FALSE)
    numbers: dict[Value, int] = {}
    domains: list[list[tuple[int, Node]]] = []
    for i in range(positions):
        choices = values_of(writer.algebra, item_of(constraint, i), MAX_VALUES)
        if choices is None:
            if constraint.repeated:
                raise UnsupportedError(
                    "equal items (the negation of uniqueItems) can be enforced only over a small finite set of values",
                    keyword="uniqueItems",
                )
            return None
        domains.append([(numbers.setdefault(value, len(numbers)), node) for value, node in choices.items()])
    if (
        constraint.unique
        and not constraint.prefix
        and constraint.minimum < 2
        and (constraint.maximum or len(numbers)) >= len(numbers)
    ):
        values = [text.item(writer.value(node)) for _, node in domains[0]] if domains else []
        inside = grammar.unordered([], values, [], text.comma)
        if not constraint.minimum:
            inside = grammar.optional(inside)
        return grammar.seq([text.array_open, inside, text.array_close])
    # A state: the set of used values, the number of items (capped), and whether two were equal.
    cap = max(constraint.minimum, len(constraint.prefix), 0 if constraint.maximum is None else constraint.maximum)
    states: dict[tuple[int, int, bool], int] = {(0, 0, False): 0}
    pending = [(0, 0, False)]
    finals: list[int] = []
    edges: list[tuple[int, Expression, int]] = []
    items: dict[tuple[Node, bool], Expression] = {}
    while pending:
        used, length, twice = state = pending.pop()
        place = states[state]
        if length >= constraint.minimum and (twice or not constraint.repeated):
            finals.append(place)
        if not domains or (constraint.maximum is not None and length >= constraint.maximum):
            continue
        for value, node in domains[min(length, positions - 1)]:
            again = bool(used >> value & 1)
            if again and constraint.unique:
                continue
            after = (used | 1 << value, min(length + 1, cap) if constraint.repeated else length + 1, twice or again)
            if after not in states:
                states[after] = len(states)
                pending.append(after)
            item = items.get((node, length == 0))
            if item is None:
                item = text.item(writer.value(node))
                if length:
                    item = grammar.seq([text.comma, item])
                items[node, length == 0] = item
            edges.append((place, item, states[after]))
        if len(edges) > MAX_EDGES:
            if not constraint.repeated:
                return None
            raise BudgetExceededError(f"uniqueItems over {len(numbers)} values is too large", keyword="uniqueItems")
    writer.spend(len(edges), "uniqueItems")
    return grammar.seq([text.array_open, grammar.network(len(states), 0, finals, edges), text.array_close])


def values_of(algebra: Algebra, node: Node, limit: int) -> dict[Value, Node] | None:
    """All values of a node, each with a node for it alone; None if they are unknown or more than ``limit``."""
    form = algebra.form(node)
    members: list[Value] = [
        (name,) for name, bit in (("null", NULL_BIT), ("false", FALSE_BIT), ("true", TRUE_BIT)) if form.constants & bit
    ]
    for kind, language, none in (("number", form.number, NO_NUMBER), ("string", form.string, NO_STRING)):
        values = [] if language is none else language.finite_values(limit)
        if values is None:
            return None
        members.extend((kind, value) for value in values)
    of_constraints = (
        *(partial(_arrays_of, algebra, array, limit) for array in form.arrays),
        *(partial(_objects_of, algebra, constraint, limit) for constraint in form.objects),
    )
    for values_of_one in of_constraints:
        listed = values_of_one()
        if listed is None:
            return None
        members.extend(listed)
    if len(members) > limit:
        return None
    out: dict[Value, Node] = {}
    for value in members:
        only = algebra.of_form(form_of_values(algebra, [as_python(value)]), ("listed", value))
        out[value] = algebra.both(only, node) if value[0] in ("array", "object") else only
    return out


def _arrays_of(algebra: Algebra, constraint: ArrayConstraint, limit: int) -> list[Value] | None:
    others = constraint.contains or constraint.negated or constraint.unique or constraint.repeated
    if constraint.maximum is None or constraint.maximum > limit or others:
        return None
    items: list[list[Value]] = []
    for i in range(constraint.maximum):
        values = values_of(algebra, item_of(constraint, i), limit)
        if values is None:
            return None
        items.append(list(values))
    out: list[Value] = []
    for length in range(constraint.minimum, constraint.maximum + 1):
        total = 1
        for values_here in items[:length]:
            total *= len(values_here)
        if total + len(out) > limit:
            return None
        out.extend(("array", chosen) for chosen in product(*items[:length]))
    return out


def _objects_of(algebra: Algebra, stated: ObjectConstraint, limit: int) -> list[Value] | None:
    constraint = objects.closed(algebra, stated)
    if constraint is None:
        return []
    if constraint.clauses or constraint.negated or constraint.minimum or constraint.maximum is not None:
        return None
    if any(node != FALSE for _, node in constraint.key_classes):
        return None
    members: list[list[tuple[str, Value] | None]] = []
    total = 1
    for name, node in constraint.properties.items():
        if node == FALSE and name not in constraint.required:
            continue
        values = values_of(algebra, node, limit)
        if values is None:
            return None
        choices: list[tuple[str, Value] | None] = [(name, value) for value in values]
        if name not in constraint.required:
            choices.append(None)
        members.append(choices)
        total *= len(choices)
        if total > limit:
            return None
    return [("object", frozenset(member for member in chosen if member is not None)) for chosen in product(*members)]


def as_python(value: Value) -> Any:
    """The JSON value in the form that `form_of_values` takes."""
    kind = value[0]
    if kind in ("null", "false", "true"):
        return {"null": None, "false": False, "true": True}[kind]
    if kind == "array":
        return [as_python(item) for item in value[1]]
    if kind == "object":
        return {name: as_python(member) for name, member in sorted(value[1])}
    assert isinstance(value[1], (str, int, Fraction))
    return value[1]
