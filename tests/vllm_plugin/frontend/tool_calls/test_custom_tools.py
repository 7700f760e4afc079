"""Custom tools with grammars: with all tool parsers of vLLM, and over HTTP with vLLM's whole front end.

A walk under the mask stands in for a model. The judges are Lark's own parser and ``re``.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("vllm")
lark = pytest.importorskip("lark")

from dotllm import Index, Vocabulary  # noqa: E402
from dotllm.languages.structural_tag.styles import STYLES  # noqa: E402
from dotllm.vllm_plugin.tools import custom_tools  # noqa: E402
from tests.cases import few  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls import several_calls  # noqa: E402
from tests.vllm_plugin.frontend.tool_calls.several_calls import Asked  # noqa: E402
from tests.vllm_plugin.played_server import NAME, PlayedServer  # noqa: E402

LINES = r"""
start: (/[ +]/ /[^\n]{0,30}/ "\n" | "</" WORD ">" | "\"" | "\\")+
WORD: "tool_call" | "parameter" | "function" | "arg_value" | "x"
"""
"""Texts with characters that must be escaped, and with marks that readers could act on."""
JSON_TOOL = {
    "name": "lookup",
    "strict": True,
    "parameters": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 99}}, "required": ["n"]},
}


def chats(name: str, definition: str, syntax: str = "lark") -> dict[str, Any]:
    form = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "description": "It edits.", "format": form}}


def of_responses(name: str, definition: str, syntax: str = "lark") -> dict[str, Any]:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    return {"type": "custom", "name": name, "description": "It edits.", "format": form}


def accepts(definition: str, text: str) -> bool:
    """Whether Lark's own parser accepts ``text``. (Lark refuses terminals that match the empty text.)"""
    parser = lark.Lark(definition.replace("/[^\\n]{0,30}/", "/[^\\n]{1,30}/?").replace("/(.*)/", "/(.+)/?"))
    try:
        parser.parse(text)
    except lark.exceptions.LarkError:
        return False
    return True


def ask(parser_name: str, choice: Any, tokenizer: Any) -> Asked:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.parser.parser_manager import ParserManager

    tools = [chats("edit", LINES), {"type": "function", "function": JSON_TOOL}]
    request = ChatCompletionRequest(model="m", messages=[], tools=tools, tool_choice=choice, parallel_tool_calls=False)
    parser_class = ParserManager.get_parser(tool_parser_name=parser_name, enable_auto_tools=True)
    request = parser_class(tokenizer, tools=request.tools).adjust_request(request)
    return Asked(lambda: parser_class(tokenizer, tools=request.tools), request, ("edit", "lookup"))


ONE_OF_EACH = (
    "deepseek_v31", "deepseek_v32", "gemma4", "glm47", "granite", "hermes", "llama3_json", "mimo", "minimax_m2", "pythonic",
    "qwen3_coder",
)  # fmt: skip
"""One parser for each notation. (All 40 names have been tried.)"""


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_call_comes_back_as_the_grammar_has_it(name: str, tokenizer: Any, vocabulary: Vocabulary) -> None:
    random, seen = Random(name), 0
    for choice in ({"type": "custom", "custom": {"name": "edit"}}, "required"):
        asked = ask(name, choice, tokenizer)
        assert asked.tag is not None
        index = Index.from_structural_tag(asked.tag, vocabulary, any_whitespace=False)
        for _ in range(few(2)):
            tokens = walk(index, random, tokenizer)
            text = several_calls.text_of(tokens, tokenizer)
            for how, ((called, arguments),) in several_calls.every_reading(asked, tokens, tokenizer, random).items():
                if called == "lookup" and choice == "required":
                    assert isinstance(json.loads(arguments)["n"], int)
                    continue
                found = custom_tools._Input().add(arguments)
                assert called == "edit"
                assert found == written(asked.tag, text) and accepts(LINES, found), (how, text, found)
                seen += 1
    assert seen >= 4 * few(2)


