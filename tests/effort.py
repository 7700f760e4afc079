"""Bounds on the CPU time of a computation that hold equally on slow and busy machines.

Bounds are in seconds of this project's machine when it is idle. Elsewhere, or next to tests that share a core's caches
with this one, the same work takes a multiple of that. So before a computation fails its bound, it is compared with a
yardstick: similar Python work, run on the same machine. A bound is meant to find a hundred times as much work, not
twice as much.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager

YARDSTICK_S = 0.16
"""Seconds that `_yardstick` takes on an idle machine."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """The block takes at most this much CPU time of an idle machine. The garbage collector ignores what exists now."""
    gc.collect(1)  # (of what is young, because a whole collection takes tens of milliseconds)
    gc.freeze()
    began = time.process_time()
    yield
    taken = time.process_time() - began
    if taken > seconds:
        pace = max(1.0, sorted(_yardstick() for _ in range(5))[2] / YARDSTICK_S)
        assert taken <= seconds * pace, f"took {taken:.2f} s for {seconds} s on a machine {pace:.1f} times as slow"


def _yardstick() -> float:
    """The CPU seconds of some work with dictionaries, tuples and sets."""
    began = time.process_time()
    seen: dict[tuple[int, int], set[int]] = {}
    for number in range(80_000):
        seen.setdefault((number % 997, number % 101), set()).add(number)
    sorted(seen, key=lambda key: (len(seen[key]), key))
    return time.process_time() - began
