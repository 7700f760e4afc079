"""vLLM's model runners on a CPU, in a separate process: V1 with asynchronous scheduling, V2 in Triton's interpreter.

vLLM turns asynchronous scheduling off on CPUs, and V2 off where Triton has no backend. Both run without either: V2's
kernels are Triton's, and its interpreter runs them. (Call `prepare` before vLLM and Triton are imported.)
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any


def prepare(*, second: bool, asynchronous: bool) -> None:
    """Make engines of this process use the V2 model runner (``second``) or V1, and this way of scheduling."""
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "1" if second else "0"
    if second:
        os.environ["TRITON_INTERPRET"] = "1"
        os.environ["DOTLLM_GPU_MASKS"] = "on"  # (vLLM's own kernel for bitmasks does not run in the interpreter)
        from triton import backends

        driver = SimpleNamespace(is_active=lambda: True)
        backends.backends["cpu"] = SimpleNamespace(driver=driver, compiler=None)
        _take_any_mask()
    from dotllm.cli import vllm_metadata

    vllm_metadata.patch_version()
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.sample.ops import topk_topp_sampler

    topk_topp_sampler.HAS_TRITON = False  # the interpreter cannot run this kernel; vLLM also has it in PyTorch

    original: Any = CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, config: Any) -> None:
        original(cls, config)
        config.scheduler_config.async_scheduling = asynchronous

    CpuPlatform.check_and_update_config = classmethod(check_and_update_config)


def _take_any_mask() -> None:
    """Make Triton's interpreter accept integer masks, as its compiler does (vLLM's n-gram kernel has one)."""
    from triton.runtime.interpreter import InterpreterBuilder

    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    def of_booleans(mask: Any) -> Any:
        return SimpleNamespace(data=mask.data.astype(bool))

    InterpreterBuilder.create_masked_load = lambda self, ptrs, mask, *more: load(self, ptrs, of_booleans(mask), *more)
    InterpreterBuilder.create_masked_store = lambda self, ptrs, value, mask, *more: store(
        self, ptrs, value, of_booleans(mask), *more
    )
