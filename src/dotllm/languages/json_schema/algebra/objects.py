"""∧ on object constraints, and which of them are empty.

The negation of a constraint says that one of its conditions fails (`object_conditions`). A negation that leaves one
alternative becomes a positive constraint. Any other stays whole in ``negated``: excluding n schemas costs n entries,
not the product of their alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import islice

from dotllm import cancellation
from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra.nodes import Breaks, Nodes, ObjectCondition, without_decided
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_NAMED,
    ANY_KEY_CLASSES,
    ANY_OBJECT,
    ANY_STRING,
    FALSE,
    NO_KEY_CLASSES,
    NO_STRING,
    TRUE,
    Clause,
    KeyClass,
    Named,
    Node,
    ObjectConstraint,
    key_class_value,
    value_of,
)
from dotllm.languages.json_schema.algebra.object_conditions import restricted
from dotllm.languages.json_schema.strings.string_language import FEWER_GROUPS, StringLanguage, are_many, divided

MAX_KEY_CLASSES = 3000
MANY_PAIRS = 256
"""If there are more pairs of classes than this, one automaton finds all of them together."""

_TRUE_ONLY = frozenset({TRUE})


def meet(nodes: Nodes, a: ObjectConstraint, b: ObjectConstraint) -> ObjectConstraint | None:
    """a ∧ b; None if it is seen to be empty. Keys keep the order of ``a``; keys that only ``b`` names follow."""
    if a is ANY_OBJECT or a is b:
        return b
    if b is ANY_OBJECT:
        return a
    nodes.spend(2 + len(a.properties) + len(b.properties))
    fresh = tuple([constraint for constraint in b.negated if constraint not in a.negated]) if b.negated else ()
    only_excludes = _only_excludes(b)
    if (
        only_excludes
        and not a.mentioned
        and len(b.mentioned) == len(b.properties)
        and b.mentioned <= a.properties.keys()
    ):
        return _without_decided(nodes, a._replace(negated=a.negated + fresh), fresh)  # everything else stays as it is
    properties = _met_properties(nodes, a, b)
    mentioned = a.mentioned | b.mentioned
    if mentioned and not a.mentioned and len(b.mentioned) == len(b.properties):
        mentioned = mentioned.difference(a.properties)  # the keys are in order
    elif mentioned:
        declared = [name for name in a.properties if name not in a.mentioned] if a.mentioned else [*a.properties]
        if len(b.mentioned) < len(b.properties):
            declared += [name for name in b.properties if name not in b.mentioned]
        mentioned = mentioned.difference(declared)
        if [*islice(properties, len(declared))] != declared:  # nearly always they come first
            properties = {name: properties[name] for name in dict.fromkeys((*declared, *properties))}
    maximum = a.maximum if b.maximum is None else b.maximum if a.maximum is None else min(a.maximum, b.maximum)
    met = ObjectConstraint(
        properties,
        meet_key_classes(nodes, a.key_classes, b.key_classes),
        a.required | b.required,
        a.clauses | b.clauses,
        max(a.minimum, b.minimum),
        maximum,
        a.negated + fresh,
        mentioned,
        _both_named(a.named, b.named),
    )
    if only_excludes:
        return _without_decided(nodes, met, fresh)  # everything else was simplified when ``a`` was made
    return simplified(nodes, met)


def _met_properties(nodes: Nodes, a: ObjectConstraint, b: ObjectConstraint) -> dict[str, Node]:
    """The values of all keys that either constraint names: those of ``a``, then those that only ``b`` names."""
    theirs = b.properties
    if b.key_classes is ANY_KEY_CLASSES:  # nearly always; then keys that ``b`` does not name stay as they are
        properties = dict(a.properties)
        few, many = (theirs, properties) if len(theirs) < len(properties) else (properties, theirs)
        for name in [name for name in few if name in many]:
            properties[name] = nodes.both(properties[name], theirs[name])
    else:
        properties = {name: nodes.both(node, value_of(b, name)) for name, node in a.properties.items()}
    for name, node in theirs.items():
        if name not in properties:
            properties[name] = (
                node if a.key_classes is ANY_KEY_CLASSES else nodes.both(key_class_value(a.key_classes, name), node)
            )
    return properties


def _only_excludes(constraint: ObjectConstraint) -> bool:
    """Whether the constraint only says what an object must not be."""
    return (
        constraint.key_classes is ANY_KEY_CLASSES
        and not constraint.required
        and not constraint.clauses
        and not constraint.minimum
        and constraint.maximum is None
        and {*constraint.properties.values()} <= _TRUE_ONLY
        and constraint.named is None
    )


def _both_named(a: Named | None, b: Named | None) -> Named | None:
    """The keys that either of two constraints names."""
    if a is None or b is None or a == b:
        return a or b
    if ANY_STRING in (a.keys, b.keys):
        return ALL_NAMED
    keys = b.keys if a.keys is NO_STRING else a.keys if b.keys is NO_STRING else a.keys | b.keys
    return Named(a.names | b.names, keys, a.listed or b.listed)


def closed(nodes: Nodes, constraint: ObjectConstraint, *, strictly: bool = False) -> ObjectConstraint | None:
    """The objects of ``constraint`` that have only keys it names (``named``); None if it is seen to be empty.

    The constraint stays open unless some schema of the conjunction lists ``properties``. A key that an object must have
    stays allowed even if no schema lists it. If this leaves no object, all keys that the schemas mention stay allowed;
    if that leaves none either, every key does. So closing never takes the last object away. ``strictly``: patterns
    close a constraint, too, and no other key stays allowed.

    This is not part of the algebra: what an object must not be (``not``, ``if``, the other branches of ``oneOf``) is
    excluded as the schema states it, and all schemas that an object must satisfy name its keys together.
    """
    named = constraint.named
    if named is None or named is ALL_NAMED or named.keys == ANY_STRING or not (named.listed or strictly):
        return constraint
    constraint = constraint._replace(named=None)
    if strictly:
        return _with_keys(nodes, constraint, named.names, named.keys)
    result = _with_keys(nodes, constraint, _needed(constraint, named), named.keys)
    if result is None:
        result = _with_keys(nodes, constraint, named.names.union(constraint.properties), named.keys)
    return constraint if result is None else result


def _needed(constraint: ObjectConstraint, named: Named) -> frozenset[str]:
    """The named keys, the required keys, and the keys that an object must have if it has one of these."""
    names = {*named.names, *constraint.required}
    # By clause: the keys whose absence satisfies it and that are not allowed. While there are some, the clause holds.
    lacking: dict[Clause, set[str]] = {}
    about: dict[str, list[Clause]] = {}
    for clause in constraint.clauses:
        absent = {name for name, present in clause if not present and name not in names}
        lacking[clause] = {name for name in absent if not named.keys.contains(name)}
        for name in lacking[clause]:
            about.setdefault(name, []).append(clause)
    asking = [clause for clause, absent in lacking.items() if not absent]
    while asking:
        cancellation.check()
        for name in [name for name, present in asking.pop() if present and name not in names]:
            names.add(name)
            for clause in about.get(name, ()):
                lacking[clause].discard(name)
                if not lacking[clause]:
                    asking.append(clause)
    return frozenset(names)


def _with_keys(
    nodes: Nodes, constraint: ObjectConstraint, names: frozenset[str], keys: StringLanguage
) -> ObjectConstraint | None:
    """The objects of ``constraint`` that have only these keys; None if it is seen to be empty."""
    properties = constraint.properties
    if not properties.keys() <= names:
        properties = {
            name: node if name in names or keys.contains(name) else FALSE for name, node in properties.items()
        }
    key_classes = NO_KEY_CLASSES
    if keys is not NO_STRING:
        key_classes = meet_key_classes(nodes, constraint.key_classes, ((keys, TRUE), (~keys, FALSE)))
    may_be_empty = (
        constraint.clauses or constraint.negated or constraint.minimum or properties is not constraint.properties
    )
    constraint = constraint._replace(properties=properties, key_classes=key_classes)
    return simplified(nodes, constraint) if may_be_empty else constraint


def meet_key_classes(nodes: Nodes, a: tuple[KeyClass, ...], b: tuple[KeyClass, ...]) -> tuple[KeyClass, ...]:
    """The common refinement of two partitions. Raises BudgetExceededError if there are too many classes."""
    if a is ANY_KEY_CLASSES:
        return b
    if b is ANY_KEY_CLASSES or a == b:
        return a
    if len(a) == 1:
        (_, x), out = a[0], b
        return tuple((language, nodes.both(x, node)) for language, node in out)
    if len(b) == 1:
        (_, x), out = b[0], a
        return tuple((language, nodes.both(node, x)) for language, node in out)
    if len(a) * len(b) > MANY_PAIRS:
        languages = [language for language, _ in (*a, *b)]
        if are_many(languages):
            return tuple(divided(languages, _value(nodes, [*a, *b], TRUE)))
    merged: dict[Node, KeyClass] = {}
    for first, x in a:
        for second, y in b:
            language = first & second
            if not language.is_empty():
                node = nodes.both(x, y)
                merged[node] = (merged[node][0] | language, node) if node in merged else (language, node)
    _check_count(merged)
    return tuple(merged.values())


def key_classes_of(nodes: Nodes, patterns: list[KeyClass], additional: Node) -> tuple[KeyClass, ...]:
    """The partition of all keys by the ``patterns`` that they match. The value of a key must be that of all these
    patterns; if the key matches none, it must be ``additional``.

    Raises:
        BudgetExceededError: there are too many classes, or the automaton of all patterns is too large.
    """
    languages = [language for language, _ in patterns]
    if are_many(languages):
        return tuple(divided(languages, _value(nodes, patterns, additional)))
    matched = NO_STRING
    split: tuple[KeyClass, ...] = ANY_KEY_CLASSES
    for language, node in patterns:
        matched = matched | language
        split = meet_key_classes(nodes, split, ((language, node), (~language, TRUE)))
    return split if additional == TRUE else meet_key_classes(nodes, split, ((matched, TRUE), (~matched, additional)))


def _value(nodes: Nodes, key_classes: Sequence[KeyClass], rest: Node) -> Callable[[frozenset[int]], Node]:
    """A function from the set of classes that keys are in (by number) to the value of these keys; the empty set gives
    ``rest``. It raises `BudgetExceededError` when there are too many values."""
    distinct: set[Node] = set()

    def value(members: frozenset[int]) -> Node:
        numbers = sorted(members)
        node = reduce(nodes.both, [key_classes[i][1] for i in numbers]) if numbers else rest
        distinct.add(node)
        _check_count(distinct)
        return node

    return value


def _check_count(groups: Collection[object]) -> None:
    """Raise `BudgetExceededError` if keys fall into too many groups."""
    if len(groups) > MAX_KEY_CLASSES:
        raise BudgetExceededError(
            f"keys fall into more than {MAX_KEY_CLASSES} groups",
            keyword="patternProperties",
            help=FEWER_GROUPS,
        )


def simplified(nodes: Nodes, constraint: ObjectConstraint) -> ObjectConstraint | None:
    """The same constraint with its consequences made explicit; None if it is seen to be empty."""
    properties, required, clauses = constraint.properties, constraint.required, constraint.clauses
    needed = [properties[name] for name in required]
    if FALSE in needed or any(True for _ in nodes.empty_among(needed)):
        return None
    empty = set(nodes.empty_among(properties.values()))
    if empty:
        properties = {name: FALSE if node in empty else node for name, node in properties.items()}
    if clauses:
        known = _propagated(properties, required, clauses)
        if known is None:
            return None
        properties, required, clauses = known
    minimum, maximum = constraint.minimum, constraint.maximum
    if minimum or maximum is not None:
        possible = None
        if all(node == FALSE for _, node in constraint.key_classes):
            possible = sum(node != FALSE for node in properties.values())
        if maximum is not None and possible is not None and possible <= maximum:
            maximum = None
        if minimum <= len(required):
            minimum = 0
        if (possible is not None and possible < minimum) or (
            maximum is not None and maximum < max(minimum, len(required))
        ):
            return None
    constraint = constraint._replace(
        properties=properties, required=required, clauses=clauses, minimum=minimum, maximum=maximum
    )
    return _without_decided(nodes, constraint, constraint.negated) if constraint.negated else constraint


def _propagated(
    properties: dict[str, Node], required: frozenset[str], clauses: Iterable[Clause]
) -> tuple[dict[str, Node], frozenset[str], frozenset[Clause]] | None:
    """Unit propagation: what the clauses say about single keys; None if they contradict each other."""
    properties, needed = dict(properties), set(required)
    left = {clause: clause for clause in clauses}  # by the clause as stated: what is left of it
    about: dict[str, list[Clause]] = {}
    for clause in left:
        for name, _ in clause:
            about.setdefault(name, []).append(clause)
    pending = list(left)
    while pending:
        cancellation.check()
        stated = pending.pop()
        if stated not in left:
            continue
        literals = []
        satisfied = False
        for name, present in left[stated]:
            if name in needed:
                satisfied |= present
            elif properties[name] == FALSE:
                satisfied |= not present
            else:
                literals.append((name, present))
        if not satisfied and len(literals) > 1:
            left[stated] = frozenset(literals)
            continue
        del left[stated]
        if not satisfied:
            if not literals:
                return None
            name, present = literals[0]
            if present:
                needed.add(name)
            else:
                properties[name] = FALSE
            pending += about[name]
    return properties, frozenset(needed), frozenset(left.values())


def _without_decided(
    nodes: Nodes, constraint: ObjectConstraint, fresh: tuple[ObjectConstraint, ...]
) -> ObjectConstraint | None:
    """`without_decided` for objects. Required keys come first: most often one of them tells the constraints apart."""

    def breaks(positive: ObjectConstraint, other: ObjectConstraint) -> Iterator[tuple[ObjectCondition, Breaks]]:
        conditions = nodes.conditions_of(other)
        nodes.spend(4 + len(conditions))
        if positive.required:
            conditions = sorted(
                conditions, key=lambda condition: getattr(condition, "name", None) not in positive.required
            )
        return ((condition, condition.breaks(nodes, positive, other)) for condition in conditions)

    return without_decided(
        constraint, fresh, breaks, lambda condition: condition.broken(nodes), restricted, partial(meet, nodes)
    )
