"""The second cache: indexes as files, shared by all processes of a machine.

    <directory>/entries/ab/<key>      one entry: Index.save's file plus the trailer of `envelope`
    <directory>/incoming/             files being written
    <directory>/lock                  flock'ed by the writer; holds the bytes used, or nothing after a crash

An entry appears by ``rename``, so it is whole or absent. The trailer shows all other damage (power loss, a bad disk, a
newer version, a foreign file), and the entry is removed and made again. Writers hold the lock, so a file that lies in
``incoming`` when one takes it was left by a killed writer and is deleted. Readers take no lock; an entry that is
evicted while a process reads it lives on in that process.

The bound holds at every moment for all processes together: room is made before an entry is moved in, and a partial
write counts too because it is written with the lock held. Order of eviction is by time of last use (mtime, touched on a
hit at most once a minute). Nothing here raises on a full, read-only or vanished disk: the cache is then just empty. No
process waits long for the lock: its holder may be stopped.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.cache import envelope

logger = logging.getLogger(__name__)

# Files are counted in blocks, as the disk does.
BLOCK_BYTES = 4096
# After an eviction this share of the bound is used, so that not every write has to evict.
KEEP_SHARE = 0.9
TOUCH_AFTER_S = 60.0
# A write holds the lock for some milliseconds. Who waited this long in vain does not wait again before it was had.
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
            logger.warning("no cache on disk: %s: %s", self.directory, error)
            return False
        return True

    def _make_directories(self) -> None:
        for part in (self.directory, self._entries, self._incoming):
            # Only this user may write what later decides masks.
            part.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        """Where the entry of ``key`` is, or would be."""
        return self._entries / key[:2] / key

    def open(self, key: str) -> Path | None:
        """The path of a verified entry, or None. A damaged entry is removed."""
        if not self.enabled:
            return None
        try:
            # (Mostly there is none, and this is asked for each new specification: a question to a text takes a fifth.)
            used = os.stat(f"{self._entries_text}/{key[:2]}/{key}").st_mtime
            path = self.path(key)
            envelope.verify_file(path, key, self._secret)
            if time.time() - used > TOUCH_AFTER_S:
                os.utime(path)
        except FileNotFoundError:
            return None
        except envelope.Damaged as error:
            self.reject(key, error)
            return None
        except OSError as error:
            logger.warning("cache on disk: %s: %s", self.path(key), error)
            return None
        return path

    def reject(self, key: str, why: Exception) -> None:
        """Remove an entry that is not usable (its own loader may find so after `open` did not)."""
        logger.warning("cache on disk: ignoring and removing entry %s: %s", key[:12], why)
        self._metrics.add("dotllm_cache_entries_ignored", "disk")
        with contextlib.suppress(OSError), self._locked() as usage:
            total = usage.read()
            usage.write(total - self._remove(self.path(key)))

    def put(self, key: str, write: Callable[[Path], None], expected: int) -> Path | None:
        """Store what ``write(path)`` writes, sealed, under ``key``. ``expected`` is its size as far as known.

        Returns the entry's path; None if it does not fit or cannot be written (or ``write`` raised).
        """
        if not self.enabled or _blocks(expected) > self.limit:
            return None
        return self._store(key, expected, lambda path: self._write_and_seal(path, key, write))

    def adopt(self, key: str, data: bytes) -> Path | None:
        """Store an entry that came sealed (from the shared store). It must have been verified."""
        if not self.enabled or _blocks(len(data)) > self.limit:
            return None
        return self._store(key, len(data), lambda path: path.write_bytes(data))

    def usage(self) -> tuple[int, int]:
        """(bytes, entries) by counting the files."""
        sizes = [stat.st_size for _, stat in self._scan()]
        return sum(map(_blocks, sizes)), len(sizes)

    @property
    def used(self) -> int:
        """Bytes used, as noted by the last writer; while one writes, as they were before."""
        with contextlib.suppress(OSError):
            text = self._lock_path.read_bytes()
            if text.isdigit():
                self._used = int(text)
        return self._used

    def _write_and_seal(self, path: Path, key: str, write: Callable[[Path], None]) -> int:
        write(path)
        return envelope.seal(path, key, self._secret)

    def _store(self, key: str, expected: int, write: Callable[[Path], int]) -> Path | None:
        target = self.path(key)
        temporary = self._incoming / f"{key}.{os.getpid()}"
        try:
            self._make_directories()  # they may have been deleted
            target.parent.mkdir(mode=0o700, exist_ok=True)
            with self._locked() as usage:
                total = self._make_room(usage.read(), expected)
                try:
                    size = write(temporary)
                    _flush(temporary)
                    if _blocks(size) > self.limit:
                        raise OSError(f"entry of {size} bytes, the bound is {self.limit}")
                    total = self._make_room(total, size)
                    replaced = _size(target)
                    os.replace(temporary, target)
                    _flush(target.parent)
                finally:
                    temporary.unlink(missing_ok=True)
                usage.write(total + _blocks(size) - replaced)
        except Exception as error:  # also those of the index's own save
            logger.warning("cache on disk: entry %s was not written: %s", key[:12], error)
            self._metrics.add("dotllm_writes", "disk", "failed")
            return None
        self._metrics.add("dotllm_writes", "disk", "stored")
        return target

    def _make_room(self, total: int, needed: int) -> int:
        """Evict, least recently used first, until ``needed`` more bytes fit. Returns the bytes then used."""
        needed = _blocks(needed)
        if total + needed <= self.limit:
            return total
        found = sorted(self._scan(), key=lambda entry: entry[1].st_mtime)
        total = sum(_blocks(stat.st_size) for _, stat in found)
        for path, _ in found:
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
        for shelf in os.scandir(self._entries):
            try:
                for entry in os.scandir(shelf.path):
                    yield Path(entry.path), entry.stat()
            except FileNotFoundError:
                continue

    @contextlib.contextmanager
    def _locked(self) -> Iterator[_Usage]:
        with self._lock_path.open("a+b") as file:
            os.chmod(self._lock_path, 0o600)
            self._lock(file.fileno())
            yield _Usage(file.fileno(), self._recount)

    def _lock(self, descriptor: int) -> None:
        """The lock, until the file is closed, if only by a kill. TimeoutError: another process keeps it."""
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
    """The number in the lock file. It is taken out by `read` and put back by `write`: a crash between leaves none."""

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
