"""Temporary directories live as long as the processes that use them, however these end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MAKE = """
import os, sys
from dotllm.temporary import make_directory

paths = [make_directory("tried") for _ in range(int(sys.argv[1]))]
if sys.argv[2:] == ["fork"] and os.fork():
    os.kill(os.getpid(), 9)
print(*paths, flush=True)
sys.stdin.read()
"""


@contextmanager
def maker(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process that makes directories in ``folder`` and says which; it ends with its input."""
    command = [sys.executable, "-c", MAKE, *(arguments or ("1",))]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process


def made(process: subprocess.Popen[str]) -> list[Path]:
    assert process.stdout is not None
    return [Path(path) for path in process.stdout.readline().split()]


def make_and_end(folder: Path) -> None:
    with maker(folder) as process:
        (path,) = made(process)
        assert path.is_dir()
    assert not path.exists() and process.returncode == 0


def test_what_a_killed_process_leaves_is_removed_by_the_next(tmp_path: Path) -> None:
    with maker(tmp_path, "2") as lives, maker(tmp_path) as killed:
        kept, left = made(lives), made(killed)
        (left[0] / "file").write_text("x")
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        other = tmp_path / "dotllm-another-kind"
        other.mkdir()
        link = tmp_path / "dotllm-tried-link"
        link.symlink_to(other)
        assert left[0].is_dir()
        make_and_end(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([*kept, other, link])
    assert sorted(tmp_path.iterdir()) == [other, link]


def test_a_fork_keeps_what_its_killed_parent_made(tmp_path: Path) -> None:
    with maker(tmp_path, "1", "fork") as parent:
        (path,) = made(parent)
        assert parent.wait() == -signal.SIGKILL
        make_and_end(tmp_path)
        assert path.is_dir()
    # The fork has ended, or is about to: it reads the end of its input.
    while path.exists():
        make_and_end(tmp_path)


def test_processes_that_start_together_take_nothing_from_each_other(tmp_path: Path) -> None:
    with maker(tmp_path, "200") as first, maker(tmp_path, "200") as second:
        paths = [*made(first), *made(second)]
        assert len(set(paths)) == 400 and all(path.is_dir() for path in paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's directory")
def test_another_users_directory_stays(tmp_path: Path) -> None:
    theirs = tmp_path / "dotllm-tried-theirs"
    theirs.mkdir()
    os.chown(theirs, 12345, -1)
    make_and_end(tmp_path)
    assert theirs.is_dir()
