"""Constraints of tool calls: what vLLM makes of a request's tools, completed, or refused.

vLLM's parsers turn tools, and the constraint beside them, into one constraint (``adjust_request``): a structural tag,
or, with parsers that have no notation of their own, a JSON Schema. This module rewrites that constraint, so that vLLM's
parsers can read each call back (`tag_rewrite`). It also restores two things that vLLM loses. The first is how the
request wants its JSON written (``disable_any_whitespace`` and similar options). The second is a Lark grammar: vLLM lets
xgrammar translate it, and what xgrammar's dialect lacks is refused or changes its meaning. (Since 0.33 ``BeamParser``
makes such a tag of any constraint.)

A call that ``tool_choice`` demands is enforced or refused. vLLM itself lets the model write anything in two cases: the
tool parser describes no notation that a constraint could be made of, or the ``tool_choice`` of a Responses request
names a set of tools or one of OpenAI's own tools. In a chat a ``tool_choice`` of null means ``auto``, as if the field
were absent, but vLLM then forgets the calls and that tools are strict. Online beam search forgets every constraint, of
tools or not, and is refused with one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info
from dotllm.vllm_plugin.frontend.tool_calls import argument_types, tag_rewrite
from dotllm.vllm_plugin.frontend.validation import refuse
from dotllm.vllm_plugin.hook import Hook, Original
from dotllm.vllm_plugin.specification import OPTIONS
from dotllm.vllm_plugin.vllm_types import SamplingParams, StructuredOutputsParams

_PARSER = "vllm.parser.abstract_parser"
_SCHEMA_OF_CALLS = "tool_calling_response"
"""The name of the format that vLLM gives a Responses request, with parsers that ask for a JSON Schema."""
_LOOSE = ("hy_v4", "kimi_k3")
"""Notations that vLLM describes without the schemas of arguments, or without all of them."""
_TRIMMED = "qwen_3_coder"
"""The notation whose parsers take line breaks off the ends of values."""

HOOK = Hook(
    name="tool-constraints",
    summary="calls are ones that vLLM's parsers read back whole, and a constraint beside tools stays what it was",
    without_it="an argument with a </tool_call> in it ends its call, 1e400 comes back as Infinity, arguments may be "
    "any JSON value; beside strict tools, whitespace options are lost and Lark grammars are translated by xgrammar",
)


def complete(
    after: StructuredOutputsParams,
    before: StructuredOutputsParams | None,
    tools: Sequence[Any],
    special_tokens: Callable[[], Iterable[str]] = tuple,
    notation: str | None = None,
) -> None:
    """Complete what vLLM has made of ``tools`` and of ``before``, whose options about the writing of JSON go for it.
    ``notation``: vLLM's name of it. Raises as `tag_rewrite.refuse_names`."""
    for option in OPTIONS:
        if getattr(before, option, None) and not getattr(after, option):
            setattr(after, option, getattr(before, option))
    if not tools:
        return
    if after.structural_tag:
        tag = json.loads(after.structural_tag)
        tag_rewrite.refuse_infinite_numbers(tools)
        tag_rewrite.refuse_names(tag, tools, special_tokens)
        tag_rewrite.exclude_marks(tag)
        tag_rewrite.require_finite_numbers(tag)
        tag_rewrite.keep_calls_on_one_line(tag)
        if notation == _TRIMMED:
            tag_rewrite.let_strings_be_trimmed(tag)
        if tag_rewrite.says_kinds(tag):
            for _, _, function in tag_rewrite.functions(tools):
                if getattr(function, "strict", False):
                    argument_types.leave_as_written(function)
    elif after.json is not None:
        form = {"type": "json_schema", "json_schema": after.json, "finite_numbers": True}
        tag = {"type": "structural_tag", "format": form}
    else:
        return
    after.json, after.structural_tag = None, json.dumps(tag)


def _special_tokens(tokenizer: Any) -> set[str]:
    """Their names. (Not `engine_info.token_names`: to make a vocabulary takes seconds of the event loop.)"""
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return {*getattr(tokenizer, "all_special_tokens", ()), *(token.content for token in added if token.special)}


def refuse_unenforced(request: Any, params: SamplingParams) -> None:
    """Refuse an OpenAI request that demands what nothing in its ``SamplingParams`` enforces. Raises as `refuse`."""
    if not engine_info.serves():
        return
    is_free = params.structured_outputs is None
    if is_free and request.extract_structured_outputs() is not None:
        refuse("use_beam_search together with a constraint is refused: online beam search does not constrain its text")
    choice = getattr(request, "tool_choice", None) if getattr(request, "tools", None) else None
    kind = getattr(choice, "type", None)
    if kind not in (None, "function", "custom"):
        refuse(
            f"a tool_choice of type {kind!r} is not enforced: "
            "use 'required' or a named function, and leave out what is not to be called",
            "tool_choice",
        )
    if is_free and (choice == "required" or kind is not None):
        refuse(
            "tool_choice demands a call, and the server's tool parser describes no notation to enforce one in: "
            "use 'auto', and a prompt that asks for the call",
            "tool_choice",
        )


def _refuse_strict(tools: Iterable[Any]) -> None:
    for at, _, function in tag_rewrite.functions(tools):
        if getattr(function, "strict", False):
            what = "the server's tool parser describes its notation without the schemas of arguments"
            refuse(f"{tag_rewrite.place(at)} is strict, and {what}: leave strict out, and check the arguments", "tools")


@HOOK.replaces(
    f"{_PARSER}:DelegatingParser.adjust_request",
    "vllm.parser.response_template:ResponseTemplateParser.adjust_request",
)
def _adjust_request(self: Any, request: Any, *, original: Original) -> Any:
    if not engine_info.serves():
        return original(self, request)
    if self._tool_parser is not None and request.tools and request.tool_choice is None:
        request.tool_choice = "auto"
    before = request.structured_outputs
    adjusted = original(self, request)
    if getattr(getattr(getattr(adjusted, "text", None), "format", None), "name", None) == _SCHEMA_OF_CALLS:
        adjusted.structured_outputs = adjusted.extract_structured_outputs()
        adjusted.text = None
    # 0.33's parsers of templates put theirs beside what a Responses request says itself
    after = getattr(adjusted, "_parser_structured_outputs", None) or adjusted.structured_outputs
    notation = getattr(self._tool_parser, "structural_tag_model", None)
    if notation in _LOOSE:
        _refuse_strict(adjusted.tools or ())
    if after is not None and after is not before:
        special_tokens = partial(_special_tokens, getattr(self, "model_tokenizer", None))
        complete(after, before, adjusted.tools, special_tokens, notation)
    return adjusted


@HOOK.replaces(f"{_PARSER}:structured_outputs_to_format")
def _structured_outputs_to_format(params: StructuredOutputsParams, *, original: Original) -> Any:
    if params.grammar is not None and engine_info.serves():
        from xgrammar.structural_tag import GrammarFormat

        return GrammarFormat(grammar=params.grammar)  # ours reads both notations
    return original(params)


@HOOK.replaces("vllm.tool_parsers.abstract_tool_parser:ToolParser.get_structural_tag")
def _get_structural_tag(self: object, request: object, *, original: Original, **kwargs: Any) -> Any:
    """Here, and not in `complete`, as only here the tools' own schemas are apart from those of the request's format."""
    tag = original(self, request, **kwargs)
    if tag is None or not engine_info.serves():
        return tag
    dumped = tag.model_dump()
    return type(tag).model_validate(dumped) if tag_rewrite.require_objects(dumped) else tag
