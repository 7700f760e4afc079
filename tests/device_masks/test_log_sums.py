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
    return made(logits, np.array(where, np.int32), starts, most)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("vocabulary", [150, kernels.BLOCK, 2 * kernels.BLOCK + 1, 40_000])
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
    found = sums(kind, logits, [0 * most + 1, 1 * most, 2 * most, 2 * most + 1, 1 * most + 2], starts, most)
    assert torch.allclose(found[:4], logits[[1, 3, 4, 5]].logsumexp(1), atol=1e-5)
    if kind == "kernel":
        assert found[4] == -float("inf"), "the request has no third row"


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_mask_leaves(kind: str) -> None:
    """The difference of two sums, for masks that leave anything between all and a millionth."""
    generator = np.random.default_rng(1)
    logits = torch.from_numpy(generator.normal(0, 4, (40, 9000)).astype(np.float32))
    rows, before = list(range(40)), sums(kind, logits, list(range(40)))
    exact = logits.double().softmax(1)
    allowed = torch.from_numpy(generator.random((40, 9000)) < np.geomspace(1e-3, 1, 40)[:, None])
    allowed[:, 0] = True
    logits[~allowed] = -float("inf")
    masses = (sums(kind, logits, rows) - before).double()
    assert (masses - (exact * allowed).sum(1).log()).abs().max() < 4e-6
    assert masses[-1] == 0, "nothing is taken, and nothing else is said"
