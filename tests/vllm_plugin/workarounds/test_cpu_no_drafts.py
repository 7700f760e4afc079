"""vLLM's rejection sampler, on a CPU, for a step without drafts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm.vllm_plugin import hook  # noqa: E402  # after the check for what it needs
from dotllm.vllm_plugin.workarounds import cpu_no_drafts, cpu_temperatures  # noqa: E402  # after the check for what it needs

pytestmark = pytest.mark.serve


def test_top_k_without_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p_pytorch

    # what vLLM takes on a CPU, also where other tests have Triton's interpreter on
    monkeypatch.setattr(rejection_sampler, "expand_batch_to_tokens", cpu_temperatures.expand)
    monkeypatch.setattr(
        rejection_sampler, "apply_top_k_top_p", lambda logits, k, p: apply_top_k_top_p_pytorch(logits, k, p, True)
    )

    metadata = SimpleNamespace(all_greedy=False, temperature=torch.ones(2), top_k=torch.tensor([1, 5]), top_p=None)
    none, counts = torch.empty((0, 10)), torch.zeros(2, dtype=torch.int32)
    original = rejection_sampler.apply_sampling_constraints
    if not hasattr(original, hook.REPLACEMENTS):
        with pytest.raises(RuntimeError, match="numel"):  # if this fails, vLLM has learnt it, and the hook can go
            original(none, counts, metadata)
    cpu_no_drafts.HOOK.apply()
    assert rejection_sampler.apply_sampling_constraints(none, counts, metadata).shape == (0, 10)
    two = rejection_sampler.apply_sampling_constraints(
        torch.arange(20.0).view(2, 10), torch.tensor([1, 2], dtype=torch.int32), metadata
    )
    assert torch.isfinite(two).sum(1).tolist() == [1, 5]
