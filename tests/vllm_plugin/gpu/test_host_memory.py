"""What was written stays where it is until its turn comes again."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dotllm.vllm_plugin.gpu.walk_message import PLACE  # noqa: E402
from dotllm.vllm_plugin.gpu_masks.board import Board  # noqa: E402
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


def test_the_board_keeps_places_and_grows() -> None:
    generator = np.random.default_rng(0)
    board = Board(torch.device("cpu"))
    places = generator.integers(0, 100, (16, PLACE)).astype(np.int32)
    seen = set()
    for step in range(3 * TURNS):
        known = None
        if step % 7 == 0:
            places = generator.integers(0, 100, (16 if step < 90 else 300, PLACE)).astype(np.int32)
            known = places
        slots = generator.integers(-1, 16, 5 if step < 150 else 200).astype(np.int32)
        board.write(slots, known)
        assert board.slots[: len(slots)].tolist() == slots.tolist()
        assert board.places[: len(places)].tolist() == places.tolist()
        seen.add((board.slots.data_ptr(), board.places.data_ptr()))
    assert len(seen) == 3, "where it lies changes only when it grows"
