"""A refusal as a client sees it on each API: HTTP 400 before anything is generated, a code, the field at fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("vllm")

from tests.fuzz.requests import PATHS
from tests.vllm_plugin.played_server import NAME, Answer, PlayedServer

MESSAGES = [{"role": "user", "content": "?"}]
BASE: dict[str, dict[str, Any]] = {
    "chat": {"model": NAME, "max_tokens": 300, "messages": MESSAGES},
    "batch": {"model": NAME, "max_tokens": 300, "messages": [MESSAGES]},
    "completion": {"model": NAME, "max_tokens": 300, "prompt": "?"},
    "response": {"model": NAME, "max_output_tokens": 300, "input": "?"},
    "message": {"model": NAME, "max_tokens": 300, "messages": MESSAGES},
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
HUGE = {"type": "object", "properties": {"a": {"type": "number", "maximum": float("inf")}}}
TOOLS = {"chat": "tools[0].function.parameters", "response": "tools[0].parameters", "message": "tools[0].input_schema"}
"""Where the schema of a tool is."""


def forced(api: str, schema: Any, strict: bool | None, name: str = "f") -> dict[str, Any]:
    """A forced call of a tool."""
    said: dict[str, Any] = {} if strict is None else {"strict": strict}
    if api == "message":
        return {"tools": [{"name": name, "input_schema": schema, **said}], "tool_choice": {"type": "any"}}
    function = {"name": name, "parameters": schema, **said}
    tool = {"type": "function", **({"function": function} if api == "chat" else function)}
    return {"tools": [tool], "tool_choice": "required"}


def ask(server: PlayedServer, api: str, fields: dict[str, Any]) -> Answer:
    text = json.dumps({**BASE[api], **fields}).replace("Infinity", "1e400")
    return server.post(PATHS[api], text)


def refused(server: PlayedServer, api: str, fields: dict[str, Any]) -> dict[str, Any]:
    answer = ask(server, api, fields)
    assert answer.status == 400, (answer.status, answer.body)
    assert "url" not in answer.error
    return answer.error


def arguments(api: str, answer: Answer) -> list[Any]:
    """The arguments of the answer's calls."""
    if api == "message":
        return [block["input"] for block in answer.body["content"] if block["type"] == "tool_use"]
    if api == "response":
        return [json.loads(item["arguments"]) for item in answer.body["output"] if item["type"] == "function_call"]
    calls = answer.body["choices"][0]["message"]["tool_calls"]
    return [json.loads(call["function"]["arguments"]) for call in calls]


NO_SCHEMAS: list[Any] = [
    {"city": "string"}, {"name": "x", "schema": SCHEMA}, {"type": ["object", 3]}, {"type": ["object", "text"]},
    {"city": {"type": "string"}, "days": {"type": "integer"}}, {"json_schema": {"schema": SCHEMA}}, {"type": "x"},
    {"description": "d", "a": 1}, {"type": 1}, {"type": ["object", None]}, {"type": ["object", ["string"]]},
    {"type": "object", "properties": ["a"]}, {"type": "object", "required": "a"},
    {"arguments": {"city": "Paris"}}, {"type": "function", "parameters": SCHEMA}, {"type": {"type": "object"}},
]  # fmt: skip


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("schema", NO_SCHEMAS, ids=range(len(NO_SCHEMAS)))
def test_arguments_of_what_is_no_schema(played: PlayedServer, api: str, schema: Any) -> None:
    """Such ``parameters`` passed as a schema that allows any object, because vLLM and dotllm add a type to them."""
    fields = forced(api, schema, strict=True)
    for choice in (fields["tool_choice"], {"type": "auto"} if api == "message" else "auto"):
        error = refused(played, api, {**fields, "tool_choice": choice})
        assert error["param"] == TOOLS[api] and error["code"].startswith("dotllm.")
    for strict in (False, None):
        assert ask(played, api, forced(api, schema, strict=strict)).status == 200
    if api == "chat":
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        assert refused(played, api, {"response_format": form})["code"] == error["code"]


@pytest.mark.parametrize("api", TOOLS)
def test_a_format_next_to_strict_tools(played: PlayedServer, api: str) -> None:
    """vLLM makes one structural tag of both. The place was one in this tag, which the client does not know."""
    schema = {**SCHEMA, "properties": {"a": {"const": "a string without marks of calls: </tool_call>"}}}
    field, form = {
        "chat": ("response_format", {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}),
        "response": ("text", {"format": {"type": "json_schema", "name": "x", "schema": schema}}),
        "message": ("output_config", {"format": {"type": "json_schema", "schema": schema}}),
    }[api]
    auto = {"type": "auto"} if api == "message" else "auto"
    error = refused(played, api, {**forced(api, SCHEMA, strict=True), "tool_choice": auto, field: form})
    path = {
        "chat": "response_format/json_schema/schema",
        "response": "text/format/schema",
        "message": "output_config/format/schema",
    }[api]
    assert f" (at /{path}/" in error["message"], error
    assert error["param"] == path.replace("/", "."), error


