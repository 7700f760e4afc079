"""∧, ∨ and ¬ on array constraints, and which of them are empty. Built like `objects`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from dotllm.languages.json_schema.algebra.nodes import Breaks, Nodes, without_decided
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_ARRAY,
    FALSE,
    TRUE,
    ArrayCondition,
    ArrayConstraint,
    Contains,
    Node,
    item_of,
)


def meet(nodes: Nodes, a: ArrayConstraint, b: ArrayConstraint) -> ArrayConstraint | None:
    """a ∧ b; None if it is seen to be empty."""
    if a is ANY_ARRAY or a is b:
        return b
    if b is ANY_ARRAY:
        return a
    length = max(len(a.prefix), len(b.prefix))
    nodes.spend(2 + length)
    return simplified(
        nodes,
        ArrayConstraint(
            tuple(nodes.both(item_of(a, i), item_of(b, i)) for i in range(length)),
            nodes.both(a.rest, b.rest),
            max(a.minimum, b.minimum),
            a.maximum if b.maximum is None else b.maximum if a.maximum is None else min(a.maximum, b.maximum),
            a.contains + tuple(c for c in b.contains if c not in a.contains),
            a.unique or b.unique,
            a.repeated or b.repeated,
            a.negated + tuple(constraint for constraint in b.negated if constraint not in a.negated),
        ),
    )


def simplified(nodes: Nodes, constraint: ArrayConstraint) -> ArrayConstraint | None:
    """The same constraint with its consequences made explicit; None if it is seen to be empty."""
    prefix, rest, minimum, maximum = constraint.prefix, constraint.rest, constraint.minimum, constraint.maximum
    contains: list[Contains] = []
    for c in constraint.contains:
        if c.node == TRUE:
            minimum = max(minimum, c.minimum)
            if c.maximum is not None:
                maximum = c.maximum if maximum is None else min(maximum, c.maximum)
        elif (c.maximum is not None and c.maximum < c.minimum) or (
            c.minimum and (c.node == FALSE or (nodes.is_compound(c.node) and nodes.is_empty(c.node)))
        ):
            return None
        elif c.node != FALSE and (c.minimum or c.maximum is not None):
            contains.append(c)
            minimum = max(minimum, c.minimum)
    for i, node in enumerate(prefix):
        if node == FALSE or (nodes.is_compound(node) and nodes.is_empty(node)):
            maximum = i if maximum is None else min(maximum, i)
            break
    if rest == FALSE or (nodes.is_compound(rest) and nodes.is_empty(rest)):
        maximum = len(prefix) if maximum is None else min(maximum, len(prefix))
    if maximum is not None:
        if maximum < minimum:
            return None
        prefix = prefix[:maximum]
        if maximum == len(prefix):
            rest = FALSE
    few = maximum is not None and maximum < 2
    if constraint.repeated and (few or constraint.unique):
        return None
    if constraint.repeated:
        minimum = max(minimum, 2)
    unique = constraint.unique and not few
    constraint = constraint._replace(
        prefix=prefix, rest=rest, minimum=minimum, maximum=maximum, contains=tuple(contains), unique=unique
    )
    return _without_decided(nodes, constraint) if constraint.negated else constraint


# -- negation --------------------------------------------------------------------------------------------------------


def conditions(constraint: ArrayConstraint) -> list[ArrayCondition]:
    """The conditions of ``constraint`` on its items and length, each a way to break it."""
    out = [ArrayCondition("item", i, node) for i, node in enumerate(constraint.prefix) if node != TRUE]
    if constraint.rest != TRUE and constraint.maximum != len(constraint.prefix):
        out.append(ArrayCondition("rest", len(constraint.prefix), constraint.rest))
    if constraint.minimum:
        out.append(ArrayCondition("minimum", constraint.minimum))
    if constraint.maximum is not None:
        out.append(ArrayCondition("maximum", constraint.maximum))
    return out


def negation(nodes: Nodes, constraint: ArrayConstraint) -> list[ArrayConstraint]:
    """¬ of the positive part of ``constraint``: one constraint for its items and length, one for each other
    condition."""
    out: list[ArrayConstraint] = []
    for node, least, most in constraint.contains:
        if least:
            out.append(ArrayConstraint(contains=(Contains(node, 0, least - 1),)))
        if most is not None:
            out.append(ArrayConstraint(contains=(Contains(node, most + 1, None),), minimum=most + 1))
    if constraint.unique:  # the arrays of other items are those of another way
        again = simplified(nodes, ArrayConstraint(constraint.prefix, constraint.rest, minimum=2, repeated=True))
        if again is not None:
            out.append(again)
    if constraint.repeated:
        out.append(ArrayConstraint(unique=True))
    simple = conditions(constraint)
    if len(simple) == 1 and not _is_open_rest(simple[0]):
        out.append(broken(nodes, simple[0]))
    elif simple:
        out.append(ArrayConstraint(negated=(_restricted(constraint, simple),)))
    return out


def _is_open_rest(condition: ArrayCondition) -> bool:
    return condition.kind == "rest" and condition.number > 0


def broken(nodes: Nodes, condition: ArrayCondition) -> ArrayConstraint:
    """The arrays that break ``condition``, which must not be the "rest" of an open tuple."""
    kind, number = condition.kind, condition.number
    if kind == "item":
        return ArrayConstraint((TRUE,) * number + (nodes.complement(condition.node),), minimum=number + 1)
    if kind == "rest":
        return ArrayConstraint(contains=(Contains(nodes.complement(condition.node), 1, None),))
    if kind == "minimum":
        return ArrayConstraint(maximum=number - 1)
    return ArrayConstraint(minimum=number + 1)


def _without_decided(nodes: Nodes, constraint: ArrayConstraint) -> ArrayConstraint | None:
    """`without_decided` for arrays (a negated constraint is only about items and length)."""

    def breaks(positive: ArrayConstraint, other: ArrayConstraint) -> Iterator[tuple[ArrayCondition, Breaks]]:
        nodes.spend(4 + len(other.prefix))
        return ((condition, _breaks(nodes, positive, condition)) for condition in conditions(other))

    def only_way(condition: ArrayCondition) -> ArrayConstraint | None:
        return None if _is_open_rest(condition) else broken(nodes, condition)

    return without_decided(constraint, constraint.negated, breaks, only_way, _restricted, partial(meet, nodes))


def _breaks(nodes: Nodes, constraint: ArrayConstraint, condition: ArrayCondition) -> Breaks:
    """Whether the arrays of ``constraint`` break ``condition``."""
    kind, number, node = condition.kind, condition.number, condition.node
    least, most = constraint.minimum, constraint.maximum
    if kind == "minimum":
        if least >= number:
            return Breaks.NEVER
        return Breaks.ALWAYS if most is not None and most < number else Breaks.SOMETIMES
    if kind == "maximum":
        if most is not None and most <= number:
            return Breaks.NEVER
        return Breaks.ALWAYS if least > number else Breaks.SOMETIMES
    breaks = Breaks.NEVER
    indices = [number] if kind == "item" else list(range(number, max(len(constraint.prefix), number) + 1))
    for i in indices:
        if most is not None and i >= most:
            break
        mine = item_of(constraint, i)
        if not _within(nodes, mine, node):
            if i < least and nodes.is_empty(nodes.both(mine, node)):
                return Breaks.ALWAYS
            breaks = Breaks.SOMETIMES
    return breaks


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    return a in (b, FALSE) or b == TRUE or (b != FALSE and nodes.is_empty(nodes.both(a, nodes.complement(b))))


def _restricted(constraint: ArrayConstraint, kept: list[ArrayCondition]) -> ArrayConstraint:
    """``constraint`` with only some of its conditions."""
    items = {c.number: c.node for c in kept if c.kind == "item"}
    return ArrayConstraint(
        tuple(items.get(i, TRUE) for i in range(len(constraint.prefix))),
        next((c.node for c in kept if c.kind == "rest"), TRUE),
        max((c.number for c in kept if c.kind == "minimum"), default=0),
        min((c.number for c in kept if c.kind == "maximum"), default=None),
    )


# -- union -----------------------------------------------------------------------------------------------------------


def united(constraints: list[ArrayConstraint]) -> tuple[ArrayConstraint, ...]:
    """The union, without duplicates."""
    if len(constraints) < 2:
        return tuple(constraints)
    out: list[ArrayConstraint] = []
    for constraint in constraints:
        if constraint == ANY_ARRAY:
            return (ANY_ARRAY,)
        if constraint not in out:
            out.append(constraint)
    return tuple(out)
