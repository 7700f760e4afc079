"""Entered tokens are written into the state of vLLM's own model runners."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")
import numpy as np
import torch

from dotllm.vllm_plugin.extra import runners
from dotllm.vllm_plugin.extra.runners import Entered

pytestmark = pytest.mark.serve

PROMPT = [5, 6, 7]


def first_runner(output: list[int], *, in_batch: bool = True) -> tuple[dict[str, Any], Any]:
    """The V1 runner's requests (one, with these output tokens) and its ``InputBatch``."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

    batch = InputBatch(
        max_num_reqs=4, max_model_len=32, max_num_batched_tokens=32, device=torch.device("cpu"), vocab_size=64,
        block_sizes=[16], max_num_blocks_per_req=[2],
    )  # fmt: skip
    state = CachedRequestState(
        req_id="a", prompt_token_ids=PROMPT, mm_features=[], sampling_params=SamplingParams(), generator=None,
        block_ids=([1],), num_computed_tokens=3, output_token_ids=output,
    )  # fmt: skip
    if in_batch:
        batch.add_request(state)
    return {"a": state}, batch


@pytest.mark.parametrize("output", [[20], [-1, -1]], ids=["synchronous", "asynchronous"])
def test_the_first_runner(output: list[int]) -> None:
    """With asynchronous scheduling it knows neither the last token that counts nor the next one, which does not."""
    requests, batch = first_runner(output)
    batch.prev_req_id_to_index = {"a": 0, "b": 1}
    runners.write_v1(requests, batch, Entered("a", 3, [20, 21, 22, 23], 4))
    assert requests["a"].output_token_ids is output, "logits processors hold the list"
    assert output == [20, 21, 22, 23] and requests["a"].num_tokens == 7
    assert batch.token_ids_cpu[0, :7].tolist() == [*PROMPT, 20, 21, 22, 23]
    assert batch.is_token_ids[0, :7].all() and batch.num_tokens_no_spec[0] == 7
    assert batch.prev_req_id_to_index == {"b": 1}, "its next token does not come from the device"


def test_the_first_runner_has_left_it_out_of_the_step_before() -> None:
    requests, batch = first_runner([20], in_batch=False)
    runners.write_v1(requests, batch, Entered("a", 3, [20, 21], 3))
    assert batch.add_request(requests["a"]) == 0
    assert batch.token_ids_cpu[0, :5].tolist() == [*PROMPT, 20, 21]
    runners.write_v1(requests, batch, Entered("nobody", 3, [20, 21], 3))


class Staged:
    """vLLM's ``StagedWriteTensor``. (tests/serve/test_coalescence.py tests its kernel in a real runner.)"""

    def __init__(self, *size: int) -> None:
        self.values = np.zeros(size, np.int32)
        self.staged: list[tuple[Any, Any]] = []

    def stage_write(self, index: int, start: int, x: list[int]) -> None:
        self.staged.append(((index, slice(start, start + len(x))), x))

    def stage_write_elem(self, index: int, x: int) -> None:
        self.staged.append((index, x))


class Runner:
    """The used part of a V2 model runner."""

    def __init__(self) -> None:
        self.writes = 0
        self.req_states = SimpleNamespace(
            req_id_to_index={"a": 1}, all_token_ids=Staged(2, 16), total_len=Staged(2), num_computed_tokens=Staged(2),
            prefill_len=SimpleNamespace(np=np.array([9, 3])), apply_staged_writes=self._apply,
        )  # fmt: skip

    def _apply(self) -> None:
        self.writes += 1

    def add_requests(self, scheduler_output: Any) -> None:
        if scheduler_output.scheduled_new_reqs:
            self.req_states.apply_staged_writes()


@pytest.mark.parametrize("new", [[], ["somebody"]])
def test_the_second_runner_writes_once_in_a_step(new: list[str]) -> None:
    runner, output = Runner(), SimpleNamespace(scheduled_new_reqs=new)
    add_requests = partial(runners._add_requests, original=Runner.add_requests)
    add_requests(runner, output)
    assert runner.writes == bool(new)
    setattr(output, runners.ENTERED, [Entered("a", 3, [20, 21, 22], 4), Entered("preempted", 2, [1], 2)])
    add_requests(runner, output)
    assert runner.writes == bool(new) + 1
    states = runner.req_states
    assert states.all_token_ids.staged == [((1, slice(3, 6)), [20, 21, 22])]
    assert states.prefill_len.np.tolist() == [9, 6], "they are taken from the list, not from the sampler"
    assert states.total_len.staged == [(1, 6)] and states.num_computed_tokens.staged == [(1, 4)]


def test_the_methods_are_wrapped_once() -> None:
    from vllm.v1.worker.gpu.model_runner import GPUModelRunner as Second
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner as First

    for make in (
        lambda: SimpleNamespace(input_batch=0, _update_states=0),
        lambda: SimpleNamespace(req_states=0, add_requests=0),
    ):
        runners.wrap_runner(make())
        wrapped = First._update_states, Second.add_requests
        runners.wrap_runner(make())
        assert (First._update_states, Second.add_requests) == wrapped
    assert "extra.runners" in str(First._update_states.dotllm_replacements)
    assert "extra.runners" in str(Second.add_requests.dotllm_replacements)
    runners.wrap_runner(SimpleNamespace())  # a runner of an unknown kind
