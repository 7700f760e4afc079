"""What ``dotllm demo`` says while one waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotllm.cli.demo import Waiting, step


def test_only_a_wait_that_ended_says_how_long_the_next_will_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def waiting() -> Waiting:
        return Waiting("starting", tmp_path / "server.log", tmp_path / "seconds", step)

    interrupted, ended = waiting(), waiting()
    interrupted(12.0)
    ended(34.0)
    assert waiting().last == ""
    ended.end()
    waiting()(10.0)
    first, second, third = capsys.readouterr().out.splitlines()
    assert "starting, 12 s: importing vLLM" in first and "starting, 34 s:" in second
    assert "starting, 10 s (the last time 34 s): importing vLLM" in third
