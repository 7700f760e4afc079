"""Constraints of tool calls: completes, or refuses, what vLLM makes of a request's tools.

vLLM's parsers turn tools, and a constraint given with them, into one constraint (``adjust_request``): a structural tag,
or, with parsers that have no notation of their own, a JSON Schema. This module rewrites that constraint, so that vLLM's
parsers can read each call back (`tag_rewrite`). It also restores two things that vLLM loses. The first is how the
request wants its JSON written (``disable_any_whitespace`` and similar options). The second is a Lark grammar: vLLM lets
xgrammar translate it, and constructs that xgrammar's dialect lacks are refused or change their meaning. (Since 0.33
``BeamParser`` makes such a tag of any constraint.)

A call that ``tool_choice`` demands is enforced or refused. vLLM itself lets the model write anything in two cases: the
tool parser describes no notation that a constraint could be made of, or the ``tool_choice`` of a Responses request
names a set of tools or one of OpenAI's own tools. In a chat, a ``tool_choice`` of null means ``auto``, as if the field
were absent, but vLLM then ignores calls, and whether tools are strict. Online beam search ignores all constraints,
those of tools and others, so it is refused together with one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from functools import partial
from typing import Any

from dotllm.errors import shown
from dotllm.vllm_plugin.api.call import current
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.enforce.validation import refuse
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.specification import OPTIONS
from dotllm.vllm_plugin.tools import (
    allowed_tools,
    argument_types,
    custom_tools,
    cut_calls,
    gemma_calls,
    mistral_calls,
    tag_rewrite,
    unasked,
)
from dotllm.vllm_plugin.vllm_types import SamplingParams, StructuredOutputsParams

_PARSER = "vllm.parser.abstract_parser"
_SCHEMA_OF_CALLS = "tool_calling_response"
"""The name of the format that vLLM gives a Responses request, with parsers that ask for a JSON Schema."""
_LOOSE = ("hy_v4", "kimi_k3")
"""Notations that vLLM describes without the schemas of arguments, or without some of them."""
_WITHOUT_SCHEMAS = "the server's tool parser describes its notation without the schemas of arguments"
_BARE = "llama"
"""The notation whose calls have no marks."""
_TRIMMED = "qwen_3_coder"
"""The notation whose parsers strip line breaks from the ends of values."""

HOOK = Hook(
    summary="vLLM's parsers read calls back completely, and tools do not change a constraint next to them",
    without_it="an argument that contains </tool_call> ends its call, 1e400 comes back as Infinity, arguments may be "
    "any JSON value; with strict tools, whitespace options are lost and xgrammar translates Lark grammars",
)


def complete(
    after: StructuredOutputsParams,
    before: StructuredOutputsParams | None,
    tools: Sequence[Any],
    special_tokens: Callable[[], Iterable[str]] = tuple,
    notation: str | None = None,
    *,
    all_strict: bool = False,
) -> None:
    """Complete ``after``, which vLLM has made of ``tools`` and ``before``. It takes over how ``before`` wants JSON
    written. ``notation``: vLLM's name of the notation. ``all_strict``: the server enforces the schemas of all tools.
    Raises as `tag_rewrite.refuse_names` does."""
    for option in OPTIONS:
        if getattr(before, option, None) and not getattr(after, option):
            setattr(after, option, getattr(before, option))
    if not tools:
        return
    tag_rewrite.refuse_no_objects(tools)
    tag_rewrite.refuse_infinite_numbers(tools)
    if after.json is not None and any(
        custom_tools.grammar_of(function) for _, _, function in tag_rewrite.functions(tools)
    ):
        after.json, after.structural_tag = None, json.dumps(custom_tools.tag_of_lists(after.json))
    if after.structural_tag:
        tag = json.loads(after.structural_tag)
        tag_rewrite.refuse_names(tag, tools, special_tokens, notation)
        tag_rewrite.exclude_marks(tag)
        tag_rewrite.require_finite_numbers(tag)
        tag_rewrite.keep_calls_on_one_line(tag)
        if notation == _BARE:
            tag_rewrite.set_bare_calls_apart(tag)
        if notation == gemma_calls.NOTATION:
            gemma_calls.write_arguments(tag, tools)
        if notation == _TRIMMED:
            tag_rewrite.let_strings_be_trimmed(tag)
        if tag_rewrite.says_kinds(tag):
            for _, _, function in tag_rewrite.functions(tools):
                if all_strict or getattr(function, "strict", False):
                    argument_types.leave_as_written(function)
        custom_tools.constrain(tag, tools)
    elif after.json is not None:
        form = {"type": "json_schema", "json_schema": after.json, "finite_numbers": True}
        tag = {"type": "structural_tag", "format": form}
    else:
        return
    after.json, after.structural_tag = None, json.dumps(tag)


def _special_tokens(tokenizer: Any) -> set[str]:
    """Names of special tokens. (`served.token_names` makes a vocabulary, and blocks the loop for seconds.)"""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return {*getattr(tokenizer, "all_special_tokens", ()), *(token.content for token in added if token.special)}


def refuse_unenforced(request: Any, params: SamplingParams) -> None:
    """Refuse an OpenAI request that demands what its ``SamplingParams`` do not enforce. Raises as `refuse` does."""
    if not engine_info.serves():
        return
    is_free = params.structured_outputs is None
    if is_free and request.extract_structured_outputs() is not None:
        refuse("use_beam_search together with a constraint is refused: online beam search does not constrain its text")
    choice, tools = getattr(request, "tool_choice", None), getattr(request, "tools", None)
    if choice not in (None, "auto", "none") and not tools and not isinstance(choice, dict):
        refuse("tool_choice demands a call, and there are no 'tools' to call", "tool_choice")  # (in Messages)
    choice = choice if tools else None
    kind = getattr(choice, "type", None)
    if kind not in (None, "function", "custom"):
        refuse(
            f"a tool_choice of type {kind!r} is not enforced: "
            "use 'required' or a named function, and leave out what is not to be called",
            "tool_choice",
        )
    custom_tools.refuse_unenforced(request, getattr(params.structured_outputs, "structural_tag", None))
    if is_free and allowed_tools.is_restricted(request):
        refuse(
            "tool_choice allows some of the tools, and the server's tool parser describes no notation in which to "
            "restrict calls to them: leave the others out of 'tools'",
            "tool_choice",
        )
    if is_free and (choice == "required" or kind is not None):
        refuse(
            "tool_choice demands a call, and the server's tool parser describes no notation to enforce one in: "
            "use 'auto', and a prompt that asks for the call",
            "tool_choice",
        )


def _refuse_no_tool(request: Any) -> None:
    """Refuse a ``tool_choice`` that names a missing tool: in Messages, vLLM does not check that."""
    name = getattr(getattr(request.tool_choice, "function", request.tool_choice), "name", None)
    if request.tools and name not in (None, *(called for _, called, _ in tag_rewrite.functions(request.tools))):
        refuse(f"tool_choice names {shown(name, 80)}, which is none of 'tools'", "tool_choice")


def _refuse_strict(tools: Sequence[Any]) -> None:
    for path, _, function in tag_rewrite.functions(tools):
        if getattr(function, "strict", False) and custom_tools.grammar_of(function) is None:
            reason = f"{tag_rewrite.place(path)} is strict, and {_WITHOUT_SCHEMAS}"
            refuse(f"{reason}: leave strict out, and check the arguments", f"{path}.strict")


@HOOK.replaces(
    f"{_PARSER}:DelegatingParser.adjust_request",
    "vllm.parser.response_template:ResponseTemplateParser.adjust_request",
)
def _adjust_request(self: Any, request: Any, *, original: Original) -> Any:
    from vllm.exceptions import VLLMValidationError

    if not engine_info.serves():
        return original(self, request)
    if self._tool_parser is not None and request.tools and request.tool_choice is None:
        request.tool_choice = "auto"
    _refuse_no_tool(request)
    gemma_calls.describe(self._tool_parser)
    adjust, served = partial(_adjusted, self, original), current.get()
    level = strict_level(self)
    if allowed_tools.is_restricted(request) and not level:
        self.tool_strict_level = type(level)(1)  # calls are of one of the tools; their arguments are as free as before
    # Without a `Call` (a request that is only rendered), the client would not learn what is not followed.
    functions = unasked.functions_of(request, level) if self._tool_parser is not None else []
    if served is None or not functions:
        return adjust(request)
    if getattr(self._tool_parser, "structural_tag_model", None) in _LOOSE:
        unasked.warn(functions, _WITHOUT_SCHEMAS)
        return adjust(request)
    before = request.model_copy()

    def as_vllm() -> StructuredOutputsParams | None:
        with unasked.left_open(functions):
            return _constraint(adjust(before.model_copy()))

    try:
        with unasked.followed(functions):
            adjusted = adjust(request)
    except (VLLMValidationError, ValueError, TypeError, RecursionError) as error:
        # A client is not refused because of such a schema; any other fault is raised again.
        request.__dict__.update(before.__dict__)
        with unasked.left_open(functions):
            adjusted = adjust(request)
        unasked.warn(functions, str(error.args[0] if error.args else error))
        return adjusted
    served.unasked = unasked.Unasked(functions, as_vllm)
    return adjusted


def _adjusted(parser: Any, original: Original, request: Any) -> Any:
    before = request.structured_outputs
    adjusted = original(parser, request)
    if getattr(getattr(getattr(adjusted, "text", None), "format", None), "name", None) == _SCHEMA_OF_CALLS:
        adjusted.structured_outputs = adjusted.extract_structured_outputs()
        adjusted.text = None
    notation = getattr(parser._tool_parser, "structural_tag_model", None)
    if notation in _LOOSE:
        _refuse_strict(adjusted.tools or ())
    after = _constraint(adjusted)
    all_strict = strict_level(parser).name == "PARAMETER"
    is_list = mistral_calls.reads_lists(parser._tool_parser)
    if is_list is not None and cut_calls.is_forced(adjusted) and after is not None:
        if after is before and not getattr(adjusted, "_grammar_from_parser", False):
            refuse(
                "tool_choice demands a call, and the server's tool parser enforces none next to structured_outputs: "
                "leave one of them out",
                "tool_choice",
                "conflict",
            )
        if before is None and after.json is not None:
            tag = mistral_calls.tag_of(adjusted, all_strict=all_strict, is_list=is_list)
            after.json, after.structural_tag = None, json.dumps(tag)
            notation = None if is_list else mistral_calls.NOTATION
    if after is not None and after is not before:
        special_tokens = partial(_special_tokens, getattr(parser, "model_tokenizer", None))
        complete(after, before, adjusted.tools, special_tokens, notation, all_strict=all_strict)
    return adjusted


def strict_level(parser: Any) -> IntEnum:
    """The server's ``--tool-strict-level``; the lowest level if it is not given (None in vLLM 0.33)."""
    from vllm.tool_parsers.tool_strict_level import ToolStrictLevel

    level: IntEnum = getattr(parser, "tool_strict_level", None) or ToolStrictLevel.AUTO
    return level


