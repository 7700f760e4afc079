"""Our messages go to the table, all else to vLLM; our kernel is compiled before the first constrained step."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")
pytest.importorskip("vllm")

import torch

from dotllm.device_masks import kernels
from dotllm.device_masks.mask_table import MaskTable
from dotllm.device_masks.message import MaskRows
from dotllm.vllm_plugin.speed import worker_hooks

pytestmark = pytest.mark.serve

ONLY = np.array([[1 << n] for n in range(4)], np.int32)  # row n allows token n
SLOTS = [0, 1, 2, -1, 3]
NEW = np.arange(4, dtype=np.int32)
MESSAGE = MaskRows(5, np.array([3, 1, 1], np.int32), np.array(SLOTS, np.int32), np.array(SLOTS, np.int32), NEW, ONLY)


def allowed(logits: Any) -> list[Any]:
    """The only allowed token of each row, or None if all are allowed."""
    return [int(row.argmax()) if torch.isinf(row).any() else None for row in logits]


def test_drafts_of_the_first_runner() -> None:
    """Drafts are in the batch's order; one of the requests has left the batch."""
    left: list[Any] = []
    apply = partial(worker_hooks.v1, original=lambda *arguments: left.append(arguments))
    drafts = {"a": [7, 7], "x": [7], "free": []}
    output: Any = SimpleNamespace(scheduled_spec_decode_tokens=drafts)
    batch: Any = SimpleNamespace(req_ids=["x", "c", "a"])
    masks: Any = SimpleNamespace(grammar_bitmask=MESSAGE, structured_output_request_ids=["a", "b", "c"])
    logits = torch.zeros((6, 4))
    apply(output, masks, batch, logits)
    assert allowed(logits) == [None, None, 3, 0, 1, 2] and not left
    masks.grammar_bitmask = ONLY
    apply(output, masks, batch, logits)
    assert left == [(output, masks, batch, logits)]


def test_drafts_that_the_first_runner_has_trimmed() -> None:
    """ngram_gpu trims drafts without the engine core. A request masks only its own logits, and none beyond the end."""
    apply = partial(worker_hooks.v1, original=lambda *_: pytest.fail("it is our message"))
    counts, slots = np.array([4, 4], np.int32), np.array([0, 1, 1, 1, 2, 3, 1, 1], np.int32)
    masks: Any = SimpleNamespace(structured_output_request_ids=["a", "b"])
    for drafts, expected in (({"a": [], "b": [7]}, [0, 2, 3]), ({}, [0, 2]), ({"b": [7, 7, 7]}, [0, 2, 3, 1, 1])):
        masks.grammar_bitmask = MaskRows(5, counts, slots, slots, NEW, ONLY)
        around = torch.zeros((2 + len(expected), 4))  # includes the memory after the logits
        batch: Any = SimpleNamespace(req_ids=["a", "b"])
        output: Any = SimpleNamespace(scheduled_spec_decode_tokens=drafts)
        apply(output, masks, batch, around[: len(expected)])
        assert allowed(around) == [*expected, None, None]


@pytest.mark.parametrize("runner", ["first", "second"])
def test_two_engines_of_a_process_have_a_table_each(runner: str) -> None:
    """They take turns on one device; each sends every row once."""
    tables = []
    batches: list[Any] = [SimpleNamespace(req_ids=["a"], cu_num_logits=torch.tensor([0, 1])) for _ in range(2)]
    workers: list[Any] = [SimpleNamespace(mask_stride=1) for _ in range(2)]
    for slot, is_new in ((2, True), (0, True), (2, False)):
        for engine in range(2):
            row, fresh = np.array([slot], np.int32), np.array([0 if is_new else -1], np.int32)
            new = row[: int(is_new)]
            message = MaskRows(70 + engine, np.ones(1, np.int32), row, fresh, new, ONLY[new])
            logits = torch.zeros((1, 4))
            if runner == "first":
                masks: Any = SimpleNamespace(grammar_bitmask=message, structured_output_request_ids=["a"])
                output: Any = SimpleNamespace(scheduled_spec_decode_tokens={})
                worker_hooks.v1(output, masks, batches[engine], logits, original=lambda *_: pytest.fail("ours"))
            else:
                apply = partial(worker_hooks.v2, original=lambda *_: pytest.fail("ours"))
                apply(workers[engine], logits, batches[engine], ["a"], message)
            assert allowed(logits) == [slot]
            holder = batches[engine] if runner == "first" else workers[engine]
            tables.append(worker_hooks.table(holder, logits.device))
    assert len({id(table) for table in tables}) == 2


def a_batch(names: list[str], starts: list[int]) -> Any:
    return SimpleNamespace(req_ids=names, cu_num_logits=torch.tensor(starts, dtype=torch.int32))


def test_drafts_of_the_second_runner() -> None:
    """The device has trimmed one request's drafts, and the engine core does not know it."""
    apply = partial(worker_hooks.v2, original=lambda *_: pytest.fail("it is our message"))
    logits = torch.zeros((5, 4))
    worker: Any = SimpleNamespace(mask_stride=3)
    apply(worker, logits, a_batch(["x", "c", "a", "b"], [0, 1, 2, 4, 5]), ["a", "b", "c"], MESSAGE)
    assert allowed(logits) == [None, 3, 0, 1, None]


@pytest.mark.parametrize("most", [1, 4])
def test_the_kernel_is_launched_and_masks_nothing(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[Any] = []
    launcher = kernels._launch_rows
    monkeypatch.setattr(
        kernels, "_launch_rows", lambda *arguments: (launched.append(arguments[0]), launcher(*arguments))
    )
    monkeypatch.setattr(worker_hooks, "_warmed", set())
    here = torch.randn(2, 300)
    before = here.clone()

    class OnTheGPU:
        """Seen by the hook only; the kernel gets a tensor on the CPU."""

        device = torch.device("cuda")

    class Table:
        def apply(self, logits: Any, *arguments: Any) -> None:
            assert isinstance(logits, OnTheGPU)
            MaskTable(torch.device("cpu")).apply(here, *arguments)

    monkeypatch.setattr(worker_hooks, "table", lambda holder, device: Table())
    done: list[Any] = []
    apply = partial(worker_hooks.v2, original=lambda *arguments: done.append(arguments))
    worker: Any = SimpleNamespace(mask_stride=most)
    bitmask = np.full((2 * most, 10), -1, np.int32)
    for logits in (here, OnTheGPU(), OnTheGPU()):
        apply(worker, logits, a_batch(["a", "b"], [0, 1, 2]), ["a", "b"], bitmask)
    assert len(done) == 3 and len(launched) == 1 and launched[0][-1] == most, "once, and not for a CPU"
    assert torch.equal(here, before)
    worker_hooks._warmed.clear()
    monkeypatch.setenv("DOTLLM_GPU_MASKS", "off")
    apply(worker, OnTheGPU(), a_batch(["a", "b"], [0, 1, 2]), ["a", "b"], bitmask)
    assert len(launched) == 1, "compiled for nothing"


def test_a_fault_while_it_warms_up_is_only_said(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def table(holder: object, device: Any) -> Any:
        asked.append(device)
        raise RuntimeError("no compiler")

    monkeypatch.setattr(worker_hooks, "table", table)
    monkeypatch.setattr(worker_hooks, "_warmed", set())
    apply = partial(worker_hooks.v2, original=lambda *_: None)
    logits = SimpleNamespace(device=torch.device("cuda"))
    for _ in range(2):
        apply(SimpleNamespace(mask_stride=1), logits, a_batch(["a"], [0, 1]), ["a"], np.full((1, 10), -1, np.int32))
    assert len(asked) == 1
