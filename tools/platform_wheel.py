"""Build the wheel of this platform and Python: the wheel of every platform, and the kernels' machine code in it.

    python tools/platform_wheel.py dist                           # for the newest Numba
    python tools/platform_wheel.py dist --numba 0.65.0 --numba 0.66.0

With another Python or Numba the wheel compiles its kernels at the first use, as that of every platform does. At the end
the wheel is installed into an environment of its own, where ``dotllm check`` must not compile anything.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from dist_test import build, environment, run

PLATFORM = "manylinux_2_17_x86_64"
CONSTANTS = "from dotllm.system.shipped_kernels import CPU, FOLDER; print(CPU, FOLDER.name)"
CHECK = """
import sys
from dotllm.cli import main
status = main(["check", "--regex", "[0-9]{4}-[0-9]{2}"])
from dotllm import jit
assert not status and not jit.missing_groups() and not jit._progress._total
"""


def main() -> None:
    """Ends with a message and status 1 where a step fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the wheel goes")
    parser.add_argument("--numba", action="append", metavar="VERSION", help="for this one; may be repeated")
    arguments = parser.parse_args()
    versions = [f"numba=={version}" for version in arguments.numba or []] or ["numba"]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, wheel = build(folder)
        tool = folder / "build" / "bin" / "python"
        run(tool, "-m", "pip", "-q", "install", "wheel")
        run(tool, "-m", "wheel", "unpack", wheel, "--dest", folder)
        (content,) = folder.glob("dotllm-*")
        for number, version in enumerate(versions):
            add_machine_code(content, wheel, version, folder / str(number))
        run(tool, "-m", "wheel", "pack", content, "--dest", folder)
        tags = ["--python-tag", f"cp3{sys.version_info.minor}", "--abi-tag", "none", "--platform-tag", PLATFORM]
        made = run(tool, "-m", "wheel", "tags", *tags, folder / wheel.name).strip()
        path = arguments.folder / made
        path.write_bytes((folder / made).read_bytes())
        print(f"{path}: {path.stat().st_size >> 10} KiB, first check {first_check(path, versions[0], folder):.1f} s")


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
        group.rename(shipped / group.name)


def first_check(wheel: Path, numba: str, folder: Path) -> float:
    """Seconds of the first ``dotllm check`` where ``wheel`` was installed. It must not compile anything."""
    python = environment(folder / "try")
    run(python, "-m", "pip", "-q", "install", wheel.resolve(), numba)
    began = time.monotonic()
    run(python, "-c", CHECK, DOTLLM_CACHE_DIR=str(folder / "fresh"))
    return time.monotonic() - began


if __name__ == "__main__":
    main()
