"""Calls in Gemma 4's notation: describes them to vLLM, and reads each argument as the type that the call gives it.

vLLM's parser reads ``<|tool_call>call:name{city:<|"|>Osaka<|"|>,days:3}<tool_call|>``, but no registry of vLLM's
describes it. So a call that ``tool_choice`` demands, and a strict tool, would be free text. `describe` adds the
description to vLLM's registry, with the style ``gemma`` for the arguments.

The notation shows which values are strings. vLLM's parser forgets it: every value becomes a string, and the tool's
schema decides which strings were numbers, only as far as ``properties`` and ``items`` reach. Here a value without marks
that is a JSON number, boolean or null stays one. This holds for strict tools, whose calls are right as written; for
others, the reading is undone again, so that vLLM converts what it always has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Any

from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import Hook, Original, Target
from dotllm.vllm_plugin.tools import argument_types, tag_rewrite

_MODULE, _REGISTRY = "vllm.parser.gemma4", "vllm.tool_parsers.structural_tag_registry"
NOTATION = "gemma_4"
"""The name of the notation, which xgrammar gives it, too."""
_PARSER = "Gemma4EngineToolParser"
_CALL, _NAMED, _END = "<|tool_call>", "<|tool_call>call:", "<tool_call|>"
_MARKS = ("<|channel>", "<channel|>", "<|tool_response>", "<|turn>", "<turn|>")
"""Marks around answers. The parser looks for some of them in arguments, too."""
_QUOTE = '<|"|>'
_PLAIN = r"(?:-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null)"
_PARTS = re.compile(rf"{re.escape(_QUOTE)}.*?(?:{re.escape(_QUOTE)}|$)|(?<=[:,\[])(\s*)({_PLAIN})(?=\s*[,}}\]])", re.S)
"""Strings, and values without marks that are a JSON number, boolean or null, up to what follows them."""
_JSON_PARTS = re.compile(rf'"(?:[^"\\]|\\.)*"|({_PLAIN})', re.S)
"""Strings and plain values of a JSON text. (Reading the text would need a frame for each level of nesting.)"""
_is_on = False


def _turn_on() -> None:
    from vllm.parser.gemma4 import gemma4_config

    global _is_on
    gemma4_config.cache_clear()  # it has the converter of its time
    _is_on = True


HOOK = Hook(
    summary="calls in Gemma 4's notation are described, and their arguments keep their types",
    targets=(
        Target(_REGISTRY, "register_vllm_structural_tag", ("model",)),
        Target(_REGISTRY, "get_function_parameters", ("function",)),
        Target(_MODULE, "gemma4_config"),
        Target(_MODULE, "_parse_gemma4_args", ("args_str",)),
        Target(_MODULE, "_parse_gemma4_array", ("arr_str",)),
    ),
    apply=_turn_on,
    without_it="strict tools are free with the tool parser gemma4, and tool_choice 'required' is refused",
)


def describe(parser: Any) -> None:
    """Tell vLLM the notation of its tool parser ``parser``, if it is Gemma 4's, and vLLM does not know it."""
    if _is_on and type(parser).__name__ == _PARSER and parser.structural_tag_model is None:
        _register()
        parser.structural_tag_model = NOTATION


@cache
def _register() -> None:
    from vllm.tool_parsers import structural_tag_registry as registry
    from xgrammar import structural_tag as formats

    @registry.register_vllm_structural_tag(NOTATION)
    def calls(tools: Any, builtin_tools: Any, tool_choice: str, reasoning: bool, token_suffix: str = "") -> Any:
        tags = [
            formats.TagFormat(
                begin=_NAMED + tool.function.name,
                content=formats.JSONSchemaFormat(json_schema=registry.get_function_parameters(tool.function)),
                end=_END,
            )
            for tool in tools
        ]
        if tool_choice == "auto":
            form: Any = formats.TriggeredTagsFormat(triggers=[_CALL], tags=tags)
        else:
            is_single = tool_choice == "forced"
            form = formats.TagsWithSeparatorFormat(
                tags=tags, separator="", at_least_one=True, stop_after_first=is_single
            )
        return formats.StructuralTag(format=form)


def write_arguments(tag: object, tools: Sequence[Any]) -> None:
    """Give the arguments of the calls of ``tools`` in ``tag`` the notation's style (which the xgrammar of vLLM 0.33
    lacks), without white space, as models are taught it. No string contains a mark of an answer."""
    begins = [_NAMED + str(name) for _, name, _ in tag_rewrite.functions(tools)]
    for form in tag_rewrite.formats(tag):
        content = form.get("content")
        if form.get("begin") in begins and isinstance(content, dict):
            content |= {"style": "gemma", "max_whitespace_cnt": 0}
            content["excludes"] = sorted({*content.get("excludes", ()), *_MARKS})


@HOOK.replaces(f"{_MODULE}:_gemma4_arg_converter")
def _gemma4_arg_converter(raw_args: str, partial: bool, *, original: Original) -> str:
    if not engine_info.serves():
        return str(original(raw_args, partial))
    # A character that the text does not contain marks the plain values on their way through vLLM's converter.
    sign = next(chr(code) for code in range(0xE000, sys.maxunicode) if chr(code) not in raw_args)
    signed = _PARTS.sub(lambda match: match[0] if match[2] is None else f"{match[1]}{sign}{match[2]}", raw_args)
    converted = str(original(signed, partial))
    return re.sub(f'"{sign}({_PLAIN})"', r"\1", converted).replace(sign, "")


@HOOK.replaces("vllm.parser.engine.parser_engine:ParserEngine._fix_arg_types")
def _fix_arg_types(self: Any, args_json: str, func_name: str, *, original: Original) -> str:
    if self.parser_engine_config.name != "gemma4" or not engine_info.serves():
        return str(original(self, args_json, func_name))
    named = (function for _, name, function in tag_rewrite.functions(self._tools or ()) if name == func_name)
    if any(map(argument_types.is_as_written, named)):
        return args_json
    return str(original(self, _as_strings(args_json), func_name))


def _as_strings(converted: str) -> str:
    """What vLLM's converter makes of the same call: each plain value is the string of its text."""
    return _JSON_PARTS.sub(lambda part: f'"{part[0]}"' if part[1] else part[0], converted)
