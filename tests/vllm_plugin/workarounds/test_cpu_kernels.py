"""llvmlite's library handle, and the attributes that vLLM asks of all objects."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.forked import forked

PROGRAM = """
from llvmlite.binding import ffi
print(hasattr(ffi.lib, "__dict__"), hasattr(ffi.lib, "LLVMPY_GetVersionInfo"))
"""


def test_the_handle_answers_to_special_names_with_c_functions() -> None:
    """If this fails, llvmlite has been fixed, and the hook can go."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True True"


def test_with_the_hook_it_does_not() -> None:
    """In a fork, because vLLM is already imported here."""
    pytest.importorskip("vllm")

    def applied() -> tuple[bool, bool]:
        from llvmlite.binding import ffi

        from dotllm.vllm_plugin.workarounds import cpu_kernels

        cpu_kernels.HOOK.apply()
        cpu_kernels.HOOK.apply()
        return hasattr(ffi.lib, "__dict__"), hasattr(ffi.lib, "LLVMPY_GetVersionInfo")

    assert forked(applied, cpu_s=300, wall_s=3000) == (False, True)
