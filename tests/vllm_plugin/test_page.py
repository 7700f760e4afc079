"""docs/vllm.md, a keyword, step by step, in docs/architecture.md and the newcomer's test in CONTRIBUTING.md agree with the
code."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from dotllm.vllm_plugin.hook import Hook, Target
from dotllm.vllm_plugin.registry import ENTRIES
from tools import hook_list

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"`([\w/]+\.py): ([\w.]+)`")
POINT = re.compile(r"^(\d+)\. ", re.MULTILINE)


def section(page: Path, heading: str) -> str:
    """The text under ``heading`` in a page, up to the next heading."""
    _, _, rest = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")
    assert rest, f"{page.name} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def points(text: str) -> dict[int, str]:
    """The text of each numbered point."""
    _, *parts = POINT.split(text)
    return {int(number): rest for number, rest in zip(parts[::2], parts[1::2], strict=True)}


def source(file: str) -> Path | None:
    """The file that a page names, or None if it does not exist."""
    package = ROOT / "src" / "dotllm"
    found = [package / "vllm_plugin" / file, package / file]
    if file.startswith("vllm/"):
        spec = importlib.util.find_spec("vllm")
        if spec is None or spec.origin is None:
            pytest.skip("vLLM is not installed")
        found = [Path(spec.origin).parents[1] / file]
    return next((path for path in found if path.is_file()), None)


def fault(file: str, name: str) -> str | None:
    """What is wrong with a place that a page names, or None. ``name``: a class or function, possibly a nested one."""
    path = source(file)
    if path is None:
        return f"no file {file}"
    scope = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in scope if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            return f"{file} has no {name}"
        scope = found.body
    return None


STEP = section(ROOT / "docs" / "vllm.md", "A request, point by point")


KEYWORD = section(ROOT / "docs" / "architecture.md", "A keyword, step by step")


@pytest.mark.parametrize("text", [STEP, KEYWORD], ids=["step", "keyword"])
def test_every_place_exists(text: str) -> None:
    places = PLACE.findall(text)
    assert places and [fault(*place) for place in places if fault(*place)] == []
    named = set(re.findall(r"`[^`\n]*\.py[^`\n]*`", text))
    assert named == {f"`{file}: {name}`" for file, name in places}, "each file is named with a function"


def test_a_step_has_ten_points_each_with_a_place() -> None:
    found = points(STEP)
    assert list(found) == list(range(1, 11))
    assert [number for number, text in found.items() if not PLACE.search(text)] == []


def test_the_newcomer_is_asked_about_each_point() -> None:
    found = points(section(ROOT / "CONTRIBUTING.md", "A newcomer's test"))
    assert list(found) == list(range(1, 11)) and all("?" in text for text in found.values())


def test_a_place_that_is_not_there_is_found_out() -> None:
    assert fault("hook.py", "Hook.replaces.add") is None
    assert fault("index/batch.py", "mask_rows") is None
    assert fault("gone.py", "validate") == "no file gone.py"
    assert fault("hook.py", "Hook.gone") == "hook.py has no Hook.gone"
    assert fault("hook.py", "replaces") == "hook.py has no replaces"


def test_the_list_of_hooks_is_up_to_date() -> None:
    page = hook_list.PAGE.read_text(encoding="utf-8")
    assert page == hook_list.page_with_table(page), "python -m tools.hook_list writes it anew"
    for entry in ENTRIES:
        name = f"**{entry.name}**" if entry.hook().required else f"*{entry.name}*"
        assert f"\n* {name} ({entry.process}): " in page


def test_the_list_names_functions_once_and_no_fields() -> None:
    targets = [
        Target("m", "Manager.begin", ("self",)), Target("n", "Manager.begin", ()), Target("m", "Manager._end", ()),
        Target("m", "free", ()), Target("m", "Manager"), Target("m", "Manager.field"),
    ]  # fmt: skip
    lines = hook_list.lines("one", Hook("a | b", targets, without_it="a <tag>", required=True), "worker").splitlines()
    assert lines == ["* **one** (worker): a | b.", "  Without it: a &lt;tag>.", "  `Manager`: `begin`, `_end`; `free`."]
