"""The package reads and writes text as UTF-8, whatever the locale: its sources have characters beyond ASCII."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCES = Path(__file__).parent.parent / "src"
BINARY = {"rb", "wb", "ab", "xb", "a+b", "r+b", "w+b", "x+b"}
NOT_OF_TEXT = {"os.open", "webbrowser.open", "SharedStore.open"}


def without_encoding(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls that read or write text in the locale's encoding."""
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or any(keyword.arg == "encoding" for keyword in call.keywords):
            continue
        name = ast.unparse(call.func)
        constants = {argument.value for argument in call.args if isinstance(argument, ast.Constant)}
        opens = (name == "open" or name.endswith(".open")) and name not in NOT_OF_TEXT and not constants & BINARY
        if opens or name.endswith(".write_text") or (name.endswith(".read_text") and not call.args):
            yield call


def test_every_text_file_has_its_encoding() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{call.lineno}"
        for path in sorted(SOURCES.rglob("*.py"))
        for call in without_encoding(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert not found


def test_a_locale_of_ascii_checks_a_schema(tmp_path: Path) -> None:
    schema = tmp_path / "città.json"
    schema.write_text('{"properties": {"città": {"type": "string", "maxLength": 5}}}', encoding="utf-8")
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "dotllm", "check", str(schema)]
    done = subprocess.run(command, env={**os.environ, **plain}, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "enforced" in done.stdout and not done.stderr
