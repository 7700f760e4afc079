"""No string of a tool call holds a mark that vLLM's parser would take for the end of the call, or for another one.

vLLM's tool parsers look for their marks in the text of a call wherever they stand: a string with ``</tool_call>`` in
it, which its schema allows and any model may be talked into writing, ends a call of Hermes there. What comes back is
half of the arguments, none, or a call that nobody made. The same goes for marks that are special tokens of the
tokenizer, where a model spells them in ordinary ones. vLLM itself sees to it for parsers that follow a model's
``response_template`` alone (0.33: ``excludes`` of a structural tag's ``json_schema``); here it is done for all.

A mark is what stands in pointed brackets in a fixed text of the tag; of one that holds more (``<function=name>``) what
is the same for all tools. None may stand in a string; in a raw one neither may what begins a parameter. Where arguments
are JSON it may be escaped (``\\u003c/tool_call>``); in a raw string it cannot be written.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

from dotllm.vllm_plugin.frontend import engine_info as front_end
from dotllm.vllm_plugin.frontend.tool_calls.tag_formats import formats, schemas
from dotllm.vllm_plugin.hook import Hook, Target, replace_once

_MODULE = "vllm.parser.abstract_parser"
_MARK = re.compile(r"<[^<>\n]+>")
_SAME_FOR_ALL = re.compile(r"<[^<>=]+=|<[^<>]+>")
_WITHOUT_EXCLUDES = ("cohere_xml", "minimax_m3_xml")


def without_marks(structural_tag: str) -> str:
    """A structural tag that vLLM has made of tools (as JSON): the same whose strings hold no marks."""
    from dotllm.languages.structural_tag.styles import STYLES

    tag = json.loads(structural_tag)
    marks = {mark for text in _fixed_texts(tag) for mark in _MARK.findall(text)}
    same_for_all = {found[0] for mark in marks if (found := _SAME_FOR_ALL.match(mark))}
    changed = False
    for schema in schemas(tag):
        style = schema.get("style", "json")
        begins_parameter = {STYLES[style].before} if style in STYLES else set[str]()
        excludes = sorted(same_for_all | begins_parameter)
        if excludes and not schema.get("excludes") and style not in _WITHOUT_EXCLUDES:
            schema["excludes"] = excludes
            changed = True
    return json.dumps(tag) if changed else structural_tag


def _fixed_texts(tag: Any) -> Iterator[str]:
    """What is written as it is."""
    for one in formats(tag):
        for field in ("begin", "end", "value", "separator", "triggers"):
            texts = one.get(field)
            for text in texts if isinstance(texts, list) else [texts]:
                if isinstance(text, str):
                    yield text


def _adjust_request_with(original: Any) -> Any:
    def adjust_request(self: Any, request: Any) -> Any:
        before = request.structured_outputs
        adjusted = original(self, request)
        after = adjusted.structured_outputs
        if front_end.serves() and request.tools and after is not None and after is not before and after.structural_tag:
            after.structural_tag = without_marks(after.structural_tag)
        return adjusted

    return adjust_request


def _apply() -> None:
    replace_once(importlib.import_module(_MODULE).DelegatingParser, "adjust_request", _adjust_request_with)


HOOK = Hook(
    name="tool-marks",
    summary="no string of a tool call holds what the tool parser takes for the end of the call, or for another one",
    targets=(Target(_MODULE, "DelegatingParser.adjust_request", ("self", "request")),),
    apply=_apply,
    required=False,
    without_it="an argument with a </tool_call> in it ends its call",
)
