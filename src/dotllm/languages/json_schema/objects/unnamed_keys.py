"""The keys that a schema does not name, in classes by the schema of their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dotllm import cancellation
from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_STRING,
    FALSE,
    NO_STRING,
    TRUE,
    KeyClass,
    Node,
    ObjectConstraint,
    value_of,
)
from dotllm.languages.json_schema.algebra.objects import MANY_PAIRS
from dotllm.languages.json_schema.options import Order
from dotllm.languages.json_schema.strings.string_language import StringLanguage, are_many, divided

MAX_FEW_KEYS = 64
_UNLIKELY = ("\x7f~", "qzqzq", "Qzqzq", "QZQZQ", "x-qzqzq", "qz_qz", "/qzqz", "7171")
"""Keys that no schema spells out. A language with one of them has many keys; its automaton would take long to tell."""

Others = tuple[StringLanguage, Node, tuple[Node, ...]]
"""Keys that are not named, the node of their values, and that of the same keys in each excluded constraint."""


def counts_unnamed(constraint: ObjectConstraint) -> bool:
    """Whether it matters that keys that the schema does not name are different, or that only the last of equal keys
    counts."""
    return constraint.minimum > len(constraint.required) + 1 or any(
        other.maximum is not None or any(node not in (TRUE, FALSE) for _, node in other.key_classes)
        for other in constraint.negated
    )


def special(constraint: ObjectConstraint, classes: Sequence[KeyClass]) -> list[KeyClass]:
    """The sets in ``classes`` (sets of other keys, one of which must be present) whose values differ from those of all
    keys in their class."""
    if len(constraint.key_classes) == 1:
        return [key_class for key_class in classes if key_class[1] != constraint.key_classes[0][1]]
    return [
        (keys, node)
        for keys, node in classes
        if any(value != node and not (keys & language).is_empty() for language, value in constraint.key_classes)
    ]


def few_keys(keys: StringLanguage) -> list[str]:
    """All strings of a language that has only a few; empty for any other."""
    return keys.finite_values(MAX_FEW_KEYS) or []


def with_few_named(constraint: ObjectConstraint, order: Order) -> tuple[ObjectConstraint, list[Others]]:
    """The same constraint with the keys of small key classes named, and the other key classes, each of which always has
    one more key.

    Raises:
        BudgetExceededError: too many keys of a finite class are needed.
    """
    while True:
        cancellation.check()
        key_classes = key_classes_of(constraint, order)
        names = sorted({name for language, _, _ in key_classes for name in few_keys(language)})
        if not names:
            break
        nodes = {name: value_of(constraint, name) for name in names}
        constraint = constraint._replace(
            properties={**constraint.properties, **nodes}, mentioned=constraint.mentioned.union(names)
        )
    if constraint.minimum > MAX_FEW_KEYS and any(language.dfa().is_finite() for language, _, _ in key_classes):
        raise BudgetExceededError(
            f"minProperties must be at most {MAX_FEW_KEYS}, not {constraint.minimum}, where a pattern or propertyNames "
            "leaves only finitely many keys",
            keyword="minProperties",
        )
    return constraint, key_classes


def key_classes_of(constraint: ObjectConstraint, order: Order) -> list[Others]:
    """Keys that are not named, by what their values must satisfy in a constraint and in each constraint it excludes."""
    names = dict.fromkeys(constraint.properties)
    for other in constraint.negated:
        names.update(dict.fromkeys(other.properties))
    key_classes: list[Others] = [
        (language, node, ())
        for language, node in without_named(constraint.key_classes, constraint, order, names)
        if node != FALSE
    ]
    for other in constraint.negated:
        if len(other.key_classes) == 1:
            key_classes = [(language, node, (*nodes, other.key_classes[0][1])) for language, node, nodes in key_classes]
            continue
        key_classes = [
            (keys, key_classes[i][1], (*key_classes[i][2], other.key_classes[j][1]))
            for keys, (i, j) in _pairs(
                [language for language, _, _ in key_classes], [keys for keys, _ in other.key_classes]
            )
        ]
    return key_classes


def _pairs(
    first: list[StringLanguage], second: list[StringLanguage]
) -> Iterator[tuple[StringLanguage, tuple[int, int]]]:
    """The non-empty intersections of one of ``first`` and one of ``second`` (both disjoint), and their numbers."""
    if len(first) * len(second) > MANY_PAIRS and are_many((*first, *second)):

        def name(members: frozenset[int]) -> tuple[int, ...]:
            return tuple(sorted(members))

        for keys, numbers in divided([*first, *second], name):
            if len(numbers) == 2:  # one of each
                yield keys, (numbers[0], numbers[1] - len(first))
        return
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            keys = a & b
            if not keys.is_empty():
                yield keys, (i, j)


def without_named(
    key_classes: Sequence[KeyClass], constraint: ObjectConstraint, order: Order, names: Iterable[str] = ()
) -> list[KeyClass]:
    """Key classes without the keys that ``constraint`` names (or without ``names``, a larger set), as they are written
    (see `unnamed_keys`)."""
    if len(key_classes) == 1:
        if key_classes[0][1] == FALSE:
            return [*key_classes]
        return [(unnamed_keys(ANY_STRING, constraint, order, names), key_classes[0][1])]
    languages = [language for language, node in key_classes if node != FALSE]
    further = iter(_without_names(languages, constraint, order, names))
    return [(language if node == FALSE else next(further), node) for language, node in key_classes]


def _without_names(
    languages: list[StringLanguage], constraint: ObjectConstraint, order: Order, names: Iterable[str]
) -> list[StringLanguage]:
    """`unnamed_keys` for each of many disjoint languages."""
    names = names or constraint.properties
    if not names or not are_many(languages):
        return [unnamed_keys(language, constraint, order, names) for language in languages]
    named = ~_further_keys(constraint, order, names)
    result = dict.fromkeys(range(len(languages)), NO_STRING)

    def name(members: frozenset[int]) -> int:
        return min(members) if len(members) == 1 else len(languages)

    result.update({number: keys for keys, number in divided([*languages, named], name)})
    return [_but_not_finite(language, result[number], order, names) for number, language in enumerate(languages)]


def unnamed_keys(
    language: StringLanguage, constraint: ObjectConstraint, order: Order, names: Iterable[str] = ()
) -> StringLanguage:
    """The keys of ``language`` that ``constraint`` does not name (or that are not in ``names``, a larger set).

    With keys in declared order, all declared keys have been passed. So an additional key does not begin with one of
    them either (see `additional_keys`), because a model that has spelt a declared key means that key; unless the
    language has only finitely many other keys. With keys in any order, it may begin with a declared key.
    """
    names = names or constraint.properties
    if not names:
        return language
    further = _further_keys(constraint, order, names)
    if language is ANY_STRING:
        return further
    return _but_not_finite(language, language & further, order, names)


def _further_keys(constraint: ObjectConstraint, order: Order, names: Iterable[str]) -> StringLanguage:
    """Every string that may be an additional key."""
    if order == "any":
        return StringLanguage.excluding(names)
    declared: Iterable[str] = constraint.properties
    if constraint.mentioned:
        declared = [name for name in declared if name not in constraint.mentioned]
    return StringLanguage.further_keys(names, declared)


def _but_not_finite(
    language: StringLanguage, further: StringLanguage, order: Order, names: Iterable[str]
) -> StringLanguage:
    """``further``, the part of ``language`` in `_further_keys`; if either is finite, ``language`` without ``names``."""
    if order == "any" or any(map(further.contains, _UNLIKELY)):
        return further
    is_finite = language.is_finite() or further.is_finite()  # the former is quick to tell, and shared by many objects
    return language & StringLanguage.excluding(names) if is_finite else further
