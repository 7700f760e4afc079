"""The examples that need no server run, and none is longer than a screen."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALL = sorted(EXAMPLES.glob("*.py"))
WITH_SERVER = [path for path in ALL if "OPENAI_BASE_URL" in path.read_text()]

pytest.importorskip("transformers")


@pytest.mark.parametrize("path", [path for path in ALL if path not in WITH_SERVER], ids=lambda path: path.name)
def test_runs(
    path: Path, demo_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TOKENIZER", str(demo_model))
    monkeypatch.setattr(
        sys, "argv", [str(path), *([str(demo_model)] if path.name == "transformers_generate.py" else [])]
    )
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_fits_a_screen(path: Path) -> None:
    assert path.read_text().count("\n") <= 60
    assert path.read_text().startswith('"""')
    assert sys.modules.get(path.stem) is None or path.stem == "loop"  # an example shadows no module
