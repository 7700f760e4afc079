"""Arguments of a call come back with the types that the tool's schema has behind its references.

Most of vLLM's tool parsers (qwen3_coder, glm47, kimi_k2, minimax_m2, deepseek_v32, …) look up in the tool's schema what
type a value shall have, and convert it. They follow no ``$ref`` and do not know ``const``: a number or an object behind
one comes back as a string, however right the call was (vLLM issue 46924). Pydantic writes a reference for each nested
model and enumeration.

So we give the parsers properties without references. Each schema lists all its possible types in ``type``, and has
``properties``, ``items`` and ``additionalProperties`` if only one of its alternatives has them. A recursive schema
becomes a cyclic object. Schemas with neither keyword, and very large ones, are left as they are.

The parsers have a second fault. If a value may be a string, or an object or array, they read any JSON text as the
latter. Where a string or a list of strings was allowed, the string ``27`` came back as a number, and ``"a"`` lost its
quotes. Now both are strings.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.hook import Hook, Original, Target

_MODULE = "vllm.tool_parsers.utils"

HOOK = Hook(
    name="argument-types",
    summary="arguments of calls come back with the types that the tool's schema has for them",
    targets=(Target(_MODULE, "extract_types_from_schema", ("schema",)),),
    without_it="from many tool parsers, numbers and objects behind a $ref come back as strings, and strings as what "
    "they are as JSON",
)

_TYPES: dict[type, frozenset[str]] = {
    type(None): frozenset({"null"}), bool: frozenset({"boolean"}), int: frozenset({"integer", "number"}),
    float: frozenset({"number"}), dict: frozenset({"object"}), list: frozenset({"array"}), str: frozenset(),
}  # fmt: skip
"""What a value that was read may be by a schema; a string is what there was before."""
_NAMES = frozenset({"string"}).union(*_TYPES.values())  # vLLM knows others, as "int"

_OF_TYPE = {"type", "enum"}
_IN_PLACE = ("anyOf", "oneOf", "allOf")
# Of schemas visited for one tool: milliseconds. It is done in the event loop.
_MOST_STEPS = 10_000

_known: dict[int, tuple[weakref.ref[Any], dict[str, Any]]] = {}
"""What `properties_of` found, by the identity of the tool's function, while that lives: parsers ask for every token."""


def properties_of(function: Any) -> dict[str, Any]:
    """The ``properties`` of a function's ``parameters``, without references."""
    key = id(function)
    if key not in _known:
        read = _Reader(function.parameters).properties()
        _known[key] = weakref.ref(function, lambda _: _known.pop(key, None)), read
    return _known[key][1]


class _Reader:
    """One schema, read anew."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.steps = 0
        self.follows = False
        """Whether there was something that vLLM would not have understood."""
        self.nodes: dict[int, dict[str, Any]] = {}

    def properties(self) -> dict[str, Any]:
        try:
            top = self._node(self.root)
        except RecursionError:  # too large, or too deep
            self.follows = False
        found = top.get("properties", {}) if self.follows else self.root.get("properties", {})
        return found if isinstance(found, dict) else {}

    def _node(self, schema: Any) -> Any:
        """What stands for ``schema``, which may be within it."""
        from vllm.tool_parsers.utils import extract_types_from_schema

        if not isinstance(schema, dict):
            return schema
        if id(schema) in self.nodes:
            return self.nodes[id(schema)]
        node = self.nodes[id(schema)] = {}
        parts = list(self._parts(schema))
        self.follows |= any("$ref" in part or "const" in part for part in parts)
        told = [
            {"enum": [part["const"]]} if "const" in part else {key: part[key] for key in _OF_TYPE & part.keys()}
            for part in parts
            if part.keys() & {"const", *_OF_TYPE} or not part.keys() & {"$ref", *_IN_PLACE}
        ]  # (what says nothing is a string, as vLLM has it)
        node["type"] = sorted(extract_types_from_schema({"anyOf": told})) if told else "string"
        for keyword in ("properties", "items", "additionalProperties"):
            having = [part[keyword] for part in parts if keyword in part]
            if len(having) != 1:
                continue
            if keyword != "properties":
                node[keyword] = self._node(having[0])
            elif isinstance(having[0], dict):
                node[keyword] = {name: self._node(value) for name, value in having[0].items()}
        return node

    def _parts(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The schema and all that it consists of in place: what it refers to, and its alternatives."""
        seen, todo = set(), [schema]
        while todo:
            one = todo.pop()
            if not isinstance(one, dict) or id(one) in seen:
                continue
            self.steps += 1
            if self.steps > _MOST_STEPS:
                raise RecursionError
            seen.add(id(one))
            yield one
            if isinstance(one.get("$ref"), str):
                todo.append(self._target(one["$ref"]))
            for keyword in _IN_PLACE:
                if isinstance(one.get(keyword), list):
                    todo.extend(one[keyword])

    def _target(self, reference: str) -> Any:
        """What a JSON Pointer leads to; other references are left (they are rare, and vLLM's answer is no error)."""
        from dotllm.languages.json_schema.reading.document import below

        found: Any = self.root
        if reference != "#" and not reference.startswith("#/"):
            return None
        for token in unquote(reference).split("/")[1:]:
            step = below(found, token)
            if step is None:
                return None
            (found,) = step
        return found


@HOOK.replaces(f"{_MODULE}:find_tool_properties")
def _find_tool_properties(tools: Sequence[object] | None, tool_name: str, *, original: Original) -> dict[str, Any]:
    for tool in (tools or ()) if engine_info.serves() else ():
        function = getattr(tool, "function", tool)  # the Responses API has no function in its tools
        if getattr(function, "name", None) == tool_name and isinstance(getattr(function, "parameters", None), dict):
            return properties_of(function)
    found: dict[str, Any] = original(tools, tool_name)
    return found


@HOOK.replaces(f"{_MODULE}:coerce_to_schema_type")
def _coerce_to_schema_type(value: str, schema_type: str | list[str], *, original: Original) -> object:
    found = original(value, schema_type)
    if "string" not in schema_type or not _NAMES.issuperset(schema_type) or not engine_info.serves():
        return found
    return found if _TYPES[type(found)].intersection(schema_type) else value
