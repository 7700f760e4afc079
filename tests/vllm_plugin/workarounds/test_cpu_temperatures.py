"""The temperatures of drafts on a CPU."""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm.vllm_plugin.workarounds import cpu_temperatures  # noqa: E402  # after the check for what it needs

pytestmark = pytest.mark.serve

COUNTS = torch.tensor([2, 2, 5], dtype=torch.int32)


def test_vllms_own_writes_into_a_copy() -> None:
    """If this fails, vLLM has learnt it, and the hook can go."""
    written = torch.zeros(5)
    stand_in = importlib.import_module("vllm.utils.cpu_triton_utils")._expand_kernel_impl
    stand_in(written, torch.tensor([0.5, 1.0, 2.0]), COUNTS, 0, 0)
    assert not written.any()


def test_each_draft_has_the_temperature_of_its_request() -> None:
    found = cpu_temperatures.expand(torch.tensor([0.5, 1.0, 0.0]), COUNTS, 5, replace_from=0, replace_to=1)
    assert found.tolist() == [0.5, 0.5, 1.0, 1.0, 1.0]
    assert cpu_temperatures.expand(torch.tensor([5, 6, 0]), COUNTS, 5).tolist() == [5, 5, 0, 0, 0]