def written(tag: str, text: str) -> str:
    """The input of the call in ``text``, read by its notation alone."""
    (name,) = set(re.findall(r'"style": "(\w+)"', tag)) or {"json"}
    if name == "json":
        _, _, arguments = text.partition('"input":')
        found: str = json.JSONDecoder().raw_decode(arguments.lstrip(" "))[0]
        return found
    if name == "gemma":
        return text.split('<|"|>')[1]
    style = STYLES[name]
    line = "\n" if style.is_trimmed else ""
    before = re.escape(style.before) + "input" + re.escape(style.after) + r"\s*?" + re.escape(style.kinds[0] + line)
    match = re.search(f"{before}(.*?){re.escape(line + style.close)}", text, re.DOTALL)
    assert match is not None, text
    return match[1]


def walk(index: Index, random: Random, tokenizer: Any) -> list[int]:
    """A call that tries to write marks, and then ends as soon as it can."""
    guide, tokens, ends = index.guide(), list[int](), {*index.vocabulary.eos_token_ids}
    likely = ["</tool_call>", "</parameter>", "</function>", "</arg_value>", "+", "\\n", "\n", '"', " ", "<", "+ "]
    most = guide.tokens_to_finish + 60
    while not (guide.can_finish and random.random() < 0.5):
        way = tokenizer.encode(random.choice(likely), add_special_tokens=False) if random.random() < 0.4 else []
        left = most - len(tokens)
        if not way or guide.accepts(way) < len(way) or left < guide.tokens_to_finish + 20:
            row = guide.mask_within(left)
            row = index.masks[guide.mask_row] if row is None else row
            allowed = np.nonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))[0].tolist()
            way = [random.choice([token for token in allowed if token not in ends] or [-1])]
            if way == [-1]:
                break
        assert all(map(guide.advance, way))
        tokens += way
    return tokens


# --- over HTTP

TOOLS_OF_CHATS = [
    chats("edit", LINES),
    {"type": "custom", "custom": {"name": "note"}},
    {"type": "function", "function": JSON_TOOL},
]
TOOLS_OF_RESPONSES = [
    of_responses("edit", LINES),
    {"type": "custom", "name": "note"},
    {"type": "function", **JSON_TOOL},
    of_responses("day", "[0-9]{4}-[0-9]{2}", "regex"),
]


def chat(played: PlayedServer, **fields: Any) -> Any:
    messages = [{"role": "user", "content": "Go on."}]
    body = {"model": NAME, "messages": messages, "tools": TOOLS_OF_CHATS, "max_tokens": 500, **fields}
    return played.post("/v1/chat/completions", body)


def response(played: PlayedServer, **fields: Any) -> Any:
    body = {"model": NAME, "input": "Go on.", "tools": TOOLS_OF_RESPONSES, "max_output_tokens": 500, **fields}
    return played.post("/v1/responses", body)


def judged(name: str, text: str) -> bool:
    """Whether ``text`` is a valid input of the tool."""
    return {"edit": accepts(LINES, text), "note": True, "day": bool(re.fullmatch("[0-9]{4}-[0-9]{2}", text))}[name]


def streamed_calls(events: list[Any]) -> list[dict[str, Any]]:
    """The calls of a streamed chat, assembled from OpenAI's events."""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            for part in choice["delta"].get("tool_calls") or ():
                if "type" in part:
                    calls[part["index"]] = {"type": part["type"], "id": part["id"], "name": "", "text": ""}
                call = calls[part["index"]]
                call["name"] += part.get(call["type"], {}).get("name") or ""
                call["text"] += part[call["type"]].get("input" if call["type"] == "custom" else "arguments") or ""
    return list(calls.values())


@pytest.mark.parametrize("choice", ["edit", "note", "required"])
def test_calls_of_a_chat(choice: str, played: PlayedServer) -> None:
    fields: dict[str, Any] = {"tool_choice": choice}
    if choice != "required":
        fields = {"tool_choice": {"type": "custom", "custom": {"name": choice}}}
    whole, stream = chat(played, **fields), chat(played, **fields, stream=True)
    calls = whole.body["choices"][0]["message"]["tool_calls"]
    assert calls
    said = streamed_calls(stream.body)
    assert [(call["type"], call[call["type"]]["name"]) for call in calls] == [(c["type"], c["name"]) for c in said]
    for call, again in zip(calls, said, strict=True):
        assert call["id"].startswith("chatcmpl-tool-") and again["id"]
        if call["type"] == "function":
            assert isinstance(json.loads(call["function"]["arguments"])["n"], int)
            continue
        assert set(call) == {"id", "type", "custom"} and set(call["custom"]) == {"name", "input"}
        assert call["custom"]["input"] == again["text"] and judged(call["custom"]["name"], again["text"])


