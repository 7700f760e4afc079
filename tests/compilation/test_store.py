"""The shared store helps when it answers, and delays nobody when it does not."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import fake_engine
import pytest
from fake_engine import spec

from dotllm.compilation import CompilationManager, disk
from dotllm.compilation.breaker import FAILURES, FIRST_PAUSE_S, CircuitBreaker
from dotllm.compilation.metrics import Metrics
from dotllm.compilation.store import PREFIX, FsspecTransport, SharedStore, open_transport, pack, unpack
from dotllm.errors import BudgetExceededError, UnsupportedError

Make = Callable[..., CompilationManager]


def wait_for(condition: Callable[[], Any], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.005)


class FakeTransport:
    """A dictionary that can be slow, hang, or fail."""

    def __init__(self) -> None:
        self.data: dict[str, bytes] = {}
        self.delay = 0.0
        self.hang: threading.Event | None = None
        self.error: Exception | None = None
        self.reads = 0

    def _trouble(self) -> None:
        if self.hang is not None:
            self.hang.wait(30)
        time.sleep(self.delay)
        if self.error is not None:
            raise self.error

    def read(self, name: str) -> bytes | None:
        self.reads += 1
        self._trouble()
        return self.data.get(name)

    def write(self, name: str, data: bytes) -> None:
        self._trouble()
        self.data[name] = data


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def store(transport: FakeTransport) -> Iterator[SharedStore]:
    store = SharedStore(transport, timeout=0.3, metrics=Metrics(), name="test")
    yield store
    store.close()


def fill(transport: FakeTransport, manager: CompilationManager, specification: Any, nbytes: int = 100) -> None:
    """Put an index of ``specification`` into the store, as another server would do."""
    key = manager.key(specification)
    transport.data[key] = pack(disk.seal(fake_engine.FakeIndex(specification.text, nbytes).to_bytes(), key))


# ---------------------------------------------------------------- circuit breaker


def test_breaker() -> None:
    breaker = CircuitBreaker()
    for _ in range(FAILURES - 1):
        assert breaker.allow(0.0) and not breaker.failure(0.0)
    assert breaker.would_probe(0.0) and breaker.allow(0.0)
    assert breaker.failure(0.0), "this one opens it"
    assert breaker.is_open and not breaker.would_probe(1.0) and not breaker.allow(1.0)
    later = FIRST_PAUSE_S + 0.1
    assert breaker.would_probe(later) and breaker.allow(later), "a probe"
    assert not breaker.would_probe(later) and not breaker.allow(later), "one probe at a time"
    assert not breaker.failure(FIRST_PAUSE_S + 0.1)
    assert not breaker.allow(FIRST_PAUSE_S + 0.1 + 1.5 * FIRST_PAUSE_S), "the pause has doubled"
    assert breaker.allow(FIRST_PAUSE_S + 0.2 + 2 * FIRST_PAUSE_S)
    breaker.success()
    assert not breaker.is_open and breaker.allow(0.0)


# ---------------------------------------------------------------- manager and store


def test_an_offloaded_compile_is_saved_by_the_store(
    make_manager: Make, transport: FakeTransport, store: SharedStore
) -> None:
    manager = make_manager(store=store)
    slow = spec(id=1, sleep=30.0)
    fill(transport, manager, slow)
    start = time.monotonic()
    compiled = manager.submit(slow).result(60)
    assert time.monotonic() - start < 20 and compiled.level == "store", "it did not wait for its own compile"


def test_compile_wins_and_the_warm_index_comes_later(
    make_manager: Make, transport: FakeTransport, store: SharedStore
) -> None:
    manager = make_manager(store=store)
    transport.delay = 0.15
    request = spec(id=1)
    fill(transport, manager, request, nbytes=5000)
    compiled = manager.submit(request).result(60)
    assert compiled.level == "compile" and compiled.guide().index.nbytes == 100
    wait_for(lambda: compiled.level == "store")
    assert compiled.guide().index.nbytes == 5000, "later guides use the warmer index"


def test_a_colder_index_from_the_store_replaces_nothing(
    make_manager: Make, transport: FakeTransport, store: SharedStore
) -> None:
    manager = make_manager(store=store)
    transport.delay = 0.1
    request = spec(id=1, bytes=5000)
    fill(transport, manager, request, nbytes=100)
    compiled = manager.submit(request).result(60)
    wait_for(lambda: transport.reads == 1)
    time.sleep(0.3)
    assert compiled.level == "compile" and compiled.index.nbytes == 5000


@pytest.mark.parametrize("how", ["exceed", "fail"])
def test_a_failure_waits_for_a_store_that_may_know_better(
    make_manager: Make, transport: FakeTransport, store: SharedStore, how: str
) -> None:
    """Another host may have compiled what exceeds the budget of this one."""
    manager = make_manager(store=store)
    transport.delay = 0.1
    request = spec(id=1, **{how: "too large for this host"})
    fill(transport, manager, request)
    assert manager.submit(request).result(60).level == "store"
    unknown = spec(id=2, **{how: "too large for anybody"})
    with pytest.raises((ValueError, RuntimeError), match="for anybody"):
        manager.submit(unknown).result(60)


def test_second_server_starts_warm(make_manager: Make, transport: FakeTransport, store: SharedStore) -> None:
    first = make_manager(store=store, store_write_interval=0.05)
    request = spec(id=1, sleep=0.2)
    index = first.submit(request).result(60).index
    wait_for(lambda: len(transport.data) == 1)
    cold = len(next(iter(transport.data.values())))
    index.nbytes = 9000  # as if requests had added states and rows
    wait_for(lambda: len(next(iter(transport.data.values()))) > cold)
    second = make_manager(store=SharedStore(transport, timeout=0.3))
    assert second.submit(request).result(60).index.nbytes == 9000


def test_writes_are_throttled(make_manager: Make, transport: FakeTransport, store: SharedStore) -> None:
    writes = []
    original = transport.write
    transport.write = lambda name, data: (writes.append(time.monotonic()), original(name, data))  # type: ignore
    manager = make_manager(store=store, store_write_interval=0.05)
    index = manager.submit(spec(id=1)).result(60).index
    end = time.monotonic() + 1.2
    while time.monotonic() < end:
        index.nbytes += 1
        time.sleep(0.002)
    assert 3 <= len(writes) <= 6, "at 0.05, then 0.1, 0.2, 0.4, 0.8 s later"
    unchanged = len(writes)
    wait_for(lambda: (time.sleep(0.4), True)[1])
    assert len(writes) <= unchanged + 1


def test_an_index_from_the_store_that_did_not_grow_is_not_written(
    make_manager: Make, transport: FakeTransport, store: SharedStore
) -> None:
    manager = make_manager(store=store, store_write_interval=0.05)
    request = spec(id=1, sleep=0.5)
    fill(transport, manager, request)
    manager.submit(request).result(60)
    before = dict(transport.data)
    transport.data.clear()
    time.sleep(0.3)
    manager.flush()
    assert before and not transport.data


def test_read_only(make_manager: Make, transport: FakeTransport) -> None:
    manager = make_manager(store=SharedStore(transport, timeout=0.3, readonly=True))
    manager.submit(spec(id=1)).result(60)
    manager.flush()
    assert not transport.data


@pytest.mark.parametrize("trouble", ["hang", "error", "slow"])
def test_trouble_delays_nobody(make_manager: Make, transport: FakeTransport, store: SharedStore, trouble: str) -> None:
    transport.hang = threading.Event() if trouble == "hang" else None
    transport.error = ConnectionError("refused") if trouble == "error" else None
    transport.delay = 5.0 if trouble == "slow" else 0.0
    metrics = Metrics()
    store = SharedStore(transport, timeout=4.0, metrics=metrics)  # far longer than a busy machine needs
    manager = make_manager(store=store, store_write_interval=0.05)
    waits = []
    for number in range(40):
        start = time.monotonic()
        manager.submit(spec(id=number)).result(60)
        waits.append(time.monotonic() - start)
        time.sleep(0.02)
    assert sorted(waits)[len(waits) // 2] < 1
    assert sum(wait > 3 for wait in waits) < FAILURES, "so many fail before nobody asks the store any more"
    wait_for(lambda: store.breaker.is_open)
    # (Writes of what has been compiled may fail in between, too.)
    assert sum(metrics.value("dotllm_store_failures", action) for action in ("read", "write")) >= FAILURES
    assert metrics.value("dotllm_store_available", "") == 0
    reads = transport.reads
    for number in range(100, 120):
        manager.submit(spec(id=number)).result(60)
    assert transport.reads == reads, "nobody asks while the breaker is open"
    if transport.hang is not None:
        transport.hang.set()


def test_a_refusal_is_not_held_back_by_a_dead_store(make_manager: Make, transport: FakeTransport) -> None:
    transport.hang = threading.Event()
    manager = make_manager(store=SharedStore(transport, timeout=0.2))
    with pytest.raises(BudgetExceededError):
        manager.submit(spec(exceed="no")).result(60)
    patient = make_manager(store=SharedStore(transport, timeout=60))
    with pytest.raises(UnsupportedError):  # every server refuses it, so nobody has stored an index of it
        patient.submit(spec(refuse="no")).result(60)
    wait_for(lambda: patient.metrics.value("dotllm_compiles", "json_schema", "refused") == 1)
    transport.hang.set()


def test_store_comes_back(transport: FakeTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.compilation.breaker.FIRST_PAUSE_S", 0.1)
    metrics = Metrics()
    store = SharedStore(transport, timeout=0.2, metrics=metrics)
    store.breaker._pause = 0.1
    answers: list[bytes | None] = []
    transport.error = OSError("down")
    for _ in range(FAILURES):
        before = len(answers)
        store.fetch("a" * 64, answers.append)
        wait_for(lambda before=before: len(answers) > before)
    assert store.breaker.is_open and metrics.value("dotllm_store_available", store.name) == 0
    transport.error = None
    time.sleep(0.15)
    store.fetch("a" * 64, answers.append)
    wait_for(lambda: len(answers) == FAILURES + 1)
    assert not store.breaker.is_open and metrics.value("dotllm_store_available", store.name) == 1
    store.close()


@pytest.mark.parametrize("what", ["cut", "cut inside", "flip", "flip inside", "other", "empty", "bomb", "newer"])
def test_damaged_entries_are_ignored_and_replaced(
    make_manager: Make, transport: FakeTransport, store: SharedStore, what: str
) -> None:
    manager = make_manager(store=store)
    request, other = spec(id=1, sleep=0.1), spec(id=2)
    fill(transport, manager, request)
    fill(transport, manager, other)
    key = manager.key(request)
    whole = transport.data[key]
    entry = unpack(whole, 1 << 20)
    transport.data[key] = {
        "cut": whole[:-9],
        "cut inside": pack(entry[:-9]),
        "flip": bytes([whole[0] ^ 1]) + whole[1:],
        "flip inside": pack(bytes([entry[0] ^ 1]) + entry[1:]),
        "other": transport.data[manager.key(other)],
        "empty": b"",
        "bomb": pack(bytes(200 << 20)),
        "newer": pack(entry.replace(disk.MAGIC + b"\1", disk.MAGIC + b"\2")),
    }[what]
    assert manager.submit(request).result(60).level == "compile"
    manager.flush()
    wait_for(lambda: transport.data[key] == whole)


def test_fetch_answers_exactly_once_even_when_late(transport: FakeTransport) -> None:
    store = SharedStore(transport, timeout=0.05)
    transport.delay = 0.2
    answers: list[Any] = []
    store.fetch("a" * 64, answers.append)
    time.sleep(0.1)
    store.expire(time.monotonic())
    assert answers == [None]
    time.sleep(0.25)
    assert answers == [None]
    store.close()


def test_close_answers_what_is_out(transport: FakeTransport) -> None:
    transport.hang = threading.Event()
    store = SharedStore(transport, timeout=60)
    answers: list[Any] = []
    store.fetch("a" * 64, answers.append)
    store.close()
    assert answers == [None]
    transport.hang.set()


def test_writes_that_fail_are_counted_and_open_the_breaker(transport: FakeTransport) -> None:
    metrics = Metrics()
    store = SharedStore(transport, timeout=0.2, metrics=metrics)
    transport.error = OSError("no space")
    for number in range(FAILURES):
        assert store.publish(f"{number:064x}", b"x") and store.flush(5)
    assert store.breaker.is_open and metrics.value("dotllm_store_available", store.name) == 0
    assert (
        metrics.value("dotllm_writes", "store", "failed") == metrics.value("dotllm_store_failures", "write") == FAILURES
    )
    store.close()


def test_a_receiver_that_fails_stops_no_thread(
    transport: FakeTransport, store: SharedStore, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(data: bytes | None) -> None:
        raise RuntimeError("not ready")

    store.fetch("a" * 64, fails)
    wait_for(lambda: "the receiver of entry" in caplog.text)
    answers: list[bytes | None] = []
    store.fetch("b" * 64, answers.append)
    wait_for(lambda: answers == [None])


def test_write_queue_is_bounded(transport: FakeTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.compilation.store.PENDING_BYTES", 10_000)
    transport.hang = threading.Event()
    metrics = Metrics()
    store = SharedStore(transport, timeout=1, metrics=metrics)
    taken = [store.publish(f"{number:064x}", b"x" * 1000) for number in range(50)]
    assert 10 <= sum(taken) <= 14 and metrics.value("dotllm_writes", "store", "dropped") >= 36
    transport.hang.set()
    for _ in range(2):
        assert store.flush(5)
        transport.hang = threading.Event()
        assert sum(store.publish(f"{number:064x}", b"x" * 1000) for number in range(10)) == 10, "there is room again"
        transport.hang.set()
    store.close()


# ---------------------------------------------------------------- real stores


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(command: list[str], port: int, environment: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **(environment or {})}
    )

    def listening() -> bool:
        assert process.poll() is None, f"{command[0]} ended with {process.returncode}"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    wait_for(listening, 20)
    return process


@pytest.fixture
def s3_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    pytest.importorskip("s3fs")
    if shutil.which("moto_server") is None:
        pytest.skip("moto_server is not installed (pip install 'moto[server]')")
    port = free_port()
    process = start_server(["moto_server", "-H", "127.0.0.1", "-p", str(port)], port)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem(skip_instance_cache=True).mkdir("dotllm-test")
    yield "s3://dotllm-test/indexes", process
    process.kill()
    process.wait()


def two_servers_share(make_manager: Make, url: str) -> None:
    request = spec(id=1, sleep=0.5)
    first = make_manager(store=SharedStore.open(url, timeout=5.0, readonly=False, secret=b"", metrics=Metrics()))
    first.submit(request).result(60).index.nbytes = 30_000
    first.flush()
    assert first.metrics.value("dotllm_compiles", "json_schema", "ok") == 1
    second = make_manager(store=SharedStore.open(url, timeout=5.0, readonly=False, secret=b"", metrics=Metrics()))
    found = second.submit(request).result(60)
    assert found.level == "store" and found.index.nbytes == 30_000
    missing = second.submit(spec(id=2)).result(60)
    assert missing.level == "compile"


def stopped_mid_run(make_manager: Make, url: str, process: subprocess.Popen[bytes]) -> None:
    manager = make_manager(store=url, store_timeout=60, store_write_interval=0.05)
    for number in range(40):
        if number == 10:
            process.kill()
            process.wait()
        start = time.monotonic()
        assert manager.submit(spec(id=number)).result(60)
        assert time.monotonic() - start < 20, "far less than the store's limit"
    assert manager.metrics.value("dotllm_compiles", "json_schema", "failed") == 0


def test_redis(make_manager: Make, redis_server: tuple[str, subprocess.Popen[bytes]]) -> None:
    two_servers_share(make_manager, redis_server[0])
    import redis

    client = redis.Redis.from_url(redis_server[0])
    assert all(name.startswith(PREFIX.encode()) for name in client.scan_iter()) and client.ttl(client.keys()[0]) == -1
    with_ttl = open_transport(redis_server[0] + "?ttl=100", 1.0)
    with_ttl.write("x", b"y")
    assert with_ttl.read("x") == b"y" and 0 < client.ttl(f"{PREFIX}:x") <= 100


@pytest.mark.parametrize("password", ["p&q=1", "x+y#z", "%25", "ä/?:@", " "])
def test_a_redis_password_with_any_character(password: str) -> None:
    """The library decodes the password, so it must be encoded. The query was put together from decoded parts."""
    import redis

    url = f"redis://localhost:6379/2?password={quote(password, safe='')}&username=me&ttl=5"
    made = open_transport(url, 1.0)._client.connection_pool.connection_kwargs  # type: ignore[attr-defined]
    plain = redis.Redis.from_url(url.removesuffix("&ttl=5")).connection_pool.connection_kwargs
    assert made["password"] == password and made["username"] == "me"
    for name in ("password", "username", "host", "port", "db"):
        assert made[name] == plain[name]


def test_redis_stopped_mid_run(make_manager: Make, redis_server: tuple[str, subprocess.Popen[bytes]]) -> None:
    stopped_mid_run(make_manager, *redis_server)


def test_s3(make_manager: Make, s3_server: tuple[str, subprocess.Popen[bytes]]) -> None:
    two_servers_share(make_manager, s3_server[0])


def test_s3_stopped_mid_run(make_manager: Make, s3_server: tuple[str, subprocess.Popen[bytes]]) -> None:
    stopped_mid_run(make_manager, *s3_server)


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """On a full disk, each entry left its own part of a file, which nobody removed."""
    key = "a" * 64
    path = tmp_path / PREFIX / key[:2] / key
    (path / "in the way").mkdir(parents=True)
    with pytest.raises(OSError):
        open_transport(f"file://{tmp_path}", 1.0).write(key, b"x")
    assert [left.name for left in path.parent.iterdir()] == [key]


def test_file_and_memory(make_manager: Make, tmp_path: Path) -> None:
    two_servers_share(make_manager, f"file://{tmp_path}/shared")
    left = [path for path in (tmp_path / "shared").rglob("*") if path.is_file()]
    assert len(left) >= 1 and not [path for path in left if path.suffix == ".tmp"]
    two_servers_share(make_manager, "memory://dotllm-test")


def test_urls_that_cannot_work_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="not a URL"):
        open_transport("/just/a/path", 1.0)
    with pytest.raises(ValueError, match="nonsense"):
        open_transport("nonsense://x", 1.0)
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(ImportError, match="needs another package"):
        open_transport("redis://x", 1.0)


@pytest.mark.parametrize("secret", ["", "long and random"])
def test_a_store_without_a_secret_is_worth_a_warning(
    make_manager: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture, secret: str
) -> None:
    make_manager(store=f"file://{tmp_path / 'store'}", store_secret=secret)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == (not secret)
    assert secret or "DOTLLM_STORE_SECRET" in warnings[0]
    assert not secret or secret not in caplog.text


def test_no_store_needs_no_secret(make_manager: Make, caplog: pytest.LogCaptureFixture) -> None:
    make_manager(disk_bytes=1 << 20)
    assert not caplog.records


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://:secret@localhost:6380/0", "redis://localhost:6380/0"),
        ("redis://user:secret@localhost/1?ttl=9", "redis://localhost/1"),
        ("redis://:secret@[::1]:6380/0", "redis://[::1]:6380/0"),
        ("memory:///place", "memory:///place"),
    ],
)
def test_the_name_says_which_store_it_is_without_the_password(tmp_path: Path, url: str, name: str) -> None:
    store = SharedStore.open(url, timeout=0.1, readonly=True, secret=b"", metrics=Metrics())
    assert store.name == name
    store.close()
    assert isinstance(open_transport(f"file://{tmp_path}", 1.0), FsspecTransport)
