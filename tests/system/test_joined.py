"""Joining bytes: the same bytes as ``b"".join``, while other threads run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dotllm.system import joined


@pytest.mark.parametrize(
    "parts",
    [
        [b""],
        [b"", b"ab", np.empty(0, np.int32), np.array([1, -2], np.int32), b"c"],
        [np.arange(300_000, dtype=np.int32), bytes(range(256)) * 5000],
    ],
    ids=["nothing", "short", "long"],
)
def test_parts_are_joined(parts: list[bytes | np.ndarray]) -> None:
    result = joined(parts)
    assert type(result) is bytes
    assert result == b"".join(bytes(part) for part in parts)


def test_other_threads_run_meanwhile() -> None:
    longest, done = 0.0, threading.Event()

    def run() -> None:
        nonlocal longest
        last = time.perf_counter()
        while not done.is_set():
            now = time.perf_counter()
            longest, last = max(longest, now - last), now

    def longest_wait(join: Callable[[list[NDArray[Any]]], bytes]) -> float:
        """The most seconds that the other thread waits while ``join`` runs."""
        nonlocal longest
        longest = 0.0
        result = join(parts)
        time.sleep(0.001)  # the thread notes how long it has waited
        waited = longest
        del result  # (this takes the GIL, too)
        return waited

    parts = [np.ones(1 << 24, np.int32)] * 2
    thread = threading.Thread(target=run)
    thread.start()
    try:
        ours = min(longest_wait(joined) for _ in range(10))  # (on a busy machine, the thread may have no CPU)
        theirs = min(longest_wait(lambda parts: b"".join(part.data for part in parts)) for _ in range(5))
    finally:
        done.set()
        thread.join()
    assert ours < theirs / 2, (ours, theirs)
