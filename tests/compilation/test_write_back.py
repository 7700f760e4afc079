"""Storing takes a small share of the interpreter's time, however many indexes are new."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.compilation import disk, stored
from dotllm.compilation.disk import DiskCache
from dotllm.compilation.metrics import Metrics
from dotllm.compilation.stored import WriteBack

WORK = 0.004  # seconds per write


class Disk:
    """Keeps the keys; every write takes some work."""

    enabled = True

    def __init__(self) -> None:
        self.written: list[str] = []

    def put(self, key: str, entry: bytes) -> Path:
        until = time.thread_time() + WORK
        while time.thread_time() < until:
            pass
        self.written.append(key)
        return Path(key)


def a_write_back(disk: Disk, *, interval: float = 0.02, new_bytes: int = 1 << 20) -> WriteBack:
    warmth = lambda index: index.warmth  # noqa: E731  # as an engine's
    return WriteBack(disk, None, warmth, interval=interval, new_bytes=new_bytes, secret=b"", metrics=Metrics())  # type: ignore[arg-type]


def compiled(number: int) -> Any:
    index = SimpleNamespace(warmth=1, nbytes=1000, result_bytes=900, to_bytes=lambda: b"index")

    class Compiled:
        """Can be referenced weakly."""

    made: Any = Compiled()
    made.key, made.index, made.nbytes, made.used = f"{number:064x}", index, 1000, False
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
    assert 3 <= seen <= 1.1 / (WORK * stored.REST_FACTOR) + 2, "rests do not depend on how many wait"
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


def test_the_store_gets_what_was_sealed_whatever_becomes_of_the_file(tmp_path: Path) -> None:
    """Another process may replace or damage the file."""
    published: dict[str, bytes] = {}
    store = SimpleNamespace(
        publish=lambda key, entry: published.update({key: entry}) or True, flush=lambda timeout: True
    )
    cache = DiskCache(tmp_path, 1 << 20)
    writes = WriteBack(
        cache, store, lambda index: index.warmth, interval=9.0, new_bytes=0, secret=b"s", metrics=Metrics()
    )  # type: ignore[arg-type]
    cache.put = lambda key, entry: spoilt(DiskCache.put(cache, key, entry))  # type: ignore[method-assign]
    one = compiled(1)
    writes.watch(one, stored=False)
    writes.flush(5)
    writes.close()
    assert cache.read(one.key) is None
    disk.verify(published[one.key], one.key, b"s")


def test_an_index_that_cannot_be_written_is_left_out() -> None:
    kept, metrics = Disk(), Metrics()
    warmth = lambda index: index.warmth  # noqa: E731
    writes = WriteBack(kept, None, warmth, interval=9.0, new_bytes=1 << 20, secret=b"", metrics=metrics)  # type: ignore[arg-type]
    broken, whole = compiled(1), compiled(2)
    broken.index.to_bytes = lambda: 1 / 0
    writes.watch(broken, stored=False)
    writes.watch(whole, stored=False)
    writes.flush(5)
    writes.close()
    assert kept.written == [whole.key] and metrics.value("dotllm_writes", "disk", "failed") == 1


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


def test_an_index_with_very_many_results_is_not_copied_while_requests_wait_for_it() -> None:
    disk = Disk()
    writes = a_write_back(disk)
    large, small = compiled(1), compiled(2)
    large.index.result_bytes = stored.LARGEST_RESULT_BYTES + 1
    for each in (large, small):
        writes.watch(each, stored=False)
    writes.flush(30.0)
    assert disk.written == [small.key]
    assert writes._metrics.value("dotllm_writes", "disk", "dropped") == 1
    large.index.warmth = 2
    writes.flush(30.0)
    assert writes._metrics.value("dotllm_writes", "disk", "dropped") == 1, "it is dropped once"
    large.index.result_bytes, large.index.warmth = stored.LARGEST_RESULT_BYTES, 3  # (a newer generation)
    writes.flush(30.0)
    assert disk.written == [small.key, large.key]
    writes.close()
