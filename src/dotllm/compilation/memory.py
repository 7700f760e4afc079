"""The first cache: indexes in memory, bounded in bytes; the least recently used are evicted first.

An index grows while it is used (states and mask rows are found on demand), so sizes are measured again now and then
(`measured`, `grown`, `resize`), not only when an entry is added. Measuring thousands of entries takes milliseconds;
only recording the changes needs the lock. All indexes of a vocabulary share mask rows, which count once against the
same bound (``shared_bytes``). An evicted index lives on while a running request still has a guide on it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterable
from threading import Lock

from dotllm.compilation.compiled import Compiled, CompiledIndex


class MemoryCache:
    """key → `Compiled`. Not thread-safe: the caller holds a lock."""

    def __init__(self, limit: int, shared_bytes: Callable[[], int] = lambda: 0) -> None:
        self.limit = limit
        self.evictions = 0
        self._shared_bytes = shared_bytes
        self._entries: OrderedDict[str, Compiled] = OrderedDict()
        self._measured: dict[str, tuple[Compiled, int]] = {}
        self._own_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes held, as of the last measurement of each entry, including shared mask rows."""
        return self._own_bytes + self._shared_bytes()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> Compiled | None:
        """The entry of ``key``, if there is one. It becomes the most recently used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, entry: Compiled) -> None:
        """Add or replace, then evict others until the bound holds. An index larger than the bound is not kept.

        Evicting an index does not free any row that all indexes share; only a later collection does. So that these
        rows cannot evict everything, they count here for at most half of the bound.
        """
        self._forget(entry.key)
        self._entries[entry.key] = entry
        size = entry.nbytes
        self._measured[entry.key] = entry, size
        self._own_bytes += size
        self._shrink()

    def measured(self) -> list[tuple[Compiled, int]]:
        """All entries, in no particular order, with their sizes as last measured."""
        return list(self._measured.values())

    def resize(self, sizes: Iterable[tuple[Compiled, int]]) -> list[Compiled]:
        """Record the sizes of the entries that are still here, and evict others until the bound holds.

        Returns the evicted entries, as `evict` does.
        """
        for entry, size in sizes:
            if self._entries.get(entry.key) is entry:
                self._own_bytes += size - self._measured[entry.key][1]
                self._measured[entry.key] = entry, size
        return self._shrink()

    def evict(self, share: float) -> list[Compiled]:
        """Evict this share of the entries (at least one, if there are any), least recently used first.

        Returns them, so that the caller can drop them without the lock: freeing a thousand of them takes a while.
        """
        evicted = list(self._entries.values())[: max(1, int(len(self._entries) * share))]
        for entry in evicted:
            self._forget(entry.key)
        self.evictions += len(evicted)
        return evicted

    def _forget(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._own_bytes -= self._measured.pop(key)[1]

    def _shrink(self) -> list[Compiled]:
        own_limit = self.limit - min(self._shared_bytes(), self.limit // 2)
        evicted: list[Compiled] = []
        while self._entries and self._own_bytes > own_limit:
            oldest = next(iter(self._entries.values()))
            self._forget(oldest.key)
            evicted.append(oldest)
        self.evictions += len(evicted)
        return evicted


def grown(measured: Iterable[tuple[Compiled, int]]) -> list[tuple[Compiled, int]]:
    """The entries of ``measured`` whose size has changed, with the new size."""
    return [(entry, size) for entry, before in measured if (size := entry.nbytes) != before]


# Pinned indexes: running and waiting requests keep them alive beyond the cache and its bound.
#
# An index lives as long as a guide uses it, whatever the cache evicts, and a few kilobytes of schema can make an index
# of hundreds of megabytes (patterns that need large automata). Guides, too, may hold megabytes (`index.unique`). So
# beyond a second bound nothing more is compiled until requests have ended: a request with a new specification gets
# HTTP 503. Running requests continue, and specifications in the cache are served.
#
# A count takes a microsecond for each index. So the indexes are counted now and then, and before a refusal; between
# counts, only the sizes of new indexes are added.


class PinnedIndexes:
    """All indexes that are alive. Thread-safe."""

    def __init__(self, limit: int) -> None:
        """``limit``: bytes."""
        self.limit = limit
        self.nbytes = 0
        """Bytes pinned beyond the cache, as last counted."""
        self._added = 0  # bytes added since then; perhaps only cached, not pinned
        self._lock = Lock()
        self._alive: weakref.WeakSet[CompiledIndex] = weakref.WeakSet()

    def is_full(self, cached: Callable[[], Iterable[CompiledIndex]]) -> bool:
        """Whether the limit is exceeded. ``cached`` gives the cached indexes, and is called only near the limit."""
        return self.nbytes + self._added > self.limit and self.count(cached()) > self.limit

    def add(self, index: CompiledIndex) -> None:
        """Count this index from now on, as long as it lives."""
        with self._lock:
            self._alive.add(index)
            self._added += index.nbytes

    def count(self, cached: Iterable[CompiledIndex]) -> int:
        """`nbytes`, counted anew. ``cached``: the indexes in the cache; those not yet known here are added."""
        with self._lock:
            known = set[int]()
            for index in cached:
                self._alive.add(index)
                known.add(id(index))
            for index in list(self._alive):
                if len(index.generations) > 1:  # guides have moved on from an index that was full
                    self._alive.update(index.generations)
            self.nbytes = sum(
                index.remembered_bytes + (0 if id(index) in known else index.nbytes) for index in self._alive
            )
            self._added = 0
            return self.nbytes


# Failures are remembered for a while, so that a client that retries a bad specification costs a look-up, not a compile.


class FailureCache:
    """key → exception, for ``ttl`` seconds, in the order of their ends; at most ``limit`` of them (the oldest goes
    first). The caller holds a lock."""

    def __init__(self, ttl: float, limit: int) -> None:
        self.ttl = ttl
        self.limit = limit
        self._entries: OrderedDict[str, tuple[float, Exception]] = OrderedDict()

    def get(self, key: str, now: float) -> Exception | None:
        """The remembered failure of ``key``, if it is not too old."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now >= entry[0]:
            del self._entries[key]
            return None
        return entry[1]

    def put(self, key: str, error: Exception, now: float) -> None:
        """Remember ``error``, which has no traceback any more (`without_frames`)."""
        self._entries.pop(key, None)
        self._entries[key] = (now + self.ttl, error)
        while self._entries and (len(self._entries) > self.limit or next(iter(self._entries.values()))[0] <= now):
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
