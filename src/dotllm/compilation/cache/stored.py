"""Indexes that outlive the process: on disk and in the shared store, read on demand, written back in the background."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.cache.disk import DiskCache
from dotllm.compilation.cache.store import SharedStore
from dotllm.compilation.cache.write_back import WriteBack
from dotllm.compilation.compiled import Compiled
from dotllm.compilation.contract import CompiledIndex, Engine
from dotllm.compilation.options import CompilationOptions

logger = logging.getLogger(__name__)

NO_SECRET = (
    "the shared store has no secret: whoever can write to it can change what masks allow. Set "
    "DOTLLM_STORE_SECRET to the same long random text on all servers that share it"
)
# One part in so many of the memory of compiled indexes is for those that are not stored yet.
NEW_SHARE = 8


class StoredIndexes:
    """The second and third cache, and what feeds them. Thread-safe."""

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
        """What all this may hold in memory: the indexes that wait for their first write."""

    def from_disk(self, key: str) -> CompiledIndex | None:
        """The index of ``key``, or None."""
        path = self.disk.open(key)
        return None if path is None else self._load(key, path, "disk")

    def fetch(self, key: str, on_index: Callable[[CompiledIndex | None], None]) -> bool:
        """Ask the shared store; ``on_index(index or None)`` is called once, later. False if there is no store."""
        if self.store is None:
            return False
        self.store.fetch(key, lambda data: on_index(None if data is None else self._load_fetched(key, data)))
        return True

    def watch(self, compiled: Compiled, *, stored: bool) -> None:
        """Write this index back when it has something new (see `WriteBack.watch`)."""
        self.write_back.watch(compiled, stored=stored)

    def tick(self, now: float) -> None:
        """Called often: answers what the store took too long for."""
        if self.store is not None:
            self.store.expire(now)

    def close(self) -> None:
        """End the threads (does not flush)."""
        self.write_back.close()
        if self.store is not None:
            self.store.close()

    def _load_fetched(self, key: str, data: bytes) -> CompiledIndex | None:
        path = self.disk.adopt(key, data)
        return self._load(key, data if path is None else path, "store")

    def _load(self, key: str, source: Path | bytes, level: str) -> CompiledIndex | None:
        start = time.perf_counter()
        try:
            index = self._engine.load(source, self._vocabulary)
        except Exception as error:  # whatever a damaged file makes of its loader
            self.disk.reject(key, error)
            return None
        self._metrics.observe("dotllm_load_seconds", level, value=time.perf_counter() - start)
        return index
