"""What is stored takes a small share of the interpreter, however many indexes are new."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.cache import write_back
from dotllm.compilation.cache.disk import DiskCache
from dotllm.compilation.cache.write_back import WriteBack

WORK = 0.004  # seconds of a write


class Disk:
    """Keeps keys; a write is work."""

    enabled = True

    def __init__(self) -> None:
        self.written: list[str] = []

    def put(self, key: str, write: Any, expected: int) -> Path:
        until = time.thread_time() + WORK
        while time.thread_time() < until:
            pass
        self.written.append(key)
        return Path(key)


def a_write_back(disk: Disk, *, interval: float = 0.02, new_bytes: int = 1 << 20) -> WriteBack:
    warmth = lambda index: index.warmth  # noqa: E731  # as an engine's
    return WriteBack(disk, None, warmth, interval=interval, new_bytes=new_bytes, secret=b"", metrics=Metrics())  # type: ignore[arg-type]


def compiled(number: int) -> Any:
    index = SimpleNamespace(warmth=1, nbytes=1000, save=None)

    class Compiled:
        """Can be referred to weakly."""

    made: Any = Compiled()
    made.key, made.index, made.nbytes, made.used = str(number), index, 1000, False
    return made


@pytest.mark.parametrize("new_bytes", [1 << 20, 40_000], ids=["no hurry", "hurry"])
def test_writes_take_a_twentieth(new_bytes: int) -> None:
    disk = Disk()
    writes = a_write_back(disk, new_bytes=new_bytes)
    kept = [compiled(i) for i in range(60)]
    for one in kept:
        writes.watch(one, stored=False)
    time.sleep(1.0)
    seen = len(disk.written)
    assert 3 <= seen <= 1.1 / (WORK * write_back.REST_FACTOR) + 2, "rests do not depend on how many wait"
    began = time.monotonic()
    writes.flush(30.0)
    assert time.monotonic() - began < 60 * WORK + 5, "who flushes does not wait for rests"
    assert len(set(disk.written)) >= 40
    writes.close()


def test_a_flush_ends_in_time() -> None:
    disk = Disk()
    writes = a_write_back(disk)
    kept = [compiled(i) for i in range(2000)]
    for one in kept:
        writes.watch(one, stored=False)
    time.sleep(0.2)
    began = time.monotonic()
    writes.flush(0.2)
    assert time.monotonic() - began < 5
    assert len(disk.written) < 2000
    writes.close()


def test_an_entry_that_is_not_the_one_written_is_not_published(tmp_path: Path) -> None:
    """Another process may have replaced it, or damaged it."""
    published: list[str] = []
    store = SimpleNamespace(publish=lambda key, data: published.append(key) or True, flush=lambda timeout: True)
    disk = DiskCache(tmp_path, 1 << 20)
    writes = WriteBack(
        disk, store, lambda index: index.warmth, interval=9.0, new_bytes=0, secret=b"", metrics=Metrics()
    )  # type: ignore[arg-type]
    for number, spoils in enumerate([False, True]):
        one = compiled(number)
        one.key, one.index.save = f"{number:064x}", lambda path: path.write_bytes(b"index") and None
        if spoils:
            disk.put = lambda *args: spoilt(DiskCache.put(disk, *args))  # type: ignore[method-assign]
        writes.watch(one, stored=False)
        writes.flush(5)
    assert published == [f"{0:064x}"]
    writes.close()


def spoilt(path: Path | None) -> Path:
    assert path is not None
    path.write_bytes(b"damaged")
    return path


def test_what_has_grown_is_written_again_and_then_seldom() -> None:
    disk = Disk()
    writes = a_write_back(disk, interval=0.05)
    one = compiled(1)
    writes.watch(one, stored=False)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        one.index.warmth += 1
        time.sleep(0.01)
    assert 3 <= len(disk.written) <= 8, "intervals double: 0.05, 0.1, 0.2, 0.4, 0.8, 1.6"
    writes.close()
