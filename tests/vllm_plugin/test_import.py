"""``import dotllm`` is light, and lets vLLM load the plugin; each in its own process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def test_import_is_light() -> None:
    heavy = "('vllm', 'torch', 'numba', 'numpy', 'pydantic', 'transformers')"
    assert run(f"import sys, dotllm; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_engine_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sys\nfrom dotllm import BudgetExceededError, Guide, Index, InvalidSpecError, UnsupportedError, Vocabulary\n"
        "v = Vocabulary.from_bytes([b'a', None], 1)\nIndex.from_choice(['a'], v).guide().mask_row\n"
        "print([name for name in ('vllm', 'torch', 'transformers') if name in sys.modules])"
    )
    assert run(code) == "[]"


@pytest.mark.parametrize(("listed", "then"), [("", "None"), ("mine", "mine,dotllm"), ("dotllm,mine", "dotllm,mine")])
def test_who_imports_dotllm_means_its_plugin(listed: str, then: str) -> None:
    """If ``VLLM_PLUGINS`` is set, vLLM only loads the plugins that it lists."""
    environment = {"VLLM_PLUGINS": listed} if listed else {}
    assert run("import dotllm, os; print(os.environ.get('VLLM_PLUGINS'))", **environment) == then
