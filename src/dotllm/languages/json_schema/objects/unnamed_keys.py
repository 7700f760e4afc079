"""The keys that a schema does not name, by what their values must satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dotllm.errors import BudgetExceededError
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_STRING,
    FALSE,
    TRUE,
    KeyClass,
    Node,
    ObjectConstraint,
    value_of,
)
from dotllm.languages.json_schema.strings.string_language import StringLanguage

MAX_FEW_KEYS = 64

Others = tuple[StringLanguage, Node, tuple[Node, ...]]
"""Keys that are not named, their values, and those of the same keys in each excluded constraint."""


def counts_unnamed(constraint: ObjectConstraint) -> bool:
    """Whether it matters that two keys that the schema does not name are different, or that the last one of equal keys
    is the one that counts."""
    return constraint.minimum > len(constraint.required) + 1 or any(
        other.maximum is not None or any(node not in (TRUE, FALSE) for _, node in other.key_classes)
        for other in constraint.negated
    )


def special(constraint: ObjectConstraint, some: Sequence[KeyClass]) -> list[KeyClass]:
    """Those of ``some``, other keys of which there must be one each, whose values not all keys like them have."""
    if len(constraint.key_classes) == 1:
        return [key_class for key_class in some if key_class[1] != constraint.key_classes[0][1]]
    return [
        (keys, node)
        for keys, node in some
        if any(value != node and not (keys & language).is_empty() for language, value in constraint.key_classes)
    ]


def few_keys(keys: StringLanguage) -> list[str]:
    """All strings of a language of a few."""
    return keys.finite_values(MAX_FEW_KEYS) or []


def with_few_named(constraint: ObjectConstraint) -> tuple[ObjectConstraint, list[Others]]:
    """The same with names for the keys of every key class that has only a few, and the key classes that are left: of
    these there is always one more key.

    Raises:
        BudgetExceededError: too many keys are needed out of a finite class.
    """
    while True:
        key_classes = key_classes_of(constraint)
        names = sorted({name for language, _, _ in key_classes for name in few_keys(language)})
        if not names:
            break
        nodes = {name: value_of(constraint, name) for name in names}
        constraint = constraint._replace(
            properties={**constraint.properties, **nodes}, mentioned=constraint.mentioned.union(names)
        )
    if constraint.minimum > MAX_FEW_KEYS and any(language.dfa().is_finite() for language, _, _ in key_classes):
        raise BudgetExceededError(
            f"at least {constraint.minimum} keys out of finitely many that are not named", keyword="minProperties"
        )
    return constraint, key_classes


def key_classes_of(constraint: ObjectConstraint) -> list[Others]:
    """Keys that are not named, by what they must satisfy in a constraint and in every one that it excludes."""
    names = dict.fromkeys(constraint.properties)
    for other in constraint.negated:
        names.update(dict.fromkeys(other.properties))
    key_classes: list[Others] = [
        (language, node, ()) for language, node in without_named(constraint.key_classes, names) if node != FALSE
    ]
    for other in constraint.negated:
        if len(other.key_classes) == 1:
            key_classes = [(language, node, (*nodes, other.key_classes[0][1])) for language, node, nodes in key_classes]
            continue
        split = [
            (language & keys, node, (*nodes, value))
            for language, node, nodes in key_classes
            for keys, value in other.key_classes
        ]
        key_classes = [key_class for key_class in split if not key_class[0].is_empty()]
    return key_classes


def without_named(key_classes: Iterable[KeyClass], names: Iterable[str]) -> list[KeyClass]:
    """The key classes without the named keys."""
    named = StringLanguage.excluding(names) if names else ANY_STRING
    found = [(language, node) for language, node in key_classes]
    if len(found) == 1:
        return [(named, found[0][1])]
    return [(language & named, node) for language, node in found]
