"""Build the sdist and the wheel, install each into its own environment, and use it there.

    python tools/dist_test.py             # with the Python that runs it; packages come from your package index

The sdist is built from the tree and the wheel from the sdist, so this test notices a file that the sdist lacks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
IN_WHEEL = (
    "dotllm/py.typed",
    "dotllm/errors.md",
    "dotllm/languages/regex/unicode.txt",
    "dotllm/bench/variants.json",
    "dotllm/inspector/static/index.html",
)
SMOKE = r"""
import importlib.metadata, sys
from importlib.resources import files
import dotllm
assert "site-packages" in dotllm.__file__, dotllm.__file__
assert importlib.metadata.version("dotllm") == dotllm.__version__
assert files("dotllm").joinpath("py.typed").is_file()
from dotllm import Index, UnsupportedError, Vocabulary
words = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [None], eos_token_ids=[256])
guide = Index.from_json_schema({"type": "string", "pattern": r"^\p{Lu}{2}$"}, words).guide()
assert all(guide.advance(byte) for byte in '"ÄB"'.encode()) and guide.advance(256) and guide.is_finished
try:
    Index.from_regex(r"(a+)\1", words)
except UnsupportedError as error:
    assert error.code == "unsupported"
assert not {"torch", "vllm"} & set(sys.modules)
"""


def run(*command: object, **environment: str) -> str:
    """The output of a command that must succeed; it runs outside the repository."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], env=clean | environment, cwd="/", text=True, capture_output=True
    )
    if done.returncode:
        sys.exit(f"{' '.join(str(part) for part in command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def environment(folder: Path) -> Path:
    """The Python of a new virtual environment."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def build(folder: Path) -> list[Path]:
    """[Sdist, wheel that was built from it]."""
    python = environment(folder / "build")
    run(python, "-m", "pip", "-q", "install", "build")
    run(python, "-m", "build", "--outdir", folder / "dist", ROOT)
    return sorted((folder / "dist").iterdir(), key=lambda path: path.suffix == ".whl")


def main() -> None:
    """Ends with a message and status 1 if something is missing or fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        distributions = build(folder)
        with zipfile.ZipFile(distributions[-1]) as wheel:
            names = set(wheel.namelist())
        if missing := [file for file in IN_WHEEL if file not in names]:
            sys.exit(f"not in the wheel: {', '.join(missing)}")
        for path in distributions:
            python = environment(folder / f"try-{path.suffix[1:]}")
            run(python, "-m", "pip", "-q", "install", path)
            run(python, "-c", SMOKE)
            version = run(python.with_name("dotllm"), "--version").strip()
            run(python.with_name("dotllm"), "check", "--regex", "[0-9]{4}")
            run(python.with_name("dotllm"), "explain", "unsatisfiable")
            print(f"{path.name}: {path.stat().st_size // 1024} KiB, {version}, installed and used")


if __name__ == "__main__":
    main()
