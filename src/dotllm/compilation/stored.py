"""Indexes that outlive the process: on disk and in the shared store, read on demand, written back in the background."""

from __future__ import annotations

import collections
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from dotllm.compilation import disk
from dotllm.compilation.compiled import Compiled, CompiledIndex, Engine
from dotllm.compilation.disk import DiskCache
from dotllm.compilation.metrics import Metrics
from dotllm.compilation.options import CompilationOptions
from dotllm.compilation.store import SharedStore

# Write-back: indexes go to disk and to the shared store after they have been used, so that stored indexes are *warm*.
#
# Most of an index's value is in the states and mask rows that its first requests find. So it is written some seconds
# after its compile, and again when it has grown, at most once per interval. The interval doubles with every write, so
# an index that keeps growing costs few writes. An index that came from a cache and has not grown is not written.
#
# One thread writes, and rests between writes, because each write takes the interpreter for at least as long as a small
# compile. If every request brings a new schema, indexes are compiled faster than they are written; then the oldest are
# not stored. Nor is an index with very many results: its lock is held while they are copied, and the engine's loop may
# wait for it, with all its requests.


logger = logging.getLogger(__name__)

LONGEST_INTERVAL_S = 600.0
# An index that has been unused and unchanged for this long is skipped until it is used again.
QUIET_AFTER_S = 30.0
# `WriteBack` holds new indexes until their first write, within a bound in bytes, even if the cache in memory has
# evicted them. Above this share of the bound all of them are due immediately; above the bound the oldest are dropped.
NEW_HURRY = 0.5
REST_FACTOR = 19  # rest this many times as long as a write took: a twentieth of the interpreter
LONGEST_REST_S = 1.0
LARGEST_RESULT_BYTES = 4 << 20  # copied in 1 to 3 ms; 26 schemas of MaskBench had at most 2.5 MB after 12 texts each


class _Watched:
    """The state of one watched index."""

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
        """Watch an index from now on; ``stored``: the caches already have it as it is now."""
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
        """With the lock held: the index of ``key`` no longer waits for its first write."""
        _, size = self._new.pop(key, (None, 0))
        self._new_bytes -= size

    def flush(self, timeout: float) -> None:
        """Store every index that has something new without delay, and wait for the shared store."""
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
                logger.exception("write-back: round failed; continuing")

    def _round(self, *, force: bool, deadline: float = float("inf")) -> None:
        with self._io:
            with self._lock:
                hurry = self._in_a_hurry()
                candidates = list(self._watched.items())
            now = time.monotonic()
            for key, watched in candidates:
                hurried = force or (hurry and watched.stored < 0)
                if watched.due > now and not hurried:  # (true of most, and there may be thousands)
                    continue
                if self._closed or now > deadline or (self._urgent.is_set() and not force):
                    return
                began = time.thread_time()
                if self._visit(key, watched, now) and not force:
                    self._urgent.wait(min(LONGEST_REST_S, REST_FACTOR * (time.thread_time() - began)))
                now = time.monotonic()

    def _visit(self, key: str, watched: _Watched, now: float) -> bool:
        """Store an index if it is due and has something new. Returns whether there was something new."""
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
        if compiled.index.result_bytes > LARGEST_RESULT_BYTES:
            if watched.stored < 0:
                logger.info(
                    "write-back: index %s is not stored: its results take more than %d MiB",
                    key[:12],
                    LARGEST_RESULT_BYTES >> 20,
                )
                self._metrics.add("dotllm_writes", "disk", "dropped")
        elif self._write(compiled):
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
        """Write to disk, then to the store. Both count and log failures; a failed write is not tried again until the
        index has grown."""
        try:
            entry = disk.seal(compiled.index.to_bytes(), compiled.key, self._secret)
        except Exception as error:
            logger.warning("write-back: index %s cannot be stored: %s", compiled.key[:12], error)
            self._metrics.add("dotllm_writes", "disk", "failed")
            return False
        path = self._disk.put(compiled.key, entry)
        return path is not None if self._store is None else self._store.publish(compiled.key, entry)


NO_SECRET = (
    "the shared store has no secret: anyone who can write to it can change what masks allow. Set "
    "DOTLLM_STORE_SECRET to the same long random text on all servers that share it"
)
# Indexes that are not stored yet may hold 1 / this of the memory for compiled indexes.
NEW_SHARE = 8


class StoredIndexes:
    """The second and third caches, and the write-back that fills them. Thread-safe."""

    def __init__(
        self, vocabulary: Any, engine: Engine, options: CompilationOptions, metrics: Metrics, store: SharedStore | None
    ) -> None:
        self._vocabulary = vocabulary
        self._engine = engine
        self._metrics = metrics
        secret = options.store_secret.encode()
        self.disk = DiskCache(options.disk_directory, options.disk_bytes, secret=secret, metrics=metrics)
        if store is None and options.store:
            if not secret:
                logger.warning(NO_SECRET)
            store = SharedStore.open(
                options.store,
                timeout=options.store_timeout,
                readonly=options.store_readonly,
                secret=secret,
                metrics=metrics,
            )
        self.store = store
        self.write_back = WriteBack(
            self.disk,
            store,
            engine.warmth,
            interval=options.store_write_interval,
            new_bytes=options.cache_memory_bytes // NEW_SHARE,
            secret=secret,
            metrics=metrics,
        )
        self.memory_bytes = options.cache_memory_bytes // NEW_SHARE if self.write_back.enabled else 0
        """The most bytes that indexes waiting for their first write may take in memory."""

    def from_disk(self, key: str) -> CompiledIndex | None:
        """The index of ``key``, or None."""
        data = self.disk.read(key)
        return None if data is None else self._load(key, data, "disk")

    def fetch(self, key: str, on_index: Callable[[CompiledIndex | None], None]) -> None:
        """Ask the shared store; ``on_index(index or None)`` is called once, later."""
        assert self.store is not None
        self.store.fetch(key, lambda data: on_index(None if data is None else self._load_fetched(key, data)))

    def tick(self, now: float) -> None:
        """Answer the fetches that take the store too long. Called often."""
        if self.store is not None:
            self.store.expire(now)

    def close(self) -> None:
        """End the threads (does not flush)."""
        self.write_back.close()
        if self.store is not None:
            self.store.close()

    def _load_fetched(self, key: str, data: bytes) -> CompiledIndex | None:
        self.disk.put(key, data)
        return self._load(key, data, "store")

    def _load(self, key: str, data: bytes, level: str) -> CompiledIndex | None:
        start = time.perf_counter()
        try:
            index = self._engine.load(data, self._vocabulary)
        except Exception as error:  # a damaged file can make its loader raise anything
            self.disk.reject(key, error)
            return None
        self._metrics.observe("dotllm_load_seconds", level, value=time.perf_counter() - start)
        return index
