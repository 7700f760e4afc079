"""Marks of tool parsers cannot occur in the strings of calls. (`test_tool_parsers` tests what parsers read.)"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from dotllm.vllm_plugin.tools.tag_rewrite import exclude_marks


def tag(begin: str, content: dict[str, Any], end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def excludes(*formats: dict[str, Any]) -> list[Any]:
    """The excluded marks of each schema in a structural tag of ``formats``, in order."""
    spec = copy.deepcopy({"type": "structural_tag", "format": {"type": "sequence", "elements": [*formats]}})
    found: list[Any] = []

    def look(value: Any) -> None:
        if isinstance(value, list):
            for part in value:
                look(part)
        elif isinstance(value, dict):
            if value.get("type") == "json_schema":
                found.append(value.get("excludes"))
            for part in value.values():
                look(part)

    exclude_marks(spec)
    look(spec)
    return found


JSON = {"type": "json_schema", "json_schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        ([tag('<tool_call>\n{"arguments": ', JSON, "}\n</tool_call>")], [["</tool_call>", "<tool_call>"]]),
        ([tag("<f=1>", {**JSON, "style": "qwen_xml"}, "\n</f>\n</t>")], [["</f>", "</t>", "<f=", "<parameter="]]),
        ([tag("<f=1>", {"type": "qwen_xml_parameter", "json_schema": True}, ["</f>", ""])], [["</f>", "<f=", "<parameter="]]),
        ([{"type": "const_string", "value": "<｜A｜>"}, tag("<b>", {**JSON, "style": "qwen_xml"}, "</b>"), {"type": "const_string", "value": "</｜A｜>"}], [["</b>", "</｜A｜>", "<b>", "<parameter=", "<｜A｜>"]]),
        ([tag("<b>", {**JSON, "excludes": ["own"]}, "</b>")], [["own"]]),
        ([tag("<b>", {**JSON, "style": "cohere_xml"}, "</b>")], [None]),
        ([tag('{"name": "f", "parameters": ', JSON, "}")], [None]),
        ([tag("", {"type": "json_schema", "json_schema": {"begin": "<x>", "properties": {"end": {"const": "<y>"}}}}, "}")], [None]),
        ([tag({"type": "token", "token": 7}, JSON, {"type": "token", "token": "<z>"})], [None]),
    ],
)  # fmt: skip
def test_excludes(formats: list[dict[str, Any]], expected: list[Any]) -> None:
    assert excludes(*formats) == expected


def test_marks_with_names_are_one_for_all_tools() -> None:
    found = excludes(*(tag(f"<f={i}>", JSON, "</f>") for i in range(100)))
    assert set(map(tuple, found)) == {("</f>", "<f=")}


def test_a_tag_without_marks_is_left_as_it_is() -> None:
    spec = {"type": "structural_tag", "format": tag("a", JSON, "b")}
    before = json.dumps(spec)
    exclude_marks(spec)
    assert json.dumps(spec) == before
