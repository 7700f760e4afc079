#!/usr/bin/env python3
"""Prepares, for tests, a vLLM release that has no CPU build for this environment, such as 0.33.

    python tools/release_sources.py 0.33.0 FOLDER       # then: PYTHONPATH=FOLDER python -m pytest …
    python tools/release_sources.py newest FOLDER       # the newest that the package index has

The Python sources are the release's own; the compiled libraries are those of the installed CPU build. Our hooks are in
Python, and the functions of the libraries that vLLM's CPU worker calls seldom change; those of a GPU's worker are not
tested like this. vLLM's Rust front end is included, which needs no GPU and which no CPU build has.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path

from check_hooks import find_wheel, newest

RUST_FRONT_END = "vllm/vllm-rs"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheels", type=Path, default=Path(".cache/wheels"), help="where wheels are kept")
    arguments = parser.parse_args()
    version = newest() if arguments.version == "newest" else arguments.version
    shutil.rmtree(arguments.folder, ignore_errors=True)
    with zipfile.ZipFile(find_wheel(version, arguments.wheels)) as wheel:
        wheel.extractall(arguments.folder, filter(is_source, wheel.namelist()))
    (arguments.folder / RUST_FRONT_END).chmod(0o755)
    for library in installed().rglob("*.so"):
        shutil.copy(library, arguments.folder / "vllm" / library.relative_to(installed()))
    describe(arguments.folder, version)
    return 0


def is_source(name: str) -> bool:
    """Whether a file of the wheel is extracted: neither compiled libraries nor files only for GPUs."""
    foreign = name.startswith("vllm/third_party/") and not name.endswith(".py")
    return name.startswith("vllm/") and not name.endswith(".so") and not foreign


def installed() -> Path:
    """The folder of the installed vLLM; it is not imported."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise SystemExit("vLLM is not installed")
    return Path(spec.origin).parent


def describe(folder: Path, version: str) -> None:
    """Write metadata that tells vLLM and our tests the release, and that it is a CPU build."""
    about = folder / f"vllm-{version}+cpu.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


if __name__ == "__main__":
    sys.exit(main())
