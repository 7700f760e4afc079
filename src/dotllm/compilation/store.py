"""The third cache: a store that many machines share. It may be slow or dead, and never delays a request.

`fetch` and `publish` only queue work for the store's own few threads. A callback gets the answer of a fetch exactly
once, at the latest when `expire` finds that its time has passed. A call that hangs blocks only its thread, which Python
cannot interrupt. When all threads hang, fetches are answered "no" immediately, as with an open circuit breaker. Threads
are daemons, so a hanging store does not keep a server from ending.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, urlencode, urlsplit

from dotllm.compilation import disk
from dotllm.compilation.breaker import CircuitBreaker
from dotllm.compilation.disk import Damaged
from dotllm.compilation.metrics import Metrics
from dotllm.system import write_file

# Transports read and write one object of the shared store by name, through fsspec or Redis.
#
# A transport may block, and raises whatever its library raises. `SharedStore` adds threads, time limits and a circuit
# breaker. ``read`` returns None for an object that does not exist.


# The first part of every object's name; a new entry format (`disk.VERSION`) changes it.
PREFIX = "dotllm-index-v1"


def pack(entry: bytes) -> bytes:
    """An entry as an object: deflated to about a quarter, in a millisecond or two."""
    return zlib.compress(entry, 1)


def unpack(data: bytes, limit: int) -> bytes:
    """The inverse of `pack`. Raises `Damaged` if ``data`` is not packed, or unpacks to more than ``limit`` bytes."""
    inflate = zlib.decompressobj()
    try:
        entry = inflate.decompress(data, limit)
    except zlib.error as error:
        raise Damaged(f"not a packed entry: {error}") from None
    if not inflate.eof or inflate.unused_data:
        raise Damaged("cut off, too large, or followed by other bytes")
    return entry


class Transport(Protocol):
    """One object store."""

    def read(self, name: str) -> bytes | None:
        """The object, or None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Create or replace the object, whole or not at all."""


class FsspecTransport:
    """Any fsspec filesystem: s3://, gs://, abfs://, http:// (read only), file://, memory://, …"""

    def __init__(self, url: str, timeout: float) -> None:
        import fsspec
        from fsspec.asyn import AsyncFileSystem

        self._fs, root = fsspec.core.url_to_fs(url)
        # Other machines write too, so a cached listing may be stale at any time.
        self._fs.use_listings_cache = False
        self._root = root.rstrip("/")
        self._local = "file" in (self._fs.protocol if isinstance(self._fs.protocol, tuple) else (self._fs.protocol,))
        # Remote filesystems of fsspec are asynchronous inside; this is their time limit for one operation.
        self._limits: dict[str, Any] = {"timeout": timeout} if isinstance(self._fs, AsyncFileSystem) else {}

    def _path(self, name: str) -> str:
        return f"{self._root}/{PREFIX}/{name[:2]}/{name}"

    def read(self, name: str) -> bytes | None:
        """The object, or None."""
        try:
            data = self._fs.cat_file(self._path(name), **self._limits)
        except FileNotFoundError:
            return None
        return bytes(data)

    def write(self, name: str, data: bytes) -> None:
        """Create or replace. Object stores do so atomically; a plain directory does by rename."""
        path = self._path(name)
        if not self._local:
            self._fs.pipe_file(path, data, **self._limits)
            return
        self._fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        write_file(Path(path), data)


class RedisTransport:
    """``redis://[:password@]host:port/db`` or ``rediss://``, with ``?ttl=SECONDS`` for entries that expire."""

    def __init__(self, url: str, timeout: float) -> None:
        import redis

        place, _, query_text = url.partition("?")
        query = parse_qs(query_text, keep_blank_values=True)
        self._ttl = int(query.pop("ttl", ["0"])[0]) or None
        kept = urlencode(query, doseq=True)
        self._client: Any = redis.Redis.from_url(
            f"{place}?{kept}", socket_timeout=timeout, socket_connect_timeout=timeout
        )

    def read(self, name: str) -> bytes | None:
        """The value, or None."""
        data = self._client.get(f"{PREFIX}:{name}")
        return None if data is None else bytes(data)

    def check(self) -> None:
        """Raise what each call would raise because of the URL. This does not connect."""
        self._client.connection_pool.make_connection()

    def write(self, name: str, data: bytes) -> None:
        """Set the value."""
        self._client.set(f"{PREFIX}:{name}", data, ex=self._ttl)


