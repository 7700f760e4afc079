"""Write-back: indexes go to disk and to the shared store after they have been used, so that stored ones are *warm*.

An index is worth most with the states and mask rows that its first requests found. So it is written some seconds after
its compile, and again when it has grown, at most once per interval. The interval doubles with every write: an index
that grows for ever costs few writes. An index that came from a cache and never grew is not written.

One thread writes, and rests between writes: each takes the interpreter at least as long as a small compile. Where every
request brings a new schema, more indexes are compiled than written; the oldest are then not stored.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
import weakref
from collections.abc import Callable

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.cache import envelope
from dotllm.compilation.cache.disk import DiskCache
from dotllm.compilation.cache.store import SharedStore
from dotllm.compilation.compiled import Compiled
from dotllm.compilation.contract import CompiledIndex

logger = logging.getLogger(__name__)

LONGEST_INTERVAL_S = 600.0
# An index unused and unchanged for this long is not looked at any more, until it is used again.
QUIET_AFTER_S = 30.0
# New indexes that wait for their first write are held here even if memory has evicted them, within a bound in bytes.
# Beyond half of it all are due at once, and beyond all of it, if that is too slow, the oldest are left to memory.
NEW_HURRY = 0.5
REST_FACTOR = 19  # times as long as a write worked: a twentieth of the interpreter
LONGEST_REST_S = 1.0


class _Watched:
    """What write-back knows of one index."""

    def __init__(self, compiled: Compiled, stored: int, due: float, interval: float) -> None:
        self.compiled = weakref.ref(compiled)
        self.stored = stored
        """Its warmth when last stored (-1: never)."""
        self.due = due
        self.interval = interval
        self.changed = due


class WriteBack:
    """Watches compiled indexes and stores those that have something new. Thread-safe."""

    def __init__(
        self,
        disk: DiskCache,
        store: SharedStore | None,
        warmth: Callable[[CompiledIndex], int],
        *,
        interval: float,
        new_bytes: int,
        secret: bytes,
        metrics: Metrics,
    ) -> None:
        """``new_bytes`` bounds the indexes that wait for their first write."""
        self._new_limit = new_bytes
        self._new_bytes = 0
        self._disk = disk
        self._store = store
        self._interval = interval
        self._secret = secret
        self._metrics = metrics
        self._warmth = warmth
        self._lock = threading.Lock()  # guards what `watch` touches
        self._io = threading.Lock()  # one writer at a time
        self._new: collections.OrderedDict[str, tuple[Compiled, int]] = collections.OrderedDict()
        self._watched: dict[str, _Watched] = {}
        self._wake = threading.Event()
        self._urgent = threading.Event()  # set during a flush and at the end: the thread does not rest
        self._closed = False
        self.enabled = disk.enabled or store is not None
        if self.enabled:
            self._thread = threading.Thread(target=self._loop, name="dotllm-write-back", daemon=True)
            self._thread.start()

    def watch(self, compiled: Compiled, *, stored: bool) -> None:
        """Look after an index from now on; ``stored``: as it is now, it lies in the caches already."""
        if not self.enabled:
            return
        now = time.monotonic()
        with self._lock:
            known = self._watched.get(compiled.key)
            if known is not None and known.compiled() is compiled and not stored:
                return
            level = self._warmth(compiled.index) if stored else -1
            interval = known.interval if known is not None else self._interval
            self._watched[compiled.key] = _Watched(compiled, level, now + interval, interval)
            if stored:
                return
            self._not_new(compiled.key)
            self._new[compiled.key] = (compiled, compiled.nbytes)
            self._new_bytes += compiled.nbytes
            if self._in_a_hurry():
                self._wake.set()
            while self._new_bytes > self._new_limit:
                self._not_new(next(iter(self._new)))

    def _in_a_hurry(self) -> bool:
        return self._new_bytes > NEW_HURRY * self._new_limit

    def _not_new(self, key: str) -> None:
        """With the lock held: the index of ``key`` waits no more for its first write."""
        _, size = self._new.pop(key, (None, 0))
        self._new_bytes -= size

    def flush(self, timeout: float) -> None:
        """Store everything that has something new, now, and wait for the shared store."""
        if not self.enabled:
            return
        deadline = time.monotonic() + timeout
        self._urgent.set()
        try:
            self._round(force=True, deadline=deadline)
        finally:
            if not self._closed:
                self._urgent.clear()
        if self._store is not None:
            self._store.flush(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Stop the thread (does not flush)."""
        self._closed = True
        self._urgent.set()
        self._wake.set()

    def _loop(self) -> None:
        while not self._closed:
            self._wake.wait(min(1.0, self._interval / 2))
            self._wake.clear()
            try:
                self._round(force=False)
            except Exception:
                logger.exception("write-back: going on")

    def _round(self, *, force: bool, deadline: float = float("inf")) -> None:
        with self._io:
            with self._lock:
                hurry = self._in_a_hurry()
                candidates = list(self._watched.items())
            now = time.monotonic()
            for key, watched in candidates:
                hurried = force or (hurry and watched.stored < 0)
                if watched.due > now and not hurried:  # mostly, of thousands
                    continue
                if self._closed or now > deadline or (self._urgent.is_set() and not force):
                    return
                began = time.thread_time()
                if self._visit(key, watched, now) and not force:
                    self._urgent.wait(min(LONGEST_REST_S, REST_FACTOR * (time.thread_time() - began)))
                now = time.monotonic()

    def _visit(self, key: str, watched: _Watched, now: float) -> bool:
        """Store an index if it is time and there is something new; whether it was written."""
        compiled = watched.compiled()
        if compiled is None:
            if watched.stored < 0:
                self._metrics.add("dotllm_writes", "disk", "dropped")
            self._forget(key, watched)
            return False
        if compiled.used:
            compiled.used = False
            watched.changed = now
        level = self._warmth(compiled.index)
        if level == watched.stored:
            watched.due = now + self._interval
            if now - watched.changed > QUIET_AFTER_S:
                self._forget(key, watched)
            return False
        if self._write(compiled):
            watched.interval = min(watched.interval * 2, LONGEST_INTERVAL_S)
        watched.stored = level
        watched.changed = now
        watched.due = now + watched.interval
        with self._lock:
            self._not_new(key)
        return True

    def _forget(self, key: str, watched: _Watched) -> None:
        with self._lock:
            if self._watched.get(key) is watched:
                del self._watched[key]
            self._not_new(key)

    def _write(self, compiled: Compiled) -> bool:
        """To disk, then to the store. What fails is counted and logged by them; it is not tried again before the index
        has grown."""
        index = compiled.index
        path = self._disk.put(compiled.key, index.save, int(index.nbytes))
        if self._store is None:
            return path is not None
        try:
            if path is not None:
                data = path.read_bytes()
                envelope.verify_bytes(data, compiled.key, self._secret)  # another process may have replaced it
            else:
                data = envelope.sealed(index.save, compiled.key, self._secret)
        except (OSError, ValueError) as error:
            logger.warning("write-back: entry %s: %s", compiled.key[:12], error)
            return False
        return self._store.publish(compiled.key, data)
