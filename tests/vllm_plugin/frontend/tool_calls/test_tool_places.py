"""Where a refused schema of a tool is, in the request (live: `tests.serve.test_api_refusals`)."""

from __future__ import annotations

import contextvars
import json
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.errors import BudgetExceeded, InvalidSpec, SpecError
from dotllm.languages.structural_tag import structural_tag_to_grammar
from dotllm.vllm_plugin.frontend.tool_calls import error_location as tool_places

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


def located(error: SpecError, tools: Any, tag: str | None, *, choice: Any = "required", anthropic: bool = False) -> str:
    def work() -> str:
        if anthropic:
            tool_places.of_anthropic()
        params = SimpleNamespace(structured_outputs=SimpleNamespace(structural_tag=tag))
        tool_places.remember(SimpleNamespace(tools=tools, tool_choice=choice), params)
        found = tool_places.located(error)
        assert type(found) is type(error) and found.keyword == error.keyword
        return str(found)

    return contextvars.copy_context().run(work)


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
    assert found == f"tool 'bad': unknown type 'strin' (at {place}/properties/a~1b/type)"


def test_places_of_texts_inside_are_kept() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(("}}}
    error = refusal_of(tag := tag_of(GOOD, schema))
    found = located(error, [chat_tool("f", GOOD), chat_tool("p", schema)], tag)
    assert found.startswith("tool 'p': ") and "/tools/1/function/parameters/properties/a/pattern" in found


def test_what_belongs_to_no_tool_is_left() -> None:
    tools = [chat_tool("f", GOOD)]
    for error, tag in (
        (refusal_of(tag_of(GOOD, BAD)), tag_of(GOOD, BAD)),
        (BudgetExceeded("too much"), tag_of(GOOD)),
        (InvalidSpec("at no place of the tag", pointer="/format/elements/7"), tag_of(GOOD)),
        (InvalidSpec("of a schema alone", pointer="/properties/a"), None),
    ):
        assert located(error, tools, tag) == str(error)
    bad = refusal_of(tag_of(BAD))
    assert located(bad, [chat_tool("bad", BAD)], tag_of(BAD), choice="none") == str(bad)
    assert str(tool_places.located(bad)) == str(bad), "nothing was remembered in this context"
