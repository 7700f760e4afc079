"""∨ and ¬ on object constraints. Constraints that are only about the presence of keys merge into one, as clauses."""

from __future__ import annotations

from collections.abc import Iterable

from dotllm.languages.json_schema.algebra.nodes import Nodes
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_KEY_CLASSES,
    ANY_OBJECT,
    FALSE,
    TRUE,
    Clause,
    Node,
    ObjectConstraint,
)
from dotllm.languages.json_schema.algebra.object_conditions import conditions, mentioning

MAX_CLAUSES = 64


def united(constraints: list[ObjectConstraint]) -> tuple[ObjectConstraint, ...]:
    """The union, with all constraints that are only about the presence of keys merged into one."""
    if len(constraints) < 2:
        return tuple(constraints)
    presence: list[frozenset[Clause]] = []
    names: dict[str, Node] = {}
    declared: set[str] = set()
    out: list[ObjectConstraint] = []
    for constraint in constraints:
        if constraint == ANY_OBJECT:
            return (ANY_OBJECT,)
        clauses = _as_clauses(constraint)
        if clauses is not None and len(presence) < MAX_CLAUSES:
            presence.append(clauses)
            names.update(dict.fromkeys(constraint.properties, TRUE))
            declared.update(constraint.properties.keys() - constraint.mentioned)
        elif len(out) > MAX_CLAUSES or constraint not in out:
            out.append(constraint)
    if presence:
        merged = _distribute(presence)
        merged_constraints = [of_clauses(merged, names)] if merged is not None else [of_clauses(c) for c in presence]
        out[:0] = [constraint._replace(mentioned=constraint.mentioned - declared) for constraint in merged_constraints]
    return tuple(out)


def _as_clauses(constraint: ObjectConstraint) -> frozenset[Clause] | None:
    """A constraint that is only about the presence of keys, as clauses; None for any other."""
    if (
        constraint.key_classes is not ANY_KEY_CLASSES
        or constraint.minimum
        or constraint.maximum is not None
        or constraint.negated
    ):
        return None
    if constraint.named is not None:  # clauses do not say which further keys are allowed
        return None
    units: list[Clause] = [frozenset([(name, True)]) for name in constraint.required]
    for name, node in constraint.properties.items():
        if node == FALSE:
            units.append(frozenset([(name, False)]))
        elif node != TRUE:
            return None
    return constraint.clauses.union(units)


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
        out = _minimal(merged)
        if len(out) > MAX_CLAUSES:
            return None
    return frozenset(out or ())


def _minimal(clauses: set[Clause]) -> set[Clause]:
    """The clauses that no other one implies by being a part of it. The first literal of a part is in the whole, so only
    such clauses are compared: to compare thousands pair by pair takes seconds."""
    by_first: dict[tuple[str, bool], list[Clause]] = {}
    for clause in clauses:
        if not clause:
            return {clause}
        by_first.setdefault(min(clause), []).append(clause)
    return {c for c in clauses if not any(d < c for literal in c for d in by_first.get(literal, ()))}


def of_clauses(clauses: frozenset[Clause], order: dict[str, Node] | None = None) -> ObjectConstraint:
    """The constraint of the objects that satisfy ``clauses``; keys in ``order``, then sorted."""
    properties = dict.fromkeys(order or (), TRUE)
    for name in sorted({name for clause in clauses for name, _ in clause}):
        properties.setdefault(name, TRUE)
    units = [next(iter(clause)) for clause in clauses if len(clause) == 1]
    properties.update({name: FALSE for name, present in units if not present})
    constraint = mentioning(properties, (name for name, present in units if present))
    return constraint._replace(clauses=frozenset(clause for clause in clauses if len(clause) > 1))


def negation(nodes: Nodes, constraint: ObjectConstraint) -> ObjectConstraint | None:
    """¬ of the positive part of ``constraint``, as one constraint; None if nothing is left."""
    parts = conditions(constraint)
    if not parts:
        return None
    only_way = parts[0].broken(nodes) if len(parts) == 1 else None
    if only_way is not None:
        return only_way
    presence = [condition.as_clause() for condition in parts]
    if None not in presence:
        clauses = _distribute([frozenset([(name, not there)]) for name, there in c or ()] for c in presence)
        if clauses is not None:
            return of_clauses(clauses, constraint.properties)
    return mentioning(dict.fromkeys(constraint.properties, TRUE))._replace(
        negated=(constraint._replace(negated=(), named=None),)
    )
