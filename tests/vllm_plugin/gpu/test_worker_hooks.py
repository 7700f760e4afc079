"""Which engines' model runners take our messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm.vllm_plugin.gpu import walk_scheduler
from dotllm.vllm_plugin.gpu_masks import worker_hooks

pytestmark = pytest.mark.serve


def test_a_batch_that_ranks_share_out_goes_the_ordinary_way(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when it is asked for: tensor-parallel ranks that sample all requests each walk their own table."""
    worker_hooks.apply()
    parallel = SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1)
    config = SimpleNamespace(
        use_v2_model_runner=True,
        parallel_config=parallel,
        num_speculative_tokens=0,
        speculative_config=None,
        model_config=SimpleNamespace(is_hybrid=False, is_attention_free=False),
    )
    assert worker_hooks.why_not(config) == ""
    scheduler = object.__new__(vllm_config.scheduler_config.get_scheduler_cls())
    scheduler.vllm_config, scheduler.connector = config, None
    scheduler.kv_cache_config = SimpleNamespace(kv_cache_groups=[])
    monkeypatch.setattr(walk_scheduler.manager_hook, "why_not", lambda manager: "")
    scheduler.structured_output_manager = None
    assert walk_scheduler.why_not(scheduler) == ""
    parallel.prefill_context_parallel_size = 2
    assert walk_scheduler.why_not(scheduler) == "prefill context parallelism"
    parallel.prefill_context_parallel_size = 1
    parallel.enable_batch_sharded_sampling = True
    assert "sampl" in worker_hooks.why_not(config)
    assert walk_scheduler.why_not(scheduler) == "batch-sharded sampling"


@pytest.mark.parametrize("kind", ["is_hybrid", "is_attention_free", "a cache", "one of several caches"])
def test_a_model_with_a_recurrent_state_repeats_no_step(
    vllm_config: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Since 0.27 vLLM runs such models with its V2 runner, too. A request that sits a step out runs its last token
    twice, and the state would take it in twice: answers would be worse, and nobody would know why."""
    from vllm.v1.kv_cache_interface import MambaSpec

    worker_hooks.apply()
    model = SimpleNamespace(is_hybrid=False, is_attention_free=False)
    config = SimpleNamespace(
        use_v2_model_runner=True, parallel_config=SimpleNamespace(tensor_parallel_size=1, pipeline_parallel_size=1),
        num_speculative_tokens=0, speculative_config=None, model_config=model,
    )  # fmt: skip
    scheduler = object.__new__(vllm_config.scheduler_config.get_scheduler_cls())
    scheduler.vllm_config, scheduler.connector, scheduler.structured_output_manager = config, None, None
    attention = SimpleNamespace(kv_cache_spec=SimpleNamespace())
    scheduler.kv_cache_config = SimpleNamespace(kv_cache_groups=[attention])
    monkeypatch.setattr(walk_scheduler.manager_hook, "why_not", lambda manager: "")
    assert walk_scheduler.why_not(scheduler) == ""
    state: Any = object.__new__(MambaSpec)
    if kind == "a cache":
        scheduler.kv_cache_config.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=state))
    elif kind == "one of several caches":
        several = SimpleNamespace(kv_cache_specs={"layer 0": SimpleNamespace(), "layer 1": state})
        scheduler.kv_cache_config.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=several))
    else:
        setattr(model, kind, True)
    assert "recurrent state" in walk_scheduler.why_not(scheduler)
