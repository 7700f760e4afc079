"""The first cache: indexes in memory, least recently used out first, bounded in bytes.

An index grows while it is used (states and mask rows are found on demand), so sizes are measured again by `remeasure`,
not only when an entry comes in. Mask rows are shared by all indexes of a vocabulary; they are counted once, through
``shared_bytes``, against the same bound. An evicted index lives on while a running request still has a guide on it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from dotllm.compilation.compiled import Compiled


class MemoryCache:
    """key → `Compiled`. Not thread-safe: the manager locks."""

    def __init__(self, limit: int, shared_bytes: Callable[[], int] = lambda: 0) -> None:
        self.limit = limit
        self.evictions = 0
        self._shared_bytes = shared_bytes
        self._entries: OrderedDict[str, Compiled] = OrderedDict()
        self._sizes: dict[str, int] = {}
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
        self._measure(entry)
        self._shrink()

    def remeasure(self) -> None:
        """Measure all entries again and evict until the bound holds."""
        for entry in self._entries.values():
            self._measure(entry)
        self._shrink()

    def evict(self, share: float) -> None:
        """Evict this share of the entries (at least one, if there are any), least recently used first."""
        for key in list(self._entries)[: max(1, int(len(self._entries) * share))]:
            self._forget(key)
            self.evictions += 1

    def _measure(self, entry: Compiled) -> None:
        size = entry.nbytes
        self._own_bytes += size - self._sizes.get(entry.key, 0)
        self._sizes[entry.key] = size

    def _forget(self, key: str) -> None:
        if self._entries.pop(key, None) is not None:
            self._own_bytes -= self._sizes.pop(key)

    def _shrink(self) -> None:
        own_limit = self.limit - min(self._shared_bytes(), self.limit // 2)
        while self._entries and self._own_bytes > own_limit:
            self._forget(next(iter(self._entries)))
            self.evictions += 1
