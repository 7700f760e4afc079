"""Where masks can be kept on the device."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm import platforms

from dotllm.vllm_plugin.speed import manager_hook

pytestmark = pytest.mark.serve

WORKER = "vllm.v1.worker.gpu_worker.Worker"


def why_not(monkeypatch: pytest.MonkeyPatch, *, cuda: bool = True, pinned: bool = True, **changes: Any) -> str:
    platform = SimpleNamespace(is_cuda_alike=lambda: cuda, is_pin_memory_available=lambda: pinned)
    monkeypatch.setattr(platforms, "_current_platform", platform)
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "auto")
    v2 = changes.pop("v2", True)
    parallel = SimpleNamespace(
        **{"worker_cls": WORKER, "enable_batch_sharded_sampling": False, "tensor_parallel_size": 2, **changes}
    )
    config = SimpleNamespace(parallel_config=parallel, use_v2_model_runner=v2)
    manager: Any = SimpleNamespace(vllm_config=config)
    return manager_hook.why_not(manager)


@pytest.mark.parametrize(
    ("engine", "reason"),
    [
        ({}, ""),
        ({"cuda": False}, "not a CUDA device"),
        ({"pinned": False}, "no pinned memory"),
        ({"worker_cls": "mine.Worker"}, "the worker is mine.Worker"),
    ],
)
def test_automatically_where_kernels_can_read_the_host(
    monkeypatch: pytest.MonkeyPatch, engine: dict[str, Any], reason: str
) -> None:
    assert why_not(monkeypatch, **engine) == reason


def test_a_batch_that_ranks_share_out_goes_the_ordinary_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only if it is asked for: tensor-parallel ranks that each sample all requests have a table each."""
    assert "sampl" in why_not(monkeypatch, enable_batch_sharded_sampling=True)
    assert why_not(monkeypatch, enable_batch_sharded_sampling=True, v2=False) == ""
