"""Our kernels are compiled before the first constrained step, and change nothing then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

import torch

from dotllm.vllm_plugin.gpu_masks import kernels, warm_kernels, worker_hooks

pytestmark = pytest.mark.serve


def a_batch(requests: int) -> Any:
    numbers = torch.arange(requests)
    return SimpleNamespace(
        req_ids=[f"_warmup_{i}" for i in range(requests)], idx_mapping=numbers.to(torch.int32), num_draft_tokens=0,
        seq_lens=torch.full((requests,), 3, dtype=torch.int32), input_ids=numbers.to(torch.int32), logits_indices=numbers,
    )  # fmt: skip


@pytest.mark.parametrize("requests", [1, 2, 5])
def test_all_kernels_are_launched_and_nothing_is_masked(requests: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched = []
    for module, name in (
        (kernels, "_launch_rows"),
        (kernels, "_launch_row"),
        (kernels, "_launch_writes"),
    ):
        launcher = getattr(module, name)

        class Noted:
            def __init__(self, launcher: Any, name: str) -> None:
                self._launcher, self._name = launcher, name

            def __call__(self, *arguments: Any) -> None:
                launched.append(self._name)
                self._launcher(*arguments)

            def variant(self, key: Any) -> Any:
                return self._launcher.variant(key)

        monkeypatch.setattr(module, name, Noted(launcher, name))
    logits = torch.randn(requests, 300)
    before = logits.clone()
    warm_kernels.warm(logits, 10)
    assert torch.equal(logits, before)
    assert set(launched) == {"_launch_rows", "_launch_row", "_launch_writes"}


def test_behind_the_first_bitmask_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """And never again; a fault is only said."""
    warmed: list[int] = []

    def warm(logits: Any, words: int) -> None:
        warmed.append(words)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(warm_kernels, "warm", warm)
    monkeypatch.setattr(worker_hooks, "_warmed", [])
    done: list[str] = []

    def original(self: Any, logits: Any, input_batch: Any, grammar_req_ids: Any, grammar_bitmask: Any) -> None:
        done.append(logits.device.type)

    apply = worker_hooks._v2_with(original)
    bitmask = np.full((2, 10), -1, np.int32)
    for kind in ("cpu", "cuda", "cuda"):
        apply(None, SimpleNamespace(device=SimpleNamespace(type=kind)), a_batch(2), [], bitmask)
    assert done == ["cpu", "cuda", "cuda"] and warmed == [10]
    worker_hooks._warmed.clear()
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "off")
    apply(None, SimpleNamespace(device=SimpleNamespace(type="cuda")), a_batch(2), [], bitmask)
    assert warmed == [10], "compiled for nothing"
