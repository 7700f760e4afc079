"""The conditions of an object constraint: which objects break each, and whether those of another constraint do.

A constraint holds if all its conditions do (a key's value, a key's presence, a count, …), so its negation says that one
of them fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dotllm.languages.json_schema.algebra.nodes import Breaks, Nodes, ObjectCondition
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_KEY_CLASSES,
    FALSE,
    TRUE,
    Clause,
    Node,
    ObjectConstraint,
    value_of,
)


@dataclass(slots=True, eq=False)
class ValueCondition(ObjectCondition):
    """The key ``name`` is absent, or its value is of ``node``."""

    name: str
    node: Node

    def broken(self, nodes: Nodes) -> ObjectConstraint:
        return mentioning({self.name: nodes.complement(self.node)}, [self.name])

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        mine = value_of(constraint, self.name)
        if mine == FALSE or _within(nodes, mine, self.node):
            return Breaks.NEVER
        sure = self.name in constraint.required and nodes.are_apart(mine, self.node)
        return Breaks.ALWAYS if sure else Breaks.SOMETIMES

    def as_clause(self) -> Clause | None:
        return frozenset([(self.name, False)]) if self.node == FALSE else None


@dataclass(slots=True, eq=False)
class RequiredValueCondition(ObjectCondition):
    """The key ``name`` is present, and its value is of ``node``."""

    name: str
    node: Node

    def broken(self, nodes: Nodes) -> ObjectConstraint:
        return mentioning({self.name: nodes.complement(self.node)})

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        mine = value_of(constraint, self.name)
        if mine == FALSE:
            return Breaks.ALWAYS
        if _within(nodes, mine, self.node):
            return Breaks.NEVER if self.name in constraint.required else Breaks.SOMETIMES
        return Breaks.ALWAYS if nodes.are_apart(mine, self.node) else Breaks.SOMETIMES

    def as_clause(self) -> Clause | None:
        return frozenset([(self.name, True)]) if self.node == TRUE else None


@dataclass(slots=True, eq=False)
class ClauseCondition(ObjectCondition):
    """The clause holds."""

    clause: Clause

    def broken(self, nodes: Nodes) -> ObjectConstraint:
        absent = {key: FALSE if present else TRUE for key, present in sorted(self.clause)}
        needed = frozenset(key for key, present in self.clause if not present)
        return mentioning(absent, needed)

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        all_decided = True
        for key, present in self.clause:
            if key in constraint.required:
                holds = present
            elif value_of(constraint, key) == FALSE:
                holds = not present
            else:
                all_decided = holds = False
            if holds:
                return Breaks.NEVER
        return Breaks.ALWAYS if all_decided else Breaks.SOMETIMES

    def as_clause(self) -> Clause:
        return self.clause


@dataclass(slots=True, eq=False)
class KeyClassCondition(ObjectCondition):
    """The members of key class ``number`` have values of ``node``. Its negation is not a single constraint."""

    number: int
    node: Node

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        language, node = other.key_classes[self.number]
        breaks = Breaks.NEVER
        one_class = len(other.key_classes) == 1
        for name, mine in constraint.properties.items():
            if name in other.properties or mine == FALSE or not (one_class or language.contains(name)):
                continue
            if not _within(nodes, mine, node):
                if name in constraint.required and nodes.are_apart(mine, node):
                    return Breaks.ALWAYS
                breaks = Breaks.SOMETIMES
        if any(mine != FALSE and not _within(nodes, mine, node) for _, mine in constraint.key_classes):
            breaks = Breaks.SOMETIMES
        return breaks


@dataclass(slots=True, eq=False)
class CountCondition(ObjectCondition):
    """There are at least ``minimum`` or at most ``maximum`` members; only one of the two is given."""

    minimum: int = 0
    maximum: int | None = None

    def broken(self, nodes: Nodes) -> ObjectConstraint:
        if self.maximum is None:
            return ObjectConstraint({}, ANY_KEY_CLASSES, maximum=self.minimum - 1)
        return ObjectConstraint({}, ANY_KEY_CLASSES, minimum=self.maximum + 1)

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        least, most = max(constraint.minimum, len(constraint.required)), constraint.maximum
        if self.maximum is None:
            if least >= self.minimum:
                return Breaks.NEVER
            return Breaks.ALWAYS if most is not None and most < self.minimum else Breaks.SOMETIMES
        if most is not None and most <= self.maximum:
            return Breaks.NEVER
        return Breaks.ALWAYS if least > self.maximum else Breaks.SOMETIMES


def conditions(constraint: ObjectConstraint) -> list[ObjectCondition]:
    """The conditions of ``constraint``, each a way to break it; ``negated`` is ignored."""
    out: list[ObjectCondition] = []
    for name, node in constraint.properties.items():
        if name in constraint.required:
            out.append(RequiredValueCondition(name, node))
        elif node != TRUE:
            out.append(ValueCondition(name, node))
    out.extend(KeyClassCondition(i, node) for i, (_, node) in enumerate(constraint.key_classes) if node != TRUE)
    out.extend(ClauseCondition(clause) for clause in sorted(constraint.clauses, key=sorted))
    if constraint.minimum:
        out.append(CountCondition(minimum=constraint.minimum))
    if constraint.maximum is not None:
        out.append(CountCondition(maximum=constraint.maximum))
    return out


def restricted(constraint: ObjectConstraint, kept: list[ObjectCondition]) -> ObjectConstraint:
    """``constraint`` with only some of its conditions."""
    values: dict[str, Node] = {}
    required: set[str] = set()
    clauses: set[Clause] = set()
    classes: set[int] = set()
    minimum, maximum = 0, None
    for condition in kept:
        if isinstance(condition, (ValueCondition, RequiredValueCondition)):
            values[condition.name] = condition.node
        if isinstance(condition, RequiredValueCondition):
            required.add(condition.name)
        elif isinstance(condition, ClauseCondition):
            clauses.add(condition.clause)
        elif isinstance(condition, KeyClassCondition):
            classes.add(condition.number)
        elif isinstance(condition, CountCondition):
            minimum, maximum = (
                max(minimum, condition.minimum),
                maximum if condition.maximum is None else condition.maximum,
            )
    return ObjectConstraint(
        {name: values.get(name, TRUE) for name in constraint.properties},
        tuple((language, node if i in classes else TRUE) for i, (language, node) in enumerate(constraint.key_classes))
        if classes
        else ANY_KEY_CLASSES,
        frozenset(required),
        frozenset(clauses),
        minimum,
        maximum,
    )


def mentioning(properties: dict[str, Node], required: Iterable[str] = ()) -> ObjectConstraint:
    """A constraint about some keys that gives them no declared place."""
    return ObjectConstraint(properties, ANY_KEY_CLASSES, frozenset(required), mentioned=frozenset(properties))


def _within(nodes: Nodes, a: Node, b: Node) -> bool:
    """Whether every value of ``a`` is seen to be one of ``b``."""
    return a == b or b == TRUE or (b != FALSE and nodes.is_within(a, b))
