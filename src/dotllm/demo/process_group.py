"""Ends a server with all the processes that it has started, and reads the last lines of its log."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any


def end_group(process: subprocess.Popen[Any]) -> None:
    """End the whole process group that ``process`` leads: SIGTERM first, SIGKILL after 20 seconds."""
    for signum, patience_s in ((signal.SIGTERM, 20.0), (signal.SIGKILL, 10.0)):
        try:
            os.killpg(process.pid, signum)
        except ProcessLookupError:
            break
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def last_lines(log: Path, lines: int) -> str:
    """The last ``lines`` lines of a log."""
    return "\n".join(log.read_text(errors="replace", encoding="utf-8").splitlines()[-lines:])