_REDIS = ("redis", "rediss", "unix")


def check(url: str) -> None:
    """Check that a URL has a transport, and names a place.

    Raises:
        ImportError: the transport needs a package, which the message names.
        ValueError: there is no such transport, or no such place.
    """
    parts = urlsplit(url)
    scheme = parts.scheme
    if not scheme:
        raise ValueError(f"store {url!r} is not a URL (examples: s3://bucket/path, redis://host:6379/0, file:///path)")
    try:
        if scheme in _REDIS:
            import_module("redis")
            RedisTransport(url, timeout=1.0).check()
        else:
            import_module("fsspec").get_filesystem_class(scheme)
    except ImportError as error:
        raise ImportError(f"store {scheme}:// needs another package ({error}): see docs/compilation.md") from error
    except (TypeError, ValueError) as error:
        raise ValueError(f"store {scheme}://: {error}") from None
    if scheme in ("file", "local") and (parts.netloc or not parts.path.strip("/")):
        raise ValueError(f"store {url!r} needs an absolute path: file:///path")
    if scheme not in (*_REDIS, "memory") and not (parts.netloc or parts.path.strip("/")):
        raise ValueError(f"store {url!r} names no place (examples: s3://bucket/path, http://host/path)")


def open_transport(url: str, timeout: float) -> Transport:
    """The transport of a URL. Raises what `check` raises."""
    check(url)
    return RedisTransport(url, timeout) if urlsplit(url).scheme in _REDIS else FsspecTransport(url, timeout)


logger = logging.getLogger(__name__)

THREADS = 4
PENDING_FETCHES = 1024
PENDING_BYTES = 256 << 20
LARGEST_ENTRY_BYTES = 64 << 20

OnAnswer = Callable[[bytes | None], None]


class _Fetch:
    """A look-up in flight, answered once: by the thread that reads, or when its time has passed."""

    def __init__(self, key: str, deadline: float, on_answer: OnAnswer) -> None:
        self.key = key
        self.deadline = deadline
        self._on_answer: OnAnswer | None = on_answer
        self._lock = threading.Lock()

    @property
    def answered(self) -> bool:
        return self._on_answer is None

    def answer(self, data: bytes | None) -> bool:
        """Call the callback, unless that has been done. Returns whether this call did it."""
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
            # One thread only reads, so that a burst of writes does not hold up look-ups.
            thread = threading.Thread(target=self._loop, args=(number > 0,), name=f"dotllm-store-{number}", daemon=True)
            thread.start()

    @classmethod
    def open(cls, url: str, *, timeout: float, readonly: bool, secret: bytes, metrics: Metrics) -> SharedStore:
        """The store of a URL. Raises what `open_transport` raises."""
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
        """Write ``data`` soon. False if it will not be written (read-only, too large, or too many writes are
        waiting)."""
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
        """Answer None to fetches whose time has passed. The manager's supervisor calls it often."""
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
        """Stop the threads that are not hanging; answer None to the remaining fetches."""
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
        # While the breaker is open, writes wait (and are dropped when too many wait). The probe may be a write.
        return bool(self._writes) and (not self.breaker.is_open or self.breaker.would_probe(time.monotonic()))

    def _read(self, task: _Fetch) -> None:
        if task.answered:  # its time had passed before it began, which says nothing new about the store
            return
        data: bytes | None = None
        try:
            data = self._transport.read(task.key)
            self._succeeded()
            if data is not None:
                data = unpack(data, LARGEST_ENTRY_BYTES)
                disk.verify(data, task.key, self._secret)
        except disk.Damaged as error:
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
                "shared store %s does not answer (%s: %s); continuing without it, retrying later",
                self.name,
                type(error).__name__,
                error,
            )
