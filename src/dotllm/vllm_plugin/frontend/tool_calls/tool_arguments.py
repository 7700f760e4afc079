"""The arguments of a tool are an object, as every API says they are.

For a tool without ``strict: true`` vLLM leaves its schema to the prompt and asks for any JSON value as arguments:
``true`` and ``1e999`` are calls then, and also with a strict tool whose schema speaks of ``properties`` and names no
``type``. OpenAI's clients are given such a call, Anthropic's an error in its place. Where the arguments of a call are
JSON, "any JSON" is read as "any object" here. (The other styles write objects anyway.)
"""

from __future__ import annotations

import importlib
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend.tool_calls.tag_formats import formats
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_MODULE = "vllm.tool_parsers.abstract_tool_parser"


def only_objects(value: Any) -> bool:
    """Narrow every schema that names no type in a structural tag (as JSON, changed in place); whether there was one."""
    found = False
    for one in formats(value):
        if one.get("type") == "json_schema" and one.get("style", "json") == "json":
            schema = {} if one.get("json_schema") is True else one.get("json_schema")
            if isinstance(schema, dict) and "type" not in schema:
                one["json_schema"] = {"type": "object", **schema}
                found = True
    return found


def _get_structural_tag_with(original: Any) -> Any:
    def get_structural_tag(self: Any, request: Any, **kwargs: Any) -> Any:
        tag = original(self, request, **kwargs)
        if tag is None or not front_end.serves():
            return tag
        dumped = tag.model_dump()
        return type(tag).model_validate(dumped) if only_objects(dumped) else tag

    return get_structural_tag


def _apply() -> None:
    parser_class = importlib.import_module(_MODULE).ToolParser
    replace_once(parser_class, "get_structural_tag", _get_structural_tag_with)


HOOK = Hook(
    name="tool-arguments",
    summary="the arguments of a tool are an object, whatever its schema leaves open",
    targets=(Target(_MODULE, "ToolParser.get_structural_tag", ("self", "request")),),
    apply=_apply,
    required=False,
    without_it="they may be any JSON value, which Anthropic's API answers with an error",
)
