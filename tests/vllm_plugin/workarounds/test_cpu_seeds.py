"""Generators of seeded requests on a CPU, whose discarded draws vLLM cannot take back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dotllm.vllm_plugin.workarounds import cpu_seeds  # noqa: E402  # after the check for what it needs


def draw(generator: Any) -> list[float]:
    return torch.empty(4).exponential_(generator=generator).tolist()


def runner(discarded: list[bool], outputs: list[list[int]]) -> Any:
    generators = {index: torch.Generator().manual_seed(index) for index in range(len(discarded))}
    names = [f"r{index}" for index in range(len(discarded))]
    batch = SimpleNamespace(num_reqs=len(discarded), generators=generators, req_ids=names)
    requests = {n: SimpleNamespace(output_token_ids=tokens) for n, tokens in zip(names, outputs, strict=True)}
    mask = SimpleNamespace(np=np.array([*discarded, True]))  # the buffer is longer than the batch
    return SimpleNamespace(input_batch=batch, requests=requests, discard_request_mask=mask)


def test_a_cpu_generator_has_no_offset() -> None:
    """If this fails, torch has added it, and the hook can go."""
    with pytest.raises(RuntimeError):
        torch.Generator().set_offset(0)


def test_discarded_draws_do_not_count() -> None:
    running = runner([True, False, True], [[], [], [7]])
    fresh = [draw(torch.Generator().manual_seed(index)) for index in range(3)]
    for generator in running.input_batch.generators.values():
        draw(generator)
    hidden = cpu_seeds.hide(running)
    assert list(running.input_batch.generators) == [1]
    cpu_seeds.restore(running, hidden)
    after = [draw(running.input_batch.generators[index]) for index in range(3)]
    assert after[0] == fresh[0], "nothing has been drawn that counts"
    assert after[1] != fresh[1]
    assert after[2] != fresh[2], "it has produced a token: it must not begin again"
