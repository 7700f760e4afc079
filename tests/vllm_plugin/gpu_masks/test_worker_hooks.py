"""Which engines' model runners take our messages."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.gpu_masks import worker_hooks

pytestmark = pytest.mark.serve


def test_a_batch_that_ranks_share_out_goes_the_ordinary_way() -> None:
    """Only when it is asked for: tensor-parallel ranks that sample all requests each have their own table."""
    worker_hooks.apply()
    parallel = SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1)
    config = SimpleNamespace(use_v2_model_runner=True, parallel_config=parallel, num_speculative_tokens=0)
    assert worker_hooks.why_not(config) == ""
    parallel.enable_batch_sharded_sampling = True
    assert "sampl" in worker_hooks.why_not(config)
