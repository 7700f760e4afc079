"""Gives the arguments of a call the types that the tool's schema says, and follows references to find them.

Most of vLLM's tool parsers (qwen3_coder, glm47, kimi_k2, minimax_m2, deepseek_v32, …) look up the type of a value in
the tool's schema, and convert the value. They do not follow ``$ref`` and do not know ``const``, so a number or an
object under one of these comes back as a string, even if the call is right (vLLM issue 46924). Pydantic writes a
reference for each nested model and enumeration.

So we give the parsers properties without references (`languages.json_schema.flat_properties`).

If the notation says the type of each value, the arguments of a strict tool are right as written, and nothing is
converted: the string ``"27"`` stays a string even where a number is allowed.

The parsers have a second fault. If a value may be a string, but also an object or array, they parse any text that is
JSON. Where a string or a list of strings is allowed, the string ``27`` comes back as a number, and ``"a"`` loses its
quotes. Here both stay strings. So do texts that are not a JSON number, boolean or null, such as ``00501``, or ``0`` for
false.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from typing import Any

from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.tools import tag_rewrite

_MODULE = "vllm.tool_parsers.utils"

HOOK = Hook(
    summary="arguments of calls come back with the types that the tool's schema gives them",
    targets=(Target(_MODULE, "extract_types_from_schema", ("schema",)),),
    without_it="many tool parsers return numbers and objects under a $ref as strings, and strings that look like other "
    "JSON values as those values",
)

_TYPES: dict[type, frozenset[str]] = {
    type(None): frozenset({"null"}), bool: frozenset({"boolean"}), int: frozenset({"integer", "number"}),
    float: frozenset({"number"}), dict: frozenset({"object"}), list: frozenset({"array"}), str: frozenset(),
}  # fmt: skip
"""The schema types that allow a converted value, by its type. A value that the schema does not allow stays a string."""
_NAMES = frozenset({"string"}).union(*_TYPES.values())  # vLLM knows others, such as "int"

_NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
_AS_JSON = {type(None): "null", bool: "true|false", int: _NUMBER, float: _NUMBER}
"""How JSON writes a converted value."""

_AS_WRITTEN: dict[str, Any] = {}
_known: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}
"""What `properties_of` found, by the function's id, while the function lives: parsers ask at every token."""


def properties_of(function: Any) -> dict[str, Any]:
    """The ``properties`` of a function's ``parameters``, without references."""
    from vllm.tool_parsers import utils

    from dotllm.languages.json_schema import flat_properties

    if id(function) not in _known:
        _remember(function, flat_properties.properties(function.parameters, utils.extract_types_from_schema))
    return _known[id(function)][1]


def leave_as_written(function: Any) -> None:
    """Convert no argument of this function, while it lives."""
    _remember(function, _AS_WRITTEN)


def is_as_written(function: Any) -> bool:
    """Whether no argument of this function is converted (`leave_as_written`)."""
    return id(function) in _known and _known[id(function)][1] is _AS_WRITTEN


def convert_again(function: Any) -> None:
    """Convert the arguments of this function by its schema again."""
    _known.pop(id(function), None)


def _remember(function: Any, properties: dict[str, Any]) -> None:
    key = id(function)
    _known[key] = weakref.ref(function, lambda _: _known.pop(key, None)), properties


@HOOK.replaces(f"{_MODULE}:find_tool_properties")
def _find_tool_properties(tools: Sequence[object] | None, tool_name: str, *, original: Original) -> dict[str, Any]:
    for _, name, function in tag_rewrite.functions(tools or ()) if engine_info.serves() else ():
        if name == tool_name and isinstance(getattr(function, "parameters", None), dict):
            return properties_of(function)
    properties: dict[str, Any] = original(tools, tool_name)
    return properties


@HOOK.replaces(f"{_MODULE}:coerce_to_schema_type")
def _coerce_to_schema_type(value: str, schema_type: str | list[str], *, original: Original) -> object:
    converted = original(value, schema_type)
    if "string" not in schema_type or not _NAMES.issuperset(schema_type) or not engine_info.serves():
        return converted
    written = _AS_JSON.get(type(converted))
    if written is not None and not re.fullmatch(written, value.strip()):
        return value
    return converted if _TYPES[type(converted)].intersection(schema_type) else value
