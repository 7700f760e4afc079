"""A forced call follows the schemas of its tools even without ``strict``; if that is impossible, it is served anyway.

The endpoint, the parsers and the parameters are vLLM's with our hooks. The engine is played: it refuses what our
compiler refuses, and what the test tells it to refuse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from functools import partialmethod
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.compilation import validation_cache
from dotllm.errors import SpecError
from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.api import endpoints, response_headers, served
from dotllm.vllm_plugin.enforce import engine_info, request_errors, validation
from dotllm.vllm_plugin.tools import argument_types, unasked
from tests.vllm_plugin.frontend.test_unsupported_fields import chat_request, response_request, serve
from tests.vllm_plugin.frontend.tool_calls.test_tool_parsers import PARSERS

SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Osaka", "Leeds"]}}, "required": ["city"]}
MARK = "Osaka"
"""A text in every constraint that follows the schema."""


@pytest.fixture(autouse=True)
def _served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    validation_cache._remembered.cache_clear()
    yield
    engine_info.remember(None)


class Server:
    """An endpoint and its engine, which refuses specifications that contain a text of ``refuses``."""

    def __init__(
        self, tokenizer: Any, parser: str = "hermes", level: str = "auto", refuses: tuple[str, ...] = ()
    ) -> None:
        from vllm.parser.parser_manager import ParserManager

        self.tokenizer, self.refuses = tokenizer, refuses
        self.parser = ParserManager.get_parser(tool_parser_name=parser, enable_auto_tools=True, tool_strict_level=level)
        self.sent: list[str | None] = []
        self.aborted: list[str] = []
        self.reasons = False

    async def _add_request(self, request_id: str, prompt: str, params: Any, **kwargs: Any) -> Any:
        from vllm.v1.engine.output_processor import RequestOutputCollector

        constraint = params.structured_outputs
        text = None if constraint is None else constraint.structural_tag or constraint.grammar
        self.sent.append(text)
        says: Any = "token"
        try:
            if constraint is not None:
                validation_cache.check(validation.specification_of(params, engine_info.config()))
            if text is not None and any(word in text for word in self.refuses):
                says = request_errors.as_http(400, f"too large: {self.refuses}", "too_large")
        except SpecError as error:
            says = request_errors.as_http(400, str(error), error.code)
        collector = RequestOutputCollector(params.output_kind, request_id)
        first = "reasoning" if self.reasons and isinstance(says, Exception) else says
        asyncio.get_running_loop().call_later(0.001, collector.put, first)
        return collector

    add_request = partialmethod(endpoints._add_request, original=_add_request)

    async def abort(self, request_id: str, *, internal: bool) -> None:
        self.aborted.append(request_id)

    async def _create(self, request: Any) -> Any:
        if request.tools:
            request = self.parser(self.tokenizer, request.tools).adjust_request(request)
        outputs = self._outputs(request.to_sampling_params(8, {}))
        if getattr(request, "background", False):
            self.task = asyncio.create_task(anext(outputs))
            return "queued"
        return outputs if request.stream else [output async for output in outputs]

    async def _outputs(self, params: Any) -> AsyncGenerator[Any, None]:
        yield await (await self.add_request("1", "?", params)).get()

    create = partialmethod(endpoints._endpoint, original=_create)

    def ask(self, request: Any) -> tuple[Any, list[str]]:
        """The answer, and its warnings."""

        async def whole() -> Any:
            answer = await self.create(request)
            said = [chunk async for chunk in answer] if isinstance(answer, AsyncGenerator) else answer
            return [await self.task] if said == "queued" else said

        headers = response_headers._Headers()
        token = response_headers._headers.set(headers)
        try:
            return asyncio.run(asyncio.wait_for(whole(), 60)), headers.texts
        finally:
            response_headers._headers.reset(token)


def tool(name: str = "f", parameters: Any = SCHEMA, **fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


NAMED = {"type": "function", "function": {"name": "f"}}
FORCED: list[Any] = ["required", NAMED]


@pytest.mark.parametrize("name", [*PARSERS, "granite", "jamba"])
@pytest.mark.parametrize("choice", FORCED, ids=["required", "named"])
def test_every_notation_follows_the_schema(name: str, choice: Any, tokenizer: Any) -> None:
    server = Server(tokenizer, name)
    assert server.ask(chat_request(tools=[tool()], tool_choice=choice)) == (["token"], [])
    (strict,) = server.sent
    assert strict is not None and MARK in strict
    server.ask(chat_request(tools=[tool(strict=True)], tool_choice=choice))
    assert server.sent[1] == strict, "as if the tool said so"


def test_responses_too(tokenizer: Any) -> None:
    flat = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": None}
    for choice in ("required", {"type": "function", "name": "f"}):
        for fields in ({}, {"stream": True}, {"background": True}):
            server = Server(tokenizer)
            assert server.ask(response_request(tools=[flat], tool_choice=choice, **fields)) == (["token"], [])
            assert MARK in (server.sent[0] or "")


def test_what_is_said_of_strict_counts(tokenizer: Any) -> None:
    for tools, level, choice, follows in (
        ([tool(strict=False)], "auto", "required", False),
        ([tool()], "function", "required", False),
        ([tool()], "parameter", "required", True),
        ([tool(strict=False)], "parameter", "required", True),
        ([tool("g", {"type": "object"}), tool(strict=False)], "auto", "required", False),
        ([tool("g"), tool(strict=False)], "auto", NAMED, False),
        ([tool("g", {"type": "object"}, strict=False), tool()], "auto", NAMED, True),
    ):
        server = Server(tokenizer, level=level)
        assert server.ask(chat_request(tools=tools, tool_choice=choice))[1] == []
        assert (MARK in (server.sent[0] or "")) is follows, (tools, level, choice)


def test_a_call_that_is_not_forced_is_as_in_vllm(tokenizer: Any) -> None:
    server = Server(tokenizer)
    for choice in ("auto", "none"):
        server.ask(chat_request(tools=[tool()], tool_choice=choice))
    assert server.sent == [None, None]


def test_with_a_format_a_call_needs_a_strict_tool_or_a_strict_level(tokenizer: Any) -> None:
    """As docs/api.md and docs/clients.md say: agents send both, often with tools that say nothing of ``strict``."""
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": {"type": "object"}}}
    for fields, level, may_call in (
        ({}, "auto", False),
        ({"strict": False}, "auto", False),
        ({"strict": True}, "auto", True),
        ({}, "function", True),
        ({"strict": False}, "parameter", True),
    ):
        server = Server(tokenizer, level=level)
        assert server.ask(chat_request(tools=[tool(**fields)], response_format=form)) == (["token"], [])
        assert ("<tool_call>" in (server.sent[0] or "")) is may_call, (fields, level)


UNENFORCEABLE: list[Any] = [
    {"type": "object", "properties": {"a": {"type": "strin"}}},
    {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 3}}, "required": ["a"]},
    {"type": "object", "properties": []},
    {"type": "object", "properties": {"a": {"const": 1e400}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=a)(?!b)\\1"}}},
    {"type": "object", "properties": {"a": {"minLength": "five", "type": "string"}}},
    {"type": "objekt"},
    {"type": "array", "items": 5},
]


@pytest.mark.parametrize("schema", UNENFORCEABLE, ids=range(len(UNENFORCEABLE)))
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_what_cannot_be_enforced_is_served_and_said(schema: Any, stream: bool, tokenizer: Any) -> None:
    for name in ("hermes", "qwen3_coder", "granite"):
        for choice in FORCED:
            server = Server(tokenizer, name)
            request = chat_request(tools=[tool(parameters=schema)], tool_choice=choice, stream=stream)
            said, warnings = server.ask(request)
            assert said == ["token"] and len(warnings) == 1 and "the schema of 'f'" in warnings[0]
            assert request.tools[0].function.strict is None and request.tools[0].function.parameters == schema
            if name != "granite":  # (vLLM itself refuses what it makes from these)
                serve("auto")
                plain = Server(tokenizer, name)
                plain.ask(chat_request(tools=[tool(parameters=schema, strict=False)], tool_choice=choice))
                assert server.sent[-1] == plain.sent[-1], "what vLLM asks for"


@pytest.mark.parametrize(
    "fields", [{}, {"stream": True}, {"background": True}], ids=["whole", "streamed", "background"]
)
def test_what_only_the_engine_can_refuse(
    fields: dict[str, Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine finds it in the second half of a compile, or when a budget is exceeded."""
    monkeypatch.setattr(served, "token_names", lambda: None)
    flat = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": None}
    server = Server(tokenizer, refuses=(MARK,))
    said, warnings = server.ask(response_request(tools=[flat], tool_choice="required", **fields))
    assert said == ["token"] and len(server.sent) == 2 and MARK not in (server.sent[1] or MARK)
    assert server.aborted == ["1"]
    assert len(warnings) == 1 and "too large" in warnings[0]


