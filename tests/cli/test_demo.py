"""What ``dotllm demo`` says while the user waits."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from dotllm.cli import demo
from dotllm.cli.demo import Waiting, step, steps


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


def test_a_folder_that_cannot_be_made_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--directory", "/proc/nowhere/demo", "--model-only"]) == 2
    said = capsys.readouterr().err
    assert "/proc/nowhere" in said and "--directory" in said and "Traceback" not in said


STARTED = "(APIServer pid=7) INFO 11-29 10:25:41 [model.py:1] Starting"
BEGINS = "(EngineCore pid=9) "


@pytest.mark.parametrize(
    "line",
    [
        BEGINS + "INFO 11-29 10:27:56 [ompmultiprocessing.py:185] \treserved_cpus=[1]",  # more of the line before it
        BEGINS + "WARNING 11-29 10:25:41 [system_utils.py:255] Found ulimit of 20000 and failed to increase it",
        BEGINS + "INFO 11-29 10:25:41 [api_utils.py:347] ",
        "Triton is installed, but doesn't include CPU backend.",
    ],
)
def test_a_step_is_a_message_of_what_is_done(line: str) -> None:
    assert step([STARTED, line]) == "Starting"
    assert step([line, STARTED.replace("(APIServer pid=7) ", "")]) == "Starting"
    assert step([line]) == "importing vLLM"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_step_that_takes_long_shows_its_seconds_on_a_terminal(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stdout", output)
    with steps() as begin:
        begin("fetching")
        limit = time.monotonic() + 60
        while is_terminal and "fetching, 1 s" not in output.getvalue() and time.monotonic() < limit:
            time.sleep(0.05)
        begin("converting")
    shown = [line.rpartition("\033[K")[2] for line in output.getvalue().removesuffix("\n").split("\n")]
    first, second = shown
    if is_terminal:
        assert (
            first.startswith("      fetching, ")
            and not first.endswith(" 0 s")
            and second.startswith("      converting, ")
        )
    else:
        assert shown == ["      fetching", "      converting"]
