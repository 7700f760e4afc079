"""A user's processor for each sequence, in steps of both runners. With engines: `tests/serve/test_sampler_features`."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dotllm

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

PROMPT = [7, 8]
calls: list[tuple[int, list[int], list[int]]] = []


class Counts:
    """Adds the number of output tokens that it has read to every logit."""

    alive = 0

    def __init__(self, name: int) -> None:
        self.name, self.read = name, 0
        Counts.alive += 1

    def __del__(self) -> None:
        Counts.alive -= 1

    def __call__(self, prompt: list[int], output: list[int], logits: Any) -> Any:
        calls.append((self.name, prompt, output[self.read :]))
        self.read = len(output)
        return logits + self.read


@dotllm.logits_processor_factory
def counting(params: Any) -> Counts | None:
    """Counts."""
    if params.name == "bad":
        raise ValueError("no such name")
    return Counts(params.name) if params.name else None


class V2:
    """The runner's side of the interface: slots, their tokens, and steps."""

    def __init__(self) -> None:
        calls.clear()
        self.tokens = torch.zeros((4, 32), dtype=torch.int32)
        self.prompt_len = SimpleNamespace(np=np.full(4, len(PROMPT)))
        self.prefill_len = SimpleNamespace(np=np.full(4, len(PROMPT)))
        states = SimpleNamespace(
            all_token_ids=SimpleNamespace(gpu=self.tokens), prompt_len=self.prompt_len, prefill_len=self.prefill_len
        )
        self.processor: Any = counting(None, states)  # type: ignore[call-arg]

    def add(self, slot: int, name: int, output: tuple[int, ...] = ()) -> bool:
        tokens = [*PROMPT, *output]
        self.tokens[slot, : len(tokens)] = torch.tensor(tokens)
        self.prefill_len.np[slot] = len(tokens)
        return bool(self.processor.add_request(slot, SimpleNamespace(name=name)))

    def step(self, *rows: tuple[int, int, int, int]) -> list[float]:
        """``rows``: slot, number among the rows of its request, position and token."""
        names = ("expanded_idx_mapping", "expanded_local_pos", "pos", "input_ids")
        columns = (torch.tensor(column) for column in zip(*rows, strict=True))
        context = SimpleNamespace(**dict(zip(names, columns, strict=True)))
        calls.clear()
        self.processor.apply_staged_writes()
        return [float(one) for one in self.processor.apply(torch.zeros(len(rows), 3), context)[:, 0]]


def test_a_class_that_vllm_takes() -> None:
    from vllm.v1.sample.logits_processor import LogitsProcessor as V1
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

    assert issubclass(counting, V1) and issubclass(counting, LogitsProcessor)
    assert (counting.__module__, counting.__qualname__, counting.__doc__) == (__name__, "counting", "Counts.")
    with pytest.raises(ValueError, match="no such name"):
        counting.validate_params(SimpleNamespace(name="bad"))  # type: ignore[attr-defined]


def test_each_sequence_has_its_own_and_reads_each_token_once() -> None:
    runner = V2()
    assert runner.add(0, 1) and runner.add(1, 2) and not runner.add(2, 0)
    assert runner.step((1, 0, 1, 8), (2, 0, 1, 8), (0, 0, 1, 8)) == [0, 0, 0]
    assert calls == [(2, PROMPT, []), (1, PROMPT, [])]
    runner.tokens[0, 2], runner.tokens[1, 2] = 5, 6
    assert runner.step((0, 0, 2, 5), (1, 0, 2, 6)) == [1, 1]
    assert calls == [(1, PROMPT, [5]), (2, PROMPT, [6])]


def test_drafts_are_read_by_another_one() -> None:
    runner = V2()
    runner.add(0, 1)
    runner.step((0, 0, 1, 8))
    runner.tokens[0, 2] = 5
    assert runner.step((0, 0, 2, 5), (0, 1, 3, 6), (0, 2, 4, 7), (0, 3, 5, -1)) == [1, 2, 3, 0]
    assert calls == [(1, PROMPT, [5]), (1, PROMPT, [5, 6]), (1, PROMPT, [7])]
    runner.tokens[0, 3] = 9  # differs from the draft
    assert runner.step((0, 0, 3, 9)) == [2] and calls == [(1, PROMPT, [9])]


def test_who_resumes_is_shown_all_and_parts_of_prompts_nothing() -> None:
    runner = V2()
    runner.add(3, 1, output=(4, 5, 6))
    assert runner.step((3, 0, 3, 5)) == [0] and not calls
    assert runner.step((3, 0, 4, 6)) == [3] and calls == [(1, PROMPT, [4, 5, 6])]


def test_ended_ones_are_released() -> None:
    runner = V2()
    runner.add(0, 1)
    runner.add(1, 2)
    runner.step((0, 0, 1, 8), (1, 0, 1, 8))
    gc.collect()
    runner.step((1, 0, 1, 8))
    assert Counts.alive == 2
    runner.step((1, 0, 1, 8))
    assert Counts.alive == 1
    assert not runner.add(1, 0) and Counts.alive == 0, "another sequence has its slot, which wants none"
    runner.step((1, 0, 1, 8))
    assert not calls
