"""Refusals and completions before a request's parameters go to the engine (live: tests/serve/test_api*)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.api import unsupported_fields
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.hook import REPLACEMENTS
from dotllm.vllm_plugin.tools import constraints, tag_rewrite
from tests.fuzz.requests import ask


@pytest.fixture(autouse=True)
def hooks() -> Iterator[None]:
    registry.apply_required()
    yield
    engine_info.remember(None)


def serve(backend: str, **model: Any) -> None:
    switches = {"disable_any_whitespace": False, "disable_additional_properties": False}
    config = SimpleNamespace(backend=backend, reasoning_parser="", **switches)
    engine_info.remember(SimpleNamespace(structured_outputs_config=config, model_config=SimpleNamespace(**model)))


def chat_request(**fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(**{"messages": [{"role": "user", "content": "?"}], "model": "m", **fields})


def batch_request(**fields: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import BatchChatCompletionRequest

    return BatchChatCompletionRequest(messages=[[{"role": "user", "content": "?"}]], model="m", **fields)


def completion_request(**fields: Any) -> Any:
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest

    return CompletionRequest(**{"model": "m", "prompt": "?", **fields})


def response_request(**fields: Any) -> Any:
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest

    return ResponsesRequest(**{"model": "m", "input": "?", **fields})


def parameters(request: Any) -> Any:
    """Its sampling parameters (for a batch, of its first request); a refused request raises instead."""
    if hasattr(request, "to_chat_completion_request"):
        request = request.to_chat_completion_request(request.messages[0])
    return request.to_sampling_params(8, {})


def structured(**fields: Any) -> Any:
    from vllm.sampling_params import StructuredOutputsParams

    return StructuredOutputsParams(**fields)


def test_other_backends_keep_vllms_behaviour() -> None:
    from vllm.exceptions import VLLMValidationError

    for request in (chat_request(guided_json="{}"), completion_request(guided_regex="a")):
        serve("xgrammar")
        unsupported_fields.refuse_fields(request)
        serve("auto")
        with pytest.raises(VLLMValidationError, match="guided_"):
            unsupported_fields.refuse_fields(request)


def test_kinds_of_constraints_that_there_are_not() -> None:
    from vllm.exceptions import VLLMValidationError

    refused = (VLLMValidationError, ValueError)
    for make in (chat_request, completion_request, response_request):
        serve("auto")
        another = make(structured_outputs={"json_schema": {}})
        with pytest.raises(refused, match="no field 'json_schema': use one of json, json_object, regex"):
            parameters(another)
        another = make(structured_outputs={"json": {}, "whitespace": " "})
        with pytest.raises(refused, match="no field 'whitespace'"):
            parameters(another)
        make(structured_outputs={"json": {}, "whitespace": None, "regex": None, "disable_any_whitespace": True})
        make(structured_outputs=structured(regex="a"))
        serve("xgrammar")
        with pytest.raises(refused, match="You must use one kind"):
            make(structured_outputs={"json_schema": {}})
        make(structured_outputs={"json": {}, "whitespace": " "})
        serve("auto")
        none = make(structured_outputs={"json": None, "disable_any_whitespace": True})
        with pytest.raises(refused, match="sets none of json, json_object, regex"):
            parameters(none)


@pytest.mark.parametrize("value", [[], [1], "", "x", 5, False])
def test_structured_outputs_that_are_no_object(value: Any) -> None:
    """vLLM asks such a value for its keys, which ends in HTTP 500."""
    from vllm.exceptions import VLLMValidationError

    for make in (chat_request, batch_request, completion_request, response_request):
        serve("auto")
        request = make(structured_outputs=value)
        with pytest.raises((VLLMValidationError, ValueError), match="structured_outputs is an object with one of json"):
            parameters(request)


@pytest.mark.parametrize(
    ("tag", "message"),
    [
        ({"type": "structural_tag"}, "structural_tag must be JSON text, not an object: send it as a string "),
        ([], "structural_tag must be JSON text, not a list: send it as a string "),
        ("", "structural_tag is not JSON"),
        ("{", "structural_tag is not JSON"),
        ("[]", "structural_tag is not a JSON object"),
        ("[" * 100_000, "structural_tag is nested too deeply"),
        (f"[{'9' * 5000}]", "a number of structured_outputs.structural_tag has too many digits"),
    ],
)
def test_structural_tags_that_are_none(tag: Any, message: str) -> None:
    from vllm.exceptions import VLLMValidationError

    for make in (chat_request, batch_request, completion_request, response_request):
        serve("auto")
        with pytest.raises((VLLMValidationError, ValueError), match=message):
            parameters(make(structured_outputs={"structural_tag": tag}))


def test_half_a_surrogate_pair_in_what_a_prompt_is_made_of() -> None:
    from vllm.exceptions import VLLMValidationError

    tool = {"type": "function", "function": {"name": "\ud800"}}
    for name, request in (
        ("prompt", completion_request(prompt="\ud800")),
        ("messages", chat_request(messages=[{"role": "user", "content": "\ud800"}])),
        ("tools", chat_request(tools=[tool])),
        ("input", response_request(input="\ud800")),
    ):
        with pytest.raises(VLLMValidationError, match=rf"{name} contains '\\ud800', a lone surrogate"):
            unsupported_fields.refuse_half_characters_of_prompt(request)
    unsupported_fields.refuse_half_characters_of_prompt(chat_request())


FORM = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
TEXT = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}
HALF_TOOL = {"type": "function", "function": {"name": "\ud800"}}


@pytest.mark.parametrize(
    ("make", "name", "fields"),
    [
        (chat_request, "messages", {"messages": [{"role": "user", "content": "\ud800"}], "response_format": FORM}),
        (chat_request, "tools", {"tools": [HALF_TOOL], "response_format": FORM}),
        (chat_request, "request_id", {"request_id": "\ud800", "response_format": FORM}),
        (chat_request, "chat_template_kwargs", {"chat_template_kwargs": {"a": "\ud800"}, "response_format": FORM}),
        (completion_request, "prompt", {"prompt": "\ud800", "response_format": FORM}),
        (completion_request, "stop", {"stop": ["\ud800"], "structured_outputs": {"regex": "a"}}),
        (response_request, "input", {"input": "\ud800", "text": TEXT}),
        (response_request, "instructions", {"instructions": "\ud800", "text": TEXT}),
        (chat_request, "top_k", {"top_k": 10**30, "response_format": FORM}),
        (chat_request, "top_k", {"top_k": 2**64}),
        (completion_request, "top_k", {"top_k": 2**64, "structured_outputs": {"regex": "a"}}),
        (response_request, "top_k", {"top_k": 2**64, "text": TEXT}),
        (chat_request, "repetition_detection", {"repetition_detection": {"max_pattern_size": 2**64, "min_count": 2}}),
        (completion_request, "repetition_detection", {"repetition_detection": {"max_pattern_size": 3, "min_count": 2**64}}),
    ],
)  # fmt: skip
def test_what_the_engine_cannot_be_sent_is_refused_by_the_name_of_its_field(make: Any, name: str, fields: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    from dotllm.diagnosis.openai_error import error_fields

    serve("auto")
    request = make(**fields)
    with pytest.raises(VLLMValidationError, match=rf"^{name} contains ") as refusal:
        parameters(request)
        unsupported_fields.refuse_half_characters_of_prompt(request)
    written = error_fields(refusal.value.args[0], "invalid_value", request, refusal.value.parameter)
    assert written["param"] == name


def test_the_largest_numbers_that_the_engine_can_be_sent() -> None:
    serve("auto")
    for fields in ({"top_k": 2**64 - 1}, {"repetition_detection": {"max_pattern_size": 2**64 - 1, "min_count": 2}}):
        parameters(chat_request(**fields))


@pytest.mark.parametrize("name", ["_backend", "_backend_was_auto"])
def test_fields_that_vllm_keeps_for_itself(name: str) -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    for make in (chat_request, batch_request, completion_request, response_request):
        request = make(structured_outputs={"regex": "a", name: "xgrammar"})
        with pytest.raises((VLLMValidationError, ValueError), match=f"structured_outputs has no field '{name}'"):
            parameters(request)


@pytest.mark.parametrize("value", [0, 0.0, None, False, "", [], {}, True, 1, "x"])
@pytest.mark.parametrize("name", ["nosuch", "_backend", "_backend_was_auto"])
def test_an_unknown_field_is_refused_whatever_its_value(name: str, value: object) -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    for make in (chat_request, completion_request, response_request):
        request = make(structured_outputs={"json": {"type": "string"}, name: value})
        if (name, value) == ("_backend", None) or (name == "_backend_was_auto" and value is False):
            parameters(request)  # vLLM itself writes these in a batch
            continue
        with pytest.raises((VLLMValidationError, ValueError), match=f"structured_outputs has no field '{name}'"):
            parameters(request)


def test_what_front_end_and_engine_say_to_each_other_is_no_field_of_a_request() -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    for make in (chat_request, completion_request):
        for constraint in ({}, {"structured_outputs": {"regex": "a"}}):
            request = make(vllm_xargs={"dotllm_from_first_token": True}, **constraint)
            with pytest.raises(VLLMValidationError, match="no field 'dotllm_from_first_token'"):
                request.to_sampling_params(8, {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", "\ud800"),
        ("stop", ["a", "b\udfff"]),
        ("bad_words", ["\ud800"]),
        ("vllm_xargs", {"a": "\ud800"}),
        ("vllm_xargs", {"\ud800": 1}),
        ("kv_transfer_params", {"a": ["\ud800"]}),
        ("request_id", "\ud800"),
        ("chat_template_kwargs", {"a": {"b": "\ud800"}}),
    ],
)
def test_half_a_surrogate_pair_in_what_goes_to_the_engine(name: str, value: Any) -> None:
    from vllm.exceptions import VLLMValidationError

    for make in (chat_request, *([] if name == "chat_template_kwargs" else [completion_request])):
        for backend, refused in (("auto", True), ("xgrammar", False)):
            serve(backend)
            request = make(**{name: value})
            if refused:
                with pytest.raises(VLLMValidationError, match=rf"^{name} contains '.u\w+', a lone surrogate"):
                    request.to_sampling_params(8, {})
            else:
                request.to_sampling_params(8, {})


def test_values_that_vllm_itself_has_added_and_json_does_not_know() -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    sources = {(0, 1): {"document": object()}}  # as vLLM's Cohere API notes what a citation may refer to
    chat_request(chat_template_kwargs={"sources": sources}).to_sampling_params(8, {})
    with pytest.raises(VLLMValidationError, match="a lone surrogate"):
        chat_request(chat_template_kwargs={"sources": sources, "a": "\ud800"}).to_sampling_params(8, {})


def test_a_format_that_lacks_its_schema() -> None:
    from vllm.exceptions import VLLMValidationError

    for form in ({"name": "x"}, {"name": "x", "schema": None}):
        serve("auto")
        for make in (chat_request, completion_request):
            request = make(response_format={"type": "json_schema", "json_schema": form})
            with pytest.raises(VLLMValidationError, match=r"response_format\.json_schema\.schema is missing"):
                parameters(request)
        serve("xgrammar")
        request = chat_request(response_format={"type": "json_schema", "json_schema": form})
        with pytest.raises(VLLMValidationError, match="You must use one kind"):
            request.to_sampling_params(8, {})


@pytest.mark.parametrize(("name", "fault"), [({}, "is missing"), ({"name": 3}, "must be a string, not 3")])
def test_a_format_whose_name_is_not_a_string(name: dict[str, int], fault: str) -> None:
    """It was said to be missing."""
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "object"}, **name}}
    asked = {"model": "m", "messages": [{"role": "user", "content": "?"}], "response_format": form}
    outcome = ask("chat", asked)
    assert outcome.param == "response_format.json_schema.name" and f".name {fault}" in (outcome.refusal or "")


def test_options_survive_a_replacement() -> None:
    before = structured(json={}, whitespace_pattern=" ", disable_additional_properties=True)
    after = structured(structural_tag="{}")
    constraints.complete(after, before, [])
    assert (after.whitespace_pattern, after.disable_additional_properties) == (" ", True)
    assert after.disable_any_whitespace is False
    constraints.complete(after, None, [])


@pytest.mark.parametrize("private", [False, True])
def test_a_parser_that_writes_a_tag_of_its_own_keeps_the_options(private: bool) -> None:
    """It replaces a chat's constraint. A Responses request keeps its own; the parser's takes precedence (vLLM 0.33)."""

    class Parser:
        _tool_parser = None

        def adjust_request(self, request: Any) -> Any:
            tag = structured(structural_tag="{}")
            if private:
                request._parser_structured_outputs = tag
            else:
                request.structured_outputs = tag
            return request

    adjust_request = partial(constraints._adjust_request, original=Parser.adjust_request)
    for backend, kept in (("xgrammar", False), ("auto", True)):
        serve(backend)
        said = structured(json={}, disable_any_whitespace=True)
        request = adjust_request(Parser(), SimpleNamespace(tools=None, tool_choice="auto", structured_outputs=said))
        after = request._parser_structured_outputs if private else request.structured_outputs
        assert after is not said and after.disable_any_whitespace is kept


def test_the_parser_of_templates_is_taken_too() -> None:
    module = pytest.importorskip("vllm.parser.response_template")
    assert getattr(module.ResponseTemplateParser.adjust_request, REPLACEMENTS, None)


def test_only_json_arguments_become_objects() -> None:
    def schema(value: Any, **more: Any) -> dict[str, Any]:
        return {"type": "json_schema", "json_schema": value, **more}

    kept = [schema({"type": "string"}), schema(True, style="qwen_xml"), schema(False)]
    tag = {
        "format": {"type": "or", "elements": [{"type": "tag", "begin": "a", "content": schema(True), "end": ""}, *kept]}
    }
    for _ in range(2):  # the second time, objects stay as they are
        tag_rewrite.require_objects(tag)
        assert tag["format"]["elements"][0]["content"] == schema({"type": "object"})
        assert tag["format"]["elements"][1:] == kept


def test_arguments_whose_schema_names_no_type_are_objects() -> None:
    for value in ({}, {"properties": {"a": True}}, {"$ref": "#/$defs/a", "$defs": {"a": {"minProperties": 1}}}):
        tag = {"type": "json_schema", "json_schema": dict(value)}
        tag_rewrite.require_objects(tag)
        assert tag["json_schema"] == {"type": "object", **value}


def test_a_message_is_refused_as_it_was_sent() -> None:
    from vllm.entrypoints.anthropic.protocol import AnthropicMessagesRequest
    from vllm.exceptions import VLLMValidationError

    def message(**fields: Any) -> Any:
        return AnthropicMessagesRequest(model="m", messages=[{"role": "user", "content": "?"}], max_tokens=5, **fields)

    empty = {"output_config": {"format": {"type": "json_schema", "schema": {}}}}
    for fields, word in (({"guided_json": {}}, "guided_json"), (empty, "has no schema")):
        serve("xgrammar")
        message(**fields)
        serve("auto")
        with pytest.raises(VLLMValidationError, match=word):
            message(**fields)
    message(output_config={"format": {"type": "json_schema", "schema": {"type": "null"}}})
    message(output_config={"effort": "low"})


def test_online_beam_search_is_refused_with_a_constraint() -> None:
    from vllm.exceptions import VLLMValidationError

    constraints_of = (
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"regex": "a"}},
    )
    for make in (chat_request, completion_request):
        for constraint in constraints_of:
            request = make(**constraint)
            serve("xgrammar")
            request.to_beam_search_params(8, {})
            serve("auto")
            with pytest.raises(VLLMValidationError, match="use_beam_search"):
                request.to_beam_search_params(8, {})
        make(response_format={"type": "text"}).to_beam_search_params(8, {})


@pytest.mark.parametrize("value", [-(10**19), 5, "x", True, [5], [{"name": "g"}], {"a": 1}])
@pytest.mark.parametrize("field", ["tools", "function", "parameters", "name", "strict", "type_"])
@pytest.mark.parametrize("kind", ["chat", "response"])
def test_further_fields_of_a_tool_may_be_anything(kind: str, field: str, value: Any) -> None:
    """A chat's tool with a field ``tools`` passed for a namespace of the Responses API."""
    function = {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    tool = {"type": "function", "function": function} if kind == "chat" else {"type": "function", **function}
    if field in tool:
        return
    choice = {"type": "function", **({"function": {"name": "f"}} if kind == "chat" else {"name": "f"})}
    asked = {"messages": [{"role": "user", "content": "?"}]} if kind == "chat" else {"input": "?"}
    outcome = ask(kind, {"model": "m", **asked, "tools": [{**tool, field: value}], "tool_choice": choice})
    assert outcome.error is None and (outcome.refusal is not None or not outcome.is_free)
