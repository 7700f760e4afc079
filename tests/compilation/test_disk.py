"""The disk cache keeps whole entries or none, within its bound, whatever happens to files, writers and the disk."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path

import fake_engine
import pytest
from fake_engine import spec

from dotllm.compilation import CompilationManager, disk
from dotllm.compilation.disk import DiskCache
from dotllm.compilation.metrics import Metrics
from tests.cases import sample

MIB = 1 << 20
Make = Callable[..., CompilationManager]


def key_of(number: int) -> str:
    return f"{number:064x}"


def put(cache: DiskCache, number: int, data: bytes) -> Path | None:
    return cache.put(key_of(number), disk.seal(data, key_of(number), cache._secret))


def payload(entry: bytes) -> bytes:
    return entry[: -disk.TRAILER]


def test_round_trip_and_modes(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", MIB)
    assert cache.read(key_of(1)) is None
    assert put(cache, 1, b"one")
    found = cache.read(key_of(1))
    assert found is not None and payload(found) == b"one"
    assert put(cache, 1, b"another") and payload(cache.path(key_of(1)).read_bytes()) == b"another"
    assert cache.usage() == (4096, 1)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700


def test_what_is_verified_is_what_is_loaded(tmp_path: Path, make_manager: Make) -> None:
    """The file was read a second time after its verification, and could have been replaced in between."""
    first = make_manager(disk_bytes=MIB)
    first.compile(spec(id=1))
    first.flush()
    first.close()
    later = make_manager(disk_bytes=MIB)
    disk = later._stored.disk
    key = later.key(spec(id=1))
    read = disk.read

    def replaced(key: str) -> bytes | None:
        data = read(key)
        disk.path(key).write_bytes(fake_engine.FakeIndex("a foreign index", 100).to_bytes())
        return data

    disk.read = replaced  # type: ignore[method-assign]
    compiled = later.compile(spec(id=1))
    assert compiled.level == "disk" and compiled.key == key
    assert compiled.index.text == spec(id=1).text  # type: ignore[attr-defined]


@pytest.mark.parametrize("secret", [b"", b"secret"])
def test_damage_anywhere_is_noticed_and_removed(tmp_path: Path, secret: bytes) -> None:
    metrics = Metrics()
    cache = DiskCache(tmp_path, MIB, secret=secret, metrics=metrics)
    data = bytes(range(256)) * 3
    put(cache, 1, data)
    whole = cache.path(key_of(1)).read_bytes()
    damaged = [whole[:length] for length in (0, 1, 50, len(data), len(whole) - 1)]
    damaged += [whole + b"x", b"x" + whole, b"\0" * len(whole)]
    damaged += [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in range(0, len(whole), 7)]
    for number, wrong in enumerate(damaged):
        cache.path(key_of(1)).write_bytes(wrong)
        assert cache.read(key_of(1)) is None
        assert not cache.path(key_of(1)).exists()
        assert metrics.value("dotllm_cache_entries_ignored", "disk") == number + 1
    put(cache, 1, data)
    assert cache.read(key_of(1)), "and it can be replaced"


def test_foreign_newer_and_unauthentic_entries_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cache = DiskCache(tmp_path, MIB)
    put(cache, 1, b"entry of key 1")
    whole = cache.path(key_of(1)).read_bytes()
    cache.path(key_of(2)).write_bytes(whole)
    assert cache.read(key_of(2)) is None, "an entry is bound to its key"
    monkeypatch.setattr(disk, "VERSION", 2)
    put(cache, 3, b"from the future")
    monkeypatch.setattr(disk, "VERSION", 1)
    assert cache.read(key_of(3)) is None
    keyed = DiskCache(tmp_path, MIB, secret=b"k")
    assert keyed.read(key_of(1)) is None, "without our secret it is not ours"
    assert "written with another DOTLLM_STORE_SECRET" in caplog.text
    put(keyed, 1, b"x")
    assert DiskCache(tmp_path, MIB).read(key_of(1)) is None


def test_bound_holds_at_every_write_and_the_oldest_go(tmp_path: Path) -> None:
    metrics = Metrics()
    cache = DiskCache(tmp_path, 400_000, metrics=metrics)
    now = time.time()
    for number in range(300):
        put(cache, number, os.urandom(5_000))
        os.utime(cache.path(key_of(number)), (now - 10_000 + number,) * 2)
        if number == 5:
            continue
        assert cache.read(key_of(5)) or number < 5, "used all the time, so never evicted"
        assert cache.usage()[0] <= 400_000
    assert cache.read(key_of(299)) and cache.read(key_of(6)) is None
    assert metrics.value("dotllm_evictions", "disk") >= 200
    assert put(cache, 1000, b"x" * 500_000) is None, "larger than the bound"
    assert cache.usage()[0] <= 400_000


def test_bytes_used_are_known_while_somebody_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path, MIB)
    put(cache, 1, b"x" * 5000)
    assert cache.used == 8192
    seen = []
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: seen.append(cache.used) or write(path, data))
    put(cache, 2, b"x")
    assert seen == [8192] and cache.used == 12288


def test_what_goes_while_it_is_counted_hides_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = DiskCache(tmp_path, MIB)
    numbers = [number << 248 for number in range(8)]  # on different shelves
    for number in numbers:
        put(cache, number, b"x")
    scandir, asked = os.scandir, []

    def gone_at_first(path: str) -> object:
        asked.append(path)
        if len(asked) == 2:  # the first shelf
            raise FileNotFoundError(path)
        return scandir(path)

    assert cache.usage() == (8 * 4096, 8)
    monkeypatch.setattr(os, "scandir", gone_at_first)
    assert cache.usage() == (7 * 4096, 7)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 43)


def _directory(path: Path) -> None:
    path.mkdir()


def _link_to_itself(path: Path) -> None:
    path.symlink_to(path)


ODD = (_fifo, _endless, _directory, _link_to_itself)


@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_entry_is_not_read(odd: Callable[[Path], None], make_manager: Make) -> None:
    """A pipe made the request wait for ever; a file larger than the memory, as a damaged file system may show, made it
    fail."""
    manager = make_manager(disk_bytes=MIB)
    path = manager._stored.disk.path(manager.key(spec(id=1)))
    path.parent.mkdir()
    odd(path)
    assert manager.submit(spec(id=1)).result(60).level == "compile"


@pytest.mark.parametrize("place", ["entries", "entries/00"])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_no_entry_keeps_none_out(odd: Callable[[Path], None], place: str, tmp_path: Path) -> None:
    """Such a thing made counting or evicting fail, and from then on nothing was written."""
    put(DiskCache(tmp_path, MIB), 1, b"x")
    odd(tmp_path / place / "odd")
    (tmp_path / "lock").write_text("")  # as after a crash: the next writer counts
    cache = DiskCache(tmp_path, MIB)
    assert all(put(cache, number, b"x" * 90_000) for number in range(30))
    assert cache.usage()[0] <= MIB


def test_a_clock_that_was_wrong_keeps_no_entry_for_ever(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, MIB)
    future = time.time() + 1e8
    for number in range(8):
        put(cache, number, b"x" * 100_000)
        os.utime(cache.path(key_of(number)), (future, future))
    assert cache.read(key_of(3)) and cache.path(key_of(3)).stat().st_mtime < future, "used, so its time is right again"
    for number in range(8, 14):
        assert put(cache, number, b"x" * 100_000)
    kept = {number for number in range(14) if cache.read(key_of(number))}
    assert kept >= {3, *range(8, 14)}, "the newest, and what was used"


def test_entries_up_to_the_bound_are_taken(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 8192)
    assert cache.put(key_of(1), b"x" * 8192) and cache.put(key_of(2), b"x" * 8193) is None
    assert cache.usage() == (8192, 1) and cache.used == 8192, "what is too large makes no room for itself"


def test_two_processes_and_threads_share_one_bound(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from dotllm.compilation.disk import DiskCache, seal
cache = DiskCache(Path(sys.argv[1]), 600_000)
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 100):
    key = f"{number:064x}"
    cache.put(key, seal(os.urandom(6000), key))
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(start)]) for start in (0, 1000)]
    cache = DiskCache(tmp_path, 600_000)
    threads = [
        threading.Thread(target=lambda start=start: [put(cache, n, b"x" * 6000) for n in range(start, start + 50)])
        for start in (2000, 3000)
    ]
    for thread in threads:
        thread.start()
    while any(process.poll() is None for process in processes):
        assert cache.usage()[0] <= 600_000
    for thread in threads:
        thread.join()
    assert [process.returncode for process in processes] == [0, 0]
    total, entries = cache.usage()
    assert total <= 600_000 and entries > 50
    assert (tmp_path / "lock").read_text() == str(total), "the number kept is the number there is"


def test_kill_nine_during_writes(tmp_path: Path) -> None:
    """Writers killed at random moments, 50 with CASES=all.

    Every entry that can be opened is whole and right, and no file is left over.
    """
    script = Path(__file__).parent / "write_for_ever.py"
    for round_number in sample(range(50)):
        process = subprocess.Popen([sys.executable, str(script), str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.read(1)  # it is writing now
        time.sleep(0.0007 * (round_number % 25))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        cache = DiskCache(tmp_path, MIB)
        seen = 0
        for number in range(40):
            found = cache.read(key_of(number))
            if found is not None:
                seen += 1
                data = payload(found)
                assert data == bytes([number]) * len(data) and len(data) >= 20_000
        assert seen
        put(cache, 99, b"x")
        assert not list((tmp_path / "incoming").iterdir())
        total, _ = cache.usage()
        assert total <= MIB and (tmp_path / "lock").read_text() == str(total)


def test_a_disk_that_cannot_be_used_is_no_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "file"
    file.write_text("")
    cache = DiskCache(file, MIB)
    [message] = [record.getMessage() for record in caplog.records]
    assert f"{file} cannot be written" in message and "set DOTLLM_CACHE_DIR" in message
    assert not cache.enabled and put(cache, 1, b"x") is None and cache.read(key_of(1)) is None
    assert not DiskCache(tmp_path / "off", 0).enabled


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = Metrics()
    cache = DiskCache(tmp_path, MIB, metrics=metrics)
    write = Path.write_bytes

    def full(path: Path, data: bytes) -> None:
        write(path, b"part")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        assert put(cache, 1, b"whole") is None
    assert not list((tmp_path / "incoming").iterdir())
    assert metrics.value("dotllm_writes", "disk", "failed") == 1
    assert put(cache, 1, b"x") and cache.usage() == (4096, 1)
    assert not list((tmp_path / "incoming").iterdir())


@pytest.mark.parametrize("gone", ["c", "c/entries", "c/incoming", "c/lock"])
def test_what_is_deleted_at_run_time_is_made_again(tmp_path: Path, gone: str) -> None:
    cache = DiskCache(tmp_path / "c", MIB)
    put(cache, 1, b"x")
    shutil.rmtree(tmp_path / gone) if (tmp_path / gone).is_dir() else (tmp_path / gone).unlink()
    cache.reject(key_of(1), ValueError("whatever lies there"))
    assert cache.read(key_of(1)) is None
    assert put(cache, 1, b"x") and cache.read(key_of(1))
    assert cache.usage() == (4096, 1)
    assert (tmp_path / "c").stat().st_mode & 0o777 == 0o700
    sealed = cache.path(key_of(1)).read_bytes()
    shutil.rmtree(tmp_path / "c")
    assert cache.put(key_of(1), sealed) and cache.read(key_of(1))


def test_a_directory_that_cannot_be_made_again(tmp_path: Path) -> None:
    metrics = Metrics()
    cache = DiskCache(tmp_path / "c", MIB, metrics=metrics)
    shutil.rmtree(tmp_path / "c")
    (tmp_path / "c").write_text("a file of somebody else")
    assert put(cache, 1, b"x") is None and cache.read(key_of(1)) is None
    assert metrics.value("dotllm_writes", "disk", "failed") == 1


HOLDS_THE_LOCK = """
import fcntl, sys, time
with open(sys.argv[1], "a+b") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_stopped_process_that_holds_the_lock_holds_nobody_up(tmp_path: Path, monkeypatch, make_manager) -> None:
    """This happens after a Ctrl-Z in a terminal, or in a paused container."""
    monkeypatch.setattr("dotllm.compilation.disk.LOCK_PATIENCE_S", 0.2)
    cache = DiskCache(tmp_path / "cache" / "index", MIB)
    put(cache, 1, b"x")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDS_THE_LOCK, str(tmp_path / "cache" / "index" / "lock")], stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        holder.send_signal(signal.SIGSTOP)
        start = time.monotonic()
        metrics = Metrics()
        started_now = DiskCache(tmp_path / "cache" / "index", MIB, metrics=metrics)
        for one in (cache, started_now):
            assert one.enabled and one.read(key_of(1)), "reading takes no lock"
            assert all(put(one, number, b"x") is None for number in range(2, 52)), "the first waits a little"
            one.reject(key_of(3), ValueError("damaged"))
        manager = make_manager(disk_bytes=MIB)
        damaged = manager._stored.disk.path(manager.key(fake_engine.spec(id=1)))
        damaged.parent.mkdir(exist_ok=True)
        damaged.write_bytes(b"damaged")
        assert manager.submit(fake_engine.spec(id=1)).result(60).level == "compile"
        assert time.monotonic() - start < 30, "a hundred waits would take 200 s"
        assert metrics.value("dotllm_writes", "disk", "failed") == 50
    finally:
        holder.kill()
        holder.wait()
        assert holder.stdout is not None
        holder.stdout.close()
    assert put(cache, 2, b"x") and put(started_now, 3, b"x"), "all is well again when it is gone"


