"""Every API field that leads to a constraint, through common clients: the answer is what was asked for.

The rows are those of docs/api.md. The model's weights are random, so only the constraint makes an answer fit.
"""

from __future__ import annotations

import json
import math
import re
from itertools import cycle, product
from typing import Any

import jsonschema
import pytest

from tests.cases import EVERY, few
from tests.serve.conftest import NAME

pytestmark = pytest.mark.serve

SCHEMA = {
    "type": "object",
    "properties": {"level": {"enum": ["low", "high"]}, "n": {"type": "integer", "minimum": 1, "maximum": 99}},
    "required": ["level", "n"],
    "additionalProperties": False,
}
RESPONSE_FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
END_OF_THINKING, BEGIN_OF_CALL = "8193", "8194"  # ids of the model's tokens, see api_model
MESSAGES = [{"role": "user", "content": "?"}]


def judge(text: str | None) -> dict[str, Any]:
    """Parse a document of `SCHEMA`."""
    value: dict[str, Any] = json.loads(text or "")
    jsonschema.validate(value, SCHEMA)
    return value


def tool(name: str = "f", *, strict: bool | None = True, parameters: Any = SCHEMA) -> dict[str, Any]:
    function = {"name": name, "parameters": parameters}
    return {"type": "function", "function": function if strict is None else {**function, "strict": strict}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def chat(client: Any, *, extra: Any = None, **fields: Any) -> Any:
    fields = {"max_completion_tokens": 400, "temperature": 1.0, "messages": MESSAGES, **fields}
    return client.chat.completions.create(model=NAME, extra_body=extra, **fields)


def calls(message: Any) -> list[tuple[str, str]]:
    return [(call.function.name, call.function.arguments) for call in message.tool_calls or []]


# ---- the six kinds of constraint, in response_format and structured_outputs

TAG = {"type": "tag", "begin": "<a>", "content": {"type": "json_schema", "json_schema": SCHEMA}, "end": "</a>"}
LEGACY = {"structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}], "triggers": ["<a>"]}


def json_in_a_tag(text: str) -> None:
    found = re.fullmatch("<a>(.*)</a>", text, re.DOTALL)
    assert found, text
    judge(found[1])


def legacy_tags(text: str) -> None:
    rest = text
    while "<a>" in rest:
        inside, end, rest = rest.partition("<a>")[2].partition("</a>")
        if not end:
            return  # cut by max_tokens
        judge(inside)


def is_object(text: str) -> None:
    assert text.startswith("{"), text


def matches(pattern: str) -> Any:
    def check(text: str) -> None:
        assert re.fullmatch(pattern, text), text

    return check


KINDS = [
    ("response_format json_schema", {"response_format": RESPONSE_FORMAT}, judge),
    ("response_format json_object", {"response_format": {"type": "json_object"}}, is_object),
    ("response_format structural_tag", {"response_format": {"type": "structural_tag", "format": TAG}}, json_in_a_tag),
    ("response_format structural_tag, legacy", {"response_format": {"type": "structural_tag", **LEGACY}}, legacy_tags),
    ("json", {"structured_outputs": {"json": SCHEMA}}, judge),
    ("json as text", {"structured_outputs": {"json": json.dumps(SCHEMA)}}, judge),
    ("json_object", {"structured_outputs": {"json_object": True}}, is_object),
    ("regex", {"structured_outputs": {"regex": "[a-z]{3,5}-[0-9]{2}"}}, matches("[a-z]{3,5}-[0-9]{2}")),
    ("choice", {"structured_outputs": {"choice": ["yes", "no\nwell"]}}, matches("yes|no\nwell")),
    ("Lark", {"structured_outputs": {"grammar": 'start: "a" B+ %json {"type": "boolean"}\nB: /[xy]/'}}, matches("a[xy]+(true|false)?")),
    ("EBNF", {"structured_outputs": {"grammar": 'root ::= "(" root ")" | [0-9]{1,3}'}}, matches(r"\(*[0-9]{0,3}\)*")),
    ("structural_tag", {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": TAG})}}, json_in_a_tag),
    ("structural_tag, legacy", {"structured_outputs": {"structural_tag": json.dumps(LEGACY)}}, legacy_tags),
    ("whitespace_pattern", {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}}, matches(r'\{ "level" : "(low|high)" , "n" : [0-9]{1,2} \}')),
    ("integers beyond 64 bits", {"structured_outputs": {"json": {"enum": [10**40]}}}, lambda text: float(text) == 1e40),
]  # fmt: skip


WHOLE, STREAMED = ("whole", False), ("streamed", True)
CHATS = [*(product((WHOLE, STREAMED), KINDS) if EVERY else zip(cycle((WHOLE, STREAMED)), KINDS, strict=False))]


@pytest.mark.parametrize(
    ("stream", "fields", "check"),
    [(stream, *row[1:]) for (_, stream), row in CHATS],
    ids=[f"{how}-{row[0]}" for (how, _), row in CHATS],
)
def test_chat_completions(openai_client: Any, stream: bool, fields: Any, check: Any) -> None:
    reply = chat(openai_client, extra=fields, stream=stream, max_completion_tokens=150)
    if stream:
        text = "".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices)
    else:
        text = reply.choices[0].message.content or ""
    check(text)


@pytest.mark.parametrize(("fields", "check"), [row[1:] for row in KINDS], ids=[row[0] for row in KINDS])
def test_completions(openai_client: Any, fields: Any, check: Any) -> None:
    """Constrained from the first token, although the server has a reasoning parser (vLLM would constrain nothing)."""
    reply = openai_client.completions.create(
        model=NAME, prompt=["?", "!"], n=few(2), max_tokens=150, temperature=1.0, extra_body=fields
    )
    for choice in reply.choices:
        check(choice.text)


@pytest.mark.parametrize("path", ["/completions", "/chat/completions", "/messages"])
def test_rendered_requests(openai_client: Any, path: str) -> None:
    """Constrained like requests that are not rendered first; a completion from its first token, too."""
    subject = {"prompt": "?"} if path == "/completions" else {"messages": MESSAGES}
    asked: dict[str, Any] = {"response_format": RESPONSE_FORMAT}
    if path == "/messages":
        asked = {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
    body = {"model": NAME, "max_tokens": 150, **subject, **asked}
    found = openai_client.post(f"{path}/render", body=body, cast_to=object)
    for rendered in found if isinstance(found, list) else [found]:
        url = str(openai_client.base_url).replace("/v1/", "/inference/v1/generate")
        reply = openai_client.post(url, body={**rendered, "output_mode": "text"}, cast_to=object)
        judge(reply["choices"][0]["text"])


def test_batches_of_chats(openai_client: Any) -> None:
    body = {"model": NAME, "messages": [MESSAGES, MESSAGES], "response_format": RESPONSE_FORMAT, "max_tokens": 150}
    reply = openai_client.post("/chat/completions/batch", body=body, cast_to=object)
    assert len(reply["choices"]) == 2
    for choice in reply["choices"]:
        judge(choice["message"]["content"])


@pytest.mark.parametrize("stream", [False, True])
def test_a_beginning_that_the_client_gives_is_not_part_of_the_answer(openai_client: Any, stream: bool) -> None:
    """Of a completion, or of a chat that continues a message. The reasoning has ended with the message's own mark."""
    reply = openai_client.completions.create(
        model=NAME, prompt='{"level":', max_tokens=150, stream=stream, extra_body={"response_format": RESPONSE_FORMAT}
    )
    judge("".join(chunk.choices[0].text for chunk in reply) if stream else reply.choices[0].text)
    messages = [*MESSAGES, {"role": "assistant", "content": '</think>{"level":'}]
    extra = {"continue_final_message": True, "add_generation_prompt": False}
    reply = chat(openai_client, extra=extra, messages=messages, stream=stream, response_format=RESPONSE_FORMAT)
    if stream:
        judge("".join(chunk.choices[0].delta.content or "" for chunk in reply if chunk.choices))
    else:
        judge(reply.choices[0].message.content)


def test_an_answer_behind_its_reasoning(openai_client: Any) -> None:
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    reply = chat(openai_client, extra=thinking, response_format=RESPONSE_FORMAT, logit_bias={END_OF_THINKING: 100})
    judge(reply.choices[0].message.content)
    free = chat(openai_client, extra=thinking, response_format=RESPONSE_FORMAT, max_completion_tokens=30)
    assert free.choices[0].message.content is None, "the constraint is for the answer, not for the reasoning"


@pytest.mark.parametrize("stream", [False, True])
def test_no_tool_call_in_place_of_the_answer_ends_the_reasoning(openai_client: Any, stream: bool) -> None:
    """Qwen3's parser takes the first token of a call for the end of the reasoning; no such answer begins with it."""
    forced = {"enable_thinking": True}
    for again in range(2):  # once new, once known
        extra = {"chat_template_kwargs": forced, "structured_outputs": {"regex": f"[a-z]{{3,9}}{int(stream)}"}}
        reply = chat(
            openai_client, extra=extra, stream=stream, max_completion_tokens=30, logit_bias={BEGIN_OF_CALL: 100}
        )
        if stream:
            ends = [choice.finish_reason for chunk in reply for choice in chunk.choices if choice.finish_reason]
            assert ends in (["length"], ["stop"]), again
        else:
            assert reply.choices[0].finish_reason in ("length", "stop") and not calls(reply.choices[0].message), again


# ---- tools


@pytest.mark.parametrize("parallel", [True, False])
def test_a_tool_is_required(openai_client: Any, parallel: bool) -> None:
    fields = {"tools": [tool("f"), tool("g")], "tool_choice": "required", "parallel_tool_calls": parallel}
    for choice in chat(openai_client, n=3, **fields).choices:
        if choice.finish_reason == "length":
            continue  # one call after another
        found = calls(choice.message)
        assert found and (parallel or len(found) == 1)
        for name, arguments in found:
            assert name in ("f", "g")
            judge(arguments)


def test_a_named_tool(openai_client: Any) -> None:
    reply = chat(openai_client, tools=[tool("f"), tool("g")], tool_choice=named("g"))
    [(name, arguments)] = calls(reply.choices[0].message)
    assert name == "g"
    judge(arguments)


def test_streamed_calls(openai_client: Any) -> None:
    stream = chat(openai_client, tools=[tool("f")], tool_choice=named("f"), stream=True)
    deltas = [call for chunk in stream if chunk.choices for call in chunk.choices[0].delta.tool_calls or []]
    assert next(delta.function.name for delta in deltas if delta.function.name) == "f"
    judge("".join(delta.function.arguments or "" for delta in deltas))


def test_a_strict_tool_the_model_may_call(openai_client: Any) -> None:
    """``auto``: text is free. Once the model begins a call (here it has to), the call is valid."""
    fields = {"tools": [tool("f"), tool("g")], "tool_choice": "auto", "max_completion_tokens": 60}
    reply = chat(openai_client, logit_bias={BEGIN_OF_CALL: 100}, parallel_tool_calls=False, **fields)
    message = reply.choices[0].message
    begun = re.search(r'"arguments": (.*)', message.content or "")
    for arguments in [begun[1].split("}")[0] + "}"] if begun else [text for _, text in calls(message)]:
        judge(arguments)
    assert begun or message.tool_calls
    assert chat(openai_client, **fields).choices[0].message.content, "text is free"


def test_a_tool_choice_that_is_null_is_auto(openai_client: Any) -> None:
    """As in OpenAI's API. (vLLM shows the tools to the model, enforces nothing, and drops any call that comes.)"""
    body = {"model": NAME, "messages": MESSAGES, "max_tokens": 400, "logit_bias": {BEGIN_OF_CALL: 100}}
    fields = {"tools": [tool("f")], "tool_choice": None, "parallel_tool_calls": False}
    reply = openai_client.post("/chat/completions", body={**body, **fields}, cast_to=object)
    [choice] = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    [call] = choice["message"]["tool_calls"]
    judge(call["function"]["arguments"])


def test_arguments_of_a_strict_tool_without_a_type(openai_client: Any) -> None:
    """They are an object, too. Such a schema also allows ``true``, since it only restricts properties, but no client
    accepts that as arguments."""
    untyped = {"properties": SCHEMA["properties"], "required": SCHEMA["required"], "additionalProperties": False}
    one = {"tools": [tool("f", parameters=untyped)], "tool_choice": named("f"), "parallel_tool_calls": False}
    for choice in chat(openai_client, n=4, **one).choices:
        [(_, arguments)] = calls(choice.message)
        judge(arguments)


def test_arguments_of_a_tool_that_is_not_strict(openai_client: Any, anthropic_client: Any) -> None:
    """They are an object; the model only sees its schema. (vLLM: any JSON value, on which Anthropic's API fails.)"""
    free = {"type": "object", "properties": {"a": {"type": "integer"}}}
    whole = 0
    loose = tool("f", strict=False, parameters=free)
    for choice in chat(openai_client, n=8, tools=[loose], tool_choice=named("f")).choices:
        if choice.finish_reason == "length":  # nothing bounds such an object, and the model is random
            assert not choice.message.content, "the beginning of a call is not text"
            continue
        for _, arguments in calls(choice.message):
            assert isinstance(json.loads(arguments), dict)
            whole += 1
    assert whole
    reply = anthropic_client.messages.create(
        model=NAME, messages=MESSAGES, max_tokens=400, tool_choice={"type": "tool", "name": "f"},
        tools=[{"name": "f", "input_schema": free, "strict": False}],
    )  # fmt: skip
    if reply.stop_reason != "max_tokens":
        assert isinstance(reply.content[-1].input, dict)


def test_a_forced_call_of_a_tool_that_says_nothing_of_strict(openai_client: Any, anthropic_client: Any) -> None:
    for choice in ("required", named("f")):
        for answer in chat(
            openai_client, n=4, tools=[tool("f", strict=None)], tool_choice=choice, parallel_tool_calls=False
        ).choices:
            [(_, arguments)] = calls(answer.message)
            judge(arguments)
    for choice in ("required", {"type": "function", "name": "f"}):
        reply = respond(
            openai_client, tools=[{**FLAT_TOOL, "strict": None}], tool_choice=choice, parallel_tool_calls=False
        )
        [call] = [item for item in reply.output if item.type == "function_call"]
        judge(call.arguments)
    for choice in ({"type": "any"}, {"type": "tool", "name": "f"}):
        tools = [{"name": "f", "input_schema": SCHEMA}]
        reply = message(anthropic_client, tools=tools, tool_choice={**choice, "disable_parallel_tool_use": True})
        [block] = [block for block in reply.content if block.type == "tool_use"]
        jsonschema.validate(block.input, SCHEMA)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("schema", [{"type": "objekt"}, {"properties": {"a": {"$ref": "#/nowhere"}}}])
def test_a_schema_that_nobody_has_asked_for_is_never_refused(openai_client: Any, schema: Any, stream: bool) -> None:
    body = {"model": NAME, "messages": MESSAGES, "max_tokens": 20, "stream": stream, "tool_choice": "required"}
    body["tools"] = [tool("f", strict=None, parameters=schema)]
    with openai_client.chat.completions.with_streaming_response.create(**body) as response:
        assert response.status_code == 200
        warnings = json.loads(response.headers["x-dotllm-warnings"])
        assert ["/tools/0/function/parameters" in text for text in warnings if "the schema of 'f'" in text] == [True], (
            warnings
        )


def test_allowed_tools(openai_client: Any) -> None:
    tools = [tool("f"), tool("g")]
    for mode, inner in (("required", named("g")), ("auto", named("g"))):
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [inner]}}
        bias = {BEGIN_OF_CALL: 100} if mode == "auto" else None
        reply = chat(openai_client, tools=tools, tool_choice=choice, max_completion_tokens=60, logit_bias=bias)
        assert {name for name, _ in calls(reply.choices[0].message)} <= {"g"}
    flat = [FLAT_TOOL, {**FLAT_TOOL, "name": "g"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    reply = respond(openai_client, tools=flat, tool_choice=choice, parallel_tool_calls=False)
    assert [item.name for item in reply.output if item.type == "function_call"] == ["g"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_numbers_of_a_call_are_finite(openai_client: Any, stream: bool) -> None:
    """``1e400`` is JSON, but came back as ``Infinity``, which is not."""
    number = {
        "type": "object",
        "properties": {"v": {"type": "number"}},
        "required": ["v"],
        "additionalProperties": False,
    }
    one = {"tools": [tool("f", parameters=number)], "tool_choice": "required", "parallel_tool_calls": False, "n": 12}
    reply = chat(openai_client, stream=stream, **one)
    found: dict[int, str] = {}
    cut: set[int] = set()  # a random model likes digits
    for choice in (choice for chunk in reply for choice in chunk.choices) if stream else reply.choices:
        cut.update({choice.index} if choice.finish_reason == "length" else ())
        for call in (choice.delta if stream else choice.message).tool_calls or []:
            found[choice.index] = found.get(choice.index, "") + (call.function.arguments or "")
    whole = {*range(12)} - cut
    assert whole
    for index in whole:
        value = json.loads(found[index], parse_constant=pytest.fail)["v"]
        assert isinstance(value, int) or math.isfinite(value)


def test_tools_beside_a_format(openai_client: Any) -> None:
    """A call or the answer, each as asked for; also with a white-space pattern, and with a grammar."""
    formats = (
        {"response_format": RESPONSE_FORMAT},
        {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " "}},
        {"structured_outputs": {"grammar": 'start: "ok" %json {"type": "boolean"}'}},
    )
    checks = (judge, KINDS[13][2], matches("ok(true|false)"))
    for fields, check in zip(formats, checks, strict=True):
        written = 0
        for choice in chat(openai_client, extra=fields, n=6, tools=[tool("f")], tool_choice="auto").choices:
            for _, arguments in calls(choice.message):
                judge(arguments)
            if not choice.message.tool_calls and choice.finish_reason == "stop":
                check(choice.message.content)
                written += 1
        blocked = chat(  # a call is made unlikely, so that the answer's own constraint shows
            openai_client,
            extra=fields,
            tools=[tool("f")],
            tool_choice="auto",
            logit_bias={BEGIN_OF_CALL: -100, "30": -100},
        )
        if blocked.choices[0].finish_reason == "stop" and not blocked.choices[0].message.tool_calls:
            check(blocked.choices[0].message.content)
            written += 1
        assert written or fields is not formats[0]


def test_a_tool_wins_over_a_format(openai_client: Any) -> None:
    """``required``: the answer is only a call, so there is no content for the format."""
    fields = {"tools": [tool("f")], "tool_choice": "required", "parallel_tool_calls": False}
    reply = chat(openai_client, response_format={"type": "json_object"}, **fields)
    [(_, arguments)] = calls(reply.choices[0].message)
    judge(arguments)


# ---- Responses


def respond(client: Any, **fields: Any) -> Any:
    fields = {"max_output_tokens": 400, "temperature": 1.0, **fields}
    fields["extra_body"] = {"chat_template_kwargs": {"enable_thinking": False}, **fields.get("extra_body", {})}
    return client.responses.create(model=NAME, input="?", **fields)


def texts(reply: Any) -> str:
    """The text of the answer, or of the reasoning if the parser took the answer for that."""
    return "".join(
        part.text for item in reply.output for part in getattr(item, "content", None) or [] if hasattr(part, "text")
    )


TEXT_FORMAT = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
FLAT_TOOL = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}


def test_responses_formats(openai_client: Any) -> None:
    judge(texts(respond(openai_client, text=TEXT_FORMAT)))
    is_object(texts(respond(openai_client, text={"format": {"type": "json_object"}}, max_output_tokens=60)))
    for fields, check in (row[1:] for row in KINDS[4:] if "structured_outputs" in row[1]):
        check(texts(respond(openai_client, extra_body=fields, max_output_tokens=150)))


def test_responses_streamed(openai_client: Any) -> None:
    with openai_client.responses.stream(model=NAME, input="?", max_output_tokens=400, text=TEXT_FORMAT) as stream:
        judge("".join(event.delta for event in stream if event.type.endswith("text.delta")))


def test_responses_behind_their_reasoning(openai_client: Any) -> None:
    fields = {"chat_template_kwargs": {"enable_thinking": True}, "logit_bias": {END_OF_THINKING: 100}}
    judge(respond(openai_client, text=TEXT_FORMAT, extra_body=fields).output_text)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "f"}], ids=["required", "named"])
