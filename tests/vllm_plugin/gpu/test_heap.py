"""What a message says of the tables on the device."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm import Index, Vocabulary
from dotllm.index.gpu_tables import ROW, UNKNOWN_ROW
from dotllm.vllm_plugin.gpu.claim import Claims
from dotllm.vllm_plugin.gpu.entry import Entry
from dotllm.vllm_plugin.gpu.heap import HEADER, Heap


class ReleasesToOther(Claims):
    """Whoever fills tables ahead gets each lock as soon as the loop gives it back, and finds the first place's mask."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []

    @contextlib.contextmanager
    def on(self, *locks: threading.RLock) -> Iterator[None]:  # type: ignore[override]
        yield
        for entry in self.entries:
            entry.table.set_row(1, entry.index.mask_row(1))
            entry.changed.add(1)


@pytest.mark.parametrize("is_there", [False, True])
def test_masks_found_while_a_message_is_put_together_are_in_the_next(is_there: bool) -> None:
    """Or the device would have a place's row that names a mask which has not been sent: nothing would be allowed."""
    vocabulary = Vocabulary.from_bytes([*(bytes([i]) for i in range(256)), None], eos_token_ids=256)
    claims = ReleasesToOther()
    heap = Heap(claims)
    entries = [Entry(Index.from_regex(pattern, vocabulary)) for pattern in ("a[bc]", "x[yz]")]
    for entry in entries:
        entry.table.expand([1, 2])
        entry.changed = {1, 2}
        heap.changed[entry] = None
    if is_there:
        heap.patches(1)
        for entry in entries:
            entry.changed = {1}
            heap.changed[entry] = None
    claims.entries = entries
    for message in (2, 3):
        found = heap.patches(message)
        ends = np.cumsum(found.runs[:, 1])
        for entry in entries:
            place = entry.base + HEADER + entry.table.columns + ROW
            runs = np.nonzero((found.runs[:, 0] <= place) & (place < found.runs.sum(axis=1)))[0]
            assert len(runs) == 1
            start, count = found.runs[runs[0]]
            row = found.patch[ends[runs[0]] - count + place - start]
            assert row == UNKNOWN_ROW or row in found.masks
            assert row == UNKNOWN_ROW or row == entry.index.mask_row(1)
        assert message == 2 or row != UNKNOWN_ROW
        for entry in entries:
            heap.changed[entry] = None
