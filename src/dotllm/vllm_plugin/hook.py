"""Hook: one change to vLLM, what it depends on, and whether it holds.

A dotllm function that replaces a vLLM function says so at its definition (`Hook.replaces`). The functions that a hook
depends on are data (`Hook.targets`; `vllm_types` has the attributes of vLLM's objects), so `dotllm.cli.hook_sources`
can compare a hook with the source files of any vLLM release without importing the release.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from types import FunctionType, ModuleType
from typing import Any, TypeVar

REPLACEMENTS = "dotllm_replacements"
"""The attribute of a replaced vLLM function that names its replacements; see `replace_once`."""


class HookError(RuntimeError):
    """A required hook does not fit the installed vLLM. The server must not start: it would not enforce constraints."""


@dataclass(frozen=True)
class Target:
    """Something in vLLM's source that must exist: ``name`` in the file of ``module``.

    ``name`` is a function, a class, or ``Class.member``: a method, or an attribute that is declared or assigned on
    ``self``. ``parameters`` are the leading parameter names a function must have; it may have more after them. None:
    the target need not be a function."""

    module: str
    name: str
    parameters: tuple[str, ...] | None = None


Original = Callable[..., Any]
"""A vLLM function as its replacement receives it: in the keyword-only parameter ``original``."""

Replacement = TypeVar("Replacement", bound=Callable[..., Any])


class Hook:
    """One change to vLLM: functions of ours that replace vLLM's (`replaces`), and what else ``apply`` does."""

    def __init__(
        self,
        summary: str,
        targets: Sequence[Target] = (),
        apply: Callable[[], None] | None = None,
        required: bool = False,
        without_it: str = "",
        where: Callable[[], bool] = lambda: True,
    ) -> None:
        """``targets``: what the hook depends on, apart from the functions it replaces. ``without_it``: what the user
        loses if it does not hold; if it is ``required``, the server then does not start. ``where``: whether the hook is
        useful in this process; if not, it changes nothing."""
        self.summary, self.required, self.without_it = summary, required, without_it
        self._needs, self._apply, self._where = tuple(targets), apply, where
        self.replacements: list[tuple[str, str, Original]] = []
        """For each replaced function: its module, its name in the module, and our function."""

    def replaces(self, *places: str) -> Callable[[Replacement], Replacement]:
        """A decorator: the function replaces those at ``places`` ("module:Class.function"), and receives the replaced
        one as ``original``; see `replace_once`."""

        def add(ours: Replacement) -> Replacement:
            for place in places:
                module, name = place.split(":")
                self.replacements.append((module, name, ours))
            return ours

        return add

    @property
    def targets(self) -> tuple[Target, ...]:
        """All that the hook depends on. A replaced function must have the positional parameters that ours names."""
        replaced = (Target(module, name, positional(ours)) for module, name, ours in self.replacements)
        return (*replaced, *self._needs)

    def check(self) -> list[tuple[Any, str, Original]]:
        """The replacements: the holder, the function's name in it, and our function. Raises if a function is missing or
        ours does not fit it. (A process also checks the hooks of another process that must accept what it sends.)"""
        result = []
        for module, name, ours in self.replacements:
            *owners, function = name.split(".")
            holder: Any = reduce(getattr, owners, importlib.import_module(module))
            require_that_it_fits(holder, function, ours)
            result.append((holder, function, ours))
        return result

    def apply(self) -> None:
        """Make the change. If `check` raises, nothing is replaced."""
        if not self._where():
            return
        replacements = self.check()
        if self._apply is not None:
            self._apply()
        for holder, function, ours in replacements:
            replace_once(holder, function, ours)


def positional(function: Any) -> tuple[str, ...]:
    """Names of the parameters that ``function``, or a function with this signature, takes by position."""
    signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
    return tuple(
        p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def misfit(ours: inspect.Signature, theirs: inspect.Signature) -> str:
    """Why a function of ours cannot be called in every way that vLLM's can, or requires an argument that vLLM's does
    not take; "" if it fits."""
    kind = inspect.Parameter
    # The kinds that accept a parameter that ours does not name; a positional one may arrive in more than one way.
    rest: dict[Any, set[Any]] = {
        kind.POSITIONAL_OR_KEYWORD: {kind.VAR_POSITIONAL, kind.VAR_KEYWORD},
        kind.KEYWORD_ONLY: {kind.VAR_KEYWORD},
    }
    kinds, their_kinds = ({p.kind for p in signature.parameters.values()} for signature in (ours, theirs))
    takes_all = all(
        (p.kind in rest and p.name in ours.parameters) or rest.get(p.kind, {p.kind}) <= kinds
        for p in theirs.parameters.values()
    )
    mine, its = positional(ours), positional(theirs)
    in_order = mine[: len(its)] == its[: len(mine)]
    further = (ours.parameters[name].default for name in mine[len(its) :])
    is_given_all = kind.VAR_POSITIONAL in their_kinds or all(default is not kind.empty for default in further)
    fits = takes_all and in_order and is_given_all
    return "" if fits else f"has the parameters {theirs}, its replacement has {ours}"


def _mark(ours: Any) -> str:
    return f"{ours.__module__}.{ours.__qualname__}"


def require_that_it_fits(holder: Any, name: str, ours: Any) -> tuple[Any, frozenset[str]]:
    """The function ``holder.name``, and the marks of its replacements. Raises TypeError for a `misfit`, unless ``ours``
    has replaced it."""
    original = getattr(holder, name)
    if isinstance(inspect.getattr_static(holder, name, None), classmethod):
        original = original.__func__
    done: frozenset[str] = getattr(original, REPLACEMENTS, frozenset())
    if _mark(ours) not in done and (why := misfit(inspect.signature(ours), inspect.signature(original))):
        raise TypeError(f"{original.__qualname__} {why}")
    return original, done


def replace_once(holder: Any, name: str, ours: Any) -> None:
    """Replace the function ``holder.name`` with ``ours``, unless that has been done.

    The replacement is a copy of ``ours`` whose parameter ``original`` defaults to the replaced function. (So a call
    goes through nothing else, and a coroutine function stays one.) Hooks may be applied more than once. Several hooks
    may replace one function, and a later replacement keeps the marks of the earlier ones. Raises TypeError if ``ours``
    cannot be called in every way that the function can: some release may call it that way. For a class method,
    ``original`` is the function, which takes the class. A module's function is also replaced in the vLLM modules that
    have imported it by name."""
    original, done = require_that_it_fits(holder, name, ours)
    if _mark(ours) not in done:
        class_method = isinstance(inspect.getattr_static(holder, name, None), classmethod)
        copy = FunctionType(ours.__code__, ours.__globals__, name, ours.__defaults__, ours.__closure__)
        copy.__kwdefaults__ = {**(ours.__kwdefaults__ or {}), "original": original}
        replacement = wraps(original)(copy)
        setattr(replacement, REPLACEMENTS, done | {_mark(ours)})
        setattr(holder, name, classmethod(replacement) if class_method else replacement)
        for where, module in list(sys.modules.items()) if isinstance(holder, ModuleType) else ():
            if where.startswith("vllm.") and vars(module).get(name) is original:
                setattr(module, name, replacement)
