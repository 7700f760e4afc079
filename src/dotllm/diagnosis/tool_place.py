"""A refused schema of a tool is named by its place in the request, not in the structural tag that vLLM makes of tools.

``/format/tags/2/content/json_schema/properties/a/type`` is a place in a document that the user has never seen. Which
tool it belongs to is found by its schema: the tag holds it as the request has it (and where two tools have the same
one, it is refused in both).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_MESSAGE = re.compile(r"(.*) \(at (/.*)\)", re.DOTALL)
"""As `dotllm.errors.SpecError` writes it: from the engine comes only the text."""


def located(message: str, tag: str, tools: list[object], *, of_anthropic: bool = False) -> str:
    """The message of a refusal of ``tag``, with the place in the request's ``tools`` if that is known to be in one.

    ``of_anthropic``: the request is one of Anthropic's API, which has its schemas elsewhere.
    """
    from dotllm.languages.json_schema.reading.document import below

    found = _MESSAGE.fullmatch(message)
    if found is None:
        return message
    schemas = [*_schemas(tools, of_anthropic)]
    here = json.loads(tag)
    rest = found[2].split("/")[1:]
    while rest:
        step = below(here, rest.pop(0))
        if step is None:
            return message
        (here,) = step
        for name, place, schema in schemas:
            # (with the type that `tag_rewrite.require_objects` may have added)
            if isinstance(here, dict) and here in (schema, {"type": "object", **schema}):
                return f"tool {name!r}: {found[1]} (at {'/'.join([place, *rest])})"
    return message


def _schemas(
    tools: list[object], of_anthropic: bool, place: str = "/tools"
) -> Iterator[tuple[str, str, dict[str, object]]]:
    """Of each tool the name, where its schema is, and the schema."""
    for i, tool in enumerate(tools):
        here = f"{place}/{i}"
        if isinstance(inner := getattr(tool, "tools", None), list):  # a namespace of Responses
            yield from _schemas(inner, of_anthropic, f"{here}/tools")
        function = getattr(tool, "function", None)
        where = "input_schema" if of_anthropic else "parameters" if function is None else "function/parameters"
        schema = getattr(function or tool, "parameters", None)
        if isinstance(schema, dict):
            yield str(getattr(function or tool, "name", "")), f"{here}/{where}", schema
