"""Keywords that mean nothing where they stand: misspelt ones above all.

The standard has a validator ignore what it does not know (JSON Schema Core 2020-12 §4.3.1), and so does the compiler.
The author of ``"requierd": ["name"]`` wants to hear of it all the same, so ``dotllm check`` asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dotllm.errors import SpecError
from dotllm.languages.json_schema.reading.dialect import ASSERTIONS, Dialect, dialect_named
from dotllm.languages.json_schema.reading.subschemas import pointer, subschemas
from dotllm.languages.json_schema.strings import formats
from dotllm.suggestions import did_you_mean

_ANNOTATIONS = frozenset(
    {"title", "description", "default", "examples", "$comment", "deprecated", "readOnly", "writeOnly"}
)
_STRUCTURE = frozenset(
    {"$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary", "$defs", "definitions"}
)
_CONTENT = frozenset({"contentEncoding", "contentMediaType", "contentSchema"})
_NO_ASSERTIONS = _ANNOTATIONS | _STRUCTURE | _CONTENT
_REMEDIES = {
    "nullable": 'it is OpenAPI 3.0; JSON Schema says {"type": ["string", "null"]}',
    "optional": 'a property is optional unless "required" of its object names it',
    "discriminator": "it is OpenAPI; the branches of oneOf say which is which by const",
}


class UnknownKeyword(NamedTuple):
    """One keyword, or one name of a format, that asserts nothing."""

    pointer: str
    """JSON Pointer (RFC 6901) of the keyword."""
    message: str


def unknown_keywords(schema: Any, default_dialect: str = "2020-12") -> Iterator[UnknownKeyword]:
    """Find the unknown keywords of ``schema`` (what `json.loads` gives).

    Names that begin with ``x-`` are extensions by custom, and left alone.

    Yields:
        Each unknown keyword, in the order of the text.

    Raises:
        InvalidSpecError: ``default_dialect`` is no known dialect.
    """
    for node, path, dialect in subschemas(schema, dialect_named(default_dialect)):
        for keyword, value in node.items():
            message = _about(keyword, value, dialect)
            if message is not None:
                yield UnknownKeyword(pointer((*path, keyword)), message)


def _about(keyword: str, value: Any, dialect: Dialect) -> str | None:
    """Why ``keyword`` asserts nothing, with what was probably meant; None for one that means something."""
    if keyword == "format" and isinstance(value, str):
        return _about_format(value)
    if keyword in ASSERTIONS[dialect] or keyword in _NO_ASSERTIONS or keyword.startswith("x-"):
        return None
    if keyword in _REMEDIES:
        return f"{keyword!r} is no keyword of JSON Schema: {_REMEDIES[keyword]}"
    if any(keyword in known for known in ASSERTIONS.values()):
        return f"{keyword!r} is no keyword of {dialect.uri}, the schema's dialect"
    meant = did_you_mean(keyword, ASSERTIONS[dialect] | _NO_ASSERTIONS)
    return f"{keyword!r} is no keyword of JSON Schema{meant and '; '}{meant}"


def _about_format(name: str) -> str | None:
    try:
        if formats.find(name) is not None:
            return None
    except SpecError:  # the compiler refuses it, with its place
        return None
    meant = did_you_mean(name, formats.FORMATS)
    return f"the format {name!r} is not known and asserts nothing{meant and '; '}{meant}"
