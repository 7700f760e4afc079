"""The keywords that only describe a value, with the types that the meta-schemas ask of them.

They never make a document invalid (JSON Schema Validation 2020-12 §8 and §9), and published schemas have a list of
lines as ``description`` or null as ``title``. So a value of the wrong type is not refused: the keyword counts as
absent, and `ineffective_keywords` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dotllm.languages.json_schema.reading.dialect import Dialect

_TYPES_SINCE: dict[Dialect, dict[str, type[Any]]] = {
    Dialect.DRAFT4: {"title": str, "description": str},
    Dialect.DRAFT6: {"examples": list},
    Dialect.DRAFT7: {"$comment": str, "contentEncoding": str, "contentMediaType": str, "readOnly": bool},
    Dialect.DRAFT2019: {"deprecated": bool, "writeOnly": bool},
}
TYPES: dict[Dialect, dict[str, type[Any]]] = {
    dialect: {name: kind for since, types in _TYPES_SINCE.items() if since <= dialect for name, kind in types.items()}
    for dialect in Dialect
}
NAMES = {str: "a string", bool: "a boolean", list: "a list"}


def malformed(schema: Mapping[str, Any], dialect: Dialect) -> list[str]:
    """The annotations of ``schema`` that have a value of the wrong type."""
    types = TYPES[dialect]
    return [name for name in types.keys() & schema.keys() if not isinstance(schema[name], types[name])]
