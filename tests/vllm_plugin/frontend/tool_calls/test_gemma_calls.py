"""Gemma 4's notation: arguments keep the types that the call gives them, and free calls are read as vLLM reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import jsonschema
import pytest

pytest.importorskip("vllm")

from dotllm import Index, Vocabulary
from tests.cases import few
from tests.languages.structural_tag.test_styles import CLOSED, INTEGER, gemma_value, tool
from tests.vllm_plugin.frontend.test_unsupported_fields import serve
from tests.vllm_plugin.frontend.tool_calls import several_calls

CALL = "<|tool_call>call:f"


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    serve("auto")
    yield
    serve(None)


def function(parameters: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": parameters, **more}}


def test_vllm_still_describes_no_such_notation() -> None:
    """Once it does, `gemma_calls.describe` can go."""
    from vllm.tool_parsers.gemma4_engine_tool_parser import Gemma4EngineToolParser
    from vllm.tool_parsers.structural_tag_registry import SUPPORTED_STRUCTURAL_TAG_MODELS

    assert Gemma4EngineToolParser.structural_tag_model is None
    assert "gemma_4" not in SUPPORTED_STRUCTURAL_TAG_MODELS


def walked(tag: str, vocabulary: Vocabulary, random: Random) -> list[int] | None:
    """Tokens of a call; None if its arguments become too long."""
    guide, tokens = Index.from_structural_tag(tag, vocabulary).guide(), list[int]()
    ends = {*vocabulary.eos_token_ids}
    while not guide.can_finish:
        if len(tokens) > 400:
            return None
        allowed = [token for token in guide.allowed_tokens() if token not in ends]
        closing = [token for token in allowed if (vocabulary.token_bytes(token) or b"")[-1:] in (b"}", b"]", b">")]
        tokens.append(random.choice(closing if closing and random.random() < 0.3 else allowed))
        assert guide.advance(tokens[-1])
    return tokens


LEVELS = {
    "gemma4": f'{CALL}{{a:<|"|>27<|"|>,l:{{k:1}}}}<tool_call|>',
    "deepseek_v32": (
        '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n'
        '<｜DSML｜parameter name="a" string="true">27</｜DSML｜parameter>'
        '<｜DSML｜parameter name="l" string="false">{"k": 1}</｜DSML｜parameter></｜DSML｜invoke>\n</｜DSML｜function_calls>'
    ),
}
"""The same call in notations that say the type of each value."""


def test_nested_arguments_keep_their_types(tokenizer: Any, vocabulary: Vocabulary) -> None:
    """vLLM looks only into ``properties`` and ``items``; elsewhere, numbers came back as strings."""
    read = 0
    for seed in range(few(60)):
        random = Random(seed)
        schema = tool(random, 2)
        schema["$defs"] = {"N": {**CLOSED, "properties": {"v": INTEGER, "next": {"$ref": "#/$defs/N"}}}}
        asked = several_calls.ask("gemma4", [function(schema, strict=True)], "required", tokenizer, parallel=False)
        tokens = walked(asked.tag or "", vocabulary, random)
        if tokens is None:
            continue
        text = several_calls.text_of(tokens, tokenizer)
        written, _ = gemma_value(text.removesuffix("<tool_call|>"), len(CALL))
        jsonschema.Draft202012Validator(schema).validate(written)
        for how, calls in several_calls.every_reading(asked, tokens, tokenizer, random).items():
            assert [json.loads(arguments) for _, arguments in calls] == [written], (how, text)
        read += 1
    assert read > few(60) / 3


@pytest.mark.parametrize("strict", [{}, {"strict": False}])
@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", ["deepseek_v32", "gemma4"])
def test_types_are_kept_where_the_server_makes_all_tools_strict(
    name: str, choice: str, strict: Any, tokenizer: Any
) -> None:
    """``--tool-strict-level parameter`` enforces the schema of every tool, as ``strict`` does of one."""
    inner = {"type": "object", "additionalProperties": INTEGER}
    schema = {**CLOSED, "properties": {"a": {"type": ["string", "integer"]}, "l": inner}}
    asked = several_calls.ask(name, [function(schema, **strict)], choice, tokenizer, level="parameter")
    tokens = tokenizer.encode(LEVELS[name], add_special_tokens=False)
    for how, calls in several_calls.every_reading(asked, tokens, tokenizer, Random(0)).items():
        assert [json.loads(arguments) for _, arguments in calls] == [{"a": "27", "l": {"k": 1}}], how


@pytest.mark.parametrize("arguments", [
    "", "}", "{}", "{a:1}", "{a:1.50,b:true,c:null}", "{a:<|\"|>1<|\"|>,b:[1,<|\"|>x<|\"|>,{c:2}]}", "{a:New York, NY,b:2}",
    "{a:foo,5,b:1}", "{a:[1,2", "{a:<|\"|>,5,<|\"|>,b:-0}", "{a:01,b:1e5,c:+1,d:.5,e:Infinity}", "{a:{b:{c:7}},d:[[1],[true]]}",
    "{a:1,a:2}", "{a: 1 ,\n b:\t2 }", "{a:\ue0001}", "{a:<|\"|>unfinished 1,2",
])  # fmt: skip
def test_free_calls_are_read_as_vllm_reads_them(arguments: str, tokenizer: Any) -> None:
    for parameters in ({}, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}):
        text = f"{CALL}{arguments}<tool_call|>"
        tokens = tokenizer.encode(text, add_special_tokens=False)
        found = []
        for backend in ("auto", "xgrammar"):
            serve(backend)
            asked = several_calls.ask("gemma4", [function(parameters)], "auto", tokenizer)
            assert asked.request.structured_outputs is None
            found.append(several_calls.every_reading(asked, tokens, tokenizer, Random(0)))
        assert found[0] == found[1], arguments


def test_a_nested_free_call_is_read_as_vllm_reads_it(tokenizer: Any) -> None:
    """vLLM's reader takes a frame for each level; ours must not take more."""
    text, found = f"{CALL}{{a:{'[' * 700}1{']' * 700}}}<tool_call|>", []
    for backend in ("auto", "xgrammar"):
        serve(backend)
        asked = several_calls.ask("gemma4", [function({})], "auto", tokenizer)
        found.append(several_calls.read(asked, tokenizer.encode(text, add_special_tokens=False), tokenizer))
    assert found[0] == found[1] and len(found[0]) == 1


