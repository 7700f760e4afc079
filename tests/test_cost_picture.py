"""README's first screen shows what was measured, and fits a screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import cost_picture

README = (cost_picture.ROOT / "README.md").read_text()


@pytest.mark.parametrize("path", cost_picture.files(), ids=lambda path: path.name)
def test_picture_and_table_are_those_of_the_points(path: Path) -> None:
    assert path.read_text() == cost_picture.files()[path], "python -m tools.cost_picture"


def test_every_set_has_its_row() -> None:
    assert all(f"\n| {name} |" in README for name in cost_picture.SETS)


def test_first_screen() -> None:
    """Up to the first heading behind the quick start."""
    first, _ = README.split("\n## What it takes")
    assert first.count("\n") <= 60
    for part in ("pip install", "dotllm serve", "BaseModel", "OpenAI(", "cost-dark.svg", "Do not use it"):
        assert part in first, part