@pytest.mark.parametrize("choice", ["required", "auto", "none"])
@pytest.mark.parametrize("api", TOOLS)
def test_one_call_at_most_in_the_field_of_another_api(played: PlayedServer, api: str, choice: str) -> None:
    """The field was ignored, and two calls came."""
    theirs, ours = ("parallel_tool_calls", "disable_parallel_tool_use")
    theirs, ours = (theirs, ours) if api == "message" else (ours, theirs)
    asks = theirs == "disable_parallel_tool_use"
    fields = forced(api, SCHEMA, strict=True)
    as_message = {"type": "any" if choice == "required" else choice}
    fields["tool_choice"] = as_message if api == "message" else choice
    wrong: list[tuple[str, dict[str, Any]]] = [
        (theirs, {theirs: asks}),
        (theirs, {theirs: str(asks).lower()}),
        (f"extra_body.{theirs}", {"extra_body": {theirs: asks}}),
        (f"extra_body.{ours}", {"extra_body": {ours: not asks}}),
    ]
    if api == "message":
        wrong.append(("tool_choice.parallel_tool_calls", {"tool_choice": {**as_message, "parallel_tool_calls": False}}))
    for path, said in wrong:
        if choice == "none":
            assert ask(played, api, {**fields, **said}).status == 200 or "tool_choice" in said
        else:
            error = refused(played, api, {**fields, **said})
            assert error["param"] == path and ours in error["message"]
    assert ask(played, api, {**fields, theirs: not asks}).status == 200
    own = {"tool_choice": {**as_message, ours: True}} if api == "message" else {ours: False}
    assert ask(played, api, {**fields, **own}).status == 200
    assert ask(played, api, {**fields, **own, theirs: asks}).status == 200, "it is repeated"
    assert ask(played, api, {theirs: asks}).status == 200, "there are no tools"


def test_words_about_tools(played: PlayedServer) -> None:
    error = refused(played, "chat", forced("chat", {"type": "object", "enum": []}, strict=True))
    assert "excluded" not in error["message"] and "no string may hold" not in error["message"]
    refusal = ask(played, "chat", forced("chat", {"type": "string"}, strict=True))
    assert refusal.status == 400 and not refusal.warnings, "the refusal says it"
    said = ask(played, "chat", forced("chat", {"type": "string"}, strict=False))
    assert any("that schema has the type 'string'" in warning for warning in said.warnings)
    error = refused(played, "chat", forced("chat", [1], strict=True))
    assert "must be a JSON Schema, an object, not [1]" in error["message"]


