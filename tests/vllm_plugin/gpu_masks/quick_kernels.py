"""Our kernels in NumPy, for tests of many steps: Triton's interpreter takes milliseconds for each request of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotllm.vllm_plugin.gpu_masks import kernels
from dotllm.vllm_plugin.gpu_masks.kernels import RUN


class Quick:
    """Stands for a `launch.Launcher`."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def variant(self, key: Any) -> None:
        """Nothing is ever compiled."""

    def __call__(self, key: Any, grid: tuple[int, int, int], *arguments: Any) -> None:
        """Launch."""
        self._function(grid[0], *(a.numpy() if hasattr(a, "numpy") else a for a in arguments))


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """These instead of Triton's."""
    monkeypatch.setattr(kernels, "_launch_writes", Quick(write_runs))
    monkeypatch.setattr(kernels, "_launch_rows", Quick(apply_rows))
    monkeypatch.setattr(kernels, "_launch_row", Quick(apply_row))


def write_runs(count: int, runs: Any, stage: Any, first: Any, second: Any, longest: int) -> None:
    """`kernels._write_runs`."""
    flat = (first.reshape(-1), second.reshape(-1))
    for target, start, source, length in runs[: count * RUN].reshape(-1, RUN).tolist():
        flat[target][start : start + length] = stage[source : source + length]


def mask_row(row: Any, words: Any) -> None:
    """`kernels._mask_block`, for all blocks."""
    allowed = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")[: len(row)].astype(bool)
    row[: len(allowed)][~allowed] = -np.inf
    row[len(allowed) :] = -np.inf


def apply_rows(
    count: int, logits: Any, stride: int, where: Any, slots: Any, table: Any, words: int, vocabulary: int, block: int
) -> None:
    """`kernels._apply_rows`."""
    for row, slot in zip(where[:count].tolist(), slots[:count].tolist(), strict=True):
        if slot >= 0 and row >= 0:
            mask_row(logits[row], table[slot])


def apply_row(
    count: int, logits: Any, stride: int, row: int, slot: int, table: Any, words: int, vocabulary: int, block: int
) -> None:
    """`kernels._apply_row`."""
    mask_row(logits[row], table[slot])
