"""`dotllm compile` and `dotllm inspect` reject nonsensical arguments in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotllm.cli import compile as compile_command
from dotllm.cli import inspect


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text('{"type": "integer"}')
    return path


@pytest.mark.parametrize(
    "store, said", [("nonsense://x", "nonsense://"), ("plain", "not a URL"), ("redis", "not a URL")]
)
def test_a_store_without_a_transport(schema: Path, store: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert compile_command.main([str(schema), "--tokenizer", "none", "--store", store]) == 2
    written = capsys.readouterr().err
    assert said in written and written.count("\n") == 1


def test_answers_are_no_schemas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "answer.json").write_text('{"name": "Ada"}')
    assert compile_command.main([str(tmp_path), "--tokenizer", "none"]) == 2
    said = capsys.readouterr().err
    assert "1 file is not a schema" in said and "nothing to compile" in said


def test_a_snapshot_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect.main(["--snapshot", str(tmp_path / "page.html")]) == 2
    assert "need a SPEC" in capsys.readouterr().err