NO_OBJECTS: list[Any] = [
    {"type": "string"}, {"type": ["string", "null"]}, {"type": "array", "items": SCHEMA}, {"type": "integer", "minimum": 1},
    {"anyOf": [{"type": "string"}, {"type": "integer"}]}, {"oneOf": [{"type": "null"}, {"type": "string"}]},
    {"enum": [1, 2]}, {"const": "x"}, {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    {"allOf": [{"type": "string"}]}, {"not": {"type": "object"}}, {"type": "object", "enum": ["a"]},
]  # fmt: skip


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize("schema", NO_OBJECTS, ids=range(len(NO_OBJECTS)))
def test_arguments_that_could_be_no_object(played: PlayedServer, api: str, schema: Any) -> None:
    """vLLM's Messages API reports this after generating the answer; chat and Responses return such arguments."""
    error = refused(played, api, forced(api, schema, strict=True))
    assert error["param"] == TOOLS[api] and error["code"].startswith("dotllm.")
    for stream in (False, True):
        answer = ask(played, api, {**forced(api, schema, strict=None), "stream": stream})
        assert answer.status == 200 and not answer.is_free
        assert len(answer.warnings) == 1 and "need not follow the schema of 'f'" in answer.warnings[0]
    answer = ask(played, api, forced(api, schema, strict=None))
    assert [type(given) for given in arguments(api, answer)] == [dict]
    answer = ask(played, api, forced(api, schema, strict=False))
    assert [type(given) for given in arguments(api, answer)] == [dict]


@pytest.mark.parametrize("api", TOOLS)
@pytest.mark.parametrize(
    "schema",
    [
        {**SCHEMA, "type": ["object", "null"]},
        {"anyOf": [SCHEMA, {"type": "string"}]},
        {key: part for key, part in SCHEMA.items() if key != "type"},
    ],
)
def test_arguments_that_may_be_objects_are(played: PlayedServer, api: str, schema: Any) -> None:
    for strict in (True, None):
        answer = ask(played, api, forced(api, schema, strict))
        assert answer.status == 200 and answer.warnings == []
        (given,) = arguments(api, answer)
        assert isinstance(given["a"], int)


def test_the_other_tools_are_followed(played: PlayedServer) -> None:
    tools = [{"name": "bad", "input_schema": {"type": "string"}}, {"name": "f", "input_schema": SCHEMA}]
    answer = ask(played, "message", {"tools": tools, "tool_choice": {"type": "tool", "name": "f"}})
    assert isinstance(arguments("message", answer)[0]["a"], int)
    ask(played, "message", {"tools": tools, "tool_choice": {"type": "any"}})
    assert '"required": ["a"]' in played.core.constraints[-1].structural_tag


def deep(levels: int) -> Any:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def deep_tag(levels: int) -> str:
    inner = '{"type":"sequence","elements":['
    return f'{{"type":"structural_tag","format":{inner * levels}{{"type":"const_string","value":"a"}}{"]}" * levels}}}'


TAG = "structured_outputs.structural_tag"
FAULTS: list[tuple[str, dict[str, Any], str, str]] = [
    *(
        (api, {"structured_outputs": {"structural_tag": tag}}, TAG, code)
        for api in ("chat", "completion", "response")
        for tag, code in [
            ("[]", "invalid_value"), ("5", "invalid_value"), ("null", "invalid_value"), ("{", "not_json"), ("", "not_json"),
            (deep_tag(300), "too_deep"), (deep_tag(5000), "too_deep"), ('{"type":"structural_tag"}', "invalid_value"),
        ]
    ),
    *((api, forced(api, HUGE, True), place, "invalid_value") for api, place in TOOLS.items()),
    *((api, forced(api, deep(150), True), place, "too_deep") for api, place in TOOLS.items()),
    *((api, forced(api, SCHEMA, True, 'a"b'), place.replace(place.split(".")[-1], "name"), "invalid_value") for api, place in TOOLS.items()),
    *((api, forced(api, value, True), place, "invalid_value") for api, place in TOOLS.items() for value in (5, "x", [], "{}")),
    *(("response", {"text": {"format": {"type": "json_schema", "name": "x", "schema": value}}}, "text.format.schema", "invalid_value") for value in (5, "x", [], True, [SCHEMA], "{}", None)),
    *(("chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": value}}}, "response_format.json_schema.schema", "invalid_value") for value in (5, "x", [], True)),
    *(("message", {"output_config": {"format": {"type": "json_schema", "schema": value}}}, "output_config.format.schema", "invalid_value") for value in (5, "x", [], True)),
    ("response", {"text": {"format": {"type": "json_schema", "name": "x", "schema": deep(150)}}}, "text.format.schema", "too_deep"),
    ("chat", {"structured_outputs": {"regex": "a", "disable_any_whitespace": True}}, "structured_outputs.disable_any_whitespace", "invalid_value"),
    ("chat", {"structured_outputs": {"regex": "a"}, "use_beam_search": True}, "use_beam_search", "invalid_value"),
]  # fmt: skip


@pytest.mark.parametrize(("api", "fields", "param", "code"), FAULTS, ids=[f"{f[0]}-{i}" for i, f in enumerate(FAULTS)])
def test_the_code_and_the_field(played: PlayedServer, api: str, fields: dict[str, Any], param: str, code: str) -> None:
    error = refused(played, api, fields)
    assert (error["param"], error["code"]) == (param, f"dotllm.{code}")


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_an_answer_cannot_repeat_is_refused_before_it(played: PlayedServer, stream: bool) -> None:
    """The Responses API repeats tools and format in its answers. vLLM generates, and then fails or streams nothing."""
    before = len(played.core.constraints)
    for fields in (
        forced("response", deep(130), None),
        {"text": {"format": {"type": "json_schema", "name": "x", "schema": deep(130)}}},
    ):
        assert refused(played, "response", {**fields, "stream": stream})["code"] == "dotllm.too_deep"
    assert len(played.core.constraints) == before
    assert ask(played, "response", {**forced("response", deep(110), None), "stream": stream}).status == 200


