"""README's first screen shows the measurements, and fits a screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import cost_picture

README = (cost_picture.ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", cost_picture.files(), ids=lambda path: path.name)
def test_picture_and_table_are_those_of_the_points(path: Path) -> None:
    assert path.read_text() == cost_picture.files()[path], "python -m tools.cost_picture"


def test_every_set_has_its_row() -> None:
    assert all(f"\n| {name} |" in README for name in cost_picture.ROWS)
    assert f"\n{cost_picture.WORST}\n" in README


def test_no_figure_but_those_of_the_points() -> None:
    """Any other ratio could be a favourable one, picked from many."""
    lines = README.split("\n")
    written = {line for line in lines if line.startswith(tuple(f"| {name} |" for name in cost_picture.ROWS))}
    written.add(lines[lines.index(cost_picture.WORST) + 1])
    releases = r"\b(0[.]3[23]|3[.]\d\d)\b|\d+[.]\d\d %"  # vLLM and Python releases; shares
    said = [line for line in lines if re.search(r"\b[0-3][.]\d\d\b", re.sub(releases, "", line))]
    assert [line for line in said if line not in written] == []


def test_a_range_holds_every_point() -> None:
    row = cost_picture.ROWS["8B, real schemas"]
    points = [
        cost_picture.Point(row, "dotllm", requests, ratio, "x") for requests in (1, 32, 256) for ratio in (1.1, 1, 1.3)
    ]
    assert cost_picture.cell(points, row, "dotllm") == " / ".join(["1.00–1.30"] * 3)
    assert cost_picture.cell(points[:-3], row, "dotllm") == cost_picture.cell([], row, "dotllm") == "-"


def test_readme_is_short() -> None:
    """Installation, a request and restrictions come before the first heading. All of it takes five minutes to read."""
    first, _ = README.split("\n## What a constraint costs")
    assert first.count("\n") <= 48 and README.count("\n") <= 152
    for part in ("pip install", "dotllm serve", "BaseModel", "OpenAI(", "make demo", "Do not use it"):
        assert part in first, part
