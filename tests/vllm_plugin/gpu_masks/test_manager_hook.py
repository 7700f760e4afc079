"""Where masks can live on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm import platforms

from dotllm.vllm_plugin.gpu_masks import manager_hook, worker_hooks

pytestmark = pytest.mark.serve


@pytest.mark.parametrize(
    ("cuda", "pinned", "worker", "reason"),
    [
        (True, True, "vllm.v1.worker.gpu_worker.Worker", ""),
        (False, True, "vllm.v1.worker.gpu_worker.Worker", "not a CUDA device"),
        (True, False, "vllm.v1.worker.gpu_worker.Worker", "no pinned memory"),
        (True, True, "mine.Worker", "the worker is mine.Worker"),
    ],
)
def test_automatically_where_kernels_can_read_the_host(
    monkeypatch: pytest.MonkeyPatch, cuda: bool, pinned: bool, worker: str, reason: str
) -> None:
    platform = SimpleNamespace(is_cuda_alike=lambda: cuda, is_pin_memory_available=lambda: pinned)
    monkeypatch.setattr(platforms, "_current_platform", platform)
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "auto")
    worker_hooks.apply()
    config: Any = SimpleNamespace(
        parallel_config=SimpleNamespace(worker_cls=worker), model_config=None, num_speculative_tokens=0
    )
    assert manager_hook.why_not(SimpleNamespace(vllm_config=config, reasoner_cls=None)) == reason
