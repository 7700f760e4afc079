"""Scripts beside the tests that start engines of their own: a process each, which prints what it found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotllm.demo.server import CPU_ENVIRONMENT


def run(
    name: str, *arguments: object, environment: Mapping[str, str] | None = None, timeout_s: float = 600
) -> tuple[Any, str]:
    """What the script ``name`` of this folder printed behind RESULT, and all of its output. Nothing is kept on disk."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name(name)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, **CPU_ENVIRONMENT, "DOTLLM_DISK_BYTES": "0", **(environment or {})},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    return json.loads(line.removeprefix("RESULT ")), done.stdout + done.stderr
