"""The first cache: indexes in memory, least recently used out first, bounded in bytes.

An index grows while it is used (states and mask rows are found on demand), so sizes are measured again now and then
(`measured`, `grown`, `resize`), not only when an entry comes in. Measuring thousands takes milliseconds; only entering
what has changed needs the lock. Mask rows are shared by all indexes of a vocabulary; they are counted once, through
``shared_bytes``, against the same bound. An evicted index lives on while a running request still has a guide on it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from dotllm.compilation.compiled import Compiled


class MemoryCache:
    """key → `Compiled`. Not thread-safe: the manager locks."""

    def __init__(self, limit: int, shared_bytes: Callable[[], int] = lambda: 0) -> None:
        self.limit = limit
        self.evictions = 0
        self._shared_bytes = shared_bytes
        self._entries: OrderedDict[str, Compiled] = OrderedDict()
        self._measured: dict[str, tuple[Compiled, int]] = {}
        self._own_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes held, as of the last measurement of each entry, shared masks included."""
        return self._own_bytes + self._shared_bytes()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: str) -> bool:
        return key in self._entries

    def get(self, key: str) -> Compiled | None:
        """The entry, now the most recently used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, entry: Compiled) -> None:
        """Add or replace, then evict others until the bound holds. An index larger than the bound is not kept.

        The rows shared by all indexes do not become fewer with an evicted index, only with a collection after it, so
        they are not allowed to evict everything: they count up to half of the bound here.
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
        """Enter the sizes of those entries that are still here, and evict others until the bound holds.

        Returns the evicted entries, as `evict` does.
        """
        for entry, size in sizes:
            if self._entries.get(entry.key) is entry:
                self._own_bytes += size - self._measured[entry.key][1]
                self._measured[entry.key] = entry, size
        return self._shrink()

    def evict(self, share: float) -> list[Compiled]:
        """Evict this share of the entries (at least one, if there are any), least recently used first.

        Returns them, for the caller to drop without the lock: to free the memory of a thousand takes a while.
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
    """Those of ``measured`` that have another size now, with this size."""
    return [(entry, size) for entry, before in measured if (size := entry.nbytes) != before]
