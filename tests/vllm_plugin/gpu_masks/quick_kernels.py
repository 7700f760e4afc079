"""Our kernels in NumPy, for tests of many steps: Triton's interpreter takes milliseconds for each request of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotllm.device_masks import kernels


class Quick:
    """Replaces a `launch.Launcher`."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def __call__(self, key: Any, grid: tuple[int, int, int], *arguments: Any) -> None:
        """Run the function."""
        self._function(grid[0], *(a.numpy() if hasattr(a, "numpy") else a for a in arguments))


def use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use these kernels instead of Triton's."""
    monkeypatch.setattr(kernels, "_launch_rows", Quick(apply_rows))


def mask_row(row: Any, words: Any) -> None:
    """Mask one row of the logits, as `kernels._apply_rows` does."""
    allowed = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little")[: len(row)].astype(bool)
    row[: len(allowed)][~allowed] = -np.inf
    row[len(allowed) :] = -np.inf


def apply_rows(
    count: int, logits: Any, stride: int, where: Any, slots: Any, fresh: Any, brought: Any, starts: Any, table: Any,
    words: int, vocabulary: int, given: int, most: int,
) -> None:  # fmt: skip
    """The same as `kernels._apply_rows`."""
    for i, slot in enumerate(slots[:count].tolist()):
        row = place = int(where[i]) if given & 1 else i * most
        new = int(fresh[i]) if given & 2 else -1
        if slot >= 0 and new >= 0:
            table[slot] = brought[new]
        if most > 1 and place >= 0:
            row = int(starts[place // most]) + place % most
            row = row if row < int(starts[place // most + 1]) else -1
        if slot >= 0 and row >= 0:
            mask_row(logits[row], table[slot])