def test_random_free_calls_are_read_as_vllm_reads_them() -> None:
    from vllm.parser.gemma4 import _gemma4_arg_converter

    from dotllm.vllm_plugin.tools.gemma_calls import _as_strings

    theirs = _gemma4_arg_converter.__kwdefaults__["original"]  # type: ignore[attr-defined]
    random = Random(7)
    parts = [*'{}[]:,() \n"', '<|"|>', "a", "b c", "1", "-2.50", "1e5", "true", "null", "x1", "\ue000", "é"]
    for _ in range(few(3000)):
        raw = "".join(random.choices(parts, k=random.randint(0, 14)))
        for partial in (False, True):
            assert _as_strings(_gemma4_arg_converter(raw, partial)) == theirs(raw, partial), raw


def test_a_format_next_to_tools_stays_json(tokenizer: Any) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    schema = {**CLOSED, "properties": {"n": INTEGER}, "required": ["n"]}
    request = ChatCompletionRequest(
        model="m", messages=[], tools=[function(schema, strict=True)], tool_choice="auto",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
    )  # fmt: skip
    parser_class = ParserManager.get_parser(tool_parser_name="gemma4", enable_auto_tools=True)
    request = parser_class(tokenizer, tools=request.tools).adjust_request(request)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary)
    for text, is_valid in (('{"n": 5}', True), (f"{CALL}{{n:5}}<tool_call|>", True), ("{n:5}", False)):
        guide = index.guide()
        taken = all(map(guide.advance, tokenizer.encode(text, add_special_tokens=False)))
        assert (taken and guide.can_finish) == is_valid, text


def test_a_users_own_tag_keeps_its_style() -> None:
    from types import SimpleNamespace

    from dotllm.vllm_plugin.tools import gemma_calls

    def content() -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": {"type": "object"}}

    own = {"type": "tag", "begin": "<|tool_call>call:theirs", "content": content(), "end": ""}
    called = {"type": "tag", "begin": CALL, "content": content(), "end": "<tool_call|>"}
    gemma_calls.write_arguments({"format": {"elements": [own, called]}}, [SimpleNamespace(name="f")])
    assert own["content"] == content() and called["content"]["style"] == "gemma"  # type: ignore[index]


@pytest.mark.parametrize("name", ["f(x", "f{", 'a"b'])
def test_a_name_that_cannot_be_called_is_refused(name: str, tokenizer: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    named = {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, "strict": True}}
    with pytest.raises(VLLMValidationError, match="cannot be called"):
        several_calls.ask("gemma4", [named], "required", tokenizer)


def test_channels_in_a_string_cannot_end_the_call(tokenizer: Any, vocabulary: Vocabulary) -> None:
    schema = {**CLOSED, "properties": {"s": {"type": "string"}}, "required": ["s"]}
    asked = several_calls.ask("gemma4", [function(schema, strict=True)], "required", tokenizer)
    index = Index.from_structural_tag(asked.tag or "", vocabulary)
    start = tokenizer.encode(f'{CALL}{{s:<|"|>x', add_special_tokens=False)
    for mark in ("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|turn>"):
        guide, token = index.guide(), tokenizer.convert_tokens_to_ids(mark)
        assert all(map(guide.advance, start))
        assert tokenizer.encode(mark, add_special_tokens=False) == [token], "as in the model's own tokenizer"
        assert token not in guide.allowed_tokens(), mark
        assert index.advance_bytes(guide.config, mark.encode()) < 0, mark