def test_responses_tools(openai_client: Any, choice: Any) -> None:
    reply = respond(openai_client, tools=[FLAT_TOOL], tool_choice=choice, parallel_tool_calls=False)
    calls = [item for item in reply.output if item.type == "function_call"]
    assert len(calls) == 1
    for call in calls:
        assert call.name == "f"
        judge(call.arguments)


def test_responses_tools_beside_a_format(openai_client: Any) -> None:
    reply = respond(openai_client, tools=[FLAT_TOOL], tool_choice="auto", text=TEXT_FORMAT)
    found = [item.arguments for item in reply.output if item.type == "function_call"]
    if reply.status == "completed":
        for text in found or [texts(reply)]:
            judge(text)


# ---- Anthropic Messages


def message(client: Any, **fields: Any) -> Any:
    fields.setdefault("max_tokens", 400)
    return client.messages.create(
        model=NAME, messages=MESSAGES, extra_body={"chat_template_kwargs": {"enable_thinking": False}}, **fields
    )


def test_messages_format(anthropic_client: Any) -> None:
    reply = message(anthropic_client, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    judge(reply.content[0].text)
    with anthropic_client.messages.stream(
        model=NAME, messages=MESSAGES, max_tokens=400, output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
    ) as stream:  # fmt: skip
        judge("".join(stream.text_stream))


@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "f"}], ids=["any", "named"])
def test_messages_tools(anthropic_client: Any, choice: Any) -> None:
    tools = [{"name": "f", "input_schema": SCHEMA, "strict": True}]
    reply = message(anthropic_client, tools=tools, tool_choice={**choice, "disable_parallel_tool_use": True})
    blocks = [block for block in reply.content if block.type == "tool_use"]
    assert len(blocks) == 1
    for block in blocks:
        assert block.name == "f"
        jsonschema.validate(block.input, SCHEMA)


def test_each_end_that_the_generation_config_names_ends_an_answer(openai_client: Any) -> None:
    """No end comes before the answer is complete."""
    ends = set()
    for seed in range(40):
        choice = chat(openai_client, seed=seed, extra={"structured_outputs": {"regex": "yes|no"}}).choices[0]
        assert choice.message.content in ("yes", "no") and choice.finish_reason == "stop"
        ends.add(choice.stop_reason)
        if len(ends) == 2:
            break
    assert ends == {None, 0}, "<|im_end|>, and <|endoftext|>, which vLLM calls a stop token"
