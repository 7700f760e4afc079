"""A command loads only what it needs: Numba takes 0.4 s, our kernels 1.5 s, torch 2 s and vLLM 10 s."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("numpy", "numba", "torch", "transformers", "vllm")
HAS_VLLM = importlib.util.find_spec("vllm") is not None
CODE = """
import json, sys
from dotllm.cli import main
arguments, heavy = map(json.loads, sys.argv[1:])
try:
    status = main(arguments)
except SystemExit as end:
    status = end.code
print("\\n" + json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


def loaded(*arguments: str, before: str = "") -> tuple[int, list[str]]:
    """The status of a command, and which modules of `HEAVY` it has loaded."""
    command = [sys.executable, "-c", before + CODE, json.dumps(arguments), json.dumps(HEAVY)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    status, names = json.loads(said.splitlines()[-1])
    return status, names


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["check", "missing.json"], 2),
        (["check", "--help"], 0),
        (["explain", "unsatisfiable"], 0),
        (["--help"], 0),
        (["--version"], 0),
        (["sevre"], 2),
        (["demo", "--help"], 0),
        (["compile", "--help"], 0),
        (["inspect", "--help"], 0),
        (["hooks", "--help"], 0),
        (["doctor", "--help"], 0),
        (["bench-structured", "--help"], 0),
        (["bench-quality", "--help"], 0),
    ],
)
def test_words_load_nothing(arguments: list[str], status: int) -> None:
    if arguments == ["sevre"] and not HAS_VLLM:
        pytest.skip("vLLM is not installed")
    assert loaded(*arguments) == (status, [])


def test_a_check_loads_no_torch(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"type": "integer"}')
    status, names = loaded("check", str(file))
    assert status == 0 and names == ["numpy", "numba"]


@pytest.mark.serve
@pytest.mark.parametrize(("command", "most"), [("hooks", {"numpy"}), ("doctor", {"numpy", "numba"})])
def test_hooks_are_read_not_imported(command: str, most: set[str]) -> None:
    assert set(loaded(command)[1]) <= most


@pytest.mark.serve
def test_the_plugin_loads_before_the_kernels() -> None:
    """vLLM loads plugins first, in each of its processes; a thread loads kernels while vLLM reads the model."""
    code = "import sys\nfrom dotllm.vllm_plugin import registry\nprint([n for n in ('numba', 'torch') if n in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"


@pytest.mark.serve
def test_nothing_is_loaded_before_vllm_reads_the_arguments() -> None:
    """``dotllm serve --help`` takes no longer than vLLM's own."""
    before = """
import sys, types
main = types.ModuleType("vllm.entrypoints.cli.main")
for name in ("vllm", "vllm.entrypoints", "vllm.entrypoints.cli"):
    sys.modules[name] = types.ModuleType(name)
main.main = lambda: print(sorted(n for n in ("numpy", "numba", "torch", "dotllm.jit") if n in sys.modules))
sys.modules[main.__name__] = main
from dotllm.cli import vllm_metadata
vllm_metadata.vllm_commands = lambda: ["serve"]
vllm_metadata.vllm_version = lambda: "0.32.0"
"""
    command = [sys.executable, "-c", before + CODE, json.dumps(["serve", "--help"]), "[]"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[-3:] == ["[]", "", "[0, []]"]
