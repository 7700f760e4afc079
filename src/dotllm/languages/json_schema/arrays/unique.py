"""``uniqueItems`` enforced by an automaton: arrays whose items have finitely many values.

An automaton can remember the used values only if they are few: an enum, booleans, a short range of integers. An array
without a tuple or a bound on its length is an unordered sequence of the values. With either, the automaton has a
state for each set of used values. Items that can never be equal (a tuple of different types) need neither. The rest
is left to the guides (`runtime_unique`).
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

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
from dotllm.languages.json_schema.writer import Writer

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


def unique_expression(writer: Writer, constraint: ArrayConstraint) -> Expression | None:
    """The texts of the arrays that a ``unique`` or ``repeated`` constraint allows; None if it is ``unique`` and left to
    the guides: its values are too many for an automaton, or it has other conditions on its items.

    Raises:
        UnsupportedError: ``uniqueItems`` is combined with a ``contains`` or ``not`` that may demand an item again;
        ``repeated`` is combined with any of these, or applies to too many values.
        BudgetExceededError: the automaton of ``repeated`` has too many edges.
    """
    if constraint.negated or constraint.contains:
        if constraint.repeated:
            raise UnsupportedError(
                "a 'not' of uniqueItems cannot be combined with contains, or with another 'not' that concerns arrays",
                keyword="uniqueItems",
                help="remove one of them, or check it after the answer",
            )
        if not _demands_new_items(constraint):
            raise UnsupportedError(
                "uniqueItems cannot be combined with a contains or 'not' that may demand an item again",
                keyword="uniqueItems",
                help="remove minContains, maxContains, a 'not' of contains, and items by position; "
                "or check it after the answer",
            )
        return None
    listed = _listed(writer.algebra, constraint)
    if listed is None:
        if constraint.repeated:
            raise UnsupportedError(
                "equal items (the negation of uniqueItems) can be enforced only over a small finite set of values",
                keyword="uniqueItems",
            )
        return None
    most, different = constraint.maximum, listed.different
    is_set = constraint.unique and not constraint.prefix and constraint.minimum < 2 and (most or different) >= different
    return (_unordered if is_set else _network)(writer, constraint, listed)


def _demands_new_items(constraint: ArrayConstraint) -> bool:
    """Whether an item that a condition of a ``unique`` constraint still demands is never an earlier one, so that no
    guide has to forbid it.

    If the same items are allowed at every place, a condition that no item has met yet demands an item unlike all
    earlier ones. A second item for one `contains`, or a certain item at a certain place, may have been written before.
    """
    no_tuple = not any(limited.prefix for limited in (constraint, *constraint.negated))
    return no_tuple and all(c.minimum < 2 and c.maximum is None for c in constraint.contains)


class Listed(NamedTuple):
    """The values of an array's items."""

    positions: list[list[tuple[int, Node]]]
    """For each position of the prefix, then for all further items, if there may be any: the number of each value, equal
    for equal values, and a node for it alone."""
    different: int
    """How many different values there are."""


def _listed(algebra: Algebra, constraint: ArrayConstraint) -> Listed | None:
    """The values of an array's items; None if they are unknown or too many."""
    length = len(constraint.prefix) + (item_of(constraint, len(constraint.prefix)) != FALSE)
    numbers: dict[Value, int] = {}
    positions = []
    for i in range(length):
        values = values_of(algebra, item_of(constraint, i), MAX_VALUES)
        if values is None:
            return None
        positions.append([(numbers.setdefault(value, len(numbers)), node) for value, node in values.items()])
    return Listed(positions, len(numbers))


def _unordered(writer: Writer, constraint: ArrayConstraint, listed: Listed) -> Expression:
    """The arrays in which each value occurs at most once."""
    grammar, text = writer.grammar, writer.text
    values = [text.item(writer.value(node)) for _, node in listed.positions[0]] if listed.positions else []
    inside = grammar.unordered([], values, [], text.comma)
    if not constraint.minimum:
        inside = grammar.optional(inside)
    return grammar.seq([text.array_open, inside, text.array_close])


class Progress(NamedTuple):
    """A state of the automaton: what it remembers of the items so far."""

    used: int
    """Their values: a bit for each number."""
    length: int
    """How many they are; of ``repeated`` items, at most as many as matter."""
    twice: bool
    """Whether two of them are equal."""


def _network(writer: Writer, constraint: ArrayConstraint, listed: Listed) -> Expression | None:
    """The automaton; None if it has too many edges and is ``unique``. Raises as `unique_expression` does."""
    grammar, text = writer.grammar, writer.text

    @cache
    def item(node: Node, is_first: bool) -> Expression:
        value = text.item(writer.value(node))
        return value if is_first else grammar.seq([text.comma, value])

    cap = max(constraint.minimum, len(constraint.prefix), constraint.maximum or 0)
    begin = Progress(0, 0, False)
    states, pending = {begin: 0}, [begin]
    finals: list[int] = []
    edges: list[tuple[int, Expression, int]] = []
    while pending:
        used, length, twice = progress = pending.pop()
        if length >= constraint.minimum and (twice or not constraint.repeated):
            finals.append(states[progress])
        if not listed.positions or (constraint.maximum is not None and length >= constraint.maximum):
            continue
        for value, node in listed.positions[min(length, len(listed.positions) - 1)]:
            again = bool(used >> value & 1)
            if again and constraint.unique:
                continue
            longer = min(length + 1, cap) if constraint.repeated else length + 1
            after = Progress(used | 1 << value, longer, twice or again)
            if after not in states:
                states[after] = len(states)
                pending.append(after)
            edges.append((states[progress], item(node, length == 0), states[after]))
        if len(edges) > MAX_EDGES:
            if not constraint.repeated:
                return None
            raise BudgetExceededError(f"uniqueItems over {listed.different} values is too large", keyword="uniqueItems")
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
