"""``import dotllm`` is light, and a vLLM imported before or after it accepts the backend; each in its own process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

needs_vllm = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")


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
        "import sys\nfrom dotllm import BudgetExceeded, Guide, Index, InvalidSpec, Unsupported, Vocabulary\n"
        "v = Vocabulary.from_bytes([b'a', None], 1)\nIndex.from_choice(['a'], v).guide().mask_row\n"
        "print([name for name in ('vllm', 'torch', 'transformers') if name in sys.modules])"
    )
    assert run(code) == "[]"


CONFIGURE = (
    "C(backend='dotllm', disable_any_whitespace=True); import os; print(C.__module__, os.environ.get('VLLM_PLUGINS'))"
)


@needs_vllm
@pytest.mark.parametrize(
    "imports",
    [
        "import dotllm\nfrom vllm.config import StructuredOutputsConfig as C",
        "from vllm.config import StructuredOutputsConfig as C\nimport dotllm",
    ],
    ids=["dotllm first", "vllm first"],
)
def test_either_order(imports: str) -> None:
    where = "vllm.config.structured_outputs"
    assert run(f"{imports}\n{CONFIGURE}") == f"{where} None"
    assert run(f"{imports}\n{CONFIGURE}", VLLM_PLUGINS="mine") == f"{where} mine,dotllm"


@needs_vllm
def test_the_module_keeps_its_loader() -> None:
    code = (
        "import dotllm, inspect, vllm.config.structured_outputs as m\n"
        "print('StructuredOutputsConfig' in inspect.getsource(m), type(m.__loader__).__name__)"
    )
    assert run(code) == "True SourceFileLoader"
