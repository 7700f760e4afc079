"""Forks while a thread works: in a separate process, because the child of a fork must not continue the test run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FORK_WHILE_IMPORTING = """
import os, signal, sys, time
from dotllm import system

system.SETTLED_S = 0.2
sys.path.insert(0, sys.argv[1])
system.run_in_background(lambda: __import__("slow"), "imports")
time.sleep(float(sys.argv[2]))
before = time.monotonic()
if (child := os.fork()) == 0:
    signal.alarm(20)
    import slow
    system.run_in_background(lambda: os._exit(slow.VALUE), "works in the child, too")
    time.sleep(30)
waited = time.monotonic() - before
_, status = os.waitpid(child, 0)
__import__("slow")
print(os.waitstatus_to_exitcode(status), waited)
"""


def fork(folder: Path, seconds: float) -> tuple[int, float]:
    """Fork ``seconds`` after the work was asked for: the child's exit code, and how long forking took."""
    (folder / "slow.py").write_text("import time\ntime.sleep(2)\nVALUE = 7\n")
    done = subprocess.run(
        [sys.executable, "-c", FORK_WHILE_IMPORTING, str(folder), str(seconds)],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    code, waited = done.stdout.split()
    return int(code), float(waited)


def test_a_fork_waits_for_work_in_progress(tmp_path: Path) -> None:
    """Otherwise the child would wait forever for a module that no thread imports any more."""
    code, waited = fork(tmp_path, 1.0)
    assert code == 7
    assert 0.5 < waited < 2.5


def test_a_fork_does_not_wait_for_work_that_has_not_begun(tmp_path: Path) -> None:
    """vLLM forks its engine core right after the plugin asks for the work."""
    code, waited = fork(tmp_path, 0.0)
    assert code == 7
    assert waited < 0.5
