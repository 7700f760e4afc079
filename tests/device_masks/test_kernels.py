"""The Triton kernels compile for a GPU. (The other tests run them in the interpreter, which accepts more Python.)"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
from triton import compile
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from dotllm.device_masks import kernels

special = {"logits": "*bf16", "sums": "*fp32", "MOST": "constexpr", "BLOCK": "constexpr"}
numbers = ("table_stride", "logits_stride", "vocabulary", "blocks", "given")
for kernel in (kernels._apply_rows, kernels._log_sums):
    names = kernel.arg_names
    signature = {n: special.get(n, "i32" if n in numbers else "*i32") for n in names}
    for capability, most in ((80, 1), (80, 4), (90, 1), (90, 4)):
        fixed = {(names.index(n),): value for n, value in (("MOST", most), ("BLOCK", 8192)) if n in names}
        source = ASTSource(kernel, signature, fixed)
        assert compile(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
print("compiled")
"""


def test_the_kernels_compile_for_a_gpu() -> None:
    """For A100s and H100s."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False,
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
    )  # fmt: skip
    assert done.stdout.endswith("compiled\n"), done.stderr[-2000:]
