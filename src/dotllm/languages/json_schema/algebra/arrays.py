"""∧ and ¬ on array shapes (`form.ArrayShape`), and what makes a shape empty. Built like `objects`, which see."""

from __future__ import annotations

from dotllm.languages.json_schema.algebra.form import (
    ANY_ARRAY,
    FALSE,
    TRUE,
    ArrayCondition,
    ArrayShape,
    Contains,
    Node,
    item_of,
)
from dotllm.languages.json_schema.algebra.nodes import Nodes

_ITEMWISE = frozenset({"item", "rest", "minimum", "maximum"})


def meet(nodes: Nodes, a: ArrayShape, b: ArrayShape) -> ArrayShape | None:
    """a ∧ b, None if it is seen to be empty."""
    if a is ANY_ARRAY or a is b:
        return b
    if b is ANY_ARRAY:
        return a
    length = max(len(a.prefix), len(b.prefix))
    nodes.spend(2 + length)
    return simplified(
        nodes,
        ArrayShape(
            tuple(nodes.both(item_of(a, i), item_of(b, i)) for i in range(length)),
            nodes.both(a.rest, b.rest),
            max(a.minimum, b.minimum),
            a.maximum if b.maximum is None else b.maximum if a.maximum is None else min(a.maximum, b.maximum),
            a.contains + tuple(c for c in b.contains if c not in a.contains),
            a.unique or b.unique,
            a.repeated or b.repeated,
            a.negated + tuple(shape for shape in b.negated if shape not in a.negated),
        ),
    )


def simplified(nodes: Nodes, shape: ArrayShape) -> ArrayShape | None:
    """The same shape with what follows made explicit; None if it is seen to be empty."""
    prefix, rest, minimum, maximum = shape.prefix, shape.rest, shape.minimum, shape.maximum
    contains: list[Contains] = []
    for c in shape.contains:
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
    if shape.repeated and (few or shape.unique):
        return None
    if shape.repeated:
        minimum = max(minimum, 2)
    shape = ArrayShape(
        prefix,
        rest,
        minimum,
        maximum,
        tuple(contains),
        shape.unique and not few,
        shape.repeated,
        shape.negated,
    )
    return _without_decided(nodes, shape) if shape.negated else shape


# -- negation --------------------------------------------------------------------------------------------------------


def conditions(shape: ArrayShape) -> list[ArrayCondition]:
    """Every single way to break ``shape`` (whose ``negated`` is not looked at)."""
    out = [ArrayCondition("item", i, node) for i, node in enumerate(shape.prefix) if node != TRUE]
    if shape.rest != TRUE and shape.maximum != len(shape.prefix):
        out.append(ArrayCondition("rest", len(shape.prefix), shape.rest))
    if shape.minimum:
        out.append(ArrayCondition("minimum", shape.minimum))
    if shape.maximum is not None:
        out.append(ArrayCondition("maximum", shape.maximum))
    for c in shape.contains:
        if c.minimum:
            out.append(ArrayCondition("contains", contains=Contains(c.node, c.minimum, None)))
        if c.maximum is not None:
            out.append(ArrayCondition("contains", contains=Contains(c.node, 0, c.maximum)))
    if shape.unique:
        out.append(ArrayCondition("unique"))
    if shape.repeated:
        out.append(ArrayCondition("repeated"))
    return out


def negation(nodes: Nodes, shape: ArrayShape) -> list[ArrayShape]:
    """¬ of the positive part of ``shape``: one shape for its items and length, one for each other condition."""
    found = conditions(shape)
    simple = [c for c in found if c.kind in _ITEMWISE]
    out = [broken(nodes, c) for c in found if c.kind not in _ITEMWISE]
    if len(simple) == 1 and (simple[0].kind != "rest" or not simple[0].number or simple[0].node == FALSE):
        out.append(broken(nodes, simple[0]))
    elif simple:
        out.append(ArrayShape(negated=(_restricted(shape, simple),)))
    return out


