"""Threads import parts of dotllm first, at the same time (see `dotllm.exports`)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import dotllm
from tests.cases import EVERY

ROOT = Path(dotllm.__file__).parent
ALLOWED = {"dotllm": {"dotllm._version", "dotllm.allowed_plugins"}, "dotllm.cli": {"dotllm.cli.subcommands"}}
"""Modules that no thread imports before their package."""


def test_no_package_imports_its_own_modules() -> None:
    for path in ROOT.rglob("__init__.py"):
        package = ".".join(["dotllm", *path.parent.relative_to(ROOT).parts])
        imported = {
            node.module
            for node in ast.parse(path.read_text()).body  # top level only: not in functions, not for type checkers
            if isinstance(node, ast.ImportFrom) and node.module and f"{node.module}.".startswith(f"{package}.")
        }
        assert imported <= ALLOWED.get(package, set()), package


FIRST = [
    "from dotllm import Index, Vocabulary",
    "from dotllm import Guide",
    "from dotllm import Compiler",
    "from dotllm.numpy import fill_next_token_bitmask",
    "import dotllm.index",
    "import dotllm.index.index",
    "from dotllm.compilation import CompilationManager",
    "from dotllm.languages.json_schema import json_schema_to_grammar",
    "from dotllm.languages.regex.parser import parse",
]
PROGRAM = """
import sys, threading
barrier, failed = threading.Barrier(len(sys.argv) - 1), []
def run(line):
    barrier.wait()
    try:
        exec(line)
    except BaseException as error:
        failed.append((line, repr(error)))
threads = [threading.Thread(target=run, args=(line,)) for line in sys.argv[1:]]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(repr(failed) if failed else 0)
"""


@pytest.mark.parametrize(
    "lines", [*(FIRST[row : row + 3] for row in (0, 3, 6)), *(FIRST[n::3] for n in range(3 if EVERY else 0))]
)
def test_threads_import_at_once(lines: list[str]) -> None:
    """Three threads each, so three processes load each module, and six cover half of all pairs. Each takes three
    seconds, for the kernels."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *lines], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_a_name_that_does_not_exist() -> None:
    import dotllm.index

    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        dotllm.index.nonsense  # noqa: B018
    assert {"Guide", "GrammarIndex"} <= {*dir(dotllm.index)}
