"""vLLM's tool parsers, each in its own notation: the parser reads every call that our mask lets a model write.

Random walks under the mask stand in for a model. As in a server, the parser turns the tools into a constraint, the
constraint becomes an index, and the text goes back to the parser. ``jsonschema`` judges the parser's calls.
"""

from __future__ import annotations

import functools
import json
import math
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

vllm = pytest.importorskip("vllm")

from dotllm import Index, Vocabulary  # noqa: E402
from dotllm.vllm_plugin import registry  # noqa: E402
from dotllm.vllm_plugin.enforce import engine_info  # noqa: E402
from tests.cases import few  # noqa: E402
from tests.serve.releases import before  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls.several_calls import text_of  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "level": {"enum": ["low", "high"]},
        "n": {"type": "integer", "minimum": 1, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
    },
    "required": ["level", "n"],
    "additionalProperties": False,
}
JUDGE = jsonschema.Draft202012Validator(SCHEMA)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SCHEMA, "strict": True}} for name in ("f", "g_1")
]
PARSERS = (
    "deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "gemma4", "glm45", "glm47", "hermes", "kimi_k2",
    "ling3", "llama3_json", "longcat", "mimo", "minimax_m2", "plamo3", "qwen3_coder", "qwen3_xml", "step3p5",
    *(() if before("0.33") else ("step5",)),
)  # fmt: skip
"""The parsers with their own notation. (Without kimi_k3 and hy_v4, whose free text a random walk never leaves; mistral,
cohere and gpt-oss, which need their own tokenizers and packages; and the parsers that use JSON Schema.)"""
_MARK = re.compile(
    r"""["'](<[|｜][^"\s{}]{2,40}[|｜]>|</?[a-z_:]{3,30}>|<\|[a-z_]+>|<[a-z_]+\|>|<\|"\|>)["']"""
)  # (the last three: Gemma 4's)


def marked_tokenizer(demo_model: Path, directory: Path) -> Any:
    """The demo tokenizer, with all marks that vLLM's parsers look for as special tokens."""
    from tokenizers import Tokenizer
    from vllm.tokenizers import get_tokenizer

    from dotllm.demo import tokenizer as demo

    registry.apply_required()
    engine_info.remember(None)
    sources = Path(vllm.__file__).parent.glob("*parser*/*.py")
    marks = {mark for source in sources for mark in _MARK.findall(source.read_text())}
    made = Tokenizer.from_file(str(demo_model / "tokenizer.json"))
    made.add_special_tokens(sorted(mark for mark in marks if "function" not in mark and "parameter" not in mark))
    made.save(str(directory / "tokenizer.json"))
    demo.save_config(directory, eos_token=demo.TURN_END, pad_token=demo.END_OF_TEXT)
    return get_tokenizer(str(directory))


def walk(index: Index, generator: random.Random) -> list[int]:
    """Tokens of a whole text; the walk prefers to end wherever it may."""
    guide, ends = index.guide(), {*index.vocabulary.eos_token_ids}
    tokens: list[int] = []
    while len(tokens) < 1000:
        if guide.can_finish and generator.random() < 0.7:
            return tokens
        token = generator.choice([t for t in guide.allowed_tokens() if t not in ends] or [-1])
        if token < 0:
            return tokens
        assert guide.advance(token)
        tokens.append(token)
    raise AssertionError("the call does not end")


