"""A refused schema of a tool is named by its place in the request, not in the structural tag that vLLM makes of tools.

``/format/tags/2/content/json_schema/properties/a/type`` is a place in a document that the user has never seen. Which
tool it belongs to is found by its schema: the tag holds it as the request has it (and where two tools have the same
one, it is refused in both). The tag and the tools are remembered where the request becomes sampling parameters, for
what happens from there on in its context: all verdicts are given there, or in tasks that are begun there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any, NamedTuple

from dotllm.errors import SpecError


class _Asked(NamedTuple):
    tag: str
    tools: list[Any]


_asked: ContextVar[_Asked | None] = ContextVar("dotllm_asked_tools", default=None)
_of_anthropic: ContextVar[bool] = ContextVar("dotllm_of_anthropic", default=False)


def of_anthropic() -> None:
    """The request of this context is one of Anthropic's API, which has its schemas elsewhere."""
    _of_anthropic.set(True)


def remember(request: Any, params: Any) -> None:
    """An OpenAI request and the ``SamplingParams`` made of it."""
    tag = getattr(params.structured_outputs, "structural_tag", None)
    tools = getattr(request, "tools", None)
    _asked.set(_Asked(tag, tools) if tag and tools and getattr(request, "tool_choice", None) != "none" else None)


def located(error: SpecError) -> SpecError:
    """The same refusal, with its place in the request if that is known to be in a tool."""
    asked = _asked.get()
    if asked is None or not error.pointer.startswith("/"):
        return error
    tools = [*_schemas(asked.tools)]
    here = json.loads(asked.tag)
    rest = error.pointer.split("/")[1:]
    while rest:
        key = rest.pop(0).replace("~1", "/").replace("~0", "~")
        if isinstance(here, list) and key.isdecimal() and int(key) < len(here):
            here = here[int(key)]
        elif isinstance(here, dict) and key in here:
            here = here[key]
        else:
            return error
        for name, place, schema in tools:
            # (with the type that `tag_rewrite.require_objects` may have added)
            if isinstance(here, dict) and here in (schema, {"type": "object", **schema}):
                return type(error)(
                    f"tool {name!r}: {error.message}", pointer="/".join([place, *rest]), keyword=error.keyword
                )
    return error


def _schemas(tools: list[Any], place: str = "/tools") -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Of each tool the name, where its schema is, and the schema."""
    for i, tool in enumerate(tools):
        here = f"{place}/{i}"
        if isinstance(inner := getattr(tool, "tools", None), list):  # a namespace of Responses
            yield from _schemas(inner, f"{here}/tools")
        function = getattr(tool, "function", None)
        where = "input_schema" if _of_anthropic.get() else "parameters" if function is None else "function/parameters"
        schema = getattr(function or tool, "parameters", None)
        if isinstance(schema, dict):
            yield str(getattr(function or tool, "name", "")), f"{here}/{where}", schema
