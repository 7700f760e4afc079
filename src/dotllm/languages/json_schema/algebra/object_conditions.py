"""The conditions of an object shape, one by one: what breaks it, and whether another shape can.

A shape holds where all of its conditions do (a key's value, a key's presence, a count, …), so its negation says that
one of them fails.
"""

from __future__ import annotations

from collections.abc import Iterable

from dotllm.languages.json_schema.algebra.form import (
    ANY_REGIONS,
    FALSE,
    TRUE,
    Node,
    ObjectCondition,
    ObjectShape,
    value_of,
)
from dotllm.languages.json_schema.algebra.nodes import Nodes


def conditions(shape: ObjectShape) -> list[ObjectCondition]:
    """Every single way to break ``shape`` (whose ``negated`` is not looked at)."""
    out: list[ObjectCondition] = []
    for name, node in shape.properties.items():
        if name in shape.required:
            out.append(ObjectCondition("required", name) if node == TRUE else ObjectCondition("either", name, node))
        elif node != TRUE:
            out.append(ObjectCondition("value", name, node))
    out.extend(
        ObjectCondition("region", "", node, number=i) for i, (_, node) in enumerate(shape.regions) if node != TRUE
    )
    out.extend(ObjectCondition("clause", clause=clause) for clause in sorted(shape.clauses, key=sorted))
    if shape.minimum:
        out.append(ObjectCondition("minimum", number=shape.minimum))
    if shape.maximum is not None:
        out.append(ObjectCondition("maximum", number=shape.maximum))
    return out


def mentioning(properties: dict[str, Node], required: Iterable[str] = ()) -> ObjectShape:
    """A shape about some keys that does not give them a place."""
    return ObjectShape(properties, ANY_REGIONS, frozenset(required), mentioned=frozenset(properties))


def broken(nodes: Nodes, condition: ObjectCondition) -> ObjectShape:
    """The shape of the objects that break ``condition`` (not for regions)."""
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
        return ObjectShape({}, ANY_REGIONS, maximum=condition.number - 1)
    assert kind == "maximum", kind
    return ObjectShape({}, ANY_REGIONS, minimum=condition.number + 1)


def can_break(nodes: Nodes, shape: ObjectShape, other: ObjectShape, condition: ObjectCondition) -> bool | None:
    """Whether an object of ``shape`` breaks ``condition`` of ``other``: True always, False never, None sometimes."""
    kind, name, node = condition.kind, condition.name, condition.node
    if kind in ("value", "required", "either"):
        here = value_of(shape, name)
        if here == FALSE:
            return kind != "value"
        needed = name in shape.required
        if kind == "required":
            return False if needed else None
        if _within(nodes, here, node):
            return False if needed or kind == "value" else None
        return True if (needed or kind == "either") and nodes.are_apart(here, node) else None
    if kind == "region":
        return _can_break_region(nodes, shape, other, condition)
    if kind == "clause":
        verdicts = [
            present if key in shape.required else (not present) if value_of(shape, key) == FALSE else None
            for key, present in condition.clause
        ]
        return False if any(verdicts) else None if None in verdicts else True
    least = max(shape.minimum, len(shape.required))
    if kind == "minimum":
        if least >= condition.number:
            return False
        return True if shape.maximum is not None and shape.maximum < condition.number else None
    if shape.maximum is not None and shape.maximum <= condition.number:
        return False
    return True if least > condition.number else None


def _can_break_region(nodes: Nodes, shape: ObjectShape, other: ObjectShape, condition: ObjectCondition) -> bool | None:
    language, node = other.regions[condition.number]
    verdict: bool | None = False
    for name, here in shape.properties.items():
        if name in other.properties or here == FALSE or (len(other.regions) > 1 and not language.contains(name)):
            continue
        if not _within(nodes, here, node):
            if name in shape.required and nodes.are_apart(here, node):
                return True
            verdict = None
    if any(here != FALSE and not _within(nodes, here, node) for _, here in shape.regions):
        verdict = None
    return verdict


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    """Whether every value of ``a`` is seen to be one of ``b``."""
    return a == b or b == TRUE or (b != FALSE and nodes.is_within(a, b))


def restricted(shape: ObjectShape, kept: list[ObjectCondition]) -> ObjectShape:
    """``shape`` with only some of its conditions."""
    values = {c.name: c.node for c in kept if c.kind in ("value", "either")}
    regions = {c.number for c in kept if c.kind == "region"}
    return ObjectShape(
        {name: values.get(name, TRUE) for name in shape.properties},
        tuple((language, node if i in regions else TRUE) for i, (language, node) in enumerate(shape.regions))
        if regions
        else ANY_REGIONS,
        frozenset(c.name for c in kept if c.kind in ("required", "either")),
        frozenset(c.clause for c in kept if c.kind == "clause"),
        max((c.number for c in kept if c.kind == "minimum"), default=0),
        min((c.number for c in kept if c.kind == "maximum"), default=None),
    )
