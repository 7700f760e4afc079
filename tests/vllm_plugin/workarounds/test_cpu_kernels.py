"""llvmlite's library handle, and the attributes that vLLM asks of all objects."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
from llvmlite.binding import ffi
{before}
print(hasattr(ffi.lib, "__dict__"), hasattr(ffi.lib, "LLVMPY_GetVersionInfo"))
"""


def asked(before: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_it_answers_to_special_names_with_c_functions() -> None:
    """If the first fails, llvmlite has been fixed, and the hook can go."""
    applied = (
        "from dotllm.vllm_plugin.workarounds import cpu_kernels; cpu_kernels.HOOK.apply(); cpu_kernels.HOOK.apply()"
    )
    assert [asked(), asked(applied)] == ["True True", "False True"]
