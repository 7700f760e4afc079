"""Strict tools of agents, with all tools of an MCP server in one request: each parser's constraint compiles, and its
calls come back and match their schemas."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

vllm = pytest.importorskip("vllm")

from benchmarks.walks import parse, validator  # noqa: E402
from dotllm import Index, Vocabulary  # noqa: E402
from tests import real_tools  # noqa: E402
from tests.cases import sample  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls import several_calls, test_several_calls, test_tool_parsers  # noqa: E402

PARSERS = (*test_tool_parsers.PARSERS, *sample(test_several_calls.LISTS), "llama4_json", "qwen3_json")


@pytest.mark.parametrize("name", PARSERS)
def test_calls_come_back(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    servers = [*real_tools.servers().values()]
    random = Random(name)
    for tools in servers if real_tools.ALL else random.sample([some for some in servers if len(some) < 30], 2):
        asked = several_calls.ask(name, [tool.strict for tool in tools], "required", tokenizer, parallel=False)
        assert asked.tag is not None
        index = Index.from_structural_tag(asked.tag, vocabulary)
        schemas = {tool.name: tool.parameters for tool in tools}
        tokens = several_calls.walk_within(index, random, random.choice([0, 5, 40]))
        for how, calls in several_calls.every_reading(asked, tokens, tokenizer, random).items():
            assert len(calls) == 1, (how, tokenizer.decode(tokens))
            called, arguments = calls[0]
            wrong = [error.message for error in validator(schemas[called]).iter_errors(parse(arguments))]
            assert not wrong, (how, json.dumps(schemas[called]), arguments)
