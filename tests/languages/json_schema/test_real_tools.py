"""Arguments of real agents' tools: each schema is accepted, and `jsonschema` validates what is written under it."""

from __future__ import annotations

import json
import warnings
from random import Random
from typing import Any

import pytest

from benchmarks.walks import parse, validator
from dotllm import Index, SpecWarning
from dotllm.errors import InvalidSpecError, UnsupportedError
from tests import real_tools
from tests.languages.json_schema.test_walks import walk
from tests.languages.json_schema.verdicts import byte_vocabulary

STYLES = (
    "qwen_xml", "minimax_xml", "minimax_m3_xml", "glm_xml", "deepseek_xml", "deepseek_v4_1_xml", "kimi_k3_xml", "cohere_xml",
    "gemma",
)  # fmt: skip
EACH = 1 if real_tools.ALL else 6
"""one of this many tools of a server is tried"""


def test_there_are_many() -> None:
    servers = real_tools.servers()
    assert len(servers) >= 52
    assert sum(map(len, servers.values())) >= 830


@pytest.mark.parametrize("server", real_tools.servers())
def test_arguments(server: str) -> None:
    for tool in real_tools.servers()[server][::EACH]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SpecWarning)
            index = Index.from_json_schema(tool.parameters, byte_vocabulary())
        judge, random = validator(tool.parameters), Random(tool.name)
        for more in (0, 5, 40):
            text = walk(index, more, random)
            assert text is not None
            judge.validate(parse(text.decode()))


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "array", "items": {"type": "string"}, "enum": ["name", "size"]},
        {"type": "integer", "enum": ["1", "2", "3"]},
    ],
)
def test_what_nothing_satisfies(wrong: dict[str, Any]) -> None:
    """Three of BFCL's 8,888 tools have such schemas; the others are accepted."""
    schema = {"type": "object", "properties": {"fields": wrong}, "required": ["fields"]}
    with pytest.raises(InvalidSpecError, match="nothing satisfies the schema"):
        Index.from_json_schema(schema, byte_vocabulary())


@pytest.mark.parametrize("style", STYLES)
def test_styles(style: str) -> None:
    """All are accepted, except free keys in the style that writes a key twice (docs/structural-tags.md)."""
    tools = [tool for tools in real_tools.servers().values() for tool in tools]
    taken = 0
    for tool in tools[:: EACH * 4 if EACH > 1 else 1]:
        tag = {
            "type": "structural_tag",
            "format": {"type": "json_schema", "style": style, "json_schema": tool.parameters},
        }
        try:
            Index.from_structural_tag(json.dumps(tag), byte_vocabulary())
            taken += 1
        except UnsupportedError as refusal:
            assert style == "minimax_m3_xml", tool
            assert "keys that the schema does not name" in refusal.message or "types of values apart" in refusal.message
    assert taken > 20
