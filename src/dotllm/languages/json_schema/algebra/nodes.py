"""What the operations on constraints (`objects`, `arrays`) share: the interface of the algebra, and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Protocol, TypeVar

from dotllm.languages.json_schema.algebra.normal_form import ArrayConstraint, Clause, Node, ObjectConstraint

Condition = TypeVar("Condition")
Constraint = TypeVar("Constraint", ArrayConstraint, ObjectConstraint)


class Breaks(Enum):
    """Whether the values of a constraint break a condition."""

    ALWAYS = "always"
    NEVER = "never"
    SOMETIMES = "sometimes"


def without_decided(
    constraint: Constraint,
    fresh: tuple[Constraint, ...],
    conditions: Callable[[Constraint, Constraint], Iterable[tuple[Condition, Breaks]]],
    broken: Callable[[Condition], Constraint | None],
    restricted: Callable[[Constraint, list[Condition]], Constraint],
    meet: Callable[[Constraint, Constraint], Constraint | None],
) -> Constraint | None:
    """Compare the ``fresh`` negated constraints, the last ones of ``constraint``, with its positive part. A negated
    constraint that the positive part excludes is dropped. If a negated constraint cannot be avoided, the result is None
    (empty). If there is a single way to avoid it, this way becomes part of the result.

    ``conditions(positive, negated)``: the conditions of ``negated``, and whether the values of ``positive`` break them.
    ``broken``: the values that break a condition; None if they are not a single constraint. ``restricted``: a
    constraint with only some of its conditions.
    """
    positive = constraint._replace(negated=())
    kept = list(constraint.negated[: len(constraint.negated) - len(fresh)])
    for other in fresh:
        undecided: list[Condition] = []
        for condition, breaks in conditions(positive, other):
            if breaks is Breaks.ALWAYS:
                break
            if breaks is Breaks.SOMETIMES:
                undecided.append(condition)
        else:
            if not undecided:
                return None
            only_way = broken(undecided[0]) if len(undecided) == 1 else None
            if only_way is not None:
                rest = positive._replace(negated=tuple(s for s in constraint.negated if s is not other))
                return meet(rest, only_way)
            kept.append(restricted(other, undecided))
    return positive._replace(negated=tuple(kept))


class ObjectCondition:
    """One of the conditions that an object constraint consists of (see `object_conditions`)."""

    __slots__ = ()

    def broken(self, nodes: Nodes) -> ObjectConstraint | None:
        """The objects that break the condition; None if they are not a single constraint."""
        return None

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        """Whether the objects of ``constraint`` break this condition of ``other``."""
        raise NotImplementedError

    def as_clause(self) -> Clause | None:
        """The condition as a clause; None if it is about more than the presence of keys."""
        return None


class Nodes(Protocol):
    """What constraints need of the algebra of nodes; each method is described in `Algebra`."""

    def both(self, a: Node, b: Node) -> Node: ...
    def complement(self, a: Node) -> Node: ...
    def is_empty(self, a: Node) -> bool: ...
    def are_apart(self, a: Node, b: Node) -> bool: ...
    def is_within(self, a: Node, b: Node) -> bool: ...
    def is_compound(self, a: Node) -> bool: ...
    def empty_among(self, nodes: Iterable[Node]) -> Iterator[Node]: ...
    def conditions_of(self, constraint: ObjectConstraint) -> list[ObjectCondition]: ...
    def spend(self, steps: int) -> None: ...
