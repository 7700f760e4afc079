"""Reads ``type``, the keywords of strings and numbers, and the values of single keywords."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dotllm.errors import BudgetExceededError, InvalidSpecError, SpecError
from dotllm.languages.json_input import is_unicode
from dotllm.languages.json_schema.algebra.algebra import Algebra
from dotllm.languages.json_schema.algebra.normal_form import (
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_STRING,
    FALSE_BIT,
    NO_NUMBER,
    NO_STRING,
    NULL_BIT,
    TRUE_BIT,
    NormalForm,
)
from dotllm.languages.json_schema.numbers.number_language import INTEGERS, NumberLanguage
from dotllm.languages.json_schema.numbers.real_set import exact
from dotllm.languages.json_schema.strings.string_language import StringLanguage

# The values of single keywords: numbers, counts, keys. `meta_schema` has refused malformed values.

MAX_LENGTH = 2**30 - 1
SMALL = 1_000  # bits; up to here a number is not too large


def numeric(schema: dict[str, Any], among: NumberLanguage) -> NumberLanguage:
    """The numbers of ``among`` that satisfy minimum, maximum, their exclusive forms (numbers, or booleans as in draft
    4) and multipleOf."""
    low, high = number(schema, "minimum"), number(schema, "maximum")
    low_open = high_open = False
    bound = schema.get("exclusiveMinimum", False)
    if isinstance(bound, bool):
        low_open = bound
    else:
        bound = number(schema, "exclusiveMinimum")
        if low is None or bound >= low:
            low, low_open = bound, True
    bound = schema.get("exclusiveMaximum", False)
    if isinstance(bound, bool):
        high_open = bound
    else:
        bound = number(schema, "exclusiveMaximum")
        if high is None or bound <= high:
            high, high_open = bound, True
    step = number(schema, "multipleOf")
    if among is INTEGERS and step is None and type(low) is int and type(high) is int and not (low_open or high_open):
        return NumberLanguage.integers_between(low, high)
    if low is not None or high is not None:
        among = among & NumberLanguage.interval(low, high, low_open=low_open, high_open=high_open)
    return among if step is None else among & NumberLanguage.multiple_of(step)


def number(schema: dict[str, Any], keyword: str) -> Any:
    """The number that a keyword has; None if it is absent. Raises BudgetExceededError if it has too many digits."""
    value: Any = schema.get(keyword)
    if value is None:
        return None
    if not isinstance(value, int) or value.bit_length() > SMALL:
        try:
            exact(value)
        except SpecError as error:
            raise with_keyword(error, keyword) from None
    return value


def with_keyword(error: SpecError, keyword: str) -> SpecError:
    """An error about a value, with ``keyword`` as its keyword if it has none."""
    return error if error.keyword or error.location else error.at(None, keyword)


def count(schema: dict[str, Any], keyword: str) -> int | None:
    """The non-negative integer of a keyword (1.0 is 1); None if absent. Raises BudgetExceededError if too large."""
    if keyword not in schema:
        return None
    value = number(schema, keyword)
    if value <= MAX_LENGTH:
        return int(value)
    if keyword.startswith("max"):
        return None  # no text is that long
    raise BudgetExceededError(f"{keyword} is larger than {MAX_LENGTH}", keyword=keyword)


def check_text(names: Iterable[str], keyword: str) -> None:
    """Raise InvalidSpecError for a name that is not Unicode text: no key of a document can equal it."""
    if not is_unicode("".join(names)):
        wrong = next(name for name in names if not is_unicode(name))
        raise InvalidSpecError(f"the key {wrong!r} is not Unicode text", keyword=keyword)


TYPES: dict[str, NormalForm] = {
    "null": NormalForm(NULL_BIT, NO_NUMBER, NO_STRING, (), ()),
    "boolean": NormalForm(FALSE_BIT | TRUE_BIT, NO_NUMBER, NO_STRING, (), ()),
    "number": NormalForm(0, ANY_NUMBER, NO_STRING, (), ()),
    "integer": NormalForm(0, INTEGERS, NO_STRING, (), ()),
    "string": NormalForm(0, NO_NUMBER, ANY_STRING, (), ()),
    "array": NormalForm(0, NO_NUMBER, NO_STRING, (ANY_ARRAY,), ()),
    "object": NormalForm(0, NO_NUMBER, NO_STRING, (), (ANY_OBJECT,)),
}

SCALARS = {name: form for name, form in TYPES.items() if not form.arrays and not form.objects}
"""Most sub-schemas are only one of these types. They cannot be at fault, so they need no place: all sub-schemas of a
type are one node."""


def form_of_types(algebra: Algebra, types: Any) -> NormalForm:
    """The values that ``type`` allows."""
    if isinstance(types, str):
        return TYPES[types]
    return algebra.unite([TYPES[name] for name in types if name != "integer" or "number" not in types])


def strings_of(schema: dict[str, Any]) -> StringLanguage:
    """The strings that minLength, maxLength, pattern and format allow."""
    low, high = count(schema, "minLength") or 0, count(schema, "maxLength")
    out = ANY_STRING if not low and high is None else StringLanguage.length(low, high)
    if "pattern" in schema:
        out = out & StringLanguage.pattern(schema["pattern"])
    if "format" in schema:
        language = StringLanguage.format(schema["format"])
        if language is not None:
            out = out & language
    return out
