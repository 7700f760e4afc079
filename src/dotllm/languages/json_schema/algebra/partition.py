"""Divides a node's values by the other nodes that exclude them, as negated constraints divide a member or an item."""

from __future__ import annotations

from collections.abc import Iterable

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import FALSE, TRUE, Node

MAX_VALUE_CLASSES = 64


def partition_by(algebra: Algebra, node: Node, others: Iterable[Node]) -> list[tuple[Node, tuple[Node, ...]]]:
    """Parts of ``node``, each with the nodes of ``others`` that its values are outside of. Every value is in the part
    that names all nodes it is outside of, and may also be in parts that name fewer.

    Raises:
        BudgetExceededError: there are too many parts.
    """
    surely: list[Node] = []
    possible: list[Node] = []
    for other in others:
        algebra.spend(2)
        if other == FALSE or (other != TRUE and algebra.is_empty(algebra.both(node, other))):
            surely.append(other)
        elif other != TRUE and not algebra.is_empty(algebra.both(node, algebra.complement(other))):
            possible.append(other)
    # Sets of scalars are split into disjoint parts, as there cannot be more parts than values. Arrays and objects are
    # not: a part that need not be outside a node is not put inside it, which would cost another schema, unless being
    # inside it means being outside another node.
    split = all(algebra.is_scalar(other) for other in possible)
    parts: list[tuple[Node, tuple[Node, ...]]] = [(node, tuple(surely))]
    for other in possible:
        algebra.spend(2 * len(parts))
        divided: list[tuple[Node, tuple[Node, ...]]] = []
        apart = split or algebra.complement(other) in possible
        for part, outside_of in parts:
            outside = algebra.both(part, algebra.complement(other))
            if algebra.is_empty(outside):
                divided.append((part, outside_of))
                continue
            divided.append((outside, (*outside_of, other)))
            inside = algebra.both(part, other) if apart else part
            if not apart or not algebra.is_empty(inside):
                divided.append((inside, outside_of))
        parts = divided
        if len(parts) > MAX_VALUE_CLASSES:
            raise BudgetExceededError(
                f"excluded schemas distinguish more than {MAX_VALUE_CLASSES} kinds of values", keyword="not"
            )
    return parts
