"""Each mask finds the row of logits that it is for."""

from __future__ import annotations

import numpy as np

from dotllm.vllm_plugin.gpu_masks.logits_rows import RowsOfLogits, positions


def test_positions_of_drafts() -> None:
    assert positions(np.array([1, 1], np.int32), [3, -1]).tolist() == [3, -1]
    assert positions(np.array([2, 1, 3], np.int32), [5, -1, 0]).tolist() == [5, 6, -1, 0, 1, 2]
    assert positions(np.array([1, 2], np.int32), [5, -1]).tolist() == [5, -1, -1]


def test_a_batch_that_stays_is_looked_at_once() -> None:
    rows = RowsOfLogits()
    names = [str(i) for i in range(6)]
    first = rows(["4", "0", "9"], names)
    assert first.tolist() == [4, 0, -1]
    assert rows(["4", "0", "9"], list(names)) is first
    names[0], names[4] = names[4], names[0]  # in place, as a model runner's own list changes
    assert rows(["4", "0", "9"], names).tolist() == [0, 4, -1]
    assert rows(["4", "0"], names).tolist() == [0, 4]
    assert rows([], names).tolist() == []
