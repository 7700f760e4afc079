"""``uniqueItems`` over infinitely many values: an ordinary array whose beginning is marked, so that guides remember its
items (`dotllm.index.unique`).

A guide forbids an item that could only repeat an earlier one. Another item must then be possible, which is checked
here: there must be enough different values for as many items as the array must have.
"""

from __future__ import annotations

from dotllm.errors import Unsupported
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import (
    FALSE,
    NO_NUMBER,
    NO_STRING,
    ArrayConstraint,
    Node,
    ObjectConstraint,
    item_of,
)
from dotllm.languages.json_schema.writer import ArrayWriter

_DEPTH = 8
_KEYS = 64  # more are many


def distinct_array_open(writer: ArrayWriter, constraint: ArrayConstraint) -> Expression:
    """The bracket of an array that is ``unique``.

    Raises:
        Unsupported: nothing shows that there are enough different values.
    """
    if constraint.minimum > 1 and writer.options.excludes:
        raise Unsupported(
            "uniqueItems and minItems together with texts that strings must not hold", keyword="uniqueItems"
        )
    last = constraint.minimum - 1
    positions = range(min(last, len(constraint.prefix)) + 1) if last > 0 else range(0)
    for i in positions:
        needed = constraint.minimum if i == len(constraint.prefix) else i + 1
        if not at_least(writer.algebra, item_of(constraint, i), needed, _DEPTH):
            raise Unsupported(
                f"uniqueItems together with minItems: it is not sure that there are {needed} different values",
                keyword="uniqueItems",
            )
    return writer.text.distinct_array_open()


def at_least(algebra: Algebra, node: Node, count: int, depth: int) -> bool:
    """Whether a node surely has so many values. False: it has not, or that is not seen."""
    if node == FALSE:
        return False
    form = algebra.form(node)
    found = form.constants.bit_count()
    if form.number is not NO_NUMBER:
        numbers = form.number.finite_values(count)
        found += count if numbers is None else len(numbers)
    if found < count and form.string is not NO_STRING:
        strings = form.string.finite_values(count)
        found += count if strings is None else len(strings)
    if found >= count:
        return True
    if not depth:
        return False
    return any(_objects(algebra, constraint, count, depth - 1) for constraint in form.objects) or any(
        _arrays(algebra, constraint, count, depth - 1) for constraint in form.arrays
    )


def _objects(algebra: Algebra, stated: ObjectConstraint, count: int, depth: int) -> bool:
    constraint = objects.closed(algebra, stated)
    if constraint is None or constraint.negated or constraint.minimum or constraint.maximum is not None:
        return False
    if any(len(clause) > 1 or not next(iter(clause))[1] for clause in constraint.clauses):
        return False
    needed = [constraint.properties.get(name) for name in constraint.required]
    if any(node is None or not at_least(algebra, node, 1, depth) for node in needed):
        return False
    if count < 2:
        return True
    return any(at_least(algebra, node, count, depth) for node in constraint.properties.values()) or any(
        keys.finite_values(_KEYS) is None and at_least(algebra, node, 1, depth) for keys, node in constraint.key_classes
    )


def _arrays(algebra: Algebra, constraint: ArrayConstraint, count: int, depth: int) -> bool:
    if constraint.negated or constraint.contains or constraint.repeated or constraint.unique:
        return False
    if not all(at_least(algebra, item_of(constraint, i), 1, depth) for i in range(min(constraint.minimum, 64))):
        return False
    if count < 2:
        return True
    most = (
        len(constraint.prefix) + 1
        if constraint.maximum is None
        else min(constraint.maximum, len(constraint.prefix) + 1)
    )
    items = [item_of(constraint, i) for i in range(most)]
    reached = [at_least(algebra, node, 1, depth) for node in items]
    return any(all(reached[:i]) and at_least(algebra, node, count, depth) for i, node in enumerate(items))
