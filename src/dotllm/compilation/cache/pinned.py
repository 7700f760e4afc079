"""What running and waiting requests hold: indexes that are not in the cache any more, and not bounded by it.

An index lives as long as somebody has a guide on it, whatever the cache evicts, and a few kilobytes of schema can make
one of hundreds of megabytes (patterns that need large automata). So beyond a bound no further specification is
compiled until requests have ended: who asks for one is told to come again (HTTP 503). Requests that run go on, and
specifications that are in the cache are served.

Counting takes a microsecond for each index, so it is done now and then, and before anybody is refused; in between what
has been compiled since is added.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from threading import Lock

from dotllm.compilation.contract import CompiledIndex


class PinnedIndexes:
    """All indexes that are alive. Thread-safe."""

    def __init__(self, limit: int) -> None:
        """``limit``: bytes."""
        self.limit = limit
        self.nbytes = 0
        """Held outside of the cache, as last counted."""
        self._added = 0  # since then; perhaps only cached
        self._lock = Lock()
        self._alive: weakref.WeakSet[CompiledIndex] = weakref.WeakSet()

    def is_full(self, cached: Callable[[], Iterable[CompiledIndex]]) -> bool:
        """Whether more is held than may be. ``cached``: asked for those that are in the cache, if that may be so."""
        return self.nbytes + self._added > self.limit and self.count(cached()) > self.limit

    def add(self, index: CompiledIndex) -> None:
        """Count this one from now on, until nobody has it."""
        with self._lock:
            self._alive.add(index)
            self._added += index.nbytes

    def count(self, cached: Iterable[CompiledIndex]) -> int:
        """`nbytes`, counted anew. ``cached``: those that are in the cache (and perhaps new to us)."""
        with self._lock:
            known = set[int]()
            for index in cached:
                self._alive.add(index)
                known.add(id(index))
            self.nbytes = sum(index.nbytes for index in self._alive if id(index) not in known)
            self._added = 0
            return self.nbytes
