"""No string of a tool call holds a mark that vLLM's parser would take for the end of the call, or for another one.

vLLM's tool parsers look for their marks in the text of a call wherever they stand: a string with ``</tool_call>`` in
it, which its schema allows and any model may be talked into writing, ends a call of Hermes there. What comes back is
half of the arguments, none, or a call that nobody made. The same goes for marks that are special tokens of the
tokenizer, where a model spells them in ordinary ones. vLLM itself sees to it for parsers that follow a model's
``response_template`` alone (0.33: ``excludes`` of a structural tag's ``json_schema``); here it is done for all.

A mark is what stands in pointed brackets in a fixed text of the tag. Where arguments are JSON, none may stand in a
string (``\\u003c/tool_call>`` may); where strings are raw, and cannot be written in another way, no mark of an end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_MARK = re.compile(r"<[^<>\n]+>")
_MANY = 32  # marks: they hold the names of tools, and an automaton would tell all of them apart; ends must do
_WITHOUT_EXCLUDES = ("cohere_xml", "minimax_m3_xml")


def without_marks(structural_tag: str) -> str:
    """A structural tag that vLLM has made of tools (as JSON): the same whose strings hold no marks."""
    tag = json.loads(structural_tag)
    marks, of_ends = set[str](), set[str]()
    for field, text in _fixed_texts(tag):
        found = _MARK.findall(text)
        marks.update(found)
        of_ends.update(mark for mark in found if field == "end" or mark.startswith("</"))
    changed = False
    for schema in _schemas(tag):
        if schema["type"] == "qwen_xml_parameter":  # the older name of a style
            schema |= {"type": "json_schema", "style": "qwen_xml"}
        style = schema.get("style", "json")
        excludes = sorted(marks if style == "json" and len(marks) <= _MANY else of_ends)
        if excludes and not schema.get("excludes") and style not in _WITHOUT_EXCLUDES:
            schema["excludes"] = excludes
            changed = True
    return json.dumps(tag) if changed else structural_tag


def _formats(value: Any) -> Iterator[dict[str, Any]]:
    """All objects of a structural tag but what is in schemas."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, dict):
            yield one
            todo.extend(part for name, part in one.items() if name not in ("json_schema", "schema"))


def _fixed_texts(tag: Any) -> Iterator[tuple[str, str]]:
    """(field, text) of what is written as it is."""
    for one in _formats(tag):
        for field in ("begin", "end", "value", "separator", "triggers"):
            texts = one.get(field)
            for text in texts if isinstance(texts, list) else [texts]:
                if isinstance(text, str):
                    yield field, text


def _schemas(tag: Any) -> Iterator[dict[str, Any]]:
    for one in _formats(tag):
        if one.get("type") in ("json_schema", "qwen_xml_parameter"):
            yield one