def with_strict_tool(name: str, parameters: Any, tokenizer: Any) -> tuple[Any, Any]:
    """vLLM's parser ``name``, and a request that must call a strict tool with these parameters once."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tool = {"type": "function", "function": {"name": "f", "parameters": parameters, "strict": True}}
    request = ChatCompletionRequest(
        model="m", messages=[], tools=[tool], tool_choice="required", parallel_tool_calls=False
    )
    parser_class = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True)
    parser = parser_class(tokenizer, tools=request.tools)
    return parser, parser.adjust_request(request)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "g_1"}}], ids=["required", "named"]
)
@pytest.mark.parametrize("name", PARSERS)
def test_a_call_comes_back(name: str, choice: Any, tokenizer: Any, vocabulary: Vocabulary) -> None:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    parser_class = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True)
    generator = random.Random(name)
    for _ in range(few(4)):
        request = ChatCompletionRequest(
            model="m", messages=[], tools=TOOLS, tool_choice=choice, parallel_tool_calls=False
        )
        parser = parser_class(tokenizer, tools=request.tools)
        request = parser.adjust_request(request)
        constraint = request.structured_outputs
        index = Index.from_structural_tag(constraint.structural_tag, vocabulary, any_whitespace=False)
        tokens = walk(index, generator)
        text = text_of(tokens, tokenizer)
        _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
        assert calls and len(calls) == 1, text
        assert calls[0].name in (("f", "g_1") if choice == "required" else ("g_1",))
        JUDGE.validate(json.loads(calls[0].arguments))


@pytest.mark.parametrize("name", PARSERS)
def test_a_call_on_several_lines_comes_back(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Models like to write JSON on several lines, as formatters do. With two parsers such a call was lost."""
    breaks = {i for i in range(vocabulary.size) if re.fullmatch(rb"\n\s*", vocabulary.token_bytes(i) or b"")}
    for seed in range(3):
        parser, request = with_strict_tool(name, SCHEMA, tokenizer)
        index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary)
        generator, guide, tokens = random.Random(f"{name} {seed}"), index.guide(), list[int]()
        while not guide.can_finish:
            allowed = {*guide.allowed_tokens()}
            likely = allowed & breaks if generator.random() < 0.8 else allowed
            tokens.append(generator.choice(sorted(likely or allowed)))
            assert guide.advance(tokens[-1])
        text = text_of(tokens, tokenizer)
        _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
        assert len(calls or ()) == 1, text
        JUDGE.validate(json.loads(calls[0].arguments))
        if name != "llama3_json":  # (see below)
            parser, request = with_strict_tool(name, SCHEMA, tokenizer)
            (arguments,) = stream(parser, request, tokens, tokenizer)
            assert json.loads(arguments) == json.loads(calls[0].arguments)


@pytest.mark.parametrize("name", [name for name in PARSERS if name in ("qwen3_coder", "qwen3_xml", "step3p5", "mimo")])
def test_line_breaks_around_a_string(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Qwen 3 models write them, and vLLM's parsers remove them, except mimo's parser."""
    schema = {**CLOSED, "properties": {"a": {"enum": ["low", "\n", "x\n"]}, "b": {"type": "string", "pattern": "^a+$"}}}
    found = []
    for a in ("low", "\nlow\n", "\n", "x\n"):
        parser, request = with_strict_tool(name, {**schema, "required": ["a"]}, tokenizer)
        tag = request.structured_outputs.structural_tag
        line = "" if name == "mimo" else "\n"
        parameters = f"<parameter=a>{a}</parameter><parameter=b>aa</parameter>"
        text = f"<tool_call>{line}<function=f>{line}{parameters}{line}</function>{line}</tool_call>"
        guide = Index.from_structural_tag(tag, vocabulary).guide()
        tokens = tokenizer.encode(text, add_special_tokens=False)
        if all(map(guide.advance, tokens)) and guide.can_finish:
            _, _, [call] = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
            jsonschema.validate(json.loads(call.arguments), schema)
            found.append(a)
    assert found == (["low", "\n", "x\n"] if name == "mimo" else ["low", "\nlow\n"])


@pytest.mark.parametrize("name", ["deepseek_v3", "deepseek_v31"])
def test_vllm_still_reads_one_line_only(name: str, tokenizer: Any) -> None:
    """vLLM 0.33 reads all lines; once 0.32 is dropped, `tag_rewrite.keep_calls_on_one_line` can go."""
    text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\n}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    if name == "deepseek_v3":
        text = text.replace(">f<｜tool▁sep｜>{\n}", ">function<｜tool▁sep｜>f\n```json\n{\n}\n```")
    for arguments, found in (("{}", 1), ("{\n}", 0 if before("0.33") else 1)):
        parser, request = with_strict_tool(name, {"type": "object"}, tokenizer)
        _, _, calls = parser.parse(text.replace("{\n}", arguments), request, enable_auto_tools=True)
        assert len(calls or ()) == found


@pytest.mark.parametrize("name", [name for name in PARSERS if name != "kimi_k2"])  # (its ids have no end)
def test_null_between_line_breaks_comes_back(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Some parsers recognise only a bare null; they returned the text, which the schema's pattern forbids."""
    schema = {**CLOSED, "properties": {"a": {"pattern": "^x$", "type": ["string", "null"]}}, "required": ["a"]}
    parser, request = with_strict_tool(name, schema, tokenizer)
    guide = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary).guide()
    single, tokens = single_bytes(vocabulary), list[int]()
    null = [single[bytes([byte])] for byte in b"null"]
    while not guide.can_finish:
        allowed = [*guide.allowed_tokens()]
        way = null if guide.accepts(null) == 4 else [single[b"\n"] if single[b"\n"] in allowed else allowed[0]]
        tokens += way
        assert all(map(guide.advance, way)) and len(tokens) < 1000
    text = text_of(tokens, tokenizer)
    _, _, [call] = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
    assert json.loads(call.arguments) == {"a": None}, text


