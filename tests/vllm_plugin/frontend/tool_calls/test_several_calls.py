"""All that the mask allows comes back from vLLM's parsers: several calls, no arguments, text around them; streams."""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import jsonschema
import pytest

vllm = pytest.importorskip("vllm")

from dotllm import Index, Vocabulary  # noqa: E402
from tests.cases import EVERY, sample  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls import several_calls, test_tool_parsers  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls.several_calls import Asked  # noqa: E402

CLOSED = {"type": "object", "additionalProperties": False}
SCHEMAS: dict[str, Any] = {
    "f": test_tool_parsers.SCHEMA,
    "now": {**CLOSED, "properties": {}},
    "say": {**CLOSED, "properties": {"s": {"type": "string", "maxLength": 6}}},
    "g_1": {**CLOSED, "properties": {"x": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["x"]},
}
JUDGES = {name: jsonschema.Draft202012Validator(schema) for name, schema in SCHEMAS.items()}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
    for name, schema in SCHEMAS.items()
]
LISTS = (
    "apertus", "ernie45", "functiongemma", "gigachat3", "granite", "granite-20b-fc", "granite4", "hunyuan_a13b", "hy_v3",
    "internlm", "jamba", "lfm2", "llama4_pythonic", "minicpm5", "olmo3", "phi4_mini_json", "pythonic", "seed_oss", "step3",
    "xlam",
)  # fmt: skip
"""The parsers that use JSON Schema for demanded calls, and otherwise leave the text free: one way for all of them."""


def judge(asked: Asked, tokens: list[int], tokenizer: Any, random: Random) -> int:
    """The number of calls; all of them must come back."""
    text = several_calls.text_of(tokens, tokenizer)
    expected = several_calls.written(asked, text)
    for how, calls in several_calls.every_reading(asked, tokens, tokenizer, random).items():
        assert [name for name, _ in calls] == [name for name, _ in expected], (how, text, calls)
        for (name, arguments), (_, stated) in zip(calls, expected, strict=True):
            JUDGES[name].validate(json.loads(arguments))
            assert not stated or json.loads(arguments) == json.loads(stated), (how, text)
    return len(expected)


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("name", [*test_tool_parsers.PARSERS, *sample(LISTS), "llama4_json", "qwen3_json"])
def test_calls_come_back(name: str, choice: str, parallel: bool, tokenizer: Any, vocabulary: Vocabulary) -> None:
    asked = several_calls.ask(name, TOOLS, choice, tokenizer, parallel=parallel)
    if asked.tag is None:
        assert choice == "auto" and name in LISTS
        return
    index = Index.from_structural_tag(asked.tag, vocabulary)
    seen = 0
    for seed in range(3):
        random = Random(f"{name} {choice} {parallel} {seed}")
        tokens = several_calls.walk(asked, index, random, tokenizer)
        found = 0 if tokens is None else judge(asked, tokens, tokenizer, random)
        assert parallel or found <= 1
        seen += found
        if seen and not EVERY:
            break
    assert seen or choice == "auto"


G = '{"name": "g_1", "parameters": {"x": 1}}'
NOW = '{"name": "now", "parameters": {}}'


@pytest.mark.parametrize(
    ("choice", "text", "calls"),
    [
        ("required", f"{G}; {NOW}", 2),
        ("required", f"{NOW}\n{G}", 2),
        ("required", NOW, 1),
        ("auto", f"Sure. {G}", 1),
        ("auto", f"Sure.\n\n{NOW}; {G}\nThat is all.", 2),
        ("auto", "def f(x): return {x}", 0),
        ("auto", 'It is [{"a": 1}, {}].', 0),
        ("required", f"{G}{G}", None),
        ("required", f"{G} see {{y", None),
        ("auto", f"{G}{NOW}", None),
        ("auto", f"{{y {G}", None),
        ("auto", f"{G} and {{", None),
        ("auto", '{"parameters": {}, "name": "now"}', None),
    ],
)
def test_calls_of_llama(choice: str, text: str, calls: int | None, tokenizer: Any, vocabulary: Vocabulary) -> None:
    """Its notation has no marks: the mask forbids what its parser loses (None), and everything else comes back."""
    asked = several_calls.ask("llama3_json", TOOLS, choice, tokenizer)
    tokens = tokenizer.encode(text, add_special_tokens=False)
    assert asked.tag is not None
    guide = Index.from_structural_tag(asked.tag, vocabulary).guide()
    allowed = all(map(guide.advance, tokens)) and guide.can_finish
    assert allowed == (calls is not None)
    if calls is not None:
        assert judge(asked, tokens, tokenizer, Random(text)) == calls