@pytest.mark.parametrize("choice", ["edit", "day", "required"])
def test_calls_of_a_response(choice: str, played: PlayedServer) -> None:
    fields: dict[str, Any] = {"tool_choice": choice}
    if choice != "required":
        fields = {"tool_choice": {"type": "custom", "name": choice}}
    whole, stream = response(played, **fields), response(played, **fields, stream=True)
    custom = [item for item in whole.body["output"] if item["type"] == "custom_tool_call"]
    assert custom and all(judged(item["name"], item["input"]) for item in custom)
    added = [event["item"] for event in stream.body if event["type"] == "response.output_item.added"]
    assert [item["input"] for item in added if item["type"] == "custom_tool_call"] == [""] * len(custom)
    deltas: dict[str, str] = {}
    for event in stream.body:
        if event["type"] == "response.custom_tool_call_input.delta":
            deltas[event["item_id"]] = deltas.get(event["item_id"], "") + event["delta"]
    done = [e["input"] for e in stream.body if e["type"] == "response.custom_tool_call_input.done"]
    assert list(deltas.values()) == done == [item["input"] for item in custom]
    assert stream.body[-1]["response"]["tools"][0]["format"] == TOOLS_OF_RESPONSES[0]["format"], "it is told as sent"


def test_with_auto_the_model_may_call(played: PlayedServer) -> None:
    """(The walk ends early and calls nothing.) Any call would have to follow the grammar."""
    for answer in (chat(played), chat(played, stream=True), response(played), response(played, stream=True)):
        assert answer.status == 200
        assert '"input_grammar"' in answer.constraints[0].structural_tag
    assert chat(played, tool_choice="none").is_free


def test_free_form_tools_of_responses_are_as_in_vllm(played: PlayedServer) -> None:
    for tool in ({"type": "custom", "name": "note"}, {"type": "custom", "name": "note", "format": {"type": "text"}}):
        assert response(played, tools=[tool]).is_free
        forced = response(played, tools=[tool], tool_choice={"type": "custom", "name": "note"})
        assert [item["type"] for item in forced.body["output"]] == ["custom_tool_call"]


def test_earlier_calls_are_taken(played: PlayedServer) -> None:
    calls = [{"id": "c1", "type": "custom", "custom": {"name": "edit", "input": '+ "a"\n'}}]
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    assert chat(played, messages=messages).status == 200
    earlier = [
        {"role": "user", "content": "Go."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "edit", "input": '+ "a"\n'},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
    ]
    for stream in (False, True):
        assert response(played, input=earlier, stream=stream).status == 200


@pytest.mark.parametrize(
    ("definition", "syntax", "place"),
    [
        ("start: a", "lark", "line 1, column 8"),
        ('start: "a"\n  b: %', "lark", "line 2"),
        ("start: <|im_end|>", "lark", ""),
        ("", "lark", ""),
        ('start: %json {"type": "array", "uniqueItems": true}', "lark", ""),
        ("(a", "regex", "offset"),
        (r"a\1", "regex", "offset"),
    ],
)
def test_a_grammar_that_cannot_be_enforced(definition: str, syntax: str, place: str, played: PlayedServer) -> None:
    for stream in (False, True):
        for choice in ("auto", "required"):
            of_chat = chat(played, tools=[chats("edit", definition, syntax)], stream=stream, tool_choice=choice)
            at = "/tools/0/custom/format/grammar/definition"
            assert of_chat.status == 400 and at in of_chat.error["message"] and place in of_chat.error["message"]
            assert of_chat.error["param"] == "tools[0].custom.format.grammar.definition"
            tools = [{"type": "function", **JSON_TOOL}, of_responses("edit", definition, syntax)]
            other = response(played, tools=tools, stream=stream, tool_choice=choice)
            assert other.status == 400 and "/tools/1/format/definition" in other.error["message"]
            assert other.error["param"] == "tools[1].format.definition"


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"type": "grammar"}, "definition"),
        ({"type": "grammar", "syntax": "ebnf", "definition": "x"}, "syntax"),
        ({"type": "grammar", "definition": "start: x"}, "syntax"),
        ({"type": "xml"}, "type"),
        ("lark", "type"),
    ],
)
def test_a_format_that_is_none(form: Any, field: str, played: PlayedServer) -> None:
    answer = response(played, tools=[{"type": "custom", "name": "edit", "format": form}])
    assert answer.status == 400 and answer.error["param"] == f"tools[0].format.{field}"


