"""The second cache: indexes as files, shared by all processes of a machine.

    <directory>/entries/ab/<key>      one entry: an index and its trailer (`seal`)
    <directory>/incoming/             files being written
    <directory>/lock                  flock'ed by the writer; holds the bytes used, or nothing after a crash

An entry appears by ``rename``, so it is whole or absent. The trailer reveals any other damage (power loss, a bad disk,
a newer version, a foreign file); such an entry is removed and compiled anew. Writers hold the lock, so a file that a
new holder finds in ``incoming`` was left by a killed writer, and is deleted. Readers take no lock; an entry that is
evicted while a process reads it lives on in that process.

The bound holds at every moment for all processes together: room is made before an entry is moved in, and a partial
write counts because the lock is held meanwhile. The least recently used entries are evicted first (by mtime, which a
hit updates at most once a minute). Nothing here raises on a full, read-only or vanished disk: the cache is then empty.
No process waits long for the lock, because its holder may be suspended.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import logging
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dotllm.compilation.metrics import Metrics

# The trailer that makes a saved index an entry of a cache. It holds the key, the length and a checksum.
#
#     payload (what Index.to_bytes gave) | magic 8 | version u32 | reserved u32 | length u64 | key 32 | checksum 32
#
# It comes last, so the loader can read an entry unchanged. The checksum is SHA-256 over payload and trailer, or
# HMAC-SHA-256 with a secret. SHA-256 finds damage, but anybody can compute it, and an entry decides what masks allow.
# So a store that others can write to must have a secret (``DOTLLM_STORE_SECRET``). An entry whose key, length,
# checksum, magic or version differs is `Damaged`. Nothing is ever unpickled.


MAGIC = b"dotllmEN"
VERSION = 1
_FIELDS = struct.Struct("<8sIIQ32s")
_CHECKSUM = 32
TRAILER = _FIELDS.size + _CHECKSUM


class Damaged(ValueError):
    """Not an entry that may be used under this key: damaged, foreign, or from a newer version."""


def _checksum(secret: bytes, *parts: bytes | memoryview) -> bytes:
    digest = hmac.new(secret, digestmod=hashlib.sha256) if secret else hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def seal(payload: bytes, key: str, secret: bytes = b"") -> bytes:
    """The entry of ``key``: the payload and its trailer."""
    head = _FIELDS.pack(MAGIC, VERSION, 0, len(payload), bytes.fromhex(key))
    return b"".join((payload, head, _checksum(secret, payload, head)))


def verify(data: bytes, key: str, secret: bytes = b"") -> None:
    """Raise `Damaged` unless ``data`` is a whole, unharmed entry of ``key``."""
    if len(data) < TRAILER:
        raise Damaged("shorter than its trailer")
    payload, trailer = memoryview(data)[:-TRAILER], data[-TRAILER:]
    head, checksum = trailer[: _FIELDS.size], trailer[_FIELDS.size :]
    magic, version, _, length, found_key = _FIELDS.unpack(head)
    if magic != MAGIC:
        raise Damaged("no trailer: cut off, or not ours")
    if version != VERSION:
        raise Damaged(f"its trailer has version {version}, and this dotllm reads version {VERSION}")
    if length != len(payload):
        raise Damaged(f"{len(payload)} bytes of payload, {length} were written")
    if found_key != bytes.fromhex(key):
        raise Damaged("entry of another specification, vocabulary or engine")
    if not hmac.compare_digest(_checksum(secret, payload, head), checksum):
        raise Damaged("wrong checksum: damaged, or written with another DOTLLM_STORE_SECRET")


logger = logging.getLogger(__name__)

# Sizes of files are rounded up to whole blocks, as on the disk.
BLOCK_BYTES = 4096
# An eviction continues until only this share of the bound is used, so that not every write has to evict.
KEEP_SHARE = 0.9
TOUCH_AFTER_S = 60.0
# A write holds the lock for some milliseconds. After one timeout, do not wait again until the lock has been taken once.
LOCK_PATIENCE_S = 2.0
LOCK_POLL_S = 0.005


def _blocks(size: int) -> int:
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


class DiskCache:
    """Content-addressed files under ``directory``, at most ``limit`` bytes of them. Thread- and multi-process safe."""

    def __init__(self, directory: Path, limit: int, *, secret: bytes = b"", metrics: Metrics | None = None) -> None:
        self.directory = directory
        self.limit = limit
        self._secret = secret
        self._metrics = metrics or Metrics()
        self._entries = directory / "entries"
        self._entries_text = str(self._entries)
        self._incoming = directory / "incoming"
        self._lock_path = directory / "lock"
        self._used = 0
        self._waits_for_lock = True
        self.enabled = limit > 0 and self._prepare()

    def _prepare(self) -> bool:
        try:
            self._make_directories()
            with contextlib.suppress(TimeoutError), self._locked() as usage:
                usage.write(usage.read())
        except OSError as error:
            logger.warning(
                "no index is kept on disk: %s cannot be written (%s); set DOTLLM_CACHE_DIR, or mount a volume there",
                self.directory,
                error,
            )
            return False
        return True

    def _make_directories(self) -> None:
        for part in (self.directory, self._entries, self._incoming):
            # Only this user may write what later decides masks.
            part.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` is, or would be."""
        return self._entries / key[:2] / key

    def read(self, key: str) -> bytes | None:
        """A verified entry, or None. A damaged entry is removed.

        The caller gets the bytes that were verified: another process may replace the file at any time.
        """
        if not self.enabled:
            return None
        try:
            # (Every new specification is looked up here, mostly in vain. With a string as the path, this takes a fifth
            # of the time.)
            about = os.stat(f"{self._entries_text}/{key[:2]}/{key}")
            path = self.path(key)
            may_be_entry = stat.S_ISREG(about.st_mode) and about.st_size <= self.limit
            data = path.read_bytes() if may_be_entry else b""  # reading could wait, or take all memory
            verify(data, key, self._secret)
            if abs(time.time() - about.st_mtime) > TOUCH_AFTER_S:
                os.utime(path)
        except FileNotFoundError:
            return None
        except Damaged as error:
            self.reject(key, error)
            return None
        except OSError as error:
            logger.warning("cache on disk: %s cannot be read, and counts as missing: %s", self.path(key), error)
            return None
        return data

    def reject(self, key: str, why: Exception) -> None:
        """Remove an entry that cannot be used. (Its loader may find damage that `read` did not.)"""
        logger.warning("cache on disk: ignoring and removing entry %s: %s", key[:12], why)
        self._metrics.add("dotllm_cache_entries_ignored", "disk")
        with contextlib.suppress(OSError), self._locked() as usage:
            total = usage.read()
            usage.write(total - self._remove(self.path(key)))

    def put(self, key: str, entry: bytes) -> Path | None:
        """Store a sealed entry. An entry that was not made here must have been verified.

        Returns its path; None if it does not fit or cannot be written.
        """
        if not self.enabled or _blocks(len(entry)) > self.limit:
            return None
        target = self.path(key)
        temporary = self._incoming / f"{key}.{os.getpid()}"
        try:
            self._make_directories()  # they may have been deleted
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with self._locked() as usage:
                total = self._make_room(usage.read(), len(entry))
                try:
                    temporary.write_bytes(entry)
                    _flush(temporary)
                    replaced = _size(target)
                    os.replace(temporary, target)
                    _flush(target.parent)
                finally:
                    temporary.unlink(missing_ok=True)
                usage.write(total + _blocks(len(entry)) - replaced)
        except OSError as error:
            logger.warning("cache on disk: entry %s was not written: %s", key[:12], error)
            self._metrics.add("dotllm_writes", "disk", "failed")
            return None
        self._metrics.add("dotllm_writes", "disk", "stored")
        return target

    def usage(self) -> tuple[int, int]:
        """(bytes, entries) by counting the files."""
        sizes = [about.st_size for _, about in self._scan()]
        return sum(map(_blocks, sizes)), len(sizes)

    @property
    def used(self) -> int:
        """Bytes used, as the last writer recorded them; during a write, the number before that write."""
        with contextlib.suppress(OSError):
            text = self._lock_path.read_bytes()
            if text.isdigit():
                self._used = int(text)
        return self._used

    def _make_room(self, total: int, needed: int) -> int:
        """Evict, least recently used first, until ``needed`` more bytes fit. Returns the bytes then used."""
        needed = _blocks(needed)
        if total + needed <= self.limit:
            return total
        # A time in the future says only that the clock was wrong. Such entries would stay for ever.
        latest = time.time() + TOUCH_AFTER_S
        entries = sorted(self._scan(), key=lambda entry: entry[1].st_mtime if entry[1].st_mtime <= latest else 0)
        total = sum(_blocks(about.st_size) for _, about in entries)
        for path, _ in entries:
            if total + needed <= self.limit * KEEP_SHARE or not total:
                break
            total -= self._remove(path)
            self._metrics.add("dotllm_evictions", "disk")
        return total

    def _remove(self, path: Path) -> int:
        freed = _size(path)
        path.unlink(missing_ok=True)
        return freed

    def _scan(self) -> Iterator[tuple[Path, os.stat_result]]:
        """All files that may be entries. Others may vanish meanwhile, and what is not ours is passed over."""
        for shelf in os.scandir(self._entries):
            with contextlib.suppress(OSError):
                for entry in os.scandir(shelf.path):
                    with contextlib.suppress(OSError):
                        if entry.is_file(follow_symlinks=False):
                            yield Path(entry.path), entry.stat()

    @contextlib.contextmanager
    def _locked(self) -> Iterator[_Usage]:
        with self._lock_path.open("a+b") as file:
            os.chmod(self._lock_path, 0o600)
            self._lock(file.fileno())
            yield _Usage(file.fileno(), self._recount)

    def _lock(self, descriptor: int) -> None:
        """Take the lock; closing the file releases it, and so does a kill. TimeoutError if another process keeps it."""
        deadline = time.monotonic() + (LOCK_PATIENCE_S if self._waits_for_lock else 0.0)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    self._waits_for_lock = False
                    raise TimeoutError(f"another process keeps {self._lock_path} locked; is it stopped?") from None
            time.sleep(LOCK_POLL_S)
        self._waits_for_lock = True

    def _recount(self) -> int:
        """After a crash: delete half-written files, count the entries."""
        for left in os.scandir(self._incoming):
            with contextlib.suppress(OSError):
                os.unlink(left.path)
        return self.usage()[0]


class _Usage:
    """The number in the lock file. `read` takes it out and `write` puts it back, so a crash in between leaves none."""

    def __init__(self, descriptor: int, recount: Callable[[], int]) -> None:
        self._descriptor = descriptor
        self._recount = recount

    def read(self) -> int:
        text = os.pread(self._descriptor, 32, 0)
        os.ftruncate(self._descriptor, 0)
        return int(text) if text.isdigit() else self._recount()

    def write(self, value: int) -> None:
        # The file is open for appending, and empty since `read`.
        os.ftruncate(self._descriptor, 0)
        os.write(self._descriptor, str(max(0, value)).encode())


def _size(path: Path) -> int:
    try:
        return _blocks(path.stat().st_size)
    except FileNotFoundError:
        return 0


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
