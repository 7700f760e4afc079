"""Pinned indexes: those that running and waiting requests keep alive beyond the cache and its bound.

An index lives as long as a guide uses it, whatever the cache evicts, and a few kilobytes of schema can make an index of
hundreds of megabytes (patterns that need large automata). So beyond a bound no further specification is compiled until
requests have ended; a request for one is answered with HTTP 503. Running requests go on, and specifications in the
cache are served.

A count takes a microsecond for each index. So the indexes are counted now and then, and before a refusal; in between
the sizes of new ones are added.
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
        """Pinned beyond the cache, as last counted."""
        self._added = 0  # since then; perhaps only cached
        self._lock = Lock()
        self._alive: weakref.WeakSet[CompiledIndex] = weakref.WeakSet()

    def is_full(self, cached: Callable[[], Iterable[CompiledIndex]]) -> bool:
        """Whether the limit is exceeded. ``cached`` gives the cached indexes, and is called only near the limit."""
        return self.nbytes + self._added > self.limit and self.count(cached()) > self.limit

    def add(self, index: CompiledIndex) -> None:
        """Count this one from now on, as long as it lives."""
        with self._lock:
            self._alive.add(index)
            self._added += index.nbytes

    def count(self, cached: Iterable[CompiledIndex]) -> int:
        """`nbytes`, counted anew. ``cached``: the indexes in the cache, which may be new here."""
        with self._lock:
            known = set[int]()
            for index in cached:
                self._alive.add(index)
                known.add(id(index))
            self.nbytes = sum(index.nbytes for index in self._alive if id(index) not in known)
            self._added = 0
            return self.nbytes