def test_text_of_a_held_stream_comes_as_it_is_written(tokenizer: Any) -> None:
    """A stream is held back only from the first call on."""
    for text, early in [("Sure. It is {x} here", True), (f"Sure. {G}", False)]:
        asked = several_calls.ask("llama3_json", TOOLS, "auto", tokenizer)
        parser, content, before, at_end = asked.new_parser(), "", "", ""
        tokens = tokenizer.encode(text, add_special_tokens=False)
        for i, token in enumerate(tokens):
            now = tokenizer.decode(tokens[: i + 1])
            last = i + 1 == len(tokens)
            delta = parser.parse_delta(now[len(before) :], [token], asked.request, [], finished=last)
            before = now
            added = (delta.content or "") if delta else ""
            content, at_end = content + added, added if last else at_end
        assert content == (text if early else "Sure. ")
        assert len(at_end) < 8


@pytest.mark.parametrize("name", ["llama3_json", "deepseek_v31"])
def test_a_stream_without_a_constraint_is_vllms(name: str, tokenizer: Any) -> None:
    tools = [{"type": "function", "function": {"name": "g_1", "parameters": SCHEMAS["g_1"]}}]
    asked = several_calls.ask(name, tools, "auto", tokenizer)
    assert asked.tag is None
    text = '{"name": "g_1", "parameters": {"x": 1}}' if name == "llama3_json" else "no call"
    tokens = tokenizer.encode(text, add_special_tokens=False)
    found = several_calls.stream(asked, tokens, tokenizer, lambda: 1)
    assert [call for call, _ in found] == (["g_1"] if name == "llama3_json" else [])


def test_an_event_of_a_call_without_a_constraint_is_vllms(tokenizer: Any) -> None:
    """Hermes' parser writes a name and its arguments as two entries; for a demanded call it writes one."""
    tools = [{"type": "function", "function": {"name": "g_1", "parameters": SCHEMAS["g_1"]}}]
    tokens = tokenizer.encode('<tool_call>{"name": "g_1", "arguments": {"x": 1}}</tool_call>', add_special_tokens=False)
    for choice, entries in (("auto", 2), ("required", 1)):
        asked = several_calls.ask("hermes", tools, choice, tokenizer)
        text = tokenizer.decode(tokens)
        delta = asked.new_parser().parse_delta(text, tokens, asked.request, [], finished=True)
        assert [call.index for call in delta.tool_calls] == [0] * entries
        assert "".join(call.function.arguments or "" for call in delta.tool_calls) == '{"x": 1}'


WITHOUT: dict[str, Any] = {"name": "now", "strict": True}


@pytest.mark.parametrize("function", [WITHOUT, {**WITHOUT, "parameters": None}], ids=["absent", "null"])
@pytest.mark.parametrize(
    "name", ["hermes", "llama3_json", "qwen3_coder", "glm47", "internlm", "deepseek_v4", "kimi_k2"]
)
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "now"}}])
def test_a_strict_tool_without_parameters_takes_none(
    name: str, choice: Any, function: dict[str, Any], tokenizer: Any, vocabulary: Vocabulary
) -> None:
    """OpenAI's reference says: "Omitting parameters defines a function with an empty parameter list"."""
    asked = several_calls.ask(name, [{"type": "function", "function": function}], choice, tokenizer, parallel=False)
    assert asked.tag is not None
    index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False, additional_properties="open")
    for seed in range(5):
        tokens = several_calls.walk(asked, index, Random(seed), tokenizer)
        assert tokens is not None
        for how, calls in several_calls.every_reading(asked, tokens, tokenizer, Random(seed)).items():
            assert [(call, json.loads(arguments)) for call, arguments in calls] == [("now", {})], how
    assert asked.request.tools[0].function.parameters is None, "the prompt shows the tool as it was sent"


def test_calls_in_a_list_have_a_name_and_parameters(tokenizer: Any, vocabulary: Vocabulary) -> None:
    asked = several_calls.ask("internlm", TOOLS, "required", tokenizer)
    assert asked.tag is not None
    index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False, additional_properties="open")
    for text, allowed in [
        ('[{"name":"now","parameters":{}}]', True),
        ('[{"name":"now","parameters":{},"k":1}]', False),
        ('[{"k":{},"name":"now","parameters":{}}]', False),
        ('[{"name":"now"}]', False),
    ]:
        end = index.advance_bytes(index.guide().config, text.encode())
        assert (end >= 0 and index.can_finish(end)) == allowed, text


def test_each_tool_of_a_list_keeps_its_own_references(tokenizer: Any, vocabulary: Vocabulary) -> None:
    """vLLM moved all ``$defs`` to the root and refused equal names, and ``#`` referred to the list of calls."""

    def tree(value: Any) -> dict[str, Any]:
        properties = {"n": {"$ref": "#/$defs/N"}, "child": {"$ref": "#"}}
        return {**CLOSED, "properties": properties, "$defs": {"N": {"const": value}}}

    schemas = {"a": tree(1), "b": tree(2)}
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema, "strict": True}}
        for name, schema in schemas.items()
    ]
    asked = several_calls.ask("internlm", tools, "required", tokenizer)
    assert asked.tag is not None
    index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False)
    for name, arguments in [("a", {"child": {"n": 1}}), ("b", {"n": 2}), ("a", {"n": 2}), ("b", {"child": []})]:
        text = json.dumps([{"name": name, "parameters": arguments}], separators=(",", ":"))
        end = index.advance_bytes(index.guide().config, text.encode())
        expected = jsonschema.Draft202012Validator(schemas[name]).is_valid(arguments)
        assert (end >= 0 and index.can_finish(end)) == expected, text
    assert [tool.function.parameters for tool in asked.request.tools] == [*schemas.values()]


