"""Reads ``type``, and the keywords of strings (``pattern``, ``format``, ``minLength``, ``maxLength``)."""

from __future__ import annotations

from typing import Any

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
from dotllm.languages.json_schema.numbers.number_language import INTEGERS
from dotllm.languages.json_schema.reading.keyword_values import count
from dotllm.languages.json_schema.strings.string_language import StringLanguage

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
