"""What was written stays where it is until its turn comes again."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dotllm.vllm_plugin.gpu_masks.host_memory import TURNS  # noqa: E402
from dotllm.vllm_plugin.gpu_masks.host_numbers import HostNumbers  # noqa: E402


def test_nothing_is_overwritten_while_steps_are_in_flight() -> None:
    numbers = HostNumbers(torch.device("cpu"))
    sizes = [3, 512, 1, 700, 2000, *range(TURNS - 5)]
    written = []
    for i, size in enumerate(sizes):
        first = np.arange(i, i + size, dtype=np.int32)
        written.append((first, -first, numbers.write(first, -first)))
    for first, second, (one, other) in written:
        assert one[: len(first)].tolist() == first.tolist()
        assert other[: len(second)].tolist() == second.tolist()
