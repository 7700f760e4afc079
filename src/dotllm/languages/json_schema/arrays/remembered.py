"""``uniqueItems`` over values that are not finitely many: an ordinary array whose beginning is marked, so that guides
remember its items (`dotllm.index.unique`).

A guide never lets an item begin that could only become one that was. That it finds another way on must be sure before:
there must be enough different values for as many items as the array must have.
"""

from __future__ import annotations

from dotllm.errors import Unsupported
from dotllm.grammar.grammar import Expression
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.form import (
    FALSE,
    NO_NUMBER,
    NO_STRING,
    ArrayShape,
    Node,
    ObjectShape,
    item_of,
)
from dotllm.languages.json_schema.writer import ArrayWriter

_DEPTH = 8
_KEYS = 64  # more are many


def remembered_open(writer: ArrayWriter, shape: ArrayShape) -> Expression:
    """The bracket of an array that is ``unique``. Raises Unsupported."""
    if shape.minimum > 1 and writer.options.excludes:
        raise Unsupported(
            "uniqueItems and minItems together with texts that strings must not hold", keyword="uniqueItems"
        )
    last = shape.minimum - 1
    positions = range(min(last, len(shape.prefix)) + 1) if last > 0 else range(0)
    for i in positions:
        needed = shape.minimum if i == len(shape.prefix) else i + 1
        if not at_least(writer.algebra, item_of(shape, i), needed, _DEPTH):
            raise Unsupported(
                f"uniqueItems together with minItems: it is not sure that there are {needed} different values",
                keyword="uniqueItems",
            )
    return writer.text.unique_open()


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
    return any(_objects(algebra, shape, count, depth - 1) for shape in form.objects) or any(
        _arrays(algebra, shape, count, depth - 1) for shape in form.arrays
    )


def _objects(algebra: Algebra, stated: ObjectShape, count: int, depth: int) -> bool:
    shape = objects.closed(algebra, stated)
    if shape is None or shape.negated or shape.minimum or shape.maximum is not None:
        return False
    if any(len(clause) > 1 or not next(iter(clause))[1] for clause in shape.clauses):
        return False
    needed = [shape.properties.get(name) for name in shape.required]
    if any(node is None or not at_least(algebra, node, 1, depth) for node in needed):
        return False
    if count < 2:
        return True
    return any(at_least(algebra, node, count, depth) for node in shape.properties.values()) or any(
        keys.finite_values(_KEYS) is None and at_least(algebra, node, 1, depth) for keys, node in shape.regions
    )


def _arrays(algebra: Algebra, shape: ArrayShape, count: int, depth: int) -> bool:
    if shape.negated or shape.contains or shape.repeated or shape.unique:
        return False
    if not all(at_least(algebra, item_of(shape, i), 1, depth) for i in range(min(shape.minimum, 64))):
        return False
    if count < 2:
        return True
    most = len(shape.prefix) + 1 if shape.maximum is None else min(shape.maximum, len(shape.prefix) + 1)
    items = [item_of(shape, i) for i in range(most)]
    reached = [at_least(algebra, node, 1, depth) for node in items]
    return any(all(reached[:i]) and at_least(algebra, node, count, depth) for i, node in enumerate(items))
