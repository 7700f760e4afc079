"""∨ and ¬ on object shapes, as far as they are about which keys are there: unions of conjunctions of clauses."""

from __future__ import annotations

from collections.abc import Iterable

from dotllm.languages.json_schema.algebra.form import (
    ANY_OBJECT,
    ANY_REGIONS,
    FALSE,
    TRUE,
    Clause,
    Node,
    ObjectCondition,
    ObjectShape,
)
from dotllm.languages.json_schema.algebra.nodes import Nodes
from dotllm.languages.json_schema.algebra.object_conditions import broken, conditions, mentioning

MAX_CLAUSES = 64


def united(shapes: list[ObjectShape]) -> tuple[ObjectShape, ...]:
    """The union, with everything that is only about which keys are there merged into one shape."""
    if len(shapes) < 2:
        return tuple(shapes)
    presence: list[frozenset[Clause]] = []
    names: dict[str, Node] = {}
    declared: set[str] = set()
    out: list[ObjectShape] = []
    for shape in shapes:
        if shape == ANY_OBJECT:
            return (ANY_OBJECT,)
        clauses = _as_clauses(shape)
        if clauses is not None and len(presence) < MAX_CLAUSES:
            presence.append(clauses)
            names.update(dict.fromkeys(shape.properties, TRUE))
            declared.update(shape.properties.keys() - shape.mentioned)
        elif len(out) > MAX_CLAUSES or shape not in out:
            out.append(shape)
    if presence:
        merged = _distribute(presence)
        merged_shapes = [of_clauses(merged, names)] if merged is not None else [of_clauses(c) for c in presence]
        out[:0] = [shape._replace(mentioned=shape.mentioned - declared) for shape in merged_shapes]
    return tuple(out)


def _as_clauses(shape: ObjectShape) -> frozenset[Clause] | None:
    """A shape that is only about which keys are there, as clauses; None for any other."""
    if shape.regions is not ANY_REGIONS or shape.minimum or shape.maximum is not None or shape.negated:
        return None
    if shape.named is not None:  # which keys there may be besides is another question
        return None
    units: list[Clause] = [frozenset([(name, True)]) for name in shape.required]
    for name, node in shape.properties.items():
        if node == FALSE:
            units.append(frozenset([(name, False)]))
        elif node != TRUE:
            return None
    return shape.clauses.union(units)


def _distribute(alternatives: Iterable[Iterable[Clause]]) -> frozenset[Clause] | None:
    """A union of conjunctions of clauses, as one conjunction of clauses; None if that is too large."""
    out: set[Clause] | None = None
    for conjunction in alternatives:
        if out is None:
            out = set(conjunction)
            continue
        merged = {a | b for a in out for b in conjunction}
        merged = {c for c in merged if not any((name, not present) in c for name, present in c)}
        if len(merged) > MAX_CLAUSES * MAX_CLAUSES:
            return None
        out = {c for c in merged if not any(d < c for d in merged)}
        if len(out) > MAX_CLAUSES:
            return None
    return frozenset(out or ())


def of_clauses(clauses: frozenset[Clause], order: dict[str, Node] | None = None) -> ObjectShape:
    """The shape of the objects that satisfy ``clauses``; keys in ``order``, then sorted."""
    properties = dict.fromkeys(order or (), TRUE)
    for name in sorted({name for clause in clauses for name, _ in clause}):
        properties.setdefault(name, TRUE)
    units = [next(iter(clause)) for clause in clauses if len(clause) == 1]
    properties.update({name: FALSE for name, present in units if not present})
    shape = mentioning(properties, (name for name, present in units if present))
    return shape._replace(clauses=frozenset(clause for clause in clauses if len(clause) > 1))


def negation(nodes: Nodes, shape: ObjectShape) -> ObjectShape | None:
    """¬ of the positive part of ``shape``, as one shape; None if nothing is left."""
    found = conditions(shape)
    if not found:
        return None
    if len(found) == 1 and found[0].kind != "region":
        return broken(nodes, found[0])
    presence = [_presence(condition) for condition in found]
    if None not in presence:
        clauses = _distribute([frozenset([(name, not there)]) for name, there in c or ()] for c in presence)
        if clauses is not None:
            return of_clauses(clauses, shape.properties)
    return mentioning(dict.fromkeys(shape.properties, TRUE))._replace(negated=(shape._replace(negated=(), named=None),))


def _presence(condition: ObjectCondition) -> Clause | None:
    """The condition as a clause that fails, None if it is about more than which keys are there."""
    if condition.kind == "required":
        return frozenset([(condition.name, True)])
    if condition.kind == "value" and condition.node == FALSE:
        return frozenset([(condition.name, False)])
    return condition.clause if condition.kind == "clause" else None
