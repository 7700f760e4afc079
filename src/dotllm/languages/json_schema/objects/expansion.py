"""Rewrites object constraints as unions of constraints that need no automaton over their members.

With keys in any order, that automaton would have a state for every subset of the keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dotllm import cancellation
from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra import objects
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import FALSE, TRUE, KeyClass, ObjectConstraint, value_of
from dotllm.languages.json_schema.algebra.object_conditions import (
    KeyClassCondition,
    RequiredValueCondition,
    ValueCondition,
    conditions,
    mentioning,
)
from dotllm.languages.json_schema.algebra.partition import partition_by
from dotllm.languages.json_schema.strings.string_language import StringLanguage

MAX_EXPANDED = 128


def expanded(
    algebra: Algebra, constraint: ObjectConstraint, *, by_value: bool, counted: bool = False
) -> list[tuple[ObjectConstraint, tuple[KeyClass, ...]]] | None:
    """``constraint``, with keys in any order, as a union of constraints that need no automaton over their members; None
    if there is no such union of moderate size.

    Each constraint comes with sets of other keys; one key of each set must be present. ``by_value``: excluded
    constraints are first told apart by the values of keys, which is nearly always better. ``counted``: constraints that
    only count their members are good enough.
    """
    out: list[tuple[ObjectConstraint, tuple[KeyClass, ...]]] = []
    # Each with the keys by whose values it has been split.
    pending: list[tuple[ObjectConstraint, tuple[KeyClass, ...], frozenset[str]]] = [(constraint, (), frozenset())]
    while pending:
        cancellation.check()
        constraint_left, classes, split = pending.pop()
        if (counts_members(constraint_left) and not (counted and not classes)) or len(out) + len(
            pending
        ) > MAX_EXPANDED:
            return None
        if constraint_left.clauses:
            # The key that decides most clauses (ties by name); `meet` works out the consequences.
            counts = Counter(name for clause in constraint_left.clauses for name, _ in clause)
            name = min(counts, key=lambda name: (-counts[name], name))
            for way in (mentioning({name: FALSE}), mentioning({name: TRUE}, [name])):
                met = objects.meet(algebra, constraint_left, way)
                if met is not None:
                    pending.append((met, classes, split))
        elif constraint_left.negated:
            discriminator = _choose_discriminator(constraint_left, split) if by_value else None
            if discriminator is not None:
                split |= {discriminator}
                try:
                    pending.extend(
                        [
                            (part, classes, split)
                            for part in _partition_by_value(algebra, constraint_left, discriminator)
                        ]
                    )
                    continue
                except BudgetExceededError:  # too many kinds of values: negate the excluded constraints one by one
                    pass
            rest = constraint_left._replace(negated=constraint_left.negated[1:])
            pending.extend(
                (part, there, split)
                for part, there in _negate_branches(algebra, rest, classes, constraint_left.negated[0])
            )
        else:
            out.append((constraint_left, classes))
    return out


def counts_members(constraint: ObjectConstraint) -> bool:
    """Whether the number of members matters."""
    return constraint.minimum > 1 or constraint.maximum is not None


def _choose_discriminator(constraint: ObjectConstraint, split: frozenset[str]) -> str | None:
    """The key outside ``split`` whose value the most excluded constraints are about; None if no such key is in two of
    them."""
    counts = Counter(
        condition.name
        for other in constraint.negated
        for condition in conditions(other)
        if isinstance(condition, (ValueCondition, RequiredValueCondition))
        and condition.node != TRUE
        and condition.name not in split
    )
    name, count = min(counts.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return name if count > 1 else None


def _partition_by_value(algebra: Algebra, constraint: ObjectConstraint, name: str) -> Iterator[ObjectConstraint]:
    """Partition ``constraint`` by the excluded constraints that the value of ``name`` (or its absence) avoids.

    So a key that tells the alternatives of a oneOf apart decides nearly all of them in one step.

    Yields:
        The parts, which are disjoint and whose union is ``constraint``.
    """
    about = [other for other in constraint.negated if name in other.properties]
    mine = value_of(constraint, name)
    values = partition_by(algebra, mine, dict.fromkeys(value_of(other, name) for other in about))
    absent = FALSE
    if name not in constraint.required:
        # A value that avoids the same constraints as absence needs no alternative of its own.
        by_absence = {value_of(other, name) for other in about if name in other.required}
        alike = [part for part in values if set(part[1]) == by_absence]
        absent = algebra.any_of([node for node, _ in alike])
        values = [part for part in values if part not in alike]
        way = mentioning({name: absent})
        left = tuple(other for other in constraint.negated if other not in about or name not in other.required)
        met = objects.meet(algebra, constraint._replace(negated=left), way)
        if met is not None:
            yield met
    for node, _ in values:
        met = objects.meet(algebra, constraint, mentioning({name: node}, [name]))
        if met is not None:
            yield met


def _negate_branches(
    algebra: Algebra, constraint: ObjectConstraint, classes: tuple[KeyClass, ...], other: ObjectConstraint
) -> Iterator[tuple[ObjectConstraint, tuple[KeyClass, ...]]]:
    """``constraint`` (with ``classes`` other keys) in each way in which an object does not satisfy ``other``."""
    for condition in conditions(other):
        broken = condition.broken(algebra)
        if broken is not None:
            met = objects.meet(algebra, constraint, broken)
            if met is not None:
                yield met, classes
            continue
        assert isinstance(condition, KeyClassCondition)
        language, node = other.key_classes[condition.number]
        one_class = len(other.key_classes) == 1
        outside = algebra.complement(node)
        for name in constraint.properties:
            if name not in other.properties and (one_class or language.contains(name)):
                met = objects.meet(algebra, constraint, mentioning({name: outside}, [name]))
                if met is not None:
                    yield met, classes
        keys = StringLanguage.excluding(other.properties)
        if not one_class:
            keys = language & keys
        for language, value in constraint.key_classes:
            value = algebra.both(value, outside)
            common = keys if len(constraint.key_classes) == 1 else language & keys
            if value != FALSE and not algebra.is_empty(value) and not common.is_empty():
                yield constraint, (*classes, (common, value))
        # The same member may break several excluded constraints.
        for i, (others, value) in enumerate(classes):
            value, common = algebra.both(value, outside), others & keys
            if value != FALSE and not algebra.is_empty(value) and not common.is_empty():
                yield constraint, (*classes[:i], (common, value), *classes[i + 1 :])
