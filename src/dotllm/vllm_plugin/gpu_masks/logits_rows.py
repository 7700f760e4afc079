"""Worker: which rows of a step's logits belong to which constrained request."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dotllm.vllm_plugin.gpu_masks.message import Int32


class RowsOfLogits:
    """Which row of the logits each constrained request has, where each request of a step has one. The requests of a
    step are mostly those of the step before."""

    def __init__(self) -> None:
        self._constrained: list[str] = []
        self._batch: list[str] = []
        self._rows: Int32 = np.zeros(0, np.int32)

    def __call__(self, constrained: list[str], batch: list[str]) -> Int32:
        """int32 [constrained]; -1 for one that is not in ``batch``, the requests by row."""
        if constrained != self._constrained or batch != self._batch:
            row_of = {request: row for row, request in enumerate(batch)}
            self._rows = np.fromiter((row_of.get(request, -1) for request in constrained), np.int32, len(constrained))
            self._constrained, self._batch = list(constrained), list(batch)
        return self._rows


def positions(counts: Int32, first: Sequence[int]) -> Int32:
    """Rows of logits of each position: request i owns first[i], first[i] + 1, … (below 0: it has none here)."""
    start = np.asarray(first, np.int32)
    before = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.int32) - np.repeat(before, counts)
    out = np.repeat(start, counts) + steps
    out[np.repeat(start < 0, counts)] = -1
    return out.astype(np.int32)