FORM = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}}
XARGS: list[tuple[dict[str, Any], str, str]] = [
    ({"dotllm_property_order": "sorted"}, "dotllm_property_order", "declared, any"),
    ({"dotllm_property_order": ["any"]}, "dotllm_property_order", "declared, any"),
    ({"dotllm_additional_properties": "no"}, "dotllm_additional_properties", "closed, open"),
    ({"dotllm_number_digits": 5}, "dotllm_number_digits", "bounded, any"),
    ({"dotllm_finish": "yes"}, "dotllm_finish", "true or false"),
    ({"dotllm_answer_tokens": -1}, "dotllm_answer_tokens", "a number of tokens"),
    ({"dotllm_answer_tokens": "3"}, "dotllm_answer_tokens", "a number of tokens"),
    ({"dotllm_mass": 5}, "dotllm_mass", "true or false"),
    ({"dotllm_confidence": "much"}, "dotllm_confidence", "true or false"),
    ({"dotllm_finis": True}, "dotllm_finis", 'did you mean "dotllm_finish"?'),
    ({"dotllm_propertyorder": "any"}, "dotllm_propertyorder", 'did you mean "dotllm_property_order"?'),
    ({"dotllm_x": 1}, "dotllm_x", "'dotllm_answer_tokens', 'dotllm_mass'"),
]


@pytest.mark.parametrize(("fields", "name", "words"), XARGS)
@pytest.mark.parametrize("api", ["chat", "completion", "response", "message"])
def test_our_fields_are_checked_with_a_constraint_and_without(
    played: PlayedServer, api: str, fields: dict[str, Any], name: str, words: str
) -> None:
    for beside in ({}, FORM) if api == "chat" else ({},):
        error = refused(played, api, {"vllm_xargs": fields, **beside})
        assert error["param"] == f"vllm_xargs.{name}" and words in error["message"]
        assert error["code"] in ("dotllm.invalid_value", "dotllm.unknown_field")


def test_a_length_of_the_answer_needs_an_end(played: PlayedServer) -> None:
    error = refused(played, "chat", {"vllm_xargs": {"dotllm_answer_tokens": 3}, **FORM})
    assert error["param"] == "vllm_xargs.dotllm_answer_tokens" and "only with dotllm_finish" in error["message"]


@pytest.mark.parametrize("name", ["DotLLM-Finish", "dotlm_finish", "property_order", "propertyOrder", "answer_tokens"])
def test_names_that_are_nearly_ours(played: PlayedServer, name: str) -> None:
    error = refused(played, "chat", {"vllm_xargs": {name: True}})
    assert error["param"].startswith("vllm_xargs") and "'dotllm_mass'" in error["message"]


def test_what_vllm_takes_passes(played: PlayedServer) -> None:
    for fields in ({"foo": 1}, {"target_token": 5}, {"finish": 1}, {"words": ["a", "b"]}, {"dotllm_finish": "true"}):
        answer = ask(played, "chat", {"vllm_xargs": fields})
        assert answer.status == 200 and answer.is_free


def test_the_limit_is_named_where_it_is_at_fault(played: PlayedServer) -> None:
    """(The engine's refusal is played; `test_refusal_response` tests its way through the engine.)"""
    error = refused(played, "chat", {**FORM, "max_tokens": 0})
    assert error["param"] == "max_tokens"


@pytest.mark.parametrize("stream", [False, True])
def test_a_batch_does_not_stream(played: PlayedServer, stream: bool) -> None:
    """A batch has the field ``stream``. A refusal that waited for the stream broke the connection."""
    for structured in ({"json": {"type": "strin"}}, {"regex": "("}, {"choice": []}, {"json_object": False}):
        refused(played, "batch", {"structured_outputs": structured, "stream": stream})
    answer = ask(played, "batch", {"structured_outputs": {"json": SCHEMA}, "stream": stream})
    assert answer.status == 200 and not answer.is_free


@pytest.mark.parametrize("api", BASE)
@pytest.mark.parametrize("value", [{}, {"type": None}, {"type": "text"}, None, [], "", 5])
def test_no_api_fails_on_an_empty_field_of_another(played: PlayedServer, api: str, value: Any) -> None:
    for name in ("response_format", "text", "output_config", "structured_outputs", "tools", "functions", "vllm_xargs"):
        for stream in (False, True):
            answer = ask(played, api, {name: value, "stream": stream})
            assert answer.status in (200, 400), (name, answer.body)


def test_two_constraints(played: PlayedServer) -> None:
    for api in ("chat", "completion", "response", "batch"):
        error = refused(played, api, {"structured_outputs": {"json": SCHEMA, "regex": "a"}})
        assert (error["param"], error["code"]) == ("structured_outputs", "dotllm.conflict")