def _constraint(adjusted: Any) -> StructuredOutputsParams | None:
    """The constraint of a request. 0.33's template parsers keep theirs next to that of a Responses request."""
    after: StructuredOutputsParams | None = getattr(adjusted, "_parser_structured_outputs", None)
    return after or adjusted.structured_outputs


@HOOK.replaces(f"{_PARSER}:structured_outputs_to_format")
def _structured_outputs_to_format(params: StructuredOutputsParams, *, original: Original) -> Any:
    if params.grammar is not None and engine_info.serves():
        from xgrammar.structural_tag import GrammarFormat

        return GrammarFormat(grammar=params.grammar)  # our parser reads both notations
    return original(params)


@HOOK.replaces("vllm.tool_parsers.abstract_tool_parser:ToolParser.get_structural_tag")
def _get_structural_tag(self: object, request: Any, *, original: Original, **kwargs: Any) -> Any:
    """This is not done in `complete`: only here are the tools' own schemas apart from those of the request's format."""
    if not engine_info.serves():
        return original(self, request, **kwargs)
    tools = tag_rewrite.with_parameters(request.tools or (), tag_rewrite.stated_parameters)
    tag = original(self, request.model_copy(update={"tools": tools}), **kwargs)
    if tag is None:
        return tag
    dumped = tag.model_dump()
    tag_rewrite.require_objects(dumped)
    tag_rewrite.exclude_marks_in_text(dumped)
    return type(tag).model_validate(dumped)


