"""Our kernels in NumPy, for tests of many steps: Triton's interpreter takes milliseconds for each request of a step.

`test_rare_orders` compares the walk with the kernel itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotllm.vllm_plugin.gpu import walk_kernels
from dotllm.vllm_plugin.gpu.walk_message import ALL, BASE, COLUMNS, CONFIG, EPOCH, LENGTH, MASK, MISSING, PLACE
from dotllm.vllm_plugin.gpu_masks import kernels
from dotllm.vllm_plugin.gpu_masks.kernels import RUN

CAPACITY, HEADER = 256, 257
EXPANDED, CAN_FINISH, TAKES_TOKENS = 1, 2, 4


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
    monkeypatch.setattr(walk_kernels, "_launch", Quick(follow_and_mask))
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


def walk(heap: Any, base: int, columns: int, config: int, token: int, data: Any, offset: Any, ends: Any) -> Any:
    """`walk_kernels._walk`."""
    capacity = int(heap[base + CAPACITY]) if columns > 0 else 0
    rows = base + HEADER

    def at(place: int, column: int) -> int:
        return int(heap[rows + place * columns + column]) if 0 < place < capacity else 0

    if ends[token // 32] >> (token % 32) & 1 and at(config, 1) & CAN_FINISH:
        return 0, ALL
    start, end = int(offset[token]), int(offset[token + 1])
    if at(config, 1) & TAKES_TOKENS or start == end:
        return config, MISSING
    for byte in data[start:end].tolist():
        if not at(config, 1) & EXPANDED:
            return config, MISSING
        config = at(config, 2 + int(heap[base + byte]))
    return config, at(config, 0) if 0 < config < capacity else MISSING


def follow_and_mask(
    count: int, logits: Any, last: Any, input_ids: Any, state_of: Any, seq_lens: Any, prefill: Any, num_sampled: Any,
    num_rejected: Any, slots: Any, lengths: Any, places: Any, walked: Any, heap: Any, data: Any, offset: Any, ends: Any,
    table: Any, table_stride: int, logits_stride: int, vocabulary: int, block: int,
) -> None:  # fmt: skip
    """`walk_kernels._follow_and_mask`."""
    for i in range(count):
        slot, state = int(slots[i]), int(state_of[i])
        there = True
        if slot >= 0:
            length = int(lengths[state])
            known, mine = places[slot], walked[slot]
            before = mine[(length - 1) & 1]
            epoch = int(known[EPOCH])
            is_here, is_before = known[LENGTH] == length, known[LENGTH] == length - 1
            is_walked = before[EPOCH] == epoch and before[LENGTH] == length - 1
            place = known if is_here or is_before else before
            base, columns, config, mask = (int(place[column]) for column in (BASE, COLUMNS, CONFIG, MASK))
            if not (is_here or (config < 0 and (is_before or is_walked))):
                mask = MISSING
                if is_before or is_walked:
                    token = int(input_ids[last[i]])
                    config, mask = walk(heap, base, columns, config, token, data, offset, ends)
            there = mask != MISSING
            if mask >= 0:
                mask_row(logits[i], table[mask])
            mine[length & 1, : MASK + 1] = 0
            for column, value in ((EPOCH, epoch), (LENGTH, length), (BASE, base), (COLUMNS, columns),
                                  (CONFIG, config), (MASK, mask)):  # fmt: skip
                mine[length & 1, column] = value
        samples = seq_lens[i] >= prefill[state]
        num_sampled[i], num_rejected[i] = samples and there, samples and not there


assert PLACE == 8
