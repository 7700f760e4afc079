"""Replacing functions with ours, without vLLM."""

from __future__ import annotations

import asyncio
import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dotllm.vllm_plugin.hook import Hook, Target, replace_once


def one_more(number: int, *, original: Any) -> Any:
    return original(number) + 1


def twice(number: int, *, original: Any) -> Any:
    return 2 * original(number)


def identity(number: int) -> int:
    """Itself."""
    return number


def test_a_function_is_replaced_once_by_each_hook() -> None:
    holder = SimpleNamespace(function=identity)
    for _ in range(3):
        replace_once(holder, "function", one_more)
        replace_once(holder, "function", twice)
    assert holder.function(5) == 12


def test_a_call_goes_through_ours_alone_and_a_coroutine_function_stays_one() -> None:
    async def theirs(number: int) -> int:
        return number

    async def ours(number: int, *, original: Any) -> Any:
        return await original(number) + 1

    holders = [SimpleNamespace(function=theirs) for _ in range(2)]
    for holder in holders:
        replace_once(holder, "function", ours)
        assert inspect.iscoroutinefunction(holder.function) and holder.function.__code__ is ours.__code__
        assert asyncio.run(holder.function(1)) == 2
    with pytest.raises(TypeError, match="original"):
        ours(1)  # type: ignore[call-arg]  # it stays as it is


def test_what_is_replaced_looks_like_the_original() -> None:
    holder = SimpleNamespace(function=identity)
    replace_once(holder, "function", one_more)
    assert (holder.function.__name__, holder.function.__doc__) == ("identity", "Itself.")
    assert inspect.signature(holder.function) == inspect.signature(identity)


def with_a_keyword(number: int, *, digits: int = 0) -> float:
    return round(number, digits)


@pytest.mark.parametrize(
    "ours",
    [
        one_more,
        lambda digits, number: 0,
        lambda *numbers: 0,
        lambda number, more, digits: 0,
        lambda number, original, *, digits: original(number),
    ],
)
def test_what_cannot_be_called_like_the_original_does_not_replace_it(ours: Any) -> None:
    """A release of vLLM may call a function with a parameter that others lack. The first request must not be what finds
    that out. (Some releases call ``should_advance(request, new_token_ids=…)``; that ended the engine.)"""
    holder = SimpleNamespace(function=with_a_keyword)
    with pytest.raises(TypeError, match="its replacement has"):
        replace_once(holder, "function", ours)
    assert holder.function is with_a_keyword
    replace_once(holder, "function", lambda *args, original, **kwargs: original(*args, **kwargs))
    assert holder.function(12, digits=-1) == 10


def test_who_has_imported_a_function_by_name_gets_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, importer, stranger = ModuleType("vllm.theirs"), ModuleType("vllm.importer"), ModuleType("stranger")
    for module in (theirs, importer, stranger):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        module.function = identity  # type: ignore[attr-defined]
    replace_once(theirs, "function", one_more)
    assert [module.function(1) for module in (theirs, importer, stranger)] == [2, 2, 1]


def test_a_hook_without_a_use_changes_nothing(module: Any) -> None:
    hook = Hook("summary", where=lambda: False, apply=lambda: pytest.fail("there is no use for it"))
    hook.replaces("their.module:function")(one_more)
    hook.apply()
    assert module.function is identity and hook.targets == (Target("their.module", "function", ("number",)),)


def test_the_same_hook_in_several_classes() -> None:
    holders = [SimpleNamespace(function=identity) for _ in range(2)]
    for holder in holders:
        replace_once(holder, "function", one_more)
    assert [holder.function(1) for holder in holders] == [2, 2]
    assert identity(1) == 1


class Theirs:
    def one(self, number: int, *, more: int = 0) -> int:
        return number

    @classmethod
    def of_class(cls, number: int) -> tuple[type, int]:
        return cls, number


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module for hooks to name, in place of one of vLLM's."""
    theirs = type("Theirs", (), {name: vars(Theirs)[name] for name in ("one", "of_class")})
    found = SimpleNamespace(Theirs=theirs, function=identity)
    monkeypatch.setattr("dotllm.vllm_plugin.hook.importlib.import_module", {"their.module": found}.__getitem__)
    return found


def test_a_hook_replaces_what_its_functions_name(module: Any) -> None:
    hook = Hook("summary")

    @hook.replaces("their.module:Theirs.one", "their.module:function")
    def more(*args: Any, original: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) + 1

    @hook.replaces("their.module:Theirs.of_class")
    def of_class(cls: Any, number: int, *, original: Any) -> Any:
        return original(cls, number + 1)

    for _ in range(2):
        hook.apply()
        assert module.Theirs().one(1, more=2) == module.function(1) == 2
        assert module.Theirs.of_class(1) == (module.Theirs, 2)


def test_a_hook_rests_on_the_parameters_that_its_functions_name() -> None:
    hook = Hook("summary", (Target("their.module", "Theirs.field"),))

    @hook.replaces("their.module:Theirs.one")
    def one(self: Any, number: int, *args: Any, original: Any, more: int = 0, **kwargs: Any) -> Any:
        return original(self, number, *args, more=more, **kwargs)

    assert hook.targets == (
        Target("their.module", "Theirs.one", ("self", "number")),
        Target("their.module", "Theirs.field"),
    )


def test_a_hook_that_does_not_hold_has_replaced_nothing(module: Any) -> None:
    hook = Hook("summary", apply=lambda: pytest.fail("it does not hold"))
    hook.replaces("their.module:function", "their.module:Theirs.gone")(one_more)
    with pytest.raises(AttributeError, match="gone"):
        hook.apply()
    assert module.function is identity


def test_a_hook_holds_as_a_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """If its first function fits and its second does not, neither is replaced, and its ``apply`` is not called."""
    module = ModuleType("a_module_of_a_hook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    done: list[str] = []

    def fits(number: int, *, original: Any) -> Any:
        return original(number)

    for second in (with_a_keyword, None):
        module.first, module.second = identity, second  # type: ignore[attr-defined]
        if second is None:
            del module.second
        hook = Hook("halves", apply=lambda: done.append("applied"))
        hook.replaces(f"{module.__name__}:first", f"{module.__name__}:second")(fits)
        with pytest.raises((TypeError, AttributeError)):
            hook.apply()
        assert module.first is identity and not done
    module.second = identity  # type: ignore[attr-defined]
    for _ in range(2):
        hook.apply()
    assert module.first is not identity and done == ["applied", "applied"]