NUMBERS = {
    "type": "object",
    "properties": {"v": {"type": "number"}, "least": {"type": "number", "minimum": 5}},
    "required": ["v", "least"],
    "additionalProperties": False,
}


def walk_up(index: Index, generator: random.Random) -> list[int]:
    """A walk whose numbers quickly get as large as possible: exponents come early and consist of nines."""
    guide = index.guide()
    (mark,), (nine,) = (spelled(text, index.vocabulary) for text in "e9")
    tokens: list[int] = []
    nines = 0
    while not guide.can_finish:
        allowed = {*guide.allowed_tokens()}
        token = generator.choice(sorted(allowed))
        if nines < 5 and {mark, nine} & allowed:
            token = mark if mark in allowed else nine
        nines = nines + 1 if token == nine else 0
        assert guide.advance(token) and len(tokens) < 1000
        tokens.append(token)
    return tokens


@pytest.mark.parametrize("name", [*PARSERS, "internlm"])
def test_numbers_are_read_as_finite_ones(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """vLLM's parsers rewrite what Python reads: 1e400 became ``Infinity``, or a string if the parser knows types."""
    for stream_it in (False, True):
        parser, request = with_strict_tool(name, NUMBERS, tokenizer)
        index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary, any_whitespace=False)
        tokens = walk_up(index, random.Random(name))
        text = text_of(tokens, tokenizer)
        assert "e9" in text, "it tried"
        if stream_it:
            (arguments,) = stream(parser, request, tokens, tokenizer)
        else:
            _, _, [call] = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
            arguments = call.arguments
        for value in json.loads(arguments).values():
            assert isinstance(value, int | float) and math.isfinite(value), arguments