NAMES = ("f<x>", "f>", "<f", " f", "f ", "\u2009f", "a'b", "f x", "f.x", "f/x", "f=x", "f:0", "f|x", "\u540d", "f&lt;")


@pytest.mark.parametrize("name", [*test_tool_parsers.PARSERS, "granite", "pythonic"])
def test_a_call_of_any_name_comes_back_or_the_name_is_refused(
    name: str, tokenizer: Any, vocabulary: Vocabulary
) -> None:
    from vllm.exceptions import VLLMValidationError

    taken = set()
    for called in NAMES:
        function = {"name": called, "parameters": SCHEMAS["g_1"], "strict": True}
        try:
            asked = several_calls.ask(name, [{"type": "function", "function": function}], "required", tokenizer)
        except VLLMValidationError as error:
            assert error.parameter == "tools[0].function.name" and "use letters" in str(error)
            continue
        assert asked.tag is not None
        index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False)
        tokens = several_calls.walk_within(index, Random(called), 60)
        for how, calls in several_calls.every_reading(asked, tokens, tokenizer, Random(called)).items():
            assert calls and {read for read, _ in calls} == {called}, (how, tokenizer.decode(tokens), calls)
        taken.add(called)
    assert taken >= {"a'b", "f x", "f.x", "f/x", "\u540d"}


CUT = (*test_tool_parsers.PARSERS, *sample(LISTS), "llama4_json", "qwen3_json")
LONG = {
    **CLOSED,
    "properties": {
        "n": {"type": "integer", "minimum": 1000, "maximum": 99999},
        "s": {"type": "string", "minLength": 5, "maxLength": 9},
        "t": {"type": "array", "items": {"enum": ["aa", "bb"]}, "minItems": 2, "maxItems": 3},
    },
    "required": ["n", "s", "t"],
}


@pytest.mark.parametrize(("name", "choice"), [*product(CUT, ["any"]), *product(sample(CUT), ["named"])])
def test_a_call_that_is_cut_does_not_look_complete(
    name: str, choice: str, tokenizer: Any, vocabulary: Vocabulary
) -> None:
    """Cut at any token (or at some, and near the end at any): only finished calls come back as a whole, and a stream's arguments are not JSON."""
    tool = {"type": "function", "function": {"name": "f", "parameters": LONG, "strict": True}}
    asked_for = "required" if choice == "any" else {"type": "function", "function": {"name": "f"}}
    asked = several_calls.ask(name, [tool], asked_for, tokenizer, parallel=False)
    assert asked.tag is not None
    index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False)
    tokens = test_tool_parsers.walk(index, Random(name))
    (whole,) = several_calls.read(asked, tokens, tokenizer)
    guide, cuts = index.guide(), 0
    for at, token in enumerate(tokens[:-1], 1):
        assert guide.advance(token)
        if guide.can_finish:
            continue
        cuts += 1
        if not EVERY and at % 3 and at + 8 < len(tokens):
            continue
        text = several_calls.text_of(tokens[:at], tokenizer)
        assert [json.loads(read) for _, read in several_calls.read(asked, tokens[:at], tokenizer)] in (
            [],
            [json.loads(whole[1])],
        ), text
        if at % (3 if EVERY else 9) and at + 8 < len(tokens):
            continue
        content, calls = several_calls.stream_with_text(asked, tokens[:at], tokenizer)
        assert "{" not in content and "call" not in content and "invoke" not in content, (text, content)
        for _, arguments in calls:
            assert not is_json(arguments) or json.loads(arguments) == json.loads(whole[1]), (text, arguments)
    assert cuts > 10


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("name", ["hermes", "qwen3_coder", "glm47", "minimax_m2", "kimi_k2"])
def test_the_calls_before_the_one_that_is_cut_stay(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    asked = several_calls.ask(name, TOOLS, "required", tokenizer)
    assert asked.tag is not None
    index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False)
    seen = 0
    for seed in range(8):
        tokens = several_calls.walk(asked, index, Random(f"{name} {seed}"), tokenizer)
        calls = several_calls.read(asked, tokens, tokenizer) if tokens else []
        if tokens is None or len(calls) < 2:
            continue
        counts = [len(several_calls.read(asked, tokens[:at], tokenizer)) for at in range(1, len(tokens) + 1)]
        assert counts == sorted(counts) and counts[-1] == len(calls), "none comes before it has ended"
        for at, count in enumerate(counts, 1):
            assert several_calls.read(asked, tokens[:at], tokenizer) == calls[:count]
        seen += 1
        break
    assert seen
