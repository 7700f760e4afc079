"""Putting functions of ours in the place of others, without vLLM."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.vllm_plugin.hook import replace_once, require_parameters


def one_more(original: Any) -> Any:
    return lambda number: original(number) + 1


def twice(original: Any) -> Any:
    return lambda number: 2 * original(number)


def identity(number: int) -> int:
    """Itself."""
    return number


def test_a_function_is_replaced_once_by_each_hook() -> None:
    holder = SimpleNamespace(function=identity)
    for _ in range(3):
        replace_once(holder, "function", one_more)
        replace_once(holder, "function", twice)
    assert holder.function(5) == 12


def test_what_is_replaced_looks_like_the_original() -> None:
    holder = SimpleNamespace(function=identity)
    replace_once(holder, "function", one_more)
    assert (holder.function.__name__, holder.function.__doc__) == ("identity", "Itself.")
    assert inspect.signature(holder.function) == inspect.signature(identity)
    require_parameters(holder.function, ("number",), no_more=True)


def with_a_keyword(number: int, *, digits: int = 0) -> float:
    return round(number, digits)


@pytest.mark.parametrize("make", [one_more, lambda _: lambda digits, number: 0, lambda _: lambda *numbers: 0])
def test_what_cannot_be_called_like_the_original_does_not_replace_it(make: Any) -> None:
    """Some release of vLLM calls a function with a parameter that others do not have: that must not be found out by
    the first request. (``should_advance(request, new_token_ids=…)`` of some releases ended the engine.)"""
    holder = SimpleNamespace(function=with_a_keyword)
    with pytest.raises(TypeError, match="what is to replace it"):
        replace_once(holder, "function", make)
    assert holder.function is with_a_keyword
    replace_once(holder, "function", lambda original: lambda *args, **kwargs: original(*args, **kwargs))
    assert holder.function(12, digits=-1) == 10


def test_the_same_hook_in_several_classes() -> None:
    holders = [SimpleNamespace(function=identity) for _ in range(2)]
    for holder in holders:
        replace_once(holder, "function", one_more)
    assert [holder.function(1) for holder in holders] == [2, 2]
    assert identity(1) == 1


def test_a_hook_that_does_not_hold_has_replaced_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A vLLM that has one of the two functions that `constraints` replaces is told that it lacks both."""
    from dotllm.vllm_plugin.frontend.tool_calls import constraints

    class DelegatingParser:
        def adjust_request(self, request: object) -> object:
            return request

    theirs = DelegatingParser.adjust_request
    before = SimpleNamespace(DelegatingParser=DelegatingParser)
    monkeypatch.setattr(constraints, "importlib", SimpleNamespace(import_module=lambda _: before))
    with pytest.raises(AttributeError, match="structured_outputs_to_format"):
        constraints._apply()
    assert DelegatingParser.adjust_request is theirs