TEXTS = {
    "type": "object",
    "properties": {"s": {"type": "string"}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["s", "n"],
    "additionalProperties": False,
}
_ENDS = {
    "json": '"', "qwen_xml": "</parameter>", "qwen_trimmed_xml": "</parameter>", "minimax_xml": "</parameter>", "glm_xml": "</arg_value>",
    "gemma": '<|"|>', "deepseek_xml": "</｜DSML｜parameter>", "deepseek_v4_1_xml": "</｜DSML｜ parameter>",
}  # fmt: skip
"""The text that ends a string, by the style of the arguments."""


def spelled(text: str, vocabulary: Vocabulary) -> list[int]:
    """``text`` in ordinary tokens of one byte each."""
    single = single_bytes(vocabulary)
    return [single[bytes([byte])] for byte in text.encode()]


@functools.cache
def single_bytes(vocabulary: Vocabulary) -> dict[bytes | None, int]:
    return {vocabulary.token_bytes(i): i for i in range(vocabulary.size)}


def walk_with(text: str, index: Index, end: list[int], generator: random.Random) -> list[int] | None:
    """Tokens of a call with ``text`` in a string that ``end`` closes; None if the string may not contain it."""
    guide = index.guide()
    tokens: list[int] = []

    def said(way: list[int]) -> bool:
        if guide.accepts(way) < len(way):
            return False
        tokens.extend(way)
        return all(map(guide.advance, way))

    def go_on() -> None:
        assert len(tokens) < 1000
        said([generator.choice([t for t in guide.allowed_tokens() if t not in index.vocabulary.eos_token_ids])])

    while not said(spelled("qz", index.vocabulary)):
        go_on()
        if guide.can_finish:  # the string was empty, and a single token
            return walk_with(text, index, end, generator)
    if not said(spelled(f"{text}zq", index.vocabulary)):
        return None
    assert said(end)
    while not guide.can_finish:
        go_on()
    return tokens


@pytest.mark.parametrize("name", PARSERS)
def test_a_mark_in_a_string_does_not_end_the_call(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """All that the mask allows in a string comes back whole, also in a stream; what would end the call is forbidden."""
    tag = with_strict_tool(name, TEXTS, tokenizer)[1].structured_outputs.structural_tag
    index = Index.from_structural_tag(tag, vocabulary, any_whitespace=False)
    marks = {mark for text in strings(json.loads(tag)["format"]) for mark in re.findall(r"<[^<>\n]+>", text)}
    marks |= {"<parameter=q>", '<parameter name="q">', "<arg_key>", "<arg_value>", '<｜DSML｜parameter name="q">'}
    (style,) = set(re.findall(r'"style": "(\w+)"', tag))
    end = tokenizer.encode(_ENDS[style], add_special_tokens=False)
    refused = 0
    for mark in ["", *sorted(marks)]:
        tokens = walk_with(mark, index, end, random.Random(name))
        if tokens is None:
            refused += 1
            continue
        text = text_of(tokens, tokenizer)
        parser, request = with_strict_tool(name, TEXTS, tokenizer)
        _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
        parser, request = with_strict_tool(name, TEXTS, tokenizer)
        streamed = [*stream(parser, request, tokens, tokenizer)]
        for found in ([call.arguments for call in calls or []], streamed):
            assert len(found) == 1, (mark, text)
            assert f"qz{mark}zq" in json.loads(found[0])["s"]
    assert refused or not marks


def strings(value: Any) -> Iterator[str]:
    """The fixed texts of a tag."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in ("json_schema", "excludes"):
                yield from strings(part)


def stream(parser: Any, request: Any, tokens: list[int], tokenizer: Any) -> list[str]:
    """The arguments of the calls in a text that arrives token by token."""
    arguments: dict[int, str] = {}
    before = ""
    for i, token in enumerate(tokens):
        last = i + 1 == len(tokens)
        text = text_of(tokens[: i + 1], tokenizer)
        if text.endswith("\ufffd") and not last:
            text = before
        delta = parser.parse_delta(text[len(before) :], [token], request, [], finished=last)
        before = text
        for call in delta.tool_calls if delta else ():
            arguments[call.index] = arguments.get(call.index, "") + (call.function.arguments or "")
    return [*arguments.values()]


REFERRING = {
    "$defs": {
        "Size": {"enum": [1, 2], "type": "integer"},
        "Tree": {
            "type": "object",
            "properties": {
                "size": {"$ref": "#/$defs/Size"},
                "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}, "maxItems": 1},
            },
            "required": ["size", "kids"],
            "additionalProperties": False,
        },
    },
    "type": "object",
    "properties": {
        "size": {"$ref": "#/$defs/Size"},
        "tree": {"$ref": "#/$defs/Tree"},
        "kind": {"const": 7},
        "some": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
        "text": {
            "anyOf": [{"enum": ["27", "{}"]}, {"type": "array", "items": {"const": "a"}, "minItems": 1, "maxItems": 1}]
        },
    },
    "required": ["size", "tree", "kind", "some", "text"],
    "additionalProperties": False,
}
"""The form in which pydantic writes nested models and enumerations."""


@pytest.mark.parametrize("name", PARSERS)
def test_types_behind_references_come_back(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """vLLM's parsers follow no references: most turned the numbers and objects behind them into strings."""
    parser, request = with_strict_tool(name, REFERRING, tokenizer)
    index = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary, any_whitespace=False)
    tokens = walk(index, random.Random(name))
    text = text_of(tokens, tokenizer)
    _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
    jsonschema.validate(json.loads(calls[0].arguments), REFERRING)


INTEGER = {"type": "integer", "minimum": 0, "maximum": 99}
CLOSED = {"type": "object", "additionalProperties": False}
NARROW = {"minimum": 0, "maximum": 99, "multipleOf": 1, "maxItems": 0, "maxProperties": 0}
UNNAMED: dict[str, Any] = {
    "additional": {"type": "object", "additionalProperties": INTEGER, "propertyNames": {"enum": ["x", "y"]}, "minProperties": 1, "maxProperties": 1},
    "one named": {"type": "object", "properties": {"a": {"const": "a"}}, "required": ["a"], "additionalProperties": INTEGER, "propertyNames": {"enum": ["a", "x"]}, "minProperties": 2, "maxProperties": 2},
    "by pattern": {**CLOSED, "patternProperties": {"^[xy]$": {"type": "array", "items": INTEGER, "maxItems": 1}}, "minProperties": 1, "maxProperties": 1},
    "a union": {"anyOf": [{**CLOSED, "properties": {"n": INTEGER}, "required": ["n"]}, {**CLOSED, "properties": {"b": {"type": "boolean"}}, "required": ["b"]}], "type": "object"},
    "a union of references": {
        "$defs": {"A": {**CLOSED, "properties": {"n": INTEGER}, "required": ["n"]}, "B": {**CLOSED, "properties": {"n": {"type": "null"}}, "required": ["n"]}},
        "type": "object",
        "anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}],
    },
    "all of": {"type": "object", "allOf": [{"properties": {"n": INTEGER}, "required": ["n"]}, {"properties": {"b": {"type": "boolean"}}}], "unevaluatedProperties": False},
    "if": {"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "required": ["k"], "if": {"properties": {"k": {"const": "a"}}}, "then": {"properties": {"n": INTEGER}, "required": ["n"]}, "unevaluatedProperties": False},
}  # fmt: skip
"""Arguments whose types are not in the schema's own ``properties``."""
UNNAMED |= {
    "only a pattern": {**CLOSED, "properties": {"a": {**NARROW, "pattern": "^a$"}}, "required": ["a"]},
    "a number among texts": {**CLOSED, "properties": {"a": {"enum": [2, "aaa", 0]}}, "required": ["a"]},
    "anything in an array": {**CLOSED, "properties": {"a": {"type": "array", "items": {}, "prefixItems": [INTEGER, INTEGER], "minItems": 2, "maxItems": 2}}, "required": ["a"]},
    "a union without types": {**CLOSED, "properties": {"a": {"anyOf": [{**NARROW, "pattern": "^a$", "not": {"type": "array"}}, {"type": "null"}]}}, "required": ["a"]},
}  # fmt: skip


@pytest.mark.parametrize("kind", UNNAMED)
@pytest.mark.parametrize("name", PARSERS)
def test_types_that_properties_do_not_name_come_back(
    name: str, kind: str, tokenizer: Any, vocabulary: Vocabulary
) -> None:
    """Such numbers came back as strings."""
    schema = UNNAMED[kind]
    tag = with_strict_tool(name, schema, tokenizer)[1].structured_outputs.structural_tag
    index = Index.from_structural_tag(tag, vocabulary, any_whitespace=False)
    judge = jsonschema.Draft202012Validator(schema)
    for seed in range(few(3)):
        parser, request = with_strict_tool(name, schema, tokenizer)
        tokens = walk(index, random.Random(f"{name} {seed}"))
        text = text_of(tokens, tokenizer)
        _, _, calls = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
        judge.validate(json.loads(calls[0].arguments))
        if name == "llama3_json":  # vLLM's parser loses a call's end if the end shares a token with the call's braces
            continue
        parser, request = with_strict_tool(name, schema, tokenizer)
        (arguments,) = stream(parser, request, tokens, tokenizer)
        assert json.loads(arguments) == json.loads(calls[0].arguments)


CALLS = {
    "hermes": '<tool_call>\n{"name": "f", "arguments": ARGUMENTS}\n</tool_call>',
    "kimi_k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>ARGUMENTS<|tool_call_end|><|tool_calls_section_end|>",
    "gemma4": '<|tool_call>call:f{a:<|"|>00501<|"|>,l:[5,<|"|>5<|"|>]}<tool_call|>',
    "deepseek_v32": '\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">00501</｜DSML｜parameter><｜DSML｜parameter name="l" string="false">[5, "5"]</｜DSML｜parameter></｜DSML｜invoke>\n</｜DSML｜function_calls>',
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_known_types_come_back_as_written(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Quotes were lost if a number was allowed, too, and all items of an array got one type."""
    either = {"oneOf": [{"type": "string"}, {"type": "number"}]}
    properties = {
        "a": {"$ref": "#/$defs/E"},
        "l": {"type": "array", "prefixItems": [INTEGER], "items": {"type": "string"}},
    }
    schema = {**CLOSED, "properties": properties, "required": ["a", "l"], "$defs": {"E": either}}
    wanted = {"a": "00501", "l": [5, "5"]}
    text = CALLS[name].replace("ARGUMENTS", json.dumps(wanted))
    tokens = tokenizer.encode(text, add_special_tokens=False)
    parser, request = with_strict_tool(name, schema, tokenizer)
    guide = Index.from_structural_tag(request.structured_outputs.structural_tag, vocabulary).guide()
    assert all(map(guide.advance, tokens)) and guide.can_finish
    _, _, [call] = parser.parse(text, request, enable_auto_tools=True, model_output_token_ids=tokens)
    parser, request = with_strict_tool(name, schema, tokenizer)
    (streamed,) = stream(parser, request, tokens, tokenizer)
    assert json.loads(call.arguments) == json.loads(streamed) == wanted


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "g_1"}}], ids=["required", "named"]
)
@pytest.mark.parametrize("name", ["dots", "hermes"])
def test_a_call_that_nothing_enforces_is_refused(name: str, choice: Any, tokenizer: Any) -> None:
    """vLLM's parser for dots describes no notation, so the model could write anything."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.exceptions import VLLMValidationError
    from vllm.parser.parser_manager import ParserManager

    parser_class = ParserManager.get_parser(tool_parser_name=name, enable_auto_tools=True)
    request = ChatCompletionRequest(model="m", messages=[], tools=TOOLS, tool_choice=choice)
    request = parser_class(tokenizer, tools=request.tools).adjust_request(request)
    if name == "hermes":
        assert request.to_sampling_params(8, {}).structured_outputs is not None
        return
    with pytest.raises(VLLMValidationError, match="tool_choice demands a call"):
        request.to_sampling_params(8, {})
    free = ChatCompletionRequest(model="m", messages=[], tools=TOOLS, tool_choice="auto")
    assert free.to_sampling_params(8, {}).structured_outputs is None
