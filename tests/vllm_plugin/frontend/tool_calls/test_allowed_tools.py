"""A tool_choice of type allowed_tools: vLLM's parsers make a constraint from it that only allows those tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin import registry
from dotllm.vllm_plugin.enforce import engine_info
from dotllm.vllm_plugin.tools import constraints
from tests.fuzz.requests import with_tools
from tests.vllm_plugin.frontend.test_unsupported_fields import chat_request, parameters, response_request, serve

FUNCTIONS = [{"name": name, "parameters": {"type": "object"}} for name in ("alpha", "beta", "gamma")]


@pytest.fixture(autouse=True)
def served() -> Iterator[None]:
    registry.apply_required()
    serve("auto")
    yield
    engine_info.remember(None)


def chat(mode: Any, allowed: Any) -> Any:
    tools = [{"type": "function", "function": function} for function in FUNCTIONS]
    choice = {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
    return chat_request(tools=tools, tool_choice=choice)


def response(mode: Any, allowed: Any) -> Any:
    tools = [{"type": "function", "strict": None, **function} for function in FUNCTIONS]
    flat = [{"type": "function", **one["function"]} if "function" in one else one for one in allowed or ()]
    return response_request(tools=tools, tool_choice={"type": "allowed_tools", "mode": mode, "tools": flat})


def named(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name}} for name in names]


@pytest.mark.parametrize("make", [chat, response])
@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("names", [("beta",), ("gamma", "alpha")])
def test_only_they_can_be_called(make: Any, mode: str, names: tuple[str, ...]) -> None:
    request = make(mode, named(*names))
    assert request.tool_choice == mode and len(request.tools) == len(names), "what the model is shown"
    tag = parameters(with_tools(request)).structured_outputs.structural_tag
    for function in FUNCTIONS:
        assert (function["name"] in tag) is (function["name"] in names)
    assert ("triggered_tags" in tag) is (mode == "auto")


@pytest.mark.parametrize("level", [None, "auto", "function", "parameter"])
def test_the_strict_level_of_a_server_is_a_level_or_none(level: Any) -> None:
    """Since 0.33 it is None if the operator does not set it."""
    from vllm.parser.abstract_parser import DelegatingParser
    from vllm.tool_parsers.tool_strict_level import ToolStrictLevel

    class Parser(DelegatingParser):
        tool_strict_level = None if level is None else ToolStrictLevel.from_name(level)  # type: ignore[assignment]

    found = constraints.strict_level(Parser.__new__(Parser))
    assert found == ToolStrictLevel.from_name(level or "auto") and type(found) is ToolStrictLevel


@pytest.mark.parametrize("make", [chat, response])
@pytest.mark.parametrize(
    ("mode", "allowed", "word"),
    [
        ("any", named("alpha"), "mode 'auto' or 'required', not 'any'"),
        (None, named("alpha"), "mode 'auto' or 'required'"),
        ("auto", [], "needs a list"),
        ("auto", None, "needs a list"),
        ("required", named("alpha", "delta"), "'delta'.*none of 'tools'"),
        ("required", [{"type": "mcp", "server_label": "x"}], "none of 'tools'"),
    ],
)
def test_what_it_cannot_mean(make: Any, mode: Any, allowed: Any, word: str) -> None:
    from vllm.exceptions import VLLMValidationError

    with pytest.raises(VLLMValidationError, match=word):
        parameters(make(mode, allowed))


def test_a_parser_without_a_notation() -> None:
    from vllm.exceptions import VLLMValidationError

    request = chat("auto", named("alpha"))
    with pytest.raises(VLLMValidationError, match="leave the others out of 'tools'"):
        parameters(request)
    assert constraints.allowed_tools.is_restricted(request)
    assert not constraints.allowed_tools.is_restricted(chat_request(dotllm_restricted=True))


def test_other_backends_keep_vllms_behaviour() -> None:
    serve("xgrammar")
    with pytest.raises(Exception, match="function"):
        chat("auto", named("alpha"))
