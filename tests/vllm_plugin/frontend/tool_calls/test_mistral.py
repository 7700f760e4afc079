"""Mistral's parser with tokenizers that are not Mistral's: the parser reads every call that the mask allows."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("vllm")

from dotllm import Index, Vocabulary
from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.enforce import engine_info
from tests.vllm_plugin.frontend.test_unsupported_fields import serve
from tests.vllm_plugin.frontend.tool_calls.test_tool_parsers import stream, walk

REFERRING = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/N"}},
    "required": ["v"],
    "additionalProperties": False,
    "$defs": {"N": {"enum": [True, "low"]}},
}
PLAIN = {
    "type": "object",
    "properties": {"a": {"type": "string", "maxLength": 12}, "n": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["a"],
    "additionalProperties": False,
}
SCHEMAS = {"f": REFERRING, "g_1": PLAIN}
JUDGES = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
MARKS = {"v11": ["[TOOL_CALLS]", "[ARGS]"], "v3": ["[TOOL_CALLS]"]}


@pytest.fixture(scope="module", params=MARKS)
def tokenizer(request: pytest.FixtureRequest, demo_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    from tokenizers import Tokenizer
    from vllm.tokenizers import get_tokenizer

    from dotllm.demo import tokenizer as demo

    made = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    made.add_special_tokens(MARKS[request.param])
    directory = tmp_path_factory.mktemp("mistral")
    made.save(str(directory / "tokenizer.json"))
    demo.save_config(directory, eos_token=demo.TURN_END, pad_token=demo.END_OF_TEXT)
    registry.apply_required()
    return get_tokenizer(str(directory))


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    yield
    engine_info.remember(None)


def forced(tokenizer: Any, choice: Any, strict: bool | None = True, **fields: Any) -> tuple[Any, Any]:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": strict}}
        for name, schema in SCHEMAS.items()
    ]
    fields = {"tools": tools, **fields}
    request = ChatCompletionRequest(model="m", messages=[], tool_choice=choice, **fields)
    parser_class = ParserManager.get_parser(tool_parser_name="mistral", enable_auto_tools=True)
    parser = parser_class(tokenizer, tools=request.tools)
    return parser, parser.adjust_request(request)


NAMED = {"type": "function", "function": {"name": "g_1"}}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_forced_call_comes_back(tokenizer: Any, choice: Any) -> None:
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    generator = random.Random(1)
    for i in range(12):
        fields = {"parallel_tool_calls": False} if i % 2 else {}
        parser, request = forced(tokenizer, choice, **fields)
        index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary)
        tokens = walk(index, generator)
        text = tokenizer.decode(tokens, skip_special_tokens=False)
        _, content, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
        assert calls and not content, text
        assert len(calls) == 1 or not (fields or choice is NAMED)
        for call in calls:
            assert call.name in (SCHEMAS if choice == "required" else ("g_1",))
            JUDGES[call.name].validate(json.loads(call.arguments))
        parser, request = forced(tokenizer, choice, **fields)
        streamed = stream(parser, request, tokens, tokenizer)
        assert [*map(json.loads, streamed)] == [json.loads(call.arguments) for call in calls], text


def test_white_space_and_tokens_around_the_colon(tokenizer: Any) -> None:
    """If the colon was a separate token, vLLM's reader took it into the arguments."""
    parser, request = forced(tokenizer, "required")
    is_list = "[ARGS]" not in tokenizer.get_vocab()
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary)

    def is_text(text: str) -> bool:
        guide = index.guide()
        return all(map(guide.advance, tokenizer.encode(text, add_special_tokens=False))) and guide.can_finish

    single = {
        vocabulary.token_bytes(i): i for i in range(vocabulary.size) if len(vocabulary.token_bytes(i) or b"") == 1
    }
    if is_list:
        text = '[{"name": "f", "arguments": {"v": true}}]'
        assert is_text(text) and not is_text(text.replace('s": ', 's"\n : '))
        tokens = [single[bytes([byte])] for byte in text.encode()]
        assert stream(parser, request, tokens, tokenizer) == ['{"v": true}']
        for chunks in (['s"', ": {", '"v": ":"}'], ['s"\n', " :{", '"v": ":"}'], ['s"\n', " :", '{"v": ":"}']):
            parser, request = forced(tokenizer, "auto", strict=None)  # calls without a constraint
            texts, arguments = ["[TOOL_CALLS]", '[{"name": "f", "argument', *chunks, "}]"], ""
            for i, chunk in enumerate(texts):
                token = tokenizer.convert_tokens_to_ids("[TOOL_CALLS]") if i == 0 else 0
                told = parser.parse_delta(chunk, [token], request, [], finished=i + 1 == len(texts))
                arguments += "".join(call.function.arguments or "" for call in told.tool_calls) if told else ""
            assert json.loads(arguments) == {"v": ":"}
    else:
        assert is_text('[TOOL_CALLS]f[ARGS]{"v": true}') and not is_text('[{"name": "f", "arguments": {"v": true}}]')


def test_marks_are_in_no_string(tokenizer: Any) -> None:
    _, request = forced(tokenizer, NAMED)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    guide = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary).guide()
    is_list = "[ARGS]" not in tokenizer.get_vocab()
    begin = '[{"name": "g_1", "arguments": {"a": "' if is_list else '[TOOL_CALLS]g_1[ARGS]{"a": "'
    assert all(map(guide.advance, tokenizer.encode(begin, add_special_tokens=False)))
    single = {
        vocabulary.token_bytes(i): i for i in range(vocabulary.size) if len(vocabulary.token_bytes(i) or b"") == 1
    }
    assert not all(guide.advance(single[bytes([byte])]) for byte in b"[TOOL_CALLS]")


def test_what_is_not_strict_is_any_object(tokenizer: Any) -> None:
    _, request = forced(tokenizer, "required", strict=False)
    assert "enum" not in request.structured_outputs.structural_tag


def test_what_cannot_be_enforced_is_refused(tokenizer: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match="leave one of them out"):
        forced(tokenizer, "required", structured_outputs={"regex": "a+"})
    tools = [{"type": "function", "function": {"name": "a{b", "parameters": PLAIN}}]
    if "[ARGS]" in tokenizer.get_vocab():
        with pytest.raises(VLLMValidationError, match="cannot be called"):
            forced(tokenizer, "required", tools=tools)
    else:
        assert "a{b" in forced(tokenizer, "required", tools=tools)[1].structured_outputs.structural_tag
