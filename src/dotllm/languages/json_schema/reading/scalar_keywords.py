"""``type``, and the keywords of strings."""

from __future__ import annotations

from typing import Any

from dotllm.errors import InvalidSpecError
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
from dotllm.languages.json_schema.reading.keyword_values import INTEGERS, count
from dotllm.languages.json_schema.strings.string_language import StringLanguage
from dotllm.suggestions import did_you_mean

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
"""Most sub-schemas are no more than one of these. Nothing can go wrong with them, so they need no place: all of a type
are one node."""


_OTHER_LANGUAGES = {
    **dict.fromkeys(("str", "text", "char", "String"), "string"),
    **dict.fromkeys(("int", "long", "int32", "int64"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "Decimal"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map", "record", "struct"), "object"),
    **dict.fromkeys(("None", "nil", "NoneType", "undefined"), "null"),
}
"""What other languages call a type of JSON."""


def _meant(name: str) -> str:
    """What to write instead of the type ``name``."""
    if name in _OTHER_LANGUAGES:
        return f'JSON Schema says "{_OTHER_LANGUAGES[name]}"'
    if name in ("any", "Any", "unknown"):
        return "without type, any value is allowed"
    return did_you_mean(name, TYPES) or f"the types are {', '.join(TYPES)}"


def form_of_types(algebra: Algebra, types: Any) -> NormalForm:
    """The values of ``type``.

    Raises:
        InvalidSpecError: there is no such type.
    """
    if isinstance(types, str):
        found = TYPES.get(types)
        if found is None:
            raise InvalidSpecError(f"unknown type {types!r}", keyword="type", code="unknown_type", help=_meant(types))
        return found
    if not isinstance(types, list) or not types:
        raise InvalidSpecError("type must be a name or a non-empty list of names", keyword="type")
    names = [name for name in types if name != "integer" or "number" not in types]
    return algebra.unite([form_of_types(algebra, name if isinstance(name, str) else repr(name)) for name in names])


def strings_of(schema: dict[str, Any]) -> StringLanguage:
    """The strings with minLength, maxLength, pattern and format.

    Raises:
        InvalidSpecError: a keyword has a malformed value.
    """
    low, high = count(schema, "minLength") or 0, count(schema, "maxLength")
    out = ANY_STRING if not low and high is None else StringLanguage.length(low, high)
    if "pattern" in schema:
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            raise InvalidSpecError("pattern must be a string", keyword="pattern")
        out = out & StringLanguage.pattern(pattern)
    if "format" in schema:
        name = schema["format"]
        if not isinstance(name, str):
            raise InvalidSpecError("format must be a string", keyword="format")
        language = StringLanguage.format(name)
        if language is not None:
            out = out & language
    return out