def test_a_stream_that_reasons_first_is_checked_before_it_begins(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "may_reason", lambda: True)
    monkeypatch.setattr(served, "token_names", lambda: None)
    server = Server(tokenizer)
    server.reasons = True
    request = chat_request(tools=[tool(parameters=UNENFORCEABLE[0])], tool_choice="required", stream=True)
    said, warnings = server.ask(request)
    assert said == ["token"] and len(server.sent) == 1 and "unknown type 'strin'" in warnings[0]
    assert "/tools/0/function/parameters/properties/a/type" in warnings[0]


def test_a_deep_schema_is_followed_or_left(tokenizer: Any) -> None:
    """vLLM can only write schemas that are less deep than those that a request may contain."""
    deep: Any = {"type": "string"}
    for _ in range(400):
        deep = {"type": "object", "properties": {"a": deep}}
    for name in ("hermes", "qwen3_coder", "granite"):
        assert Server(tokenizer, name).ask(chat_request(tools=[tool(parameters=deep)], tool_choice="required"))[0] == [
            "token"
        ]


def test_what_is_asked_for_is_refused(tokenizer: Any) -> None:
    good_and_bad = [tool(), tool("bad", UNENFORCEABLE[0], strict=True)]
    for stream in (False, True):
        server = Server(tokenizer)
        with pytest.raises(Exception, match="unknown type 'strin'"):
            server.ask(chat_request(tools=good_and_bad, tool_choice="required", stream=stream))
    server = Server(tokenizer, refuses=("arguments",))
    with pytest.raises(Exception, match="too large"):
        server.ask(chat_request(tools=[tool()], tool_choice="required"))
    assert len(server.sent) == 2, "once without what nobody asked for"
    with pytest.raises(Exception, match=r"tools\[0\] is named"):
        Server(tokenizer).ask(chat_request(tools=[tool('a"b')], tool_choice="required"))


