"""Joining bytes: the same bytes as ``b"".join``, while other threads run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

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
    turns, done = 0, threading.Event()

    def run() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1

    def turns_during(join: Callable[[list[bytes]], bytes]) -> int:
        before = turns
        join(parts)
        return turns - before

    parts = [bytes([1]) * (1 << 26)] * 2
    thread = threading.Thread(target=run)
    thread.start()
    try:
        ours = max(turns_during(joined) for _ in range(5))  # (on a busy machine, the thread may have no CPU)
        theirs = min(turns_during(b"".join) for _ in range(5))
    finally:
        done.set()
        thread.join()
    assert ours > 100 + theirs
