"""Which engines enter forced text, so that coalescence leaves their speculative configuration alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm import envs, platforms
from vllm.config import VllmConfig

from dotllm.vllm_plugin.jump_forward import jump_forward

pytestmark = pytest.mark.serve


@pytest.fixture(autouse=True)
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "_current_platform", SimpleNamespace(is_cuda_alike=lambda: True))
    monkeypatch.setattr(envs, "VLLM_USE_V2_MODEL_RUNNER", None, raising=False)
    monkeypatch.setenv("DOTLLM_COALESCENCE", "canonical")
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "auto")


def expected(model: dict[str, Any] | None = None, **arguments: Any) -> bool:
    engine = {
        "structured_outputs_config": SimpleNamespace(reasoning_parser=""), "async_scheduling": None,
        "pipeline_parallel_size": 1, "kv_transfer_config": None, "logits_processors": None, **arguments,
    }  # fmt: skip
    plain = {"runner_type": "generate", "is_hybrid": False, "is_attention_free": False, "is_moe": False}
    return jump_forward.is_expected(SimpleNamespace(**engine), SimpleNamespace(**{**plain, **(model or {})}))


def test_on_a_gpu_with_asynchronous_scheduling() -> None:
    assert expected()
    assert expected(structured_outputs_config={"reasoning_parser": "qwen3"})
    assert expected(reasoning_parser="qwen3")
    assert expected(logits_processors=["mine.Processor"])
    assert expected({"is_moe": True}) == (not hasattr(VllmConfig, "_is_default_v2_model_runner_model"))


@pytest.mark.parametrize("kind", ["is_hybrid", "is_attention_free"])
def test_not_with_a_recurrent_state(kind: str) -> None:
    assert not expected({kind: True})


@pytest.mark.parametrize(
    "arguments",
    [
        {"async_scheduling": False},
        {"pipeline_parallel_size": 2},
        {"kv_transfer_config": object()},
        {"enable_batch_sharded_sampling": True},
        {"reasoning_parser": "qwen3", "logits_processors": ["mine.Processor"]},
    ],
)
def test_not_where_something_else_forbids_it(arguments: dict[str, Any]) -> None:
    assert not expected(**arguments)


@pytest.mark.parametrize(("variable", "value"), [("DOTLLM_COALESCENCE", "lossless"), ("DOTLLM_GPU_MASKS", "off")])
def test_not_where_it_is_switched_off(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)
    assert not expected()


def test_logits_processors_that_plug_in_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jump_forward, "entry_points", lambda group: ["a plugin's"])
    assert expected() and not expected(reasoning_parser="qwen3")
