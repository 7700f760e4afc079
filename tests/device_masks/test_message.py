"""Each mask is applied to the row of logits that it is for."""

from __future__ import annotations

import numpy as np

from dotllm.device_masks.message import positions


def test_positions_of_drafts() -> None:
    assert positions(np.array([1, 1], np.int32), [3, -1]).tolist() == [3, -1]
    assert positions(np.array([2, 1, 3], np.int32), [5, -1, 0]).tolist() == [5, 6, -1, 0, 1, 2]
    assert positions(np.array([1, 2], np.int32), [5, -1]).tolist() == [5, -1, -1]


def test_positions_of_drafts_that_are_trimmed() -> None:
    assert positions(np.array([4, 4], np.int32), [0, 1], [1, 2]).tolist() == [0, -1, -1, -1, 1, 2, -1, -1]
    assert positions(np.array([2, 1], np.int32), [0, -1], [9, 9]).tolist() == [0, 1, -1]
