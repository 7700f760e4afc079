"""Log-sum-exps of chosen rows, by torch and by the kernel in Triton's interpreter, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from dotllm.device_masks import kernels  # noqa: E402
from dotllm.device_masks.log_sums import LogSums, by_torch  # noqa: E402

KINDS = ["kernel", "torch"]


def sums(kind: str, logits: Any, where: list[int], starts: Any = None, most: int = 1) -> Any:
    made = LogSums(torch.device("cpu"), by_kernel=kind == "kernel")
    return made(logits, np.array(where, np.int32), starts, most).logsumexp(1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocabulary", [150, kernels.SUMMED, 2 * kernels.SUMMED + 1, 40_000])
def test_chosen_rows(kind: str, dtype: Any, vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    logits = (8 * torch.randn((7, vocabulary + 8))).to(dtype)[:, :vocabulary]  # (rows are wider, as vLLM pads them)
    logits[2, 5:] = -float("inf")  # all blocks but the first contain only -inf
    where = [6, 0, 2, 2, 5]
    found = sums(kind, logits, where)
    assert found.dtype == torch.float32
    expected = logits[where].double().logsumexp(1)
    assert (found.double() - expected).abs().max() < 4e-6
    logits[1] = -float("inf")
    assert sums(kind, logits, [1, 0]).tolist()[0] == -float("inf")


def test_many_rows_are_summed_in_parts() -> None:
    logits = torch.randn((100, 30))
    found = by_torch(logits, torch.arange(100, dtype=torch.int32))
    assert torch.allclose(found, logits.logsumexp(1))


@pytest.mark.parametrize("kind", KINDS)
def test_positions_whose_rows_the_device_alone_knows(kind: str) -> None:
    logits = torch.randn((6, 50))
    starts = torch.tensor([0, 3, 4, 6], dtype=torch.int32)  # three requests with 3, 1 and 2 rows
    most = 3
    found = sums(kind, logits, [0 * most + 1, 1 * most, 2 * most, 2 * most + 1, 1 * most + 2, -1], starts, most)
    assert torch.allclose(found[:4], logits[[1, 3, 4, 5]].logsumexp(1), atol=1e-5)
    if kind == "kernel":
        assert found[4:].tolist() == [-float("inf")] * 2, "the request has no third row; another has left the batch"
    assert len(sums(kind, logits, [2, -1])) == 2, "nor do requests that have left a batch of one row each disturb it"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vocabulary", [9000, 3 * kernels.SUMMED])
def test_what_a_mask_leaves(kind: str, vocabulary: int) -> None:
    """For masks that leave anything between a millionth and all; and one that leaves nothing."""
    generator, shape = np.random.default_rng(1), (40, vocabulary)
    logits = torch.from_numpy(generator.normal(0, 4, shape).astype(np.float32))
    exact = logits.double().softmax(1)
    made, rows = LogSums(torch.device("cpu"), by_kernel=kind == "kernel"), np.arange(40, dtype=np.int32)
    before = made(logits, rows)
    allowed = torch.from_numpy(generator.random(shape) < np.geomspace(1e-3, 1, 40)[:, None])
    allowed[:, 0] = True
    allowed[5] = False
    logits[~allowed] = -float("inf")
    masses = made.masses(before, made(logits, rows)).double()
    assert masses.shape == (40,) and masses[5] == -float("inf")
    expected = (exact * allowed).sum(1).log()
    assert (masses - expected)[[*range(5), *range(6, 40)]].abs().max() < 1e-5
    assert masses[-1] == 0, "nothing is taken, and nothing else is said"


@pytest.mark.parametrize("kind", KINDS)
def test_masses_stay_while_later_steps_run(kind: str) -> None:
    made = LogSums(torch.device("cpu"), by_kernel=kind == "kernel")
    found = []
    for count in (3, 520, 5):  # (more rows than there is room for)
        before, after = torch.zeros((count, 2)), torch.full((count, 2), float(-count))
        found.append((count, made.masses(before, after)))
    for count, masses in found:
        assert masses.tolist() == pytest.approx([-count] * count)