def broken(nodes: Nodes, condition: ArrayCondition) -> ArrayShape:
    """The arrays that break ``condition`` (which is no "rest" of a tuple, unless that is closed)."""
    kind, number = condition.kind, condition.number
    if kind == "item":
        return ArrayShape((TRUE,) * number + (nodes.complement(condition.node),), minimum=number + 1)
    if kind == "rest":
        if condition.node == FALSE:
            return ArrayShape(minimum=number + 1)
        return ArrayShape(contains=(Contains(nodes.complement(condition.node), 1, None),))
    if kind == "minimum":
        return ArrayShape(maximum=number - 1)
    if kind == "maximum":
        return ArrayShape(minimum=number + 1)
    if kind == "unique":
        return ArrayShape(repeated=True, minimum=2)
    if kind == "repeated":
        return ArrayShape(unique=True)
    contains = condition.contains
    assert contains is not None
    if contains.maximum is None:
        return ArrayShape(contains=(Contains(contains.node, 0, contains.minimum - 1),))
    return ArrayShape(contains=(Contains(contains.node, contains.maximum + 1, None),), minimum=contains.maximum + 1)


def _without_decided(nodes: Nodes, shape: ArrayShape) -> ArrayShape | None:
    """As `objects._without_decided` (the conditions of a negated shape are all itemwise)."""
    positive = shape._replace(negated=())
    kept: list[ArrayShape] = []
    for other in shape.negated:
        possible: list[ArrayCondition] = []
        avoided = False
        for condition in conditions(other):
            verdict = _can_break(nodes, positive, condition)
            if verdict is True:
                avoided = True
                break
            if verdict is None:
                possible.append(condition)
        if avoided:
            continue
        if not possible:
            return None
        if len(possible) == 1 and (possible[0].kind != "rest" or not possible[0].number or possible[0].node == FALSE):
            rest = positive._replace(negated=tuple(s for s in shape.negated if s is not other))
            return meet(nodes, rest, broken(nodes, possible[0]))
        kept.append(_restricted(other, possible))
    return positive._replace(negated=tuple(kept))


def _can_break(nodes: Nodes, shape: ArrayShape, condition: ArrayCondition) -> bool | None:
    """Whether an array of ``shape`` breaks ``condition``: True always, False never, None sometimes."""
    kind, number, node = condition.kind, condition.number, condition.node
    least, most = shape.minimum, shape.maximum
    if kind == "minimum":
        return False if least >= number else True if most is not None and most < number else None
    if kind == "maximum":
        return False if most is not None and most <= number else True if least > number else None
    verdict: bool | None = False
    indices = [number] if kind == "item" else list(range(number, max(len(shape.prefix), number) + 1))
    for i in indices:
        if most is not None and i >= most:
            break
        here = item_of(shape, i)
        if not _within(nodes, here, node):
            if i < least and nodes.is_empty(nodes.both(here, node)):
                return True
            verdict = None
    return verdict


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    return a in (b, FALSE) or b == TRUE or (b != FALSE and nodes.is_empty(nodes.both(a, nodes.complement(b))))


def _restricted(shape: ArrayShape, kept: list[ArrayCondition]) -> ArrayShape:
    """``shape`` with only some of its conditions."""
    items = {c.number: c.node for c in kept if c.kind == "item"}
    return ArrayShape(
        tuple(items.get(i, TRUE) for i in range(len(shape.prefix))),
        next((c.node for c in kept if c.kind == "rest"), TRUE),
        max((c.number for c in kept if c.kind == "minimum"), default=0),
        min((c.number for c in kept if c.kind == "maximum"), default=None),
    )


# -- union -----------------------------------------------------------------------------------------------------------


def united(shapes: list[ArrayShape]) -> tuple[ArrayShape, ...]:
    """The union, without repetitions."""
    if len(shapes) < 2:
        return tuple(shapes)
    out: list[ArrayShape] = []
    for shape in shapes:
        if shape == ANY_ARRAY:
            return (ANY_ARRAY,)
        if shape not in out:
            out.append(shape)
    return tuple(out)
