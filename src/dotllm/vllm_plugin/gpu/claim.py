"""Claim: the engine's loop takes an index's lock from who works ahead under it.

Finding masks ahead is a call of compiled code. The longer it is the less it costs the loop: what does is each call's
coming back, since that is a thread that wants the interpreter's lock, and Python. But the loop may want the index
meanwhile. So it leaves word, and whoever works ahead looks for it between two masks, a tenth of a millisecond each.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from dotllm.arrays import Int64


class Claims:
    """How one thread, the loop, takes locks. For all others they are locks."""

    def __init__(self) -> None:
        self.waiting: Int64 = np.zeros(1, np.int64)
        """int64 [1]; 1 while the loop waits for a lock, else 0"""

    def on(self, *locks: threading.RLock) -> _Claim:
        """To be entered by the loop instead of ``locks`` themselves."""
        return _Claim(locks, self.waiting)


class _Claim:
    __slots__ = ("_locks", "_waiting")

    def __init__(self, locks: Sequence[Any], waiting: Int64) -> None:
        self._locks = locks if len(locks) < 2 else sorted(locks, key=id)  # the order in which `index.batch` takes them
        self._waiting = waiting

    def __enter__(self) -> None:
        for lock in self._locks:
            if not lock.acquire(blocking=False):
                self._waiting[0] = 1
                lock.acquire()
                self._waiting[0] = 0

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()
