"""Hook: one named change to vLLM, what it rests on, and whether it held.

A function of ours that takes the place of one of vLLM's says so where it stands (`Hook.replaces`). What a hook rests on
is data (`Hook.targets`; attributes of vLLM's objects: `vllm_types`), so that ``tools/check_hooks.py`` can compare it
with the source files of any vLLM release without importing it.
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
"""The attribute of a function of vLLM's that says which of ours it has gone through; see `replace_once`."""


class HookError(RuntimeError):
    """A required hook does not fit the installed vLLM; the server must not start, it would not enforce constraints."""


@dataclass(frozen=True)
class Target:
    """Something in vLLM's source that must exist: ``name`` in the file of ``module``.

    ``name`` is a function, a class, or ``Class.member``: a method, or an attribute, declared or assigned on ``self``.
    ``parameters`` are the leading parameter names a function must have; it may have more after them. None: it need not
    be a function.
    """

    module: str
    name: str
    parameters: tuple[str, ...] | None = None


Original = Callable[..., Any]
"""A function of vLLM's, as one of ours that takes its place is given it: by its keyword-only parameter ``original``."""
Replacement = TypeVar("Replacement", bound=Callable[..., Any])


class Hook:
    """One change to vLLM: functions of ours in the place of vLLM's (`replaces`), and what else ``apply`` does."""

    def __init__(
        self,
        name: str,
        summary: str,
        targets: Sequence[Target] = (),
        apply: Callable[[], None] | None = None,
        required: bool = False,
        without_it: str = "",
        where: Callable[[], bool] = lambda: True,
    ) -> None:
        """``targets``: what it rests on beside the functions it replaces. ``without_it``: what a user loses where this
        hook does not hold; where ``required``, the server does not start. ``where``: whether there is a use for it in
        this process; else nothing is changed."""
        self.name, self.summary, self.required, self.without_it = name, summary, required, without_it
        self._needs, self._apply, self._where = tuple(targets), apply, where
        self._replacements: list[tuple[str, str, Original]] = []  # module, name in it, and ours

    def replaces(self, *places: str) -> Callable[[Replacement], Replacement]:
        """A decorator of a function that takes the place of those at ``places`` ("module:Class.function"), each of
        which it is given as ``original``; see `replace_once`."""

        def add(ours: Replacement) -> Replacement:
            for place in places:
                module, name = place.split(":")
                self._replacements.append((module, name, ours))
            return ours

        return add

    @property
    def targets(self) -> tuple[Target, ...]:
        """All that it rests on; a function that is replaced must have the positional parameters that ours names."""
        replaced = (Target(module, name, positional(ours)) for module, name, ours in self._replacements)
        return (*replaced, *self._needs)

    def apply(self) -> None:
        """Make the change; nothing is replaced where one of the functions is not there."""
        if not self._where():
            return
        found = []
        for module, name, ours in self._replacements:
            *owners, function = name.split(".")
            holder: Any = reduce(getattr, owners, importlib.import_module(module))
            getattr(holder, function)
            found.append((holder, function, ours))
        for holder, function, ours in found:
            replace_once(holder, function, ours)
        if self._apply is not None:
            self._apply()


def positional(function: Any) -> tuple[str, ...]:
    """Names of the parameters that ``function`` takes by their place."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _require_that_it_takes(replacement: Any, original: Any) -> None:
    """Raise TypeError if ``replacement`` cannot be called in all the ways in which ``original`` can, or if it must be
    given what ``original`` does not know."""
    ours, theirs = inspect.signature(replacement), inspect.signature(original)
    kind = inspect.Parameter
    # What takes a parameter that is not there by its name; a positional one may be given in more than one way.
    rest: dict[Any, set[Any]] = {
        kind.POSITIONAL_OR_KEYWORD: {kind.VAR_POSITIONAL, kind.VAR_KEYWORD},
        kind.KEYWORD_ONLY: {kind.VAR_KEYWORD},
    }
    kinds, their_kinds = ({p.kind for p in signature.parameters.values()} for signature in (ours, theirs))
    takes_all = all(
        (p.kind in rest and p.name in ours.parameters) or rest.get(p.kind, {p.kind}) <= kinds
        for p in theirs.parameters.values()
    )
    mine, its = positional(replacement), positional(original)
    in_order = mine[: len(its)] == its[: len(mine)]
    further = (ours.parameters[name].default for name in mine[len(its) :])
    is_given_all = kind.VAR_POSITIONAL in their_kinds or all(default is not kind.empty for default in further)
    if not (takes_all and in_order and is_given_all):
        raise TypeError(f"{original.__qualname__} has the parameters {theirs}, what is to replace it has {ours}")


def replace_once(holder: Any, name: str, ours: Any) -> None:
    """Put the function ``ours`` in the place of the function ``holder.name``; nothing if that has been done.

    A copy of ``ours`` takes the place; the function that was there is the default of its parameter ``original``. (So a
    call goes through nothing else, and a coroutine function stays one.) Hooks may be applied more than once. Several
    hooks may replace one function, and a later replacement keeps the marks of the earlier ones. Raises TypeError if
    ``ours`` cannot be called in all the ways in which the function can: some release may call it so. Of a class method
    ``original`` is the function, which takes the class. A function of a module is replaced in those of vLLM's modules,
    too, that have imported it by name.
    """
    class_method = isinstance(inspect.getattr_static(holder, name, None), classmethod)
    original = getattr(holder, name)
    if class_method:
        original = original.__func__
    done: frozenset[str] = getattr(original, REPLACEMENTS, frozenset())
    mark = f"{ours.__module__}.{ours.__qualname__}"
    if mark not in done:
        _require_that_it_takes(ours, original)
        copy = FunctionType(ours.__code__, ours.__globals__, name, ours.__defaults__, ours.__closure__)
        copy.__kwdefaults__ = {**(ours.__kwdefaults__ or {}), "original": original}
        replacement = wraps(original)(copy)
        setattr(replacement, REPLACEMENTS, done | {mark})
        setattr(holder, name, classmethod(replacement) if class_method else replacement)
        for where, module in list(sys.modules.items()) if isinstance(holder, ModuleType) else ():
            if where.startswith("vllm.") and vars(module).get(name) is original:
                setattr(module, name, replacement)
