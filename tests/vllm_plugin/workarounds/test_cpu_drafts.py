"""vLLM's rejection sampler on a CPU: temperatures of drafts, and a step without drafts."""

from __future__ import annotations

import importlib
from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm.vllm_plugin import hook  # noqa: E402  # after the check for what it needs
from dotllm.vllm_plugin.workarounds import cpu_drafts  # noqa: E402  # after the check for what it needs

pytestmark = pytest.mark.serve

COUNTS = torch.tensor([2, 2, 5], dtype=torch.int32)


def test_vllms_own_writes_into_a_copy() -> None:
    """If this fails, vLLM has been fixed, and the hook can go."""
    from vllm.platforms import current_platform

    current_platform.import_kernels()
    written = torch.zeros(5)
    stand_in = importlib.import_module("vllm.utils.cpu_triton_utils")._expand_kernel_impl
    stand_in(written, torch.tensor([0.5, 1.0, 2.0]), COUNTS, 0, 0)
    assert not written.any()


def test_each_draft_has_the_temperature_of_its_request() -> None:
    found = cpu_drafts.expand(torch.tensor([0.5, 1.0, 0.0]), COUNTS, 5, replace_from=0, replace_to=1)
    assert found.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert cpu_drafts.expand(torch.tensor([5, 6, 0]), COUNTS, 5).tolist() == [5, 5, 0, 0, 0]


def test_top_k_without_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    # vLLM's choice on a CPU, even if other tests have turned Triton's interpreter on.
    monkeypatch.setattr(rejection_sampler, "expand_batch_to_tokens", cpu_drafts.expand)
    monkeypatch.setattr(
        rejection_sampler, "apply_top_k_top_p", lambda logits, k, p: apply_top_k_top_p_pytorch(logits, k, p, True)
    )

    metadata = SimpleNamespace(all_greedy=False, temperature=torch.ones(2), top_k=torch.tensor([1, 5]), top_p=None)
    none, counts = torch.empty((0, 10)), torch.zeros(2, dtype=torch.int32)
    original = rejection_sampler.apply_sampling_constraints
    if not hasattr(original, hook.REPLACEMENTS):
        with pytest.raises(RuntimeError, match="numel"):  # if this fails, vLLM has been fixed, and the hook can go
            original(none, counts, metadata)
    fixed = partial(cpu_drafts._apply_sampling_constraints, original=original)
    assert fixed(none, counts, metadata).shape == (0, 10)
    two = fixed(torch.arange(20.0).view(2, 10), torch.tensor([1, 2], dtype=torch.int32), metadata)
    assert torch.isfinite(two).sum(1).tolist() == [1, 5]
