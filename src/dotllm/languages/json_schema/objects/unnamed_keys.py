"""The keys that a schema does not name, by what their values must satisfy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dotllm.errors import BudgetExceeded
from dotllm.languages.json_schema.algebra.form import (
    ANY_STRING,
    FALSE,
    TRUE,
    Node,
    ObjectShape,
    Region,
    value_of,
)
from dotllm.languages.json_schema.strings.string_language import StringLanguage

MAX_FEW_KEYS = 64

Others = tuple[StringLanguage, Node, tuple[Node, ...]]
"""Keys that are not named, their values, and those of the same keys in each excluded shape."""


def counts_unnamed(shape: ObjectShape) -> bool:
    """Whether it matters that two keys that the schema does not name are different, or that the last one of equal keys
    is the one that counts."""
    return shape.minimum > len(shape.required) + 1 or any(
        other.maximum is not None or any(node not in (TRUE, FALSE) for _, node in other.regions)
        for other in shape.negated
    )


def special(shape: ObjectShape, some: Sequence[Region]) -> list[Region]:
    """Those of ``some``, other keys of which there must be one each, whose values not all keys like them have."""
    if len(shape.regions) == 1:
        return [region for region in some if region[1] != shape.regions[0][1]]
    return [
        (keys, node)
        for keys, node in some
        if any(value != node and not (keys & language).is_empty() for language, value in shape.regions)
    ]


def few(keys: StringLanguage) -> list[str]:
    """All strings of a language of a few."""
    return keys.finite_values(MAX_FEW_KEYS) or []


def with_few_named(shape: ObjectShape) -> tuple[ObjectShape, list[Others]]:
    """The same with names for the keys of every region that has only a few, and the regions that are left: of these
    there is always one more key."""
    while True:
        regions = regions_of(shape)
        few = sorted({name for language, _, _ in regions for name in few(language)})
        if not few:
            break
        nodes = {name: value_of(shape, name) for name in few}
        shape = shape._replace(properties={**shape.properties, **nodes}, mentioned=shape.mentioned.union(few))
    if shape.minimum > MAX_FEW_KEYS and any(language.dfa().is_finite() for language, _, _ in regions):
        raise BudgetExceeded(
            f"at least {shape.minimum} keys out of finitely many that are not named", keyword="minProperties"
        )
    return shape, regions


def regions_of(shape: ObjectShape) -> list[Others]:
    """Keys that are not named, by what they must satisfy in a shape and in every one that it excludes."""
    names = dict.fromkeys(shape.properties)
    for other in shape.negated:
        names.update(dict.fromkeys(other.properties))
    regions: list[Others] = [
        (language, node, ()) for language, node in other_keys(shape.regions, names) if node != FALSE
    ]
    for other in shape.negated:
        if len(other.regions) == 1:
            regions = [(language, node, (*nodes, other.regions[0][1])) for language, node, nodes in regions]
            continue
        split = [
            (language & keys, node, (*nodes, value))
            for language, node, nodes in regions
            for keys, value in other.regions
        ]
        regions = [region for region in split if not region[0].is_empty()]
    return regions


def other_keys(regions: Iterable[Region], names: Iterable[str]) -> list[Region]:
    """The regions without the named keys."""
    named = StringLanguage.excluding(names) if names else ANY_STRING
    found = [(language, node) for language, node in regions]
    if len(found) == 1:
        return [(named, found[0][1])]
    return [(language & named, node) for language, node in found]
