"""Runs the scripts that start engines of their own, each in a separate process; they print their results."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dotllm.demo.server import CPU_ENVIRONMENT
from tests.conftest import SERVER_PATIENCE_S
from tests.serve import zygote


def run(
    name: str,
    *arguments: object,
    environment: Mapping[str, str] | None = None,
    timeout_s: float = SERVER_PATIENCE_S,
    imports_vllm_itself: bool = False,
) -> tuple[Any, str]:
    """What the script ``name`` of this folder printed after RESULT, and all its output. Nothing is kept on disk.

    With the V2 model runner, set ``imports_vllm_itself``: Triton's interpreter is chosen before the import.
    """
    command = [sys.executable, Path(__file__).with_name(name), *arguments]
    variables = {**os.environ, **CPU_ENVIRONMENT, **zygote.NO_COMPILE_PROCESSES, "DOTLLM_DISK_BYTES": "0"}
    variables |= environment or {}
    status, said = zygote.run(command, variables, timeout_s, forked=not imports_vllm_itself)
    assert status == 0, said[-6000:]
    found, _ = json.JSONDecoder().raw_decode(
        said.rpartition("RESULT ")[2]
    )  # (another process may print right after it)
    return found, said
