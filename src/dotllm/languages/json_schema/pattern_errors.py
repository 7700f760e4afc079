"""Finds the pattern of a schema that caused an error of a regular expression.

Patterns are compiled late, when a normal form no longer knows its sub-schemas. So this module compiles the patterns of
the schema again and takes the one that fails with the same message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dotllm.errors import Pointer, Related, SpecError, escaped
from dotllm.grammar.grammar import Grammar
from dotllm.languages.regex import regex_to_expression


def locate_pattern_error(error: SpecError, schema: Any) -> SpecError:
    """``error`` with the pattern that raises it and the pattern's JSON Pointer in ``schema``, if there is one."""
    for pointer, keyword, pattern in _patterns(schema):
        try:
            regex_to_expression(pattern, Grammar(), search=True, dialect="ecma")
        except SpecError as found:
            if str(found) == str(error):
                message = f"{keyword} {_shortened(pattern)}: {error}"
                related = [Related(Pointer(pointer).around(error.location), "here")]
                return error.replaced(
                    message=message, location=Pointer(pointer), keyword=keyword, help="", related=related
                )
    return error


def _patterns(schema: Any) -> Iterator[tuple[str, str, str]]:
    """(JSON Pointer, keyword, pattern), in no particular order; without recursion, as schemas may be deep."""
    stack: list[tuple[Any, str]] = [(schema, "")]
    while stack:  # bounded: by the document, for an error
        value, pointer = stack.pop()
        if isinstance(value, list):
            stack += [(item, f"{pointer}/{position}") for position, item in enumerate(value)]
        if not isinstance(value, dict):
            continue
        pattern, properties = value.get("pattern"), value.get("patternProperties")
        if isinstance(pattern, str):
            yield f"{pointer}/pattern", "pattern", pattern
        if isinstance(properties, dict):
            for source in properties:
                yield f"{pointer}/patternProperties/{escaped(str(source))}", "patternProperties", source
        stack += [(child, f"{pointer}/{escaped(str(key))}") for key, child in value.items()]


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:60] + "…")
