"""Whether hooks fit vLLM's source files, which are read as syntax trees: no part of vLLM is imported or run.

Applying all hooks imports vLLM, which takes ten seconds of a core. The files give the same answers in one second:
whether each function exists, and whether it takes the same arguments as our replacement (`hook.misfit`).
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path

from dotllm.vllm_plugin.hook import Hook, Original, Target, misfit

OTHERS = ("llvmlite", "prometheus_client")
"""Packages other than vLLM that hooks change."""

Source = Callable[[str], str | None]
"""Module name → its source text; None if the module does not exist."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.ClassDef | Function


def installed_source() -> Source:
    """The modules of the installed vLLM, found without importing it."""
    spec = importlib.util.find_spec("vllm")
    root = Path(spec.origin).parents[1] if spec is not None and spec.origin is not None else None

    def read(module: str) -> str | None:
        path = Path() if root is None else root / module.replace(".", "/")
        files = (path.with_suffix(".py"), path / "__init__.py") if root is not None else ()
        return next((file.read_text(encoding="utf-8") for file in files if file.is_file()), None)

    return read


def faults_of(hook: Hook, source: Source) -> list[str]:
    """What a release lacks for ``hook``, in words; empty if the hook fits."""
    faults = [fault_of(target, source) for target in hook.targets]
    if not any(faults):
        faults = [_misfit(*replaced, source) for replaced in hook.replacements]
    return [fault for fault in faults if fault]


def fault_of(target: Target, source: Source) -> str | None:
    """What is wrong with one target, or None."""
    if target.module.partition(".")[0] in OTHERS:
        return None
    text = source(target.module)
    if text is None:
        return f"no module {target.module}"
    place = f"{target.module}.{target.name}"
    *owners, leaf = target.name.split(".")
    scope = parse(text).body
    for owner in owners:
        node = definition(scope, owner)
        if not isinstance(node, ast.ClassDef):
            return f"no class {owner} for {place}"
        scope = node.body
    node = definition(scope, leaf)
    if node is None and (not owners or target.parameters is not None or not has_attribute(scope, leaf)):
        return f"no {place}"
    if target.parameters is not None:
        if not isinstance(node, Function):
            return f"{place} is a class, not a function"
        arguments = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
        if tuple(arguments[: len(target.parameters)]) != target.parameters:
            return f"{place} takes ({', '.join(arguments)}), expected ({', '.join(target.parameters)}, …)"
    return None


def _misfit(module: str, name: str, ours: Original, source: Source) -> str | None:
    """Why ``ours`` cannot replace the function ``name`` of ``module``, which exists; None if it can."""
    text = source(module)
    scope = parse(text).body if text else []
    node: Definition | None = None
    for part in name.split("."):
        node = definition(scope, part)
        scope = node.body if node else []
    if not isinstance(node, Function):  # the module belongs to one of `OTHERS`
        return None
    why = misfit(inspect.signature(ours), signature_of(node))
    return f"{module}.{name} {why}" if why else None


def signature_of(function: Function) -> inspect.Signature:
    """The parameters of a function; its defaults and annotations as source text."""
    kind, given = inspect.Parameter, function.args
    by_place = [
        *((argument, kind.POSITIONAL_ONLY) for argument in given.posonlyargs),
        *((argument, kind.POSITIONAL_OR_KEYWORD) for argument in given.args),
    ]
    without = [None] * (len(by_place) - len(given.defaults))
    parameters: list[tuple[ast.arg, inspect._ParameterKind, ast.expr | None]] = [
        (*pair, default) for pair, default in zip(by_place, [*without, *given.defaults], strict=True)
    ]
    if given.vararg:
        parameters.append((given.vararg, kind.VAR_POSITIONAL, None))
    parameters += [
        (argument, kind.KEYWORD_ONLY, default)
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parameters.append((given.kwarg, kind.VAR_KEYWORD, None))
    return inspect.Signature(
        [
            kind(argument.arg, its, default=kind.empty if default is None else Text(ast.unparse(default)))
            for argument, its, default in parameters
        ]
    )


class Text(str):
    """Source text, printed without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def definition(scope: list[ast.stmt], name: str) -> Definition | None:
    """The class or function ``name`` defined directly in ``scope`` (the last one, as Python binds it)."""
    for node in reversed(scope):
        if isinstance(node, Definition) and node.name == name:
            return node
    return None


def has_attribute(body: list[ast.stmt], name: str) -> bool:
    """Whether a class declares ``name``, or assigns ``self.name`` in one of its methods."""
    for node in (node for statement in body for node in ast.walk(statement)):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                if isinstance(target, ast.Attribute) and target.attr == name:
                    return True
                if isinstance(target, ast.Name) and target.id == name and node in body:
                    return True
    return False


@functools.cache
def parse(text: str) -> ast.Module:
    """The syntax tree of a module (several targets share one)."""
    return ast.parse(text)
