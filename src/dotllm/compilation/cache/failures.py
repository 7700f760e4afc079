"""Failures remembered for a while, so that a client that retries a bad specification costs a look-up, not a compile."""

from __future__ import annotations

from collections import OrderedDict


class FailureCache:
    """key → exception, for ``ttl`` seconds, at most ``limit`` of them (oldest out). The manager locks."""

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
        """Remember ``error``, which has no traceback any more."""
        self._entries.pop(key, None)
        self._entries[key] = (now + self.ttl, error)
        while len(self._entries) > self.limit:
            self._entries.popitem(last=False)

    def __len__(self) -> int:
        return len(self._entries)
