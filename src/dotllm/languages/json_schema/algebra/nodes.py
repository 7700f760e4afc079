"""What the operations on constraints (`objects`, `arrays`) need: the algebra of nodes, and conditions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Protocol, TypeVar

from dotllm.languages.json_schema.algebra.normal_form import Clause, Node, ObjectConstraint

Condition = TypeVar("Condition")


class Breaks(Enum):
    """Whether the values of a constraint break a condition."""

    ALWAYS = "always"
    NEVER = "never"
    SOMETIMES = "sometimes"


def undecided(conditions: Iterable[tuple[Condition, Breaks]]) -> list[Condition] | None:
    """The conditions that the values of a constraint break only sometimes. None: the values always break one of all
    ``conditions``, so they need no further condition to avoid the negated constraint."""
    found: list[Condition] = []
    for condition, breaks in conditions:
        if breaks is Breaks.ALWAYS:
            return None
        if breaks is Breaks.SOMETIMES:
            found.append(condition)
    return found


class ObjectCondition:
    """One of the conditions that an object constraint consists of (see `object_conditions`)."""

    __slots__ = ()

    def broken(self, nodes: Nodes) -> ObjectConstraint | None:
        """The objects that break it; None if that is no single constraint."""
        return None

    def breaks(self, nodes: Nodes, constraint: ObjectConstraint, other: ObjectConstraint) -> Breaks:
        """Whether the objects of ``constraint`` break this condition of ``other``."""
        raise NotImplementedError

    def as_clause(self) -> Clause | None:
        """The condition as a clause, None if it is about more than which keys are there."""
        return None


class Nodes(Protocol):
    """What constraints need of the algebra of nodes."""

    def both(self, a: Node, b: Node) -> Node:
        """a ∧ b."""
        ...

    def complement(self, a: Node) -> Node:
        """¬ a."""
        ...

    def is_empty(self, a: Node) -> bool:
        """True: no value satisfies ``a``. False: some does, or it is not known."""
        ...

    def are_apart(self, a: Node, b: Node) -> bool:
        """``is_empty`` of ``both``."""
        ...

    def is_within(self, a: Node, b: Node) -> bool:
        """``is_empty`` of ``a`` and not ``b``."""
        ...

    def is_compound(self, a: Node) -> bool:
        """Whether ``a`` was made by `both` or `complement`, so that its emptiness is worth a look."""
        ...

    def empty_among(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Those of ``nodes`` that are compound and empty, found one by one as the caller iterates."""
        ...

    def conditions_of(self, constraint: ObjectConstraint) -> list[ObjectCondition]:
        """`object_conditions.conditions`, remembered."""
        ...

    def spend(self, steps: int) -> None:
        """Count work against the budget."""
        ...