def test_a_notation_without_schemas_says_so(tokenizer: Any) -> None:
    parser = SimpleNamespace(_tool_parser=SimpleNamespace(structural_tag_model="hy_v4"), tool_strict_level=0)
    request = chat_request(tools=[tool()], tool_choice="required")
    headers = response_headers._Headers()
    tokens = response_headers._headers.set(headers), endpoints.current.set(endpoints.Call(None, request))
    from dotllm.vllm_plugin.tools import constraints

    constraints._adjust_request(parser, request, original=lambda self, request: request)
    response_headers._headers.reset(tokens[0])
    endpoints.current.reset(tokens[1])
    assert len(headers.texts) == 1 and "without the schemas of arguments" in headers.texts[0]


def test_other_backends_keep_vllms_behaviour(tokenizer: Any) -> None:
    serve("xgrammar")
    server = Server(tokenizer)
    server.ask(chat_request(tools=[tool()], tool_choice="required"))
    assert MARK not in (server.sent[0] or MARK)


def test_a_function_whose_schema_is_left_is_converted_again(tokenizer: Any) -> None:
    """In a notation with types, strict arguments stay as written; other arguments are converted by their schema."""

    class Weak:
        strict, name, parameters = None, "f", SCHEMA

    function = Weak()
    argument_types.leave_as_written(function)
    made = unasked.Unasked([function], lambda: None)
    made.leave(SimpleNamespace(structured_outputs=1), "no")  # type: ignore[arg-type]
    assert argument_types.properties_of(function) == SCHEMA["properties"]
