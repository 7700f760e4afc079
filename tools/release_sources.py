#!/usr/bin/env python3
"""A release of vLLM to run tests on that has no CPU build for this environment: 0.33 has none.

    python tools/release_sources.py 0.33.0 FOLDER       # then: PYTHONPATH=FOLDER python -m pytest …

The Python sources are the release's own, the compiled libraries those of the installed CPU build. Our hooks are in
Python, and what vLLM's CPU worker calls of the libraries seldom changes; what a GPU's worker calls is not tried so.
vLLM's Rust front end comes along, which the CPU build of no release has: it needs no GPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

from check_hooks import find_wheel

RUST_FRONT_END = "vllm/vllm-rs"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path(".cache/wheels"), help="where wheels are kept")
    arguments = parser.parse_args()
    shutil.rmtree(arguments.folder, ignore_errors=True)
    with zipfile.ZipFile(find_wheel(arguments.version, arguments.wheels)) as wheel:
        wheel.extractall(arguments.folder, filter(is_source, wheel.namelist()))
    (arguments.folder / RUST_FRONT_END).chmod(0o755)
    for library in installed().rglob("*.so"):
        shutil.copy(library, arguments.folder / "vllm" / library.relative_to(installed()))
    describe(arguments.folder, arguments.version)
    return 0


def is_source(name: str) -> bool:
    """Whether a file of the wheel is taken: no compiled libraries, nor what is for GPUs alone."""
    foreign = name.startswith("vllm/third_party/") and not name.endswith(".py")
    return name.startswith("vllm/") and not name.endswith(".so") and not foreign


def installed() -> Path:
    """The folder of the installed vLLM, which is not imported."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed")
    return Path(spec.origin).parent


def describe(folder: Path, version: str) -> None:
    """Metadata by which vLLM, and our tests, know the release and that it is a CPU build."""
    about = folder / f"vllm-{version}+cpu.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


if __name__ == "__main__":
    sys.exit(main())
