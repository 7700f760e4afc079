"""The dialects of JSON Schema (drafts 4, 6, 7, 2019-09, 2020-12): how each is recognised, and its keywords.

A keyword that a dialect does not have is an annotation there (JSON Schema Core 2020-12 §4.3.1; all drafts say the same
in other words): we ignore it, as every validator does. Three keywords outlived the draft that dropped them and have no
other meaning in later drafts, so they are enforced in every dialect: ``dependencies``, ``items`` as a list together
with ``additionalItems``, and boolean ``exclusiveMinimum``/``exclusiveMaximum``.

https://json-schema.org/specification
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Any

from dotllm.errors import InvalidSpecError, UnsupportedError


class Dialect(IntEnum):
    """A draft, ordered by age."""

    DRAFT4 = 4
    DRAFT6 = 6
    DRAFT7 = 7
    DRAFT2019 = 2019
    DRAFT2020 = 2020

    __hash__ = int.__hash__  # each sub-schema asks for the keywords of its dialect, and Enum's is a Python function

    @property
    def uri(self) -> str:
        """The ``$schema`` of this dialect, as the `referencing` library knows it."""
        return _URI[self]


_URI = {
    Dialect.DRAFT4: "http://json-schema.org/draft-04/schema#",
    Dialect.DRAFT6: "http://json-schema.org/draft-06/schema#",
    Dialect.DRAFT7: "http://json-schema.org/draft-07/schema#",
    Dialect.DRAFT2019: "https://json-schema.org/draft/2019-09/schema",
    Dialect.DRAFT2020: "https://json-schema.org/draft/2020-12/schema",
}

_OPENAPI_3_1 = re.compile(r"spec\.openapis\.org/oas/3\.[1-9]/dialect/[-a-z0-9]+")
"""The dialect of OpenAPI 3.1 and later is 2020-12 with further annotations."""
_DRAFT = re.compile(r"draft-?0?([467])\b|(2019-09|2020-12)")

_BY_NAME = {"2019-09": Dialect.DRAFT2019, "2020-12": Dialect.DRAFT2020} | {
    name.format(int(dialect)): dialect
    for dialect in (Dialect.DRAFT4, Dialect.DRAFT6, Dialect.DRAFT7)
    for name in ("{}", "draft{}", "draft-0{}")
}

# By ``$schema`` without its scheme and without an empty fragment.
_BY_URI = {uri.split("://")[1].rstrip("#"): dialect for dialect, uri in _URI.items()}
# "the latest version", as old generators write it
_LATEST = "json-schema.org/schema"

_ALWAYS = (
    frozenset({"type", "enum", "allOf", "anyOf", "oneOf", "not", "$ref"})
    | {"multipleOf", "maximum", "minimum", "exclusiveMaximum", "exclusiveMinimum"}
    | {"maxLength", "minLength", "pattern", "format"}
    | {"items", "additionalItems", "maxItems", "minItems", "uniqueItems"}
    | {"maxProperties", "minProperties", "required", "properties", "patternProperties", "additionalProperties"}
    | {"dependencies"}
)
_SINCE_6 = _ALWAYS | {"const", "contains", "propertyNames"}
_SINCE_7 = _SINCE_6 | {"if", "then", "else"}
_SINCE_2019 = _SINCE_7 | {
    "minContains",
    "maxContains",
    "dependentRequired",
    "dependentSchemas",
    "unevaluatedProperties",
    "unevaluatedItems",
}

ASSERTIONS: dict[Dialect, frozenset[str]] = {
    Dialect.DRAFT4: _ALWAYS,
    Dialect.DRAFT6: _SINCE_6,
    Dialect.DRAFT7: _SINCE_7,
    Dialect.DRAFT2019: _SINCE_2019 | {"$recursiveRef"},
    Dialect.DRAFT2020: _SINCE_2019 | {"prefixItems", "$dynamicRef"},
}
"""The keywords that can make a document invalid, per dialect."""


def dialect_named(name: str) -> Dialect:
    """The dialect of a name (``"2020-12"``, ``"7"``, ``"draft-07"`` …) or ``$schema`` URI. Raises InvalidSpecError."""
    result = _BY_NAME.get(name)
    if result is None:
        result = _BY_URI.get(name.split("://")[-1].rstrip("#"))
    if result is None:
        raise InvalidSpecError(f"unknown JSON Schema dialect {name!r}; known: 4, 6, 7, 2019-09, 2020-12")
    return result


def name_of_identifier(dialect: Dialect) -> str:
    """The keyword that makes a schema a separate resource."""
    return "id" if dialect is Dialect.DRAFT4 else "$id"


def identifier_of(schema: dict[str, Any], dialect: Dialect) -> str | None:
    """The identifier that makes ``schema`` a separate resource; None if it has none. ``$schema`` counts only in
    resources."""
    value = schema.get(name_of_identifier(dialect))
    if not isinstance(value, str) or value.startswith("#") or (dialect <= Dialect.DRAFT7 and "$ref" in schema):
        return None
    return value


def lacks_number_sign(reference: object) -> bool:
    """Whether a reference looks like a pointer into its document without the ``#``. LiteLLM writes ``/$defs/Name``
    into the schemas that it makes for Anthropic's API."""
    return isinstance(reference, str) and reference.startswith(("/$defs/", "/definitions/"))


def is_openapi_3_1(declared: object) -> bool:
    """Whether a ``$schema`` is the dialect of OpenAPI 3.1 or later."""
    return isinstance(declared, str) and _OPENAPI_3_1.fullmatch(declared.split("://")[-1].rstrip("#")) is not None


def detect(schema: object, default: Dialect) -> Dialect:
    """The dialect that a (sub-)schema declares with ``$schema``; ``default`` if it declares none.

    Raises:
        InvalidSpecError: ``$schema`` is not a string.
        UnsupportedError: ``$schema`` names an unknown dialect.
    """
    if not isinstance(schema, dict):
        return default
    if "$schema" not in schema:
        return default
    declared = schema["$schema"]
    if not isinstance(declared, str):
        help = "leave it out" if declared is None else ""
        raise InvalidSpecError("$schema must be a string", keyword="$schema", help=help)
    name = declared.split("://")[-1].rstrip("#")
    if name == _LATEST or not name:
        return default
    result = Dialect.DRAFT2020 if is_openapi_3_1(declared) else _BY_URI.get(name)
    if result is None:
        named = _DRAFT.search(declared)
        meant = named and _BY_NAME[named[1] or named[2]].uri
        raise UnsupportedError(
            f"$schema {declared!r} is not a dialect dotllm knows (drafts 4, 6, 7, 2019-09, 2020-12)",
            keyword="$schema",
            help=f'write "{meant}"' if meant else "leave it out, or name one of these",
        )
    return result


# The keywords of all dialects, grouped by the type that they constrain.

NUMERIC = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
STRINGS = frozenset({"minLength", "maxLength", "pattern", "format"})
ARRAYS = frozenset(
    {"items", "prefixItems", "additionalItems", "contains", "minContains", "maxContains", "minItems", "maxItems"}
    | {"uniqueItems"}
)
OBJECTS = frozenset(
    {"properties", "patternProperties", "additionalProperties", "propertyNames", "required", "minProperties"}
    | {"maxProperties", "dependentRequired", "dependencies"}
)
IN_PLACE = frozenset(
    {"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
    | {"dependencies"}
)
UNEVALUATED = frozenset({"unevaluatedProperties", "unevaluatedItems"})
DECLARING = frozenset({"properties", "additionalProperties"})
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