def test_manager_finds_what_another_compiled(make_manager, compiler: fake_engine.Compiler) -> None:
    specification = fake_engine.spec(id=1, bytes=5000)
    first = make_manager(disk_bytes=MIB)
    first.submit(specification).result(60)
    first.close()
    second = make_manager(disk_bytes=MIB)
    assert second.submit(specification).result(60).level == "disk"
    assert len(compiler.compiled) == 1
    assert second.metrics.value("dotllm_load_seconds", "disk") == 1


def test_manager_replaces_an_entry_its_loader_refuses(make_manager, compiler: fake_engine.Compiler) -> None:
    specification = fake_engine.spec(id=1)
    first = make_manager(disk_bytes=MIB)
    key = first.key(specification)
    first._stored.disk.put(key, disk.seal(b"not an index", key))
    assert first._stored.from_disk(first.key(specification)) is None
    assert first._stored.disk.usage() == (0, 0) and first.metrics.value("dotllm_cache_entries_ignored", "disk") == 1
    assert first.submit(specification).result(60).level == "compile"
    first.close()
    assert make_manager(disk_bytes=MIB).submit(specification).result(60).level == "disk"


def test_what_waits_for_its_first_write_counts_as_memory(make_manager, compiler: fake_engine.Compiler) -> None:
    """A disk that is slower than the stream of new specifications must not cost more memory than allowed."""
    manager = make_manager(disk_bytes=MIB, cache_memory_bytes=160_000, store_write_interval=0.01)
    write_back = manager._stored.write_back
    with write_back._io:  # blocks all writes
        compiled = [weakref.ref(manager.submit(fake_engine.spec(id=n, bytes=5_000)).result(60)) for n in range(200)]
        gc.collect()
        alive = [one for one in (reference() for reference in compiled) if one is not None]
        assert len(alive) > 10 and sum(one.nbytes for one in alive) <= 160_000
        assert write_back._new_bytes <= 20_000
        del alive
    manager.flush()
    assert manager.metrics.value("dotllm_writes", "disk", "dropped") > 100
    assert manager.metrics.value("dotllm_writes", "disk", "stored") > 10
    assert not write_back._new and write_back._new_bytes == 0
