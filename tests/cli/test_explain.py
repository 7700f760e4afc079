"""``dotllm explain``."""

from __future__ import annotations

import pytest

from dotllm.cli import explain, main
from dotllm.errors import CODES


@pytest.mark.parametrize("code", ["remote_reference", "dotllm.remote_reference"])
def test_a_code(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", code]) == 0
    text = capsys.readouterr().out
    assert text.startswith("`$ref` leads to another document") and "## " not in text
    assert "bundling (https://json-schema.org/" in text and "](" not in text


@pytest.mark.parametrize("code", ["unavailable", "dotllm.unavailable"])
def test_the_code_of_a_503(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There was no such code, and "unsatisfiable" was proposed."""
    assert main(["explain", code]) == 0
    assert "Retry-After" in capsys.readouterr().out


def test_all_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*CODES, "unavailable"]
    assert all(20 < len(line) < 160 and "`" * 3 not in line for line in lines)


def test_a_code_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain.main(["unsuported"]) == 2
    assert 'did you mean "unsupported"?' in capsys.readouterr().err