def test_a_grammar_without_any_text_is_refused(played: PlayedServer) -> None:
    """Next to another tool, such a tool silently vanished."""
    tools = [{"type": "function", "function": JSON_TOOL}, chats("edit", 'start: start "a"')]
    for choice in ("auto", "required"):
        answer = chat(played, tools=tools, tool_choice=choice)
        assert answer.error["param"] == "tools[1].custom.format.grammar.definition"
        assert "tool 'edit': no text satisfies the grammar" in answer.error["message"]


def test_tools_of_one_name_are_refused(played: PlayedServer) -> None:
    tools = [chats("lookup", LINES), {"type": "function", "function": JSON_TOOL}]
    assert chat(played, tools=tools).error["param"] == "tools[1]"


@pytest.mark.parametrize("wrong", [5, {}, {"type": []}, {"type": {}}, {"type": "function", "function": 5}], ids=str)
def test_a_tool_of_the_wrong_type_next_to_a_custom_tool(wrong: Any, played: PlayedServer) -> None:
    """A type that is a list was refused with ``unhashable type: 'list'``."""
    answer = chat(played, tools=[chats("edit", LINES), wrong])
    assert answer.status == 400 and "unhashable" not in answer.error["message"]


@pytest.mark.parametrize(
    "tool", [{"custom": 5}, {"custom": {}}, {"custom": {"name": 5}}, {"name": "edit"}, {}], ids=str
)
def test_a_custom_tool_without_a_name(tool: dict[str, Any], played: PlayedServer) -> None:
    answer = chat(played, tools=[{"type": "custom", **tool}])
    assert answer.status == 400 and answer.error["param"] == "tools[0].custom"


def test_a_custom_tool_of_the_other_api(played: PlayedServer) -> None:
    answer = response(played, tools=[chats("edit", LINES)])
    assert answer.status == 400 and answer.error["param"] == "tools[0].custom"


def test_a_grammar_in_a_namespace(played: PlayedServer) -> None:
    """vLLM does not show such a tool to the model."""
    tools = [{"type": "namespace", "name": "files", "description": "", "tools": [of_responses("edit", LINES)]}]
    answer = response(played, tools=tools)
    assert answer.status == 400 and answer.error["param"] == "tools[0].tools[0].format"


@pytest.mark.parametrize("kind", ["file_search", "mcp", "shell"])
def test_a_choice_of_a_tool_that_vllm_does_not_call(kind: str, played: PlayedServer) -> None:
    """The choice is at fault, not the grammar of another tool."""
    choice = {"type": kind, "server_label": "x"} if kind == "mcp" else {"type": kind}
    answer = response(played, tool_choice=choice)
    assert answer.status == 400 and answer.error["param"] == "tool_choice" and kind in answer.error["message"]


def test_an_earlier_call_without_its_input(played: PlayedServer) -> None:
    messages = [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]},
    ]
    assert chat(played, messages=messages).status == 400


def test_the_model_is_told_the_grammar() -> None:
    from openai.types.responses import CustomTool
    from vllm.tool_parsers.utils import iter_response_function_tool_dicts

    (tool,) = iter_response_function_tool_dicts([CustomTool.model_validate(of_responses("edit", LINES))])
    assert LINES in tool["parameters"]["properties"]["input"]["description"]


def test_a_cut_call_has_the_beginning_of_its_input(played: PlayedServer) -> None:
    played.core.cuts = True
    try:
        for most in (20, 30, 45):
            stream = response(
                played, stream=True, max_output_tokens=most, tool_choice={"type": "custom", "name": "edit"}
            )
            for event in stream.body:
                text = event.get("input", event.get("delta", ""))
                assert "{" not in text[:1] or '"input"' not in text
    finally:
        played.core.cuts = False
