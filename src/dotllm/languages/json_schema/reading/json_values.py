"""Turns the JSON values of ``enum`` and ``const`` into forms and nodes."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from dotllm.errors import InvalidSpecError
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import (
    ALL_NAMED,
    FALSE,
    FALSE_BIT,
    NO_KEY_CLASSES,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    ArrayConstraint,
    Node,
    NormalForm,
    ObjectConstraint,
)
from dotllm.languages.json_schema.numbers.number_language import NumberLanguage
from dotllm.languages.json_schema.reading.scalar_keywords import check_text
from dotllm.languages.json_schema.strings.string_language import StringLanguage


def form_of_values(algebra: Algebra, values: Iterable[Any]) -> NormalForm:
    """The form of exactly these JSON values (numbers as int, float, Decimal or Fraction). Raises InvalidSpecError."""
    constants = 0
    strings: list[str] = []
    numbers: list[int | float | Decimal | Fraction] = []
    array_constraints: list[ArrayConstraint] = []
    object_constraints: list[ObjectConstraint] = []
    for value in values:
        if isinstance(value, str):
            strings.append(value)
        elif value is None:
            constants |= NULL_BIT
        elif isinstance(value, bool):
            constants |= TRUE_BIT if value else FALSE_BIT
        elif isinstance(value, (int, float, Decimal, Fraction)):
            numbers.append(value)
        elif isinstance(value, list):
            items = tuple(node_of_value(algebra, item) for item in value)
            array_constraints.append(ArrayConstraint(items, FALSE, len(items), len(items)))
        elif isinstance(value, dict):
            for name in value:
                if not isinstance(name, str):  # which is possible in Python
                    raise InvalidSpecError(f"the key {name!r} is not a string")
            check_text(value, "")
            members = {name: node_of_value(algebra, member) for name, member in value.items()}
            object_constraints.append(ObjectConstraint(members, NO_KEY_CLASSES, frozenset(members), named=ALL_NAMED))
        else:
            raise InvalidSpecError(f"{value!r} is not a JSON value")
    return NormalForm(
        constants,
        NumberLanguage.finite(numbers) if numbers else NO_NUMBER,
        StringLanguage.finite(strings) if strings else NO_STRING,
        tuple(array_constraints),
        tuple(object_constraints),
    )


def node_of_value(algebra: Algebra, value: Any) -> Node:
    """The node of exactly one JSON value. Raises `InvalidSpecError`."""
    key = ("value", type(value), _Identity(value) if isinstance(value, (list, dict)) else value)
    return algebra.of_form(form_of_values(algebra, [value]), key)


class _Identity:
    """A list or dictionary as part of a key, which is equal only to itself and keeps the value alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.value is self.value
