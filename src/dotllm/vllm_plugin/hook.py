"""Hook: one named change to vLLM, what it rests on, and whether it held.

A function of dotllm's that replaces one of vLLM's says so in place (`Hook.replaces`). The functions that a hook rests
on are data (`Hook.targets`; attributes of vLLM's objects: `vllm_types`), so that `dotllm.cli.hook_sources` can compare
it with the source files of any vLLM release without importing it.
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
        """``targets``: what it rests on in addition to the functions it replaces. ``without_it``: the user's loss if
        this hook does not hold; if ``required``, the server does not start. ``where``: whether it is of use in this
        process; if not, nothing is changed."""
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
    def replacements(self) -> tuple[tuple[str, str, Original], ...]:
        """Module and name in it of each function that is replaced, and ours."""
        return tuple(self._replacements)

    @property
    def targets(self) -> tuple[Target, ...]:
        """All that it rests on; a function that is replaced must have the positional parameters that ours names."""
        replaced = (Target(module, name, positional(ours)) for module, name, ours in self._replacements)
        return (*replaced, *self._needs)

    @property
    def replaced(self) -> list[str]:
        """The functions that it replaces, as ``module:Class.function``."""
        return [f"{module}:{name}" for module, name, _ in self._replacements]

    def check(self) -> list[tuple[Any, str, Original]]:
        """The replacements: the holder, the function's name in it, and ours. Raises if a function is missing, or is not
        as ours needs it. (Also in a process that only sends data that another process must take.)"""
        found = []
        for module, name, ours in self._replacements:
            *owners, function = name.split(".")
            holder: Any = reduce(getattr, owners, importlib.import_module(module))
            require_that_it_fits(holder, function, ours)
            found.append((holder, function, ours))
        return found

    def apply(self) -> None:
        """Make the change; nothing is replaced where `check` raises."""
        if not self._where():
            return
        found = self.check()
        if self._apply is not None:
            self._apply()
        for holder, function, ours in found:
            replace_once(holder, function, ours)


def positional(function: Any) -> tuple[str, ...]:
    """Names of the parameters that ``function`` takes by their place."""
    return positional_of(inspect.signature(function))


def positional_of(signature: inspect.Signature) -> tuple[str, ...]:
    """Names of the parameters of ``signature`` that are taken by their place."""
    return tuple(
        p.name for p in signature.parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    )


def misfit(ours: inspect.Signature, theirs: inspect.Signature) -> str:
    """Why a function of ours cannot be called in all the ways in which vLLM's can, or must be given what vLLM's does
    not know; "" if it takes all."""
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
    mine, its = positional_of(ours), positional_of(theirs)
    in_order = mine[: len(its)] == its[: len(mine)]
    further = (ours.parameters[name].default for name in mine[len(its) :])
    is_given_all = kind.VAR_POSITIONAL in their_kinds or all(default is not kind.empty for default in further)
    fits = takes_all and in_order and is_given_all
    return "" if fits else f"has the parameters {theirs}, what is to replace it has {ours}"


def _require_that_it_takes(replacement: Any, original: Any) -> None:
    """Raise TypeError for a `misfit`."""
    if why := misfit(inspect.signature(replacement), inspect.signature(original)):
        raise TypeError(f"{original.__qualname__} {why}")


def _original(holder: Any, name: str, ours: Any) -> tuple[Any, bool, frozenset[str]]:
    """The function ``holder.name``, whether ``ours`` has replaced it, and the marks of all that have."""
    original = getattr(holder, name)
    if isinstance(inspect.getattr_static(holder, name, None), classmethod):
        original = original.__func__
    done: frozenset[str] = getattr(original, REPLACEMENTS, frozenset())
    return original, _mark(ours) in done, done


def _mark(ours: Any) -> str:
    return f"{ours.__module__}.{ours.__qualname__}"


def require_that_it_fits(holder: Any, name: str, ours: Any) -> None:
    """Raise what `replace_once` would raise, and change nothing."""
    original, is_done, _ = _original(holder, name, ours)
    if not is_done:
        _require_that_it_takes(ours, original)


def replace_once(holder: Any, name: str, ours: Any) -> None:
    """Put the function ``ours`` in the place of the function ``holder.name``; nothing if that has been done.

    A copy of ``ours`` takes the place; the function that was there is the default of its parameter ``original``. (So a
    call goes through nothing else, and a coroutine function stays one.) Hooks may be applied more than once. Several
    hooks may replace one function, and a later replacement keeps the marks of the earlier ones. Raises TypeError if
    ``ours`` cannot be called in all the ways in which the function can: some release may call it so. Of a class method
    ``original`` is the function, which takes the class. A function of a module is replaced in those of vLLM's modules,
    too, that have imported it by name.
    """
    original, is_done, done = _original(holder, name, ours)
    if not is_done:
        class_method = isinstance(inspect.getattr_static(holder, name, None), classmethod)
        _require_that_it_takes(ours, original)
        copy = FunctionType(ours.__code__, ours.__globals__, name, ours.__defaults__, ours.__closure__)
        copy.__kwdefaults__ = {**(ours.__kwdefaults__ or {}), "original": original}
        replacement = wraps(original)(copy)
        setattr(replacement, REPLACEMENTS, done | {_mark(ours)})
        setattr(holder, name, classmethod(replacement) if class_method else replacement)
        for where, module in list(sys.modules.items()) if isinstance(holder, ModuleType) else ():
            if where.startswith("vllm.") and vars(module).get(name) is original:
                setattr(module, name, replacement)
