"""If calls are enforced, tool names that cannot occur in a call are refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.tools import constraints
from tests.vllm_plugin.frontend.test_unsupported_fields import chat_request, serve, structured

FINE = ("List<int>", "a.b", "a b", "ns:f", "é", "a'b", "a/b")
BREAKING = ('a"b', "a\\b", "a\nb", "\x00", "a\x7f", "</tool_call>", "f<tool_call>", "tool<|im_end|>", "x[END]y")


@pytest.fixture(autouse=True)
def hooks() -> Iterator[None]:
    registry.apply_required()
    yield
    engine_info.remember(None)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}, "strict": True}}


def asked(*names: str, called: str | None) -> Any:
    """A request with these tools, whose constraint lets the tool ``called`` be called."""
    request = chat_request(tools=[tool(name) for name in names], tool_choice="auto")
    if called is not None:
        begin = f'<tool_call>\n{{"name": "{called}", "arguments": '
        form = {
            "type": "tag",
            "begin": begin,
            "content": {"type": "json_schema", "json_schema": {}},
            "end": "}\n</tool_call>",
        }
        request.structured_outputs = structured(structural_tag=json.dumps({"type": "structural_tag", "format": form}))
    return request


def refuse(request: Any, notation: str | None = None) -> None:
    """Run the check that follows when a parser has made the request's constraint from its tools."""

    class Parser:
        _tool_parser = SimpleNamespace(structural_tag_model=notation)
        model_tokenizer = SimpleNamespace(
            all_special_tokens=["<|im_end|>"], added_tokens_decoder={7: SimpleNamespace(content="[END]", special=True)}
        )

        def adjust_request(self, request: Any) -> Any:
            request.structured_outputs = made
            return request

    made, request.structured_outputs = request.structured_outputs, None
    constraints._adjust_request(Parser(), request, original=Parser.adjust_request)


def test_names() -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    for name in FINE:
        refuse(asked("f", name, called=name))
    for name in BREAKING:
        with pytest.raises(VLLMValidationError, match=r"tools\[1\] is named"):
            refuse(asked("f", name, called=name))


def test_a_tool_without_a_name() -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    with pytest.raises(VLLMValidationError, match=r"tools\[1\] has an empty name"):
        refuse(asked("f", "", called="f"))


def test_a_tool_that_is_not_constrained_has_any_name() -> None:
    serve("auto")
    refuse(asked("", called=None))
    refuse(asked('a"b', called=None))
    refuse(asked('a"b', "f", called="f"))
    request = asked('a"b', called=None)
    request.structured_outputs = structured(regex='a"b')
    refuse(request)


def test_a_number_that_no_json_has_is_refused_with_its_tool() -> None:
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    request = asked("f", "g", called="g")
    request.tools[1].function.parameters = {"properties": {"inf": {"const": 1e400}}}
    with pytest.raises(VLLMValidationError, match=r"tool 'g': the schema in tools\[1\] has a number that is too large"):
        refuse(request)
    request.tools[1].function.parameters = {"properties": {"inf": {"const": "inf"}}}
    refuse(request)
    request.tools[1].function.parameters = {"const": 1e400}
    request.tools[1].function.strict = False  # vLLM leaves its schema to the prompt
    refuse(request)


@pytest.mark.parametrize("notation", ["hy_v4", "kimi_k3"])
def test_a_strict_tool_that_its_notation_leaves_free_is_refused(notation: str) -> None:
    """vLLM's tag for this notation accepts arguments that are invalid under the tool's schema."""
    from vllm.exceptions import VLLMValidationError

    serve("auto")
    with pytest.raises(VLLMValidationError, match=r"tools\[1\] is strict"):
        request = asked("f", "g", called="g")
        request.tools[0].function.strict = False
        refuse(request, notation)
    request.tools[1].function.strict = False
    refuse(request, notation)
    refuse(asked("f", "g", called="g"), "hermes")


def test_other_backends_keep_vllms_behaviour() -> None:
    serve("xgrammar")
    request = asked('a"b', called='a"b')
    refuse(request)


def test_a_tag_is_read_and_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    serve("auto")
    request = asked("f", "g", called="g")
    calls: list[str] = []
    for name in ("loads", "dumps"):
        theirs = getattr(json, name)
        monkeypatch.setattr(json, name, lambda *args, name=name, theirs=theirs: calls.append(name) or theirs(*args))
    refuse(request)
    assert calls == ["loads", "dumps"]
    schema = json.loads(request.structured_outputs.structural_tag)["format"]["content"]
    assert schema["finite_numbers"] is True and "<tool_call>" in schema["excludes"]