@HOOK.replaces("vllm.tool_parsers.utils:get_json_schema_from_tools")
def _get_json_schema_from_tools(
    tool_choice: Any, tools: list[Any] | None, parallel_tool_calls: bool | None = None, *, original: Original
) -> Any:
    """For parsers whose calls are a JSON list: each call is an object with a name and parameters, and nothing else.

    vLLM moves the ``$defs`` of all tools to the root, even out of the request's tools. Here each schema stays a
    separate document, in which references lead to where they led."""
    if not engine_info.serves():
        return original(tool_choice, tools, parallel_tool_calls)
    if tool_choice != "required":
        tools = tools and tag_rewrite.with_parameters(tools, tag_rewrite.stated_parameters)
        return original(tool_choice, tools, parallel_tool_calls)
    schemas: dict[str, dict[str, Any]] = {}

    def numbered(function: Any) -> Any:
        stated, number = tag_rewrite.stated_parameters(function), f"tool:{len(schemas)}"
        if stated:
            schemas[number] = {"$id": number, **stated}
        return stated and {"$id": number}

    schema = original(tool_choice, tools and tag_rewrite.with_parameters(tools, numbered), parallel_tool_calls)
    for call in schema["items"]["anyOf"]:
        call["additionalProperties"] = False
        arguments = call["properties"]["parameters"]
        call["properties"]["parameters"] = schemas.get(arguments.get("$id"), arguments)
    return schema
