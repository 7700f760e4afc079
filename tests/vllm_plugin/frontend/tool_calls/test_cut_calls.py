"""A forced call that is cut comes back without text. (With vLLM's own answer classes.)"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.tools import cut_calls

CUT = '<tool_call>\n{"name": "f", "argu'


def chat(finish_reason: str, calls: Any = (), stop_reason: Any = None) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import (
        ChatCompletionResponse,
        ChatCompletionResponseChoice,
        ChatMessage,
    )
    from vllm.entrypoints.serve.engine.protocol import UsageInfo

    message = ChatMessage(role="assistant", content=CUT, tool_calls=list(calls))
    choice = ChatCompletionResponseChoice(
        index=0, message=message, finish_reason=finish_reason, stop_reason=stop_reason
    )
    return ChatCompletionResponse(model="m", choices=[choice], usage=UsageInfo())


@pytest.mark.parametrize("choice", ["required", {"type": "function"}, "auto", "none", None])
@pytest.mark.parametrize("finish_reason", ["length", "stop"])
def test_chats(choice: Any, finish_reason: str) -> None:
    answer = chat(finish_reason)
    cut_calls.leave_out(SimpleNamespace(tool_choice=choice), answer)
    is_left_out = finish_reason == "length" and choice not in ("auto", "none", None)
    assert answer.choices[0].message.content == (None if is_left_out else CUT)


@pytest.mark.parametrize(
    ("finish_reason", "stop_reason", "says"),
    [("tool_calls", "e", "stop"), ("stop", "e", "stop"), ("repetition", None, "repetition")],
)
def test_a_call_that_a_stop_string_or_a_repetition_cuts(finish_reason: str, stop_reason: Any, says: str) -> None:
    """vLLM says "tool_calls" for every required call that is not cut by its length, also without a call."""
    answer = chat(finish_reason, stop_reason=stop_reason)
    cut_calls.leave_out(SimpleNamespace(tool_choice="required"), answer)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (None, says)
    answer = chat(finish_reason, stop_reason=stop_reason)
    cut_calls.leave_out(SimpleNamespace(tool_choice="auto"), answer)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (CUT, finish_reason)


def test_a_chat_with_a_whole_call() -> None:
    from vllm.entrypoints.generate.base.protocol import FunctionCall, ToolCall

    answer = chat("length", [ToolCall(function=FunctionCall(name="f", arguments="{}"))])
    cut_calls.leave_out(SimpleNamespace(tool_choice="required"), answer)
    assert answer.choices[0].message.content == CUT, "text next to a call"


@pytest.mark.parametrize(("choice", "kinds"), [("required", ["reasoning"]), ("auto", ["reasoning", "message"])])
def test_responses(choice: str, kinds: list[str]) -> None:
    output = [SimpleNamespace(type="reasoning"), SimpleNamespace(type="message")]
    answer = SimpleNamespace(status="incomplete", output=output)
    cut_calls.leave_out(SimpleNamespace(tool_choice=choice), answer)
    assert [item.type for item in answer.output] == kinds
    for other in ("a stream", SimpleNamespace(status="completed", output=output), None):
        cut_calls.leave_out(SimpleNamespace(tool_choice=choice), other)
    assert len(output) == 2


@pytest.mark.parametrize(("kinds", "kept"), [(["message"], []), (["message", "function_call"], [0, 1])])
def test_responses_that_a_stop_string_cuts(kinds: list[str], kept: list[int]) -> None:
    output = [SimpleNamespace(type=kind) for kind in kinds]
    answer = SimpleNamespace(status="completed", output=output)
    cut_calls.leave_out(SimpleNamespace(tool_choice="required", stop=[]), answer)
    assert answer.output == output
    cut_calls.leave_out(SimpleNamespace(tool_choice="required", stop=["e"]), answer)
    assert answer.output == [output[n] for n in kept]
    for other in ((event for event in ()), None, SimpleNamespace(status="queued", output=[])):
        cut_calls.leave_out(SimpleNamespace(tool_choice="required", stop=["e"]), other)


def test_requests_without_tools() -> None:
    answer = chat("length")
    cut_calls.leave_out(SimpleNamespace(), answer)
    assert answer.choices[0].message.content == CUT


def test_arguments_that_python_cannot_read_are_not_whole() -> None:
    assert cut_calls._is_json('{"a": 1}') and not cut_calls._is_json('{"a": 1')
    assert not cut_calls._is_json('{"a":' * 100_000 + "1" + "}" * 100_000)
