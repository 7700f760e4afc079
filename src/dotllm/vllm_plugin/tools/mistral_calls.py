"""Forced calls in Mistral's notation, with a tokenizer that is not Mistral's own.

vLLM asks for a JSON list, ``[{"name": …, "arguments": …}]``, whatever the tokenizer. Its parser reads such a list only
with tokenizers that have no ``[ARGS]`` (before version 11). With others, it looks for ``[TOOL_CALLS]name[ARGS]{…}``,
and returns the list as text. The list is also one JSON Schema for all tools, in which references in a tool's schema
lead nowhere. So calls here have fixed texts around the arguments, and each schema stays a separate document.

No string in the arguments holds a mark, because the parser looks for marks in the whole text.
"""

from __future__ import annotations

from typing import Any

from dotllm.vllm_plugin.tools import custom_tools, tag_rewrite

NOTATION = "mistral"
"""The name of the notation with marks."""
_CALLS, _ARGUMENTS = "[TOOL_CALLS]", "[ARGS]"
_ANY_OBJECT = {"type": "object"}


def reads_lists(parser: Any) -> bool | None:
    """Whether one of vLLM's tool parsers reads JSON lists; None if it is not Mistral's."""
    engine = getattr(parser, "_parser_engine", None)
    return getattr(engine, "_is_pre_v11", None) if getattr(parser, "IS_MISTRAL_TOOL_PARSER", False) else None


def tag_of(request: Any, *, all_strict: bool, is_list: bool) -> dict[str, Any]:
    """The structural tag of the calls that ``request`` demands; ``all_strict``: the server enforces the schemas of all
    tools."""
    name = getattr(getattr(request.tool_choice, "function", None), "name", None)
    tags = []
    for _, called, function in tag_rewrite.functions(request.tools):
        if name not in (None, called):
            continue
        schema = custom_tools.stated_parameters(function)
        if schema is None and (all_strict or getattr(function, "strict", False)):
            schema = tag_rewrite.stated_parameters(function)
        schema = schema or _ANY_OBJECT
        begin = f'{{"name": "{called}", "arguments": ' if is_list else f"{_CALLS}{called}{_ARGUMENTS}"
        content = {"type": "json_schema", "json_schema": schema, "excludes": [_CALLS, _ARGUMENTS]}
        tags.append({"begin": begin, "content": content, "end": "}" if is_list else ""})
    calls = {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": ", " if is_list else "",
        "at_least_one": True,
        "stop_after_first": name is not None or request.parallel_tool_calls is False,
    }
    if is_list:
        ends = ({"type": "const_string", "value": text} for text in "[]")
        calls = {"type": "sequence", "elements": [next(ends), calls, next(ends)]}
    tag = {"type": "structural_tag", "format": calls}
    tag_rewrite.require_objects(tag)
    return tag


def leave_colon_out(parser: Any, told: Any) -> None:
    """Make the arguments in ``told``, a part of a stream of such a list, begin with their brace. vLLM includes a colon
    in them if it comes in a separate token."""
    streamed = parser._parser_engine.streamed_args_for_tool
    for call in told.tool_calls:
        arguments = call.function.arguments if call.function is not None else None
        if arguments and streamed[call.index] == arguments:  # their first part
            streamed[call.index] = call.function.arguments = arguments.lstrip(": \t\r\n")
