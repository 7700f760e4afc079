"""Build the wheel for this platform and Python: the wheel for every platform plus the kernels' machine code.

    python tools/platform_wheel.py dist                           # for vLLM's Numba and the newest
    python tools/platform_wheel.py dist --numba 0.65.0 --numba 0.66.0

With another Python or Numba, the wheel compiles its kernels at the first use, like the wheel for every platform. There
are two versions of Numba, because vLLM pins one and the engine alone gets the newest. At the end the wheel is installed
with each version into its own environment, where ``dotllm check`` must not compile anything.
"""

from __future__ import annotations

import argparse
import platform
import re
import sys
import tempfile
from pathlib import Path

from dist_test import ROOT, build, environment, run

PLATFORM = "manylinux_2_17_x86_64"
CONSTANTS = "from dotllm.shipped_kernels import CPU, FOLDER; print(CPU, FOLDER.name)"
CHECK = """
import time
began = time.perf_counter()
from dotllm.cli import main
from numba.core import compiler
def compile_extra(*_, **of):
    raise AssertionError(f"compiled: {of}")
compiler.compile_extra = compile_extra
status = main(["check", "--regex", "[0-9]{4}-[0-9]{2}"])
seconds = time.perf_counter() - began
from dotllm import jit
from dotllm.compilation.compiler import prepare
prepare()  # imports all kernels
assert not status and not jit.missing_groups()
print(seconds)
"""


def main() -> None:
    """Ends with a message and status 1 if a step fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the wheel goes")
    parser.add_argument("--numba", action="append", metavar="VERSION", help="for this one; may be repeated")
    arguments = parser.parse_args()
    if platform.machine() != "x86_64":
        sys.exit(f"machine code is shipped for x86-64 alone, not for {platform.machine()}: use the other wheel there")
    versions = [f"numba=={version}" for version in arguments.numba or []] or [vllm_numba(), "numba"]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, wheel = build(folder)
        tool = folder / "build" / "bin" / "python"
        run(tool, "-m", "pip", "-q", "install", "wheel")
        run(tool, "-m", "wheel", "unpack", wheel, "--dest", folder)
        (content,) = folder.glob("dotllm-*")
        for number, version in enumerate(versions):
            say(f"compiling all kernels with {version}")
            add_machine_code(content, wheel, version, folder / f"make-{number}")
        run(tool, "-m", "wheel", "pack", content, "--dest", folder)
        tags = ["--python-tag", f"cp3{sys.version_info.minor}", "--abi-tag", "none", "--platform-tag", PLATFORM]
        made = run(tool, "-m", "wheel", "tags", *tags, folder / wheel.name).strip()
        path = arguments.folder / made
        path.write_bytes((folder / made).read_bytes())
        say(f"{path}: {path.stat().st_size >> 10} KiB")
        for number, version in enumerate(versions):
            say(f"{version}: first check {first_check(path, version, folder / f'try-{number}'):.1f} s")


def vllm_numba() -> str:
    """The requirement of the Numba that vLLM needs, from ``requirements/cpu.txt``."""
    (line,) = re.findall("^numba==.*", (ROOT / "requirements" / "cpu.txt").read_text(), re.MULTILINE)
    return str(line)


def say(line: str) -> None:
    print(line, flush=True)


def add_machine_code(content: Path, wheel: Path, numba: str, folder: Path) -> None:
    """Install ``wheel`` with ``numba``, compile all kernels, and put them into the unpacked wheel ``content``."""
    python = environment(folder)
    run(python, "-m", "pip", "-q", "install", wheel, numba)
    cpu, place = run(python, "-c", CONSTANTS).split()
    cache = folder / "cache"
    run(python, "-m", "dotllm", "warmup", NUMBA_CPU_NAME=cpu, NUMBA_CPU_FEATURES="", DOTLLM_CACHE_DIR=str(cache))
    shipped = content / "dotllm" / place
    shipped.mkdir(exist_ok=True)
    for group in (cache / "kernels").iterdir():
        (group / "lock").unlink(missing_ok=True)
        if not (shipped / group.name).exists():  # vLLM's Numba may be the newest
            group.rename(shipped / group.name)


def first_check(wheel: Path, numba: str, folder: Path) -> float:
    """Seconds of the first ``dotllm check`` after installing ``wheel``. It must not compile anything."""
    python = environment(folder)
    run(python, "-m", "pip", "-q", "install", wheel.resolve(), numba)
    return float(run(python, "-c", CHECK, DOTLLM_CACHE_DIR=str(folder / "fresh")).split()[-1])


if __name__ == "__main__":
    main()
