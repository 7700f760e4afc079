"""The third cache: a store shared by many machines, which may be slow or dead, and never delays a request for it.

`fetch` and `publish` only put work into a queue for a few threads of the store's own. The answer of a fetch comes by
callback, exactly once, at the latest when `expire` finds its time over. A call that hangs keeps only its thread, which
Python cannot take back. When all threads hang, fetches are answered "no" at once, as with an open circuit breaker.
Threads are daemons, so a hanging store does not keep a server from ending.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.breaker import CircuitBreaker
from dotllm.compilation.cache import envelope
from dotllm.compilation.cache.transports import Transport, open_transport, pack, unpack

logger = logging.getLogger(__name__)

THREADS = 4
PENDING_FETCHES = 1024
PENDING_BYTES = 256 << 20
LARGEST_ENTRY_BYTES = 64 << 20

OnAnswer = Callable[[bytes | None], None]


class _Fetch:
    """A look-up on its way: answered once, by the thread that did it or by the clock."""

    def __init__(self, key: str, deadline: float, on_answer: OnAnswer) -> None:
        self.key = key
        self.deadline = deadline
        self._on_answer: OnAnswer | None = on_answer
        self._lock = threading.Lock()

    @property
    def answered(self) -> bool:
        return self._on_answer is None

    def answer(self, data: bytes | None) -> bool:
        """Call back, unless that has happened; whether it did so now."""
        with self._lock:
            on_answer, self._on_answer = self._on_answer, None
        if on_answer is None:
            return False
        try:
            on_answer(data)
        except Exception:
            logger.exception("shared store: the receiver of entry %s failed", self.key[:12])
        return True


class SharedStore:
    """Entries by key in some `Transport`. All methods return at once and never raise."""

    def __init__(
        self,
        transport: Transport,
        *,
        timeout: float,
        readonly: bool = False,
        secret: bytes = b"",
        metrics: Metrics | None = None,
        name: str = "",
    ) -> None:
        self.name = name
        self._transport = transport
        self._timeout = timeout
        self._readonly = readonly
        self._secret = secret
        self._metrics = metrics or Metrics()
        self._metrics.set("dotllm_store_available", name, value=1.0)
        self.breaker = CircuitBreaker()
        self._condition = threading.Condition()
        self._fetches: collections.deque[_Fetch] = collections.deque()
        self._writes: collections.OrderedDict[str, bytes] = collections.OrderedDict()
        self._write_bytes = 0
        self._pending: set[_Fetch] = set()
        self._writing = 0
        self._closed = False
        for number in range(THREADS):
            # One thread is for reads alone, so that a burst of writes does not hold up look-ups.
            thread = threading.Thread(target=self._loop, args=(number > 0,), name=f"dotllm-store-{number}", daemon=True)
            thread.start()

    @classmethod
    def open(cls, url: str, *, timeout: float, readonly: bool, secret: bytes, metrics: Metrics) -> SharedStore:
        """The store of a URL (see `transports.open_transport` for what it raises)."""
        transport = open_transport(url, timeout)
        parts = urlsplit(url)
        host_and_port = parts.netloc.rpartition("@")[2]  # without the password
        name = f"{parts.scheme}://{host_and_port}{parts.path}"
        return cls(transport, timeout=timeout, readonly=readonly, secret=secret, metrics=metrics, name=name)

    def fetch(self, key: str, on_answer: OnAnswer) -> None:
        """Look up ``key``; ``on_answer(data or None)`` is called exactly once, from another thread or from here."""
        now = time.monotonic()
        task = _Fetch(key, now + self._timeout, on_answer)
        with self._condition:
            refused = self._closed or len(self._pending) >= PENDING_FETCHES
            if not refused and self.breaker.allow(now):
                self._pending.add(task)
                self._fetches.append(task)
                self._condition.notify_all()
                return
        task.answer(None)

    def publish(self, key: str, data: bytes) -> bool:
        """Write ``data`` soon. False if it will not be written (read-only, too large, too much waiting)."""
        if self._readonly or len(data) > LARGEST_ENTRY_BYTES:
            return False
        with self._condition:
            replaced = self._writes.pop(key, b"")
            self._write_bytes -= len(replaced)
            if self._closed or self._write_bytes + len(data) > PENDING_BYTES:
                self._metrics.add("dotllm_writes", "store", "dropped")
                return False
            self._writes[key] = data
            self._write_bytes += len(data)
            self._condition.notify_all()
        return True

    def expire(self, now: float) -> None:
        """Answer fetches whose time is over with None. Called often by the manager's supervisor."""
        with self._condition:
            expired = [task for task in self._pending if now >= task.deadline]
            self._pending.difference_update(expired)
        for task in expired:
            if task.answer(None):
                self._failed("read", TimeoutError(f"no answer within {self._timeout:g} s"))

    def flush(self, timeout: float) -> bool:
        """Wait until everything published is written; False if ``timeout`` seconds were not enough."""
        with self._condition:
            return self._condition.wait_for(lambda: not self._writes and not self._writing, timeout)

    def close(self) -> None:
        """Stop the threads that are not hanging; fetches still out are answered None."""
        with self._condition:
            self._closed = True
            left = list(self._pending)
            self._pending.clear()
            self._condition.notify_all()
        for task in left:
            task.answer(None)

    def _loop(self, writes: bool) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._closed or self._fetches or (writes and self._can_write()), 1.0)
                if self._closed:
                    return
                task = self._fetches.popleft() if self._fetches else None
                key, data = "", b""
                if task is None and writes and self._can_write():
                    key, data = self._writes.popitem(last=False)
                    self._write_bytes -= len(data)
                    self._writing += 1
            if task is not None:
                self._read(task)
            elif key:
                self._write(key, data)

    def _can_write(self) -> bool:
        # While the breaker is open writes wait (and are dropped when too many do); the probe may be a write.
        return bool(self._writes) and (not self.breaker.is_open or self.breaker.would_probe(time.monotonic()))

    def _read(self, task: _Fetch) -> None:
        if task.answered:  # too late before it began: says nothing about the store that `expire` has not said
            return
        data: bytes | None = None
        try:
            data = self._transport.read(task.key)
            self._succeeded()
            if data is not None:
                data = unpack(data, LARGEST_ENTRY_BYTES)
                envelope.verify_bytes(data, task.key, self._secret)
        except envelope.Damaged as error:
            logger.warning("shared store: ignoring entry %s: %s", task.key[:12], error)
            self._metrics.add("dotllm_cache_entries_ignored", "store")
            data = None
        except Exception as error:
            if not task.answered:
                self._failed("read", error)
        with self._condition:
            self._pending.discard(task)
        task.answer(data)

    def _write(self, key: str, data: bytes) -> None:
        outcome = "failed"
        try:
            if self.breaker.allow(time.monotonic()):
                self._transport.write(key, pack(data))
                self._succeeded()
                outcome = "stored"
        except Exception as error:
            self._failed("write", error)
        finally:
            self._metrics.add("dotllm_writes", "store", outcome)
            with self._condition:
                self._writing -= 1
                self._condition.notify_all()

    def _succeeded(self) -> None:
        if self.breaker.is_open:
            logger.info("shared store %s answers again", self.name)
        self.breaker.success()
        self._metrics.set("dotllm_store_available", self.name, value=1.0)

    def _failed(self, operation: str, error: Exception) -> None:
        self._metrics.add("dotllm_store_failures", operation)
        if self.breaker.failure(time.monotonic()):
            self._metrics.set("dotllm_store_available", self.name, value=0.0)
            logger.warning(
                "shared store %s does not answer (%s: %s); going on without it, trying again later",
                self.name,
                type(error).__name__,
                error,
            )
