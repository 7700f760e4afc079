"""Where in the request the refused schema of a tool is (live: `tests.serve.test_api_refusals`)."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.diagnosis import json_places, openai_error
from dotllm.errors import BudgetExceededError, InvalidSpecError, Offset, Pointer, SpecError
from dotllm.languages.structural_tag.build import structural_tag_to_grammar

GOOD: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
BAD: dict[str, Any] = {"type": "object", "properties": {"a/b": {"type": "strin"}}}


def chat_tool(name: str, schema: Any) -> Any:
    return SimpleNamespace(function=SimpleNamespace(name=name, parameters=schema))


def flat_tool(name: str, schema: Any) -> Any:
    return SimpleNamespace(name=name, parameters=schema)


def tag_of(*schemas: Any) -> str:
    tags = [
        {"type": "tag", "begin": f"<{i}>", "content": {"type": "json_schema", "json_schema": schema}, "end": "</>"}
        for i, schema in enumerate(schemas)
    ]
    return json.dumps({"type": "structural_tag", "format": {"type": "or", "elements": tags}})


def refusal_of(tag: str) -> SpecError:
    with pytest.raises(SpecError) as refused:
        structural_tag_to_grammar(tag)
    return refused.value


def located(error: SpecError, tools: Any, tag: str, *, anthropic: bool = False, own: str = "") -> str:
    return json_places.located(str(error), tag, tools, of_anthropic=anthropic, own=own)


@pytest.mark.parametrize(
    ("tools", "schemas", "anthropic", "place"),
    [
        ([chat_tool("f", GOOD), chat_tool("bad", BAD)], (GOOD, BAD), False, "/tools/1/function/parameters"),
        ([chat_tool("f", GOOD), chat_tool("bad", BAD)], (BAD,), False, "/tools/1/function/parameters"),
        ([flat_tool("f", GOOD), flat_tool("bad", BAD)], (GOOD, BAD), False, "/tools/1/parameters"),
        ([chat_tool("bad", BAD), chat_tool("f", GOOD)], (BAD, GOOD), True, "/tools/0/input_schema"),
        ([SimpleNamespace(name="n", tools=[flat_tool("f", GOOD), flat_tool("bad", BAD)])], (GOOD, BAD), False, "/tools/0/tools/1/parameters"),
        ([chat_tool("bad", {"properties": BAD["properties"]})], (BAD,), False, "/tools/0/function/parameters"),
        ([chat_tool("bad", BAD)], ({"type": "array", "items": {"anyOf": [GOOD, {"properties": {"parameters": BAD}}]}},), False, "/tools/0/function/parameters"),
    ],
)  # fmt: skip
def test_places(tools: Any, schemas: Any, anthropic: bool, place: str) -> None:
    error = refusal_of(tag := tag_of(*schemas))
    found = located(error, tools, tag, anthropic=anthropic)
    assert found == f"tool 'bad': unknown type 'strin'; did you mean \"string\"? (at {place}/properties/a~1b/type)"


def test_places_of_texts_inside_are_kept() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(("}}}
    error = refusal_of(tag := tag_of(GOOD, schema))
    found = located(error, [chat_tool("f", GOOD), chat_tool("p", schema)], tag)
    assert found.startswith("tool 'p': ") and "/tools/1/function/parameters/properties/a/pattern" in found


@pytest.mark.parametrize("own", ["response_format.json_schema.schema", "text.format.schema", "structured_outputs.json"])
def test_the_place_in_the_format_next_to_tools(own: str) -> None:
    """vLLM makes one tag of both; a client that has sent a ``response_format`` does not know ``/format/elements/1``."""
    schemas = GOOD, {"properties": {"json_schema": {"type": "strin"}}}
    tag = json.loads(tag_of(*schemas))
    tag["format"]["elements"][1] = tag["format"]["elements"][1]["content"]
    error = refusal_of(json.dumps(tag))
    found = located(error, [chat_tool("f", GOOD)], json.dumps(tag), own=own)
    place = f"/{own.replace('.', '/')}/properties/json_schema/type"
    assert found == f"unknown type 'strin'; did you mean \"string\"? (at {place})"
    assert openai_error.param(SimpleNamespace(structured_outputs=SimpleNamespace(structural_tag=tag)), found) == own
    bad = [chat_tool("f", schemas[1])]
    assert located(error, bad, json.dumps(tag), own=own).startswith("tool 'f': "), "the first of equal schemas"


@pytest.mark.parametrize("own", ["", "structured_outputs.structural_tag", "response_format"])
def test_the_place_in_a_tag_of_the_client_next_to_tools(own: str) -> None:
    error = refusal_of(tag := tag_of(GOOD, BAD))
    assert located(error, [chat_tool("f", GOOD)], tag, own=own) == str(error)


def test_what_belongs_to_no_tool_is_left() -> None:
    tools = [chat_tool("f", GOOD)]
    for error, tag in (
        (refusal_of(tag_of(GOOD, BAD)), tag_of(GOOD, BAD)),
        (BudgetExceededError("too much"), tag_of(GOOD)),
        (InvalidSpecError("at no place of the tag", location=Pointer("/format/elements/7")), tag_of(GOOD)),
        (InvalidSpecError("at an offset", location=Offset(7)), tag_of(GOOD)),
    ):
        assert located(error, tools, tag) == str(error)


def test_a_place_is_found_behind_words_that_look_like_one() -> None:
    schema = {"type": "object", "properties": {"a (at /b)": {"type": "strin (at /c)"}}}
    error = refusal_of(tag := tag_of(schema))
    place = "/tools/0/function/parameters/properties/a (at ~1b)/type"
    assert (
        located(error, [chat_tool("f", schema)], tag)
        == f"tool 'f': unknown type 'strin (at /c)'; the types are null, boolean, number, integer, string, array, object (at {place})"
    )
