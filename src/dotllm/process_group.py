"""Servers as processes of ours: ending all of one, and what its log says at the end."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group of its own, and all it has started: asked first, then killed."""
    for signum, patience in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            break
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_lines(log: Path, lines: int) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
