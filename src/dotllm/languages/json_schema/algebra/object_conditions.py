"""The conditions of an object constraint, one by one: what breaks it, and whether another constraint can.

A constraint holds where all of its conditions do (a key's value, a key's presence, a count, …), so its negation says
that one of them fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from dotllm.languages.json_schema.algebra.nodes import Nodes
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_KEY_CLASSES,
    FALSE,
    TRUE,
    Node,
    ObjectCondition,
    ObjectConstraint,
    value_of,
)


def conditions(constraint: ObjectConstraint) -> list[ObjectCondition]:
    """Every single way to break ``constraint`` (whose ``negated`` is not looked at)."""
    out: list[ObjectCondition] = []
    for name, node in constraint.properties.items():
        if name in constraint.required:
            out.append(ObjectCondition("required", name) if node == TRUE else ObjectCondition("either", name, node))
        elif node != TRUE:
            out.append(ObjectCondition("value", name, node))
    out.extend(
        ObjectCondition("key class", "", node, number=i)
        for i, (_, node) in enumerate(constraint.key_classes)
        if node != TRUE
    )
    out.extend(ObjectCondition("clause", clause=clause) for clause in sorted(constraint.clauses, key=sorted))
    if constraint.minimum:
        out.append(ObjectCondition("minimum", number=constraint.minimum))
    if constraint.maximum is not None:
        out.append(ObjectCondition("maximum", number=constraint.maximum))
    return out


def mentioning(properties: dict[str, Node], required: Iterable[str] = ()) -> ObjectConstraint:
    """A constraint about some keys that does not give them a place."""
    return ObjectConstraint(properties, ANY_KEY_CLASSES, frozenset(required), mentioned=frozenset(properties))


def broken(nodes: Nodes, condition: ObjectCondition) -> ObjectConstraint:
    """The constraint of the objects that break ``condition`` (not for key classes)."""
    kind, name = condition.kind, condition.name
    if kind == "value":
        return mentioning({name: nodes.complement(condition.node)}, [name])
    if kind == "required":
        return mentioning({name: FALSE})
    if kind == "either":
        return mentioning({name: nodes.complement(condition.node)})
    if kind == "clause":
        absent = {key: FALSE if present else TRUE for key, present in sorted(condition.clause)}
        needed = frozenset(key for key, present in condition.clause if not present)
        return mentioning(absent, needed)
    if kind == "minimum":
        return ObjectConstraint({}, ANY_KEY_CLASSES, maximum=condition.number - 1)
    assert kind == "maximum", kind
    return ObjectConstraint({}, ANY_KEY_CLASSES, minimum=condition.number + 1)


def can_break(
    nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint, condition: ObjectCondition
) -> bool | None:
    """Whether an object of ``constraint`` breaks ``condition`` of ``other``: True always, False never, None
    sometimes."""
    kind, name, node = condition.kind, condition.name, condition.node
    if kind in ("value", "required", "either"):
        here = value_of(constraint, name)
        if here == FALSE:
            return kind != "value"
        needed = name in constraint.required
        if kind == "required":
            return False if needed else None
        if _within(nodes, here, node):
            return False if needed or kind == "value" else None
        return True if (needed or kind == "either") and nodes.are_apart(here, node) else None
    if kind == "key class":
        return _can_break_key_class(nodes, constraint, other, condition)
    if kind == "clause":
        verdicts = [
            present if key in constraint.required else (not present) if value_of(constraint, key) == FALSE else None
            for key, present in condition.clause
        ]
        return False if any(verdicts) else None if None in verdicts else True
    least = max(constraint.minimum, len(constraint.required))
    if kind == "minimum":
        if least >= condition.number:
            return False
        return True if constraint.maximum is not None and constraint.maximum < condition.number else None
    if constraint.maximum is not None and constraint.maximum <= condition.number:
        return False
    return True if least > condition.number else None


def _can_break_key_class(
    nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint, condition: ObjectCondition
) -> bool | None:
    language, node = other.key_classes[condition.number]
    verdict: bool | None = False
    for name, here in constraint.properties.items():
        if name in other.properties or here == FALSE or (len(other.key_classes) > 1 and not language.contains(name)):
            continue
        if not _within(nodes, here, node):
            if name in constraint.required and nodes.are_apart(here, node):
                return True
            verdict = None
    if any(here != FALSE and not _within(nodes, here, node) for _, here in constraint.key_classes):
        verdict = None
    return verdict


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    """Whether every value of ``a`` is seen to be one of ``b``."""
    return a == b or b == TRUE or (b != FALSE and nodes.is_within(a, b))


def restricted(constraint: ObjectConstraint, kept: list[ObjectCondition]) -> ObjectConstraint:
    """``constraint`` with only some of its conditions."""
    values = {c.name: c.node for c in kept if c.kind in ("value", "either")}
    key_classes = {c.number for c in kept if c.kind == "key class"}
    return ObjectConstraint(
        {name: values.get(name, TRUE) for name in constraint.properties},
        tuple(
            (language, node if i in key_classes else TRUE) for i, (language, node) in enumerate(constraint.key_classes)
        )
        if key_classes
        else ANY_KEY_CLASSES,
        frozenset(c.name for c in kept if c.kind in ("required", "either")),
        frozenset(c.clause for c in kept if c.kind == "clause"),
        max((c.number for c in kept if c.kind == "minimum"), default=0),
        min((c.number for c in kept if c.kind == "maximum"), default=None),
    )
