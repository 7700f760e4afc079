"""Subcommands end without tracebacks and leave no process running."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dotllm.cli import compile as compile_command
from dotllm.cli import demo
from tests.cases import EVERY
from tests.serve import zygote


def test_python_m_dotllm(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "dotllm", "check", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "dotllm check" in done.stdout


def test_the_demo_names_packages_that_are_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "NEEDS", ("json", "no_such_package"))
    assert demo.main(["--model-only"]) == 2
    assert "not installed: no_such_package" in capsys.readouterr().err


def test_no_package_of_a_name_that_is_not_ours_is_recommended() -> None:
    """Anyone who registers the name "dotllm" could put anything there. Until it is ours, hints say "in a checkout"."""
    root = Path(__file__).parents[2]
    texts = [*root.joinpath("src").rglob("*.py"), *root.joinpath("docs").rglob("*.md"), root / "README.md"]
    assert texts and not [path.name for path in texts if re.search(r"pip install '?\"?dotllm", path.read_text())]


def test_a_bad_setting_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_CACHE_MEMORY_BYTES", "lots")
    assert compile_command.main(["x.json", "--tokenizer", "m"]) == 2
    assert "DOTLLM_CACHE_MEMORY_BYTES" in capsys.readouterr().err


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def ignores_interrupts(pid: int) -> bool:
    """Every process of the pool ignores SIGINT once it has started, since Ctrl-C is its parent's business."""
    ignored = re.search(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGINT - 1) & 1)


def end_a_compile(signum: signal.Signals, status: int, folder: Path, model: Path) -> None:
    """A compile with two processes ends with ``status`` after ``signum``, and its processes end, too."""
    command = [sys.executable, "-m", "dotllm", "compile", str(folder / "many.jsonl"), "--json", "--jobs", "2"]
    options = ["--tokenizer", str(model), "--cache-dir", str(folder / signum.name)]
    log = folder / f"{signum.name}.log"
    with log.open("wb") as output:
        process = zygote.popen([*command, *options], output, {**os.environ, "PYTHONUNBUFFERED": "1"})
    limit = time.monotonic() + 300
    while '"seconds"' not in log.read_text():  # the first result: it is compiling
        assert process.poll() is None and time.monotonic() < limit, log.read_text()
        time.sleep(0.02)
    began = children(process.pid)
    assert len(began) >= 2
    limit = time.monotonic() + 120
    while not all(map(ignores_interrupts, began)):  # until both processes of the pool do so
        assert time.monotonic() < limit
        time.sleep(0.02)
    os.killpg(process.pid, signum) if signum == signal.SIGINT else os.kill(process.pid, signum)
    assert process.wait(600) == status
    limit = time.monotonic() + 60
    while left := [pid for pid in began if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < limit, f"{signum.name}: {left} run on"
        time.sleep(0.1)
    assert "Traceback" not in log.read_text(), signum.name


@pytest.mark.serve  # (its processes are forks of one that has imported vLLM)
def test_a_compile_that_is_ended_leaves_no_process(tmp_path: Path, demo_model: Path) -> None:
    schema = {"type": "object", "properties": {f"k{n}": {"type": "string", "maxLength": n + 1} for n in range(300)}}
    (tmp_path / "many.jsonl").write_text(
        "\n".join(json.dumps({"json_schema": {**schema, "title": str(n)}}) for n in range(400))
    )
    ends = [(signal.SIGINT, 130), (signal.SIGKILL, -9)]  # (SIGINT reaches the whole group)
    if EVERY:
        ends.append((signal.SIGTERM, 143))  # it ends the pool as SIGINT does
    with ThreadPoolExecutor(len(ends)) as threads:
        for end in [threads.submit(end_a_compile, *end, tmp_path, demo_model) for end in ends]:
            end.result()
