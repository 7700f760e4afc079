"""A constraint that would not be enforced is refused, whatever field it is in: HTTP 400 that says what to do.

vLLM answers each of these with 200 and free text, or enforces one of two constraints.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.serve.conftest import NAME
from tests.serve.test_api import FLAT_TOOL, MESSAGES, RESPONSE_FORMAT, SCHEMA, TEXT_FORMAT, tool

pytestmark = pytest.mark.serve

BAD = {"type": "object", "properties": {"a": {"type": "x"}}}
WITH_SCHEMA = {"type": "json_object", "schema": SCHEMA}  # the form that llama.cpp, Fireworks and Together accept
NO_FORMAT: dict[str, Any] = {"type": "structural_tag", "format": {}}


def structured(**fields: Any) -> dict[str, Any]:
    return {"structured_outputs": fields}


CHAT: list[tuple[str, dict[str, Any], str]] = [
    ("guided_json", {"guided_json": SCHEMA}, "guided_json.*structured_outputs.json"),
    ("guided_regex", {"guided_regex": "a"}, "guided_regex.*structured_outputs.regex"),
    ("guided_choice", {"guided_choice": ["a"]}, "guided_choice.*structured_outputs.choice"),
    ("guided_grammar", {"guided_grammar": "root ::= 'a'"}, "guided_grammar"),
    ("guided_whitespace_pattern", {"guided_whitespace_pattern": " "}, "guided_whitespace_pattern"),
    ("structural_tag", {"structural_tag": json.dumps(NO_FORMAT)}, "structural_tag.*structured_outputs.structural_tag"),
    ("regex", {"regex": "a"}, "'regex'.*structured_outputs.regex"),
    ("ebnf", {"ebnf": "root ::= 'a'"}, "'ebnf'.*structured_outputs.grammar"),
    ("grammar", {"grammar": "root ::= 'a'"}, "'grammar'.*structured_outputs.grammar"),
    ("json_schema", {"json_schema": SCHEMA}, "'json_schema'.*structured_outputs.json"),
    ("a schema with json_object", {"response_format": WITH_SCHEMA}, "response_format.*schema.*json_object.*type 'json_schema'"),
    ("response_schema with json_object", {"response_format": {"type": "json_object", "response_schema": SCHEMA}}, "response_format.response_schema.*json_object.*type 'json_schema'"),
    ("json_schema with json_object", {"response_format": {**RESPONSE_FORMAT, "type": "json_object"}}, "response_format.json_schema.*json_object"),
    ("a schema with text", {"response_format": {**RESPONSE_FORMAT, "type": "text"}}, "response_format.json_schema.*text"),
    ("two constraints", {"response_format": RESPONSE_FORMAT, **structured(json={"type": "null"})}, "both given"),
    ("an option without effect", structured(regex="a", disable_any_whitespace=True), "disable_any_whitespace.*regex"),
    ("beam search", {"use_beam_search": True, "n": 2, **structured(regex="a")}, "use_beam_search"),
    ("beam search, guided", {"use_beam_search": True, "n": 2, "guided_regex": "a"}, "guided_regex"),
    ("a tag without format", {"response_format": NO_FORMAT}, "structural_tag|format"),
    ("a tag's schema", structured(structural_tag=json.dumps({"format": {"type": "json_schema", "json_schema": BAD}})), "/format/json_schema/properties/a/type"),
    ("no schema", {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, r"response_format\.json_schema\.schema is missing"),
    ("a schema that is null", {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": None}}}, r"response_format\.json_schema\.schema is missing"),
    ("extra_body", {"extra_body": structured(json=SCHEMA)}, "extra_body.structured_outputs.*structured_outputs"),
    ("functions", {"functions": [{"name": "f", "parameters": SCHEMA}]}, "functions.*tools"),
    ("structured_output", {"structured_output": {"json": SCHEMA}}, "structured_output.*structured_outputs"),
    ("a schema in any field", {"anything": {"deeper": SCHEMA}}, "anything.deeper.*structured_outputs.json"),
    ("another kind", structured(json_schema=SCHEMA), "structured_outputs has no field 'json_schema': use one of json, json_object, regex"),
    ("another key next to one", structured(json=SCHEMA, whitespace=" "), "no field 'whitespace'"),
    ("a misspelt option of ours", {"vllm_xargs": {"dotllm_proprty_order": "any"}}, "dotllm_proprty_order.*dotllm_property_order"),
    ("the same with a constraint", {"vllm_xargs": {"dotllm_proprty_order": "any"}, **structured(json=SCHEMA)}, "dotllm_proprty_order"),
    ("half of a surrogate pair", structured(regex="a|\ud800"), "surrogate"),
    ("half of one in a choice", structured(choice=["\ud800"]), "structured_outputs.choice.*surrogate"),
    ("half of one in a stop string", {"stop": ["\ud800"]}, "stop contains.*surrogate"),
    ("half of one in bad_words", {"bad_words": ["\ud800"], **structured(regex="a")}, "bad_words contains.*surrogate"),
    ("half of one in an argument", {"vllm_xargs": {"a": "\ud800"}}, "vllm_xargs contains.*surrogate"),
    ("a number that cannot be sent", {"top_k": 10**30}, "top_k contains 1000000000000000000000000000000, and numbers have"),
    ("another one, with a constraint", {"repetition_detection": {"max_pattern_size": 2**64, "min_count": 2}, **structured(regex="a")}, "repetition_detection contains"),
    ("a list of constraints", {"structured_outputs": []}, "structured_outputs is an object with one of json"),
    ("a field of vLLM's own", structured(regex="a", _backend="xgrammar"), "no field '_backend'"),
    ("a field of our own", {"vllm_xargs": {"dotllm_from_first_token": True}}, "no field 'dotllm_from_first_token'"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason"), [row[1:] for row in CHAT], ids=[row[0] for row in CHAT])
def test_chats_and_completions(openai_client: Any, fields: Any, reason: str) -> None:
    from openai import BadRequestError

    for path, subject in (("/chat/completions", {"messages": MESSAGES}), ("/completions", {"prompt": "?"})):
        body = {"model": NAME, "max_tokens": 5, **subject, **fields}
        with pytest.raises(BadRequestError, match=rf"(?i){reason}"):
            openai_client.post(path, content=json.dumps(body).encode(), cast_to=object)


PLACE = r"tool 'bad': unknown type 'x'; the types are .* \(at /tools/1/function/parameters/properties/a/type\)"
TWO = [tool("f"), tool("bad", parameters=BAD)]
TOOLS: list[tuple[str, dict[str, Any], str]] = [
    ("the second, required", {"tools": TWO, "tool_choice": "required"}, PLACE),
    ("the second, named", {"tools": TWO, "tool_choice": {"type": "function", "function": {"name": "bad"}}}, PLACE),
    ("the second, auto", {"tools": TWO, "tool_choice": "auto"}, PLACE),
    ("strict", {"tools": [tool("f", parameters=BAD)], "tool_choice": "required"}, "unknown type"),
    ("strict, named", {"tools": [tool("f", parameters=BAD)], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "unknown type"),
    ("strict, auto", {"tools": [tool("f", parameters=BAD)], "tool_choice": "auto"}, "unknown type"),
    ("with a format", {"tools": [tool("f")], "tool_choice": "auto", "response_format": {**RESPONSE_FORMAT, "json_schema": {"name": "x", "schema": BAD}}}, "unknown type"),
    ("a name with a quote", {"tools": [tool("f"), tool('a"b')], "tool_choice": "required"}, r"tools\[1\] is named"),
    ("a format without a schema", {"tools": [tool("f")], "tool_choice": "auto", "response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, r"response_format\.json_schema\.schema is missing"),
    ("beam search", {"tools": [tool("f")], "tool_choice": "required", "use_beam_search": True, "n": 2}, "use_beam_search"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason"), [row[1:] for row in TOOLS], ids=[row[0] for row in TOOLS])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tools(openai_client: Any, fields: Any, reason: str, stream: bool) -> None:
    from openai import BadRequestError

    body = {"model": NAME, "max_tokens": 5, "messages": MESSAGES, "stream": stream, **fields}
    with pytest.raises(BadRequestError, match=reason):
        openai_client.post("/chat/completions", body=body, cast_to=object)


RESPONSES: list[tuple[str, dict[str, Any], str]] = [
    ("response_format", {"response_format": RESPONSE_FORMAT}, "response_format.*text.format"),
    ("guided_json", {"guided_json": SCHEMA}, "guided_json"),
    ("two constraints", {"text": TEXT_FORMAT, **structured(choice=["a"])}, "structured_outputs and text.format"),
    ("a schema with json_object", {"text": {"format": WITH_SCHEMA}}, "text.format.schema.*json_object"),
    ("another kind", structured(json_schema=SCHEMA), "structured_outputs has no field 'json_schema': use one of json, json_object"),
    ("another key next to one", structured(json=SCHEMA, whitespace=" "), "no field 'whitespace'"),
    ("no kind", structured(disable_any_whitespace=True), "structured_outputs sets none of json, json_object"),
    ("a misspelt option of ours", {"vllm_xargs": {"dotllm_proprty_order": "any"}}, "dotllm_proprty_order"),
    ("a field of our own", {"vllm_xargs": {"dotllm_from_first_token": True}}, "dotllm_from_first_token"),
    ("allowed_tools", {"tools": [FLAT_TOOL], "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}}, "tool_choice allows.*none of 'tools'"),
    ("json_mode", {"json_mode": True}, "json_mode.*text.format"),
    ("chat's place of a schema", {"text": {"format": RESPONSE_FORMAT}}, "text.format.schema is missing.*text.format.json_schema"),
    ("a bad schema", {"text": {"format": {"type": "json_schema", "name": "x", "schema": BAD}}}, "unknown type"),
    ("a bad tool", {"tools": [FLAT_TOOL, {**FLAT_TOOL, "name": "bad", "parameters": BAD}], "tool_choice": "required"}, r"tool 'bad': .*\(at /tools/1/parameters/properties/a/type"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason"), [row[1:] for row in RESPONSES], ids=[row[0] for row in RESPONSES])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_responses(openai_client: Any, fields: Any, reason: str, stream: bool) -> None:
    from openai import BadRequestError

    with pytest.raises(BadRequestError, match=reason):
        openai_client.responses.create(model=NAME, input="?", max_output_tokens=5, stream=stream, extra_body=fields)


TOKENS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({}, {"structured_outputs": {"json": BAD}}, "unknown type"),
    ({}, {"structured_outputs": {"regex": "a", "json_schema": SCHEMA}}, "no field 'json_schema'"),
    ({}, {"guided_json": SCHEMA}, "sampling_params.guided_json.*use 'sampling_params.structured_outputs.json'"),
    ({"response_format": RESPONSE_FORMAT}, {}, "response_format.*use 'sampling_params.structured_outputs'"),
]


@pytest.mark.parametrize(("fields", "parameters", "reason"), TOKENS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_tokens(openai_client: Any, fields: Any, parameters: Any, reason: str, stream: bool) -> None:
    from openai import BadRequestError

    url = str(openai_client.base_url).replace("/v1/", "/inference/v1/generate")
    body = {"model": NAME, "token_ids": [5], "stream": stream, "sampling_params": {"max_tokens": 5, **parameters}}
    with pytest.raises(BadRequestError, match=reason) as caught:
        openai_client.post(url, body={**body, **fields}, cast_to=object)
    assert str(caught.value.code).startswith("dotllm.")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_model_that_reasons_first(openai_client: Any, stream: bool) -> None:
    """Its reasoning comes before the constraint begins, and may come before the constraint has been compiled."""
    from openai import BadRequestError

    for number in range(5):  # each schema is new
        schema = {"properties": {f"a{number}{stream}": {"type": "x"}}}
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        body = {"model": NAME, "max_tokens": 50, "messages": MESSAGES, "stream": stream, "response_format": form}
        with pytest.raises(BadRequestError, match="unknown type"):
            openai_client.post(
                "/chat/completions", body={**body, "chat_template_kwargs": {"enable_thinking": True}}, cast_to=object
            )


MESSAGES_FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("response_format", {"response_format": RESPONSE_FORMAT}, "response_format.*output_config.format"),
    ("structured_outputs", structured(regex="a"), "structured_outputs.*output_config.format"),
    ("output_format", {"output_format": TEXT_FORMAT["format"]}, "output_format.*output_config.format"),
    ("guided_json", {"guided_json": SCHEMA}, "guided_json"),
    ("no schema", {"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ("a thread", {"thread": {"type": "continue", "thread_id": "t"}}, "thread_unsupported_request"),
    ("no tools", {"tool_choice": {"type": "any"}}, "no 'tools'"),
    ("no such tool", {"tools": [{"name": "f", "input_schema": SCHEMA}], "tool_choice": {"type": "tool", "name": "g"}}, "names 'g'"),
    ("a schema in any field", {"anything": {"deeper": SCHEMA}}, "anything.deeper.*output_config.format"),
    ("a bad schema", {"output_config": {"format": {"type": "json_schema", "schema": BAD}}}, "unknown type"),
    ("a strict tool", {"tools": [{"name": "f", "input_schema": BAD, "strict": True}], "tool_choice": {"type": "any"}}, r"tool 'f': unknown type 'x'; the types are .* \(at /tools/0/input_schema/properties/a/type"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "reason"), [row[1:] for row in MESSAGES_FIELDS], ids=[row[0] for row in MESSAGES_FIELDS]
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_messages(anthropic_client: Any, fields: Any, reason: str, stream: bool) -> None:
    from anthropic import BadRequestError

    with pytest.raises(BadRequestError, match=reason) as refusal:
        anthropic_client.messages.create(model=NAME, messages=MESSAGES, max_tokens=5, stream=stream, extra_body=fields)
    body: Any = refusal.value.body
    assert body["type"] == "error" and body["error"]["type"] == "invalid_request_error"
    assert body["error"]["code"].startswith("dotllm.")


def test_an_unread_field_that_is_null_asks_for_nothing(openai_client: Any) -> None:
    body = {"model": NAME, "prompt": "?", "max_tokens": 3, "guided_json": None, "guided_decoding_backend": "outlines"}
    assert openai_client.post("/completions", body=body, cast_to=object)["choices"]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"response_format": {**RESPONSE_FORMAT, "json_schema": {"name": "x", "schema": BAD}}}, "response_format.json_schema.schema", "unknown_type"),
        ({"tools": TWO, "tool_choice": "required"}, "tools[1].function.parameters", "unknown_type"),
        (structured(regex="("), "structured_outputs.regex", "syntax"),
        (structured(json={"minimum": 5, "maximum": 3, "type": "integer"}), "structured_outputs.json", "unsatisfiable"),
        (structured(whitespace=" ", regex="a"), "structured_outputs.whitespace", "unknown_field"),
        ({"guided_regex": "a"}, "guided_regex", "unknown_field"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stream", [False, True])
def test_what_programs_can_read(
    openai_client: Any, fields: dict[str, Any], param: str, code: str, stream: bool
) -> None:
    """The fields of OpenAI's error object: its clients show ``param`` and ``code``."""
    from openai import BadRequestError

    body = {"model": NAME, "max_tokens": 5, "messages": MESSAGES, "stream": stream, **fields}
    with pytest.raises(BadRequestError) as refusal:
        openai_client.post("/chat/completions", body=body, cast_to=object)
    error = refusal.value
    assert (error.param, error.code, error.type) == (param, f"dotllm.{code}", "BadRequestError")
    assert "url" not in error.body, "no documentation lies anywhere"
