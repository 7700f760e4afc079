"""``dotllm doctor``: lists what is installed, what is ready, and what is wrong. Paste its output into a bug report.

    dotllm doctor
    dotllm doctor --quick --tokenizer Qwen/Qwen3-8B

Exit status: 0, all is well; 1, something is wrong, and its line says what to do.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from dotllm import __version__
from dotllm.cli import vllm_metadata
from dotllm.cli.hooks import by_sources
from dotllm.cli.subcommands import CommandParser
from dotllm.system import usable_cpus, user_cache_directory
from dotllm.vllm_plugin import releases

_PACKAGES = ("numpy", "numba", "llvmlite", "referencing", "torch", "transformers", "tokenizers")
_LEAST_FREE = 1 << 30


class Finding(NamedTuple):
    """One line of the output."""

    what: str
    is_well: bool
    text: str
    help: str = ""
    """What to do about it, if something is wrong."""


def main(argv: list[str]) -> int:
    """Print the findings. Status 1 if one of them is not well."""
    parser = CommandParser("doctor", __doc__)
    parser.add_argument("--tokenizer", metavar="MODEL", help="load it: a directory or hub name")
    parser.add_argument("--quick", action="store_true", help="leave out the hooks, for which vLLM's sources are read")
    parser.add_argument("--json", action="store_true", help="print a JSON list")
    arguments = parser.parse_args(argv)
    steps: list[Callable[[], Finding]] = [_versions, _vllm, _kernels, _cache, _cores]
    if arguments.tokenizer:
        steps.append(lambda: _tokenizer(arguments.tokenizer))
    if not arguments.quick and vllm_metadata.vllm_version() is not None:
        steps.append(_hooks)
    findings = []
    for step in steps:
        finding = step()
        findings.append(finding)
        if not arguments.json:
            print("\n".join(_lines(finding)), flush=True)
    if arguments.json:
        print(json.dumps([finding._asdict() for finding in findings], indent=2))
    return int(not all(finding.is_well for finding in findings))


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{'ok' if finding.is_well else 'WRONG':<6} {finding.what:<10} {finding.text}"
    if finding.help:
        yield f"{'':<18}{finding.help}"


def _versions() -> Finding:
    known = []
    for name in _PACKAGES:
        try:
            known.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            known.append(f"no {name}")
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return Finding(
        "versions", True, f"dotllm {__version__}, Python {platform.python_version()}, {', '.join(known)}; {system}"
    )


def _vllm() -> Finding:
    installed = vllm_metadata.vllm_version()
    supported = " and ".join(releases.SUPPORTED)
    if installed is None:
        return Finding("vLLM", True, f"not installed; the engine works without it, `serve` needs {supported}")
    fault = vllm_metadata.fault(installed)
    if fault:
        return Finding("vLLM", False, installed, fault)
    tried = "supported" if vllm_metadata.is_tried(installed) else f"not tried (supported: {supported})"
    return Finding("vLLM", True, f"{installed}, {tried}")


def _kernels() -> Finding:
    from dotllm import jit

    missing = jit.missing_groups()
    if not missing:
        return Finding("kernels", True, f"all {len(jit.SECONDS)} groups are compiled")
    seconds = sum(jit.SECONDS[name] for name in missing)
    return Finding(
        "kernels",
        False,
        f"{len(missing)} of {len(jit.SECONDS)} groups are not compiled",
        f"run `dotllm warmup` (about {seconds} s), or wait as long at the first use",
    )


def _cache() -> Finding:
    directory = user_cache_directory()
    existing = next(path for path in (directory, *directory.absolute().parents) if os.path.exists(path))
    if not os.access(existing, os.W_OK | os.X_OK):
        return Finding("cache", False, f"{directory} cannot be written", "set DOTLLM_CACHE_DIR to a writable directory")
    free = shutil.disk_usage(existing).free
    text = f"{directory}, {_size(directory) >> 20:,} MiB in it, {free / 2**30:,.1f} GiB free"
    help = "" if free >= _LEAST_FREE else "make room, or set DOTLLM_CACHE_DIR to another disk"
    return Finding("cache", not help, text, help)


def _size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _cores() -> Finding:
    return Finding("cores", True, f"{usable_cpus()} usable of {os.cpu_count()}")


def _tokenizer(model: str) -> Finding:
    from dotllm.cli.specifications import vocabulary_of

    try:
        return Finding("tokenizer", True, repr(vocabulary_of(model, None)))
    except (OSError, ValueError, ImportError) as error:
        return Finding("tokenizer", False, model, str(error).splitlines()[0])


def _hooks() -> Finding:
    from dotllm.vllm_plugin import registry

    faults = by_sources()
    failed = [entry for entry, fault in faults.items() if fault]
    text = f"{len(faults) - len(failed)} of {len(faults)} hold"
    names = ", ".join(entry.name for entry in failed)
    return Finding(
        "hooks",
        not any(registry.is_required(entry)[0] for entry in failed),
        text,
        names and f"not: {names}; see `dotllm hooks`",
    )
