"""No argument of a tool call is a number that vLLM's parser would turn into ``Infinity``, which is no JSON.

``1e400`` is JSON, and a number to any schema. Most of vLLM's tool parsers read a call with Python's ``json`` and write
its arguments anew: what does not fit into a double comes back as ``Infinity``; others make a string of it, and
Anthropic's API an error of the whole answer. So the numbers of calls are ones that are read as finite
(`languages.json_schema.finite_numbers`), wherever vLLM has made a constraint of tools: a structural tag, or, with
parsers that have no notation of their own, a JSON Schema. What is in such a tag beside the tools is narrowed alike.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend.tool_calls.tag_formats import schemas
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_MODULE = "vllm.parser.abstract_parser"
_FIELD = "finite_numbers"
_NAME = "tool_calling_response"
"""Of the format that vLLM gives a Responses request, with parsers that ask for a JSON Schema."""


def with_finite_numbers(structural_tag: str) -> str:
    """A structural tag (as JSON): the same whose schemas have only such numbers."""
    tag = json.loads(structural_tag)
    changed = False
    for schema in schemas(tag):
        schema[_FIELD] = changed = True
    return json.dumps(tag) if changed else structural_tag


def narrow(params: Any) -> None:
    """The same for a ``StructuredOutputsParams`` that vLLM has made of tools (changed in place)."""
    if params.structural_tag:
        params.structural_tag = with_finite_numbers(params.structural_tag)
    elif params.json is not None:
        form = {"type": "json_schema", "json_schema": params.json, _FIELD: True}
        params.json, params.structural_tag = None, json.dumps({"type": "structural_tag", "format": form})


def _adjust_request_with(original: Any) -> Any:
    def adjust_request(self: Any, request: Any) -> Any:
        before = request.structured_outputs
        adjusted = original(self, request)
        if not front_end.serves() or not request.tools:
            return adjusted
        if getattr(getattr(getattr(adjusted, "text", None), "format", None), "name", None) == _NAME:
            adjusted.structured_outputs = adjusted.extract_structured_outputs()
            adjusted.text = None
        after = adjusted.structured_outputs
        if after is not None and after is not before:
            narrow(after)
        return adjusted

    return adjust_request


def _apply() -> None:
    replace_once(importlib.import_module(_MODULE).DelegatingParser, "adjust_request", _adjust_request_with)


HOOK = Hook(
    name="tool-numbers",
    summary="a number of a tool call is one that is read as finite",
    targets=(Target(_MODULE, "DelegatingParser.adjust_request", ("self", "request")),),
    apply=_apply,
    required=False,
    without_it="1e400 comes back as Infinity, which is no JSON",
)
