"""The tables of `tests.distribution` are up to date: starting a server twice takes a minute of a core. So is the command
that runs everything."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.conftest import ROOT
from tests.distribution import LONGEST_FIRST, SAME_SERVER

FIXTURES = {
    **dict.fromkeys(("server", "client"), "the plain server"),
    **dict.fromkeys(("api_server", "openai_client", "anthropic_client"), "the server with parsers"),
    **dict.fromkeys(("users_server", "users_client"), "the users' server"),
    "trained_server": "the trained server",
}
"""The server behind each fixture of ``tests/serve/conftest.py``."""


def shared_servers(path: Path) -> set[str]:
    """The servers that the tests and fixtures of a file ask for."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    asking = [one for one in functions if one.name.startswith("test_") or "fixture" in map(_name, one.decorator_list)]
    names = {argument.arg for one in asking for argument in one.args.args if argument.arg not in _parameters(one)}
    return {FIXTURES[name] for name in (names - {one.name for one in functions}) & {*FIXTURES}}


def _parameters(function: ast.FunctionDef) -> set[str]:
    """The names that ``@pytest.mark.parametrize`` sets."""
    marks = [one for one in function.decorator_list if isinstance(one, ast.Call) and _name(one) == "parametrize"]
    return {name for mark in marks for name in re.findall(r"\w+", ast.unparse(mark.args[0]))}


def _name(decorator: ast.expr) -> str:
    """``fixture`` of ``@pytest.fixture(…)``."""
    return ast.unparse(decorator).partition("(")[0].rpartition(".")[2]


def test_files_that_share_a_server_are_one_unit() -> None:
    files = sorted((ROOT / "tests" / "serve").rglob("test_*.py"))
    found = {str(path.relative_to(ROOT)): servers for path in files if (servers := shared_servers(path))}
    assert found == {file: {server} for file, server in SAME_SERVER.items()}


def test_one_command_runs_everything() -> None:
    listed = re.findall(r"^\| `([A-Z_]+)=", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE)
    chosen = re.search(r"^ALL := ((?:.*\\\n)*.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert chosen is not None and sorted(re.findall(r"\b([A-Z_]+)=", chosen[1])) == sorted(listed) != []


def test_what_begins_first_exists() -> None:
    assert not [name for name in LONGEST_FIRST if name not in SAME_SERVER.values() and not (ROOT / name).is_file()]
    assert len({*LONGEST_FIRST}) == len(LONGEST_FIRST)
