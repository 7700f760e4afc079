"""The manager with real threads and a fake engine."""

from __future__ import annotations

import gc
import json
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import fake_engine
import pytest
from fake_engine import spec

from dotllm import cancellation
from dotllm.cancellation import Cancelled
from dotllm.compilation import CompilationManager, Specification
from dotllm.compilation.errors import CompilationError, CompileTimeout, QueueFull, Unavailable
from dotllm.compilation.jobs import CompileThreads, Job, JobQueue, Ticket
from dotllm.compilation.memory import grown
from dotllm.errors import UnsupportedError, without_frames

Make = Callable[..., CompilationManager]


def wait_for(condition: Callable[[], bool], timeout: float = 120.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.005)


def test_single_flight(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager = make_manager()
    tickets = []
    barrier = threading.Barrier(8)

    def submit() -> None:
        barrier.wait()
        tickets.extend(manager.submit(spec(id=1, sleep=0.1)) for _ in range(8))

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    indexes = {id(ticket.result(60).index) for ticket in tickets}
    assert len(tickets) == 64 and len(indexes) == 1
    assert len(compiler.compiled) == 1
    again = manager.submit(spec(id=1, sleep=0.1))
    assert again.done(), "a compiled specification is answered at once"
    assert manager.metrics.value("dotllm_index_lookups", "miss") == 1
    assert manager.metrics.value("dotllm_index_lookups", "memory") == 1
    assert manager.metrics.value("dotllm_index_lookups", "joined") == 63


def test_submit_never_blocks(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager = make_manager(compile_threads=1)
    compiler.gate = threading.Event()
    start = time.monotonic()
    tickets = [manager.submit(spec(id=i, gated=True)) for i in range(50)]
    assert time.monotonic() - start < 5, "behind the gate each would have taken ten seconds"
    assert not any(ticket.done() for ticket in tickets)
    compiler.gate.set()


def test_slow_compiles_hold_nobody_up(make_manager: Make) -> None:
    manager = make_manager(compile_threads=2)
    slow = [manager.submit(spec(id=i, sleep=1.5)) for i in range(6)]
    time.sleep(0.1)
    manager.submit(spec(id="quick")).result(60)
    assert not any(ticket.done() for ticket in slow), "it did not wait for one of them"
    for ticket in slow:
        ticket.result(60)


def test_a_long_queue_alone_starts_no_threads(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """More threads would only compete with the engine's loop; jobs that block all threads still get one more."""
    monkeypatch.setattr("dotllm.compilation.jobs.RELIEF_AFTER_S", 0.5)
    manager = make_manager(compile_threads=2)
    tickets = [manager.submit(spec(id=n, sleep=0.05)) for n in range(40)]  # a second
    most = 0
    while not tickets[-1].done():
        most = max(most, len(manager._threads))
        time.sleep(0.005)
    assert most == 2
    slow = [manager.submit(spec(id=100 + n, sleep=5)) for n in range(2)]
    wait_for(lambda: not len(manager._queue) and not manager._queue.idle)
    assert manager.submit(spec(id=102)).result(60) and not any(one.done() for one in slow)
    # (it counts as soon as its start returns, perhaps after its first job)
    wait_for(lambda: len(manager._threads) == 3)


def test_extra_threads_start_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for the GIL has taken no job yet, and must not make others start."""
    queue = JobQueue(10, 1 << 20)
    threads = CompileThreads(queue, lambda job: None, 0, 10)
    job, started = Job("k", spec(id=1), 0.001), list[bool]()
    monkeypatch.setattr(threads, "_start", lambda *, extra: started.append(extra))
    queue.put(job)
    for seconds, count in ((0.01, 0), (0.06, 1), (0.09, 1), (0.12, 2)):
        threads.relieve(job.submitted + seconds)
        assert len(started) == count


def test_extra_threads_go_home(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.compilation.jobs.EXTRA_IDLE_S", 0.1)
    manager = make_manager(compile_threads=1)
    tickets = [manager.submit(spec(id=i, sleep=0.4)) for i in range(4)]
    wait_for(lambda: len(manager._threads) > 1)
    for ticket in tickets:
        ticket.result(60)
    wait_for(lambda: len(manager._threads) == 1)


def test_end_while_a_thread_is_being_started(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_manager()._threads
    starting, go_on, start = threading.Event(), threading.Event(), threading.Thread.start

    def slowly(self: threading.Thread) -> None:
        if self.name.startswith("dotllm-compile-"):
            starting.set()
            assert go_on.wait(60)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", slowly)
    starter = threading.Thread(target=lambda: pool._start(extra=True), name="starter")
    starter.start()
    assert starting.wait(60)
    pool.join(0.01)
    go_on.set()
    starter.join()


def busy(make_manager: Make, compiler: fake_engine.Compiler, **options: Any) -> tuple[Any, Any]:
    """A manager whose only thread compiles until the compiler's gate is set, and the ticket of that job."""
    compiler.gate = threading.Event()
    manager = make_manager(compile_threads=1, **options)
    manager._threads.limit = 1
    blocker = manager.submit(spec(gated=True))
    wait_for(lambda: len(compiler.compiled) == 1)
    return manager, blocker


def test_short_work_first(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager, blocker = busy(make_manager, compiler)
    tickets = [manager.submit(spec(id="large", text="x" * 1_000_000)), manager.submit(spec(id="small"))]
    compiler.gate.set()
    for ticket in [blocker, *tickets]:
        ticket.result(60)
    order = [json.loads(text).get("id") for text in compiler.compiled]
    assert order == [None, "small", "large"]


def test_too_little_memory_is_not_the_fault_of_a_specification(
    make_manager: Make, compiler: fake_engine.Compiler, caplog: pytest.LogCaptureFixture
) -> None:
    manager = make_manager()
    with pytest.raises(Unavailable, match="no room for 9 bytes") as error:
        manager.submit(spec(memory="no room for 9 bytes")).result(60)
    assert "memory" in str(error.value) and not [record for record in caplog.records if record.levelname == "ERROR"]
    assert manager.submit(spec(memory="no room for 9 bytes")).result(60), "the failure is not remembered"


def test_refusal_reaches_all_its_tickets_and_is_remembered(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager = make_manager(failure_ttl=0.3)
    refused = spec(refuse="'not' cannot be enforced", sleep=0.05)
    tickets = [manager.submit(refused) for _ in range(3)]
    for ticket in tickets:
        with pytest.raises(UnsupportedError, match="cannot be enforced") as caught:
            ticket.result(60)
        assert caught.value.pointer == "/a" and caught.value.keyword == "not"
    with pytest.raises(UnsupportedError):
        manager.submit(refused).result(0)
    assert len(compiler.compiled) == 1
    time.sleep(0.35)
    with pytest.raises(UnsupportedError):
        manager.submit(refused).result(60)
    assert len(compiler.compiled) == 2
    assert manager.metrics.value("dotllm_refused", "json_schema", "not") == 2
    assert manager.metrics.value("dotllm_compiles", "json_schema", "refused") == 2


def test_failures_are_bounded(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.compilation.manager.REMEMBERED_FAILURES", 10)
    manager = make_manager()
    for number in range(30):
        with pytest.raises(UnsupportedError):
            manager.submit(spec(refuse="no", id=number)).result(60)
    assert len(manager._table.failures) == 10


def test_internal_error_is_named_and_hits_one_specification(make_manager: Make, caplog: Any) -> None:
    manager = make_manager()
    bad, good = manager.submit(spec(fail="boom")), manager.submit(spec(id=1))
    with pytest.raises(CompilationError, match="RuntimeError: boom"):
        bad.result(60)
    assert good.result(60)


@pytest.mark.parametrize("error", [MemoryError(), RecursionError("deep"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_compile_raises_the_worker_lives(make_manager: Make, error: BaseException) -> None:
    def compile_(specification: Any, vocabulary: Any) -> Any:
        if "bad" in specification.text:
            raise error
        return fake_engine.FakeIndex(specification.text, 10)

    manager = make_manager(compiler=compile_, compile_threads=1)
    manager._threads.limit = 1
    with pytest.raises(CompilationError, match=type(error).__name__):
        manager.submit(spec(id="bad")).result(60)
    assert manager.submit(spec(id="good")).result(60)


def test_transform_runs_once_per_ticket_and_its_failure_is_the_tickets(make_manager: Make) -> None:
    manager = make_manager()
    first = manager.submit(spec(id=1), lambda compiled: ("made", compiled.key))
    assert first.result(60)[0] == "made"

    def broken(compiled: Any) -> Any:
        raise ValueError("transform")

    with pytest.raises(ValueError, match="transform"):
        manager.submit(spec(id=1), broken).result(60)
    with pytest.raises(ValueError, match="transform"):
        manager.submit(spec(id=2), broken).result(60)
    assert manager.submit(spec(id=2)).result(60), "the index is there all the same"


def test_a_slow_transform_is_not_run_by_the_caller(make_manager: Make) -> None:
    """The engine's thread runs nothing whose time grows with a specification, not even for a cached index."""
    manager = make_manager()
    manager.compile(spec(id=1))
    ran: list[threading.Thread] = []
    begun = threading.Event()

    def transform(compiled: Any) -> str:
        begun.wait(60)
        ran.append(threading.current_thread())
        return "done"

    tickets = [manager.submit(spec(id=1), transform, slow=True) for _ in range(3)]
    assert not any(ticket.done() for ticket in tickets)
    begun.set()
    assert [ticket.result(60) for ticket in tickets] == ["done"] * 3
    assert threading.current_thread() not in ran
    manager.close()
    assert manager.submit(spec(id=1), transform, slow=True).result(60) == "done", "it is never left without an answer"


@pytest.mark.parametrize("how", ["cancel", "drop"])
def test_a_job_nobody_waits_for_is_not_started(make_manager: Make, compiler: fake_engine.Compiler, how: str) -> None:
    manager, blocker = busy(make_manager, compiler)
    first, second = manager.submit(spec(id="unwanted")), manager.submit(spec(id="unwanted"))
    wanted = manager.submit(spec(id="wanted, too"))  # (shorter specifications go first)
    if how == "cancel":
        assert first.cancel() and second.cancel()
    else:
        del first, second
        gc.collect()
    compiler.gate.set()
    assert blocker.result(60) and wanted.result(60)
    assert not any("unwanted" in text for text in compiler.compiled)
    assert manager.metrics.value("dotllm_compiles", "json_schema", "cancelled") == 1
    assert manager.submit(spec(id="unwanted")).result(60), "and it can be asked for again"


def test_one_cancelled_ticket_does_not_hurt_the_others(make_manager: Make) -> None:
    manager = make_manager()
    first, second = (manager.submit(spec(id=1, sleep=0.1)) for _ in range(2))
    assert first.cancel()
    assert second.result(60)


def test_back_pressure(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager, blocker = busy(make_manager, compiler, queue_limit=10)
    tickets = [manager.submit(spec(id=i)) for i in range(12)]
    refused = [ticket for ticket in tickets if ticket.done()]
    assert len(refused) == 2
    for ticket in refused:
        with pytest.raises(QueueFull):
            ticket.result()
    # A queue whose requests have gone away is not full.
    for ticket in tickets[:5]:
        ticket.cancel()
    late = manager.submit(spec(id="late"))
    assert not late.done()
    compiler.gate.set()
    assert blocker.result(60) and late.result(60)
    assert manager.submit(spec(id=11)).result(60), "being refused for a full queue is not remembered"


def test_what_made_room_in_a_full_queue_can_be_asked_for_again(
    make_manager: Make, compiler: fake_engine.Compiler
) -> None:
    manager, blocker = busy(make_manager, compiler, queue_limit=3)
    gone = [manager.submit(spec(id=i)) for i in range(3)]
    for ticket in gone:
        ticket.cancel()
    late = manager.submit(spec(id="late"))
    again = manager.submit(spec(id=0))
    assert len(manager._table.jobs) == 3, "the blocker and these two"
    compiler.gate.set()
    for ticket in (blocker, late, again):
        assert ticket.result(60)
    assert manager.metrics.value("dotllm_compiles", "json_schema", "cancelled") == 3
    wait_for(lambda: not manager._has_work())


def test_who_comes_while_a_compile_is_cancelled_gets_a_new_one(make_manager: Make) -> None:
    first, ended = threading.Event(), threading.Event()

    def compile_(specification: Any, vocabulary: Any) -> Any:
        if not first.is_set():
            first.set()
            assert ended.wait(60)
            raise Cancelled("nobody waits")
        return fake_engine.FakeIndex(specification.text, 10)

    manager = make_manager(compiler=compile_)
    gone = manager.submit(spec(id=1))
    assert first.wait(60)
    gone.cancel()
    (job,) = manager._table.jobs.values()
    job.cancelled.set()  # as the supervisor would
    ticket = manager.submit(spec(id=1))
    ended.set()
    assert ticket.result(60)


def test_who_comes_after_a_job_was_cancelled_on_its_way_between_queues_gets_a_new_one(make_manager: Make) -> None:
    """The supervisor found no waiter while a thread looked for the index; after that the job waits for a process."""
    manager = make_manager()
    queue = JobQueue(10, 1 << 20)  # nobody reads it
    tickets = [Ticket(), Ticket()]
    specification = spec(id=1)
    key = manager.key(specification)
    manager._table.find_or_join(key, specification, tickets[0], queue)
    job = queue.get(0)
    assert job is not None and manager._table.begin(job)
    tickets[0].cancel()
    assert manager._table.running() == ([job], [job])
    job.cancelled.set()  # as the supervisor would
    manager._table.requeue(job, queue)
    assert manager._table.find_or_join(key, specification, tickets[1], queue) == (None, "joined")
    manager._attempt(job, lambda _: None)
    assert tickets[1].result(60), "another job has taken its place"


def test_the_end_while_a_compile_is_cancelled(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    """After `close` has begun, nobody would run a new job."""
    manager, _ = busy(make_manager, compiler)
    ticket = manager.submit(spec(id=1))
    job = manager._table.jobs[manager.key(spec(id=1))]
    manager._table.closed = True
    manager._restart(job)
    assert manager._table.jobs[job.key] is job
    manager._table.closed = False
    manager.close(flush=0)
    compiler.gate.set()
    assert isinstance(ticket.exception(5), CompilationError)


def test_compiles_that_end_with_the_server_are_cancelled(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    """A failure would mean a bug, and an alert says so."""
    manager, _ = busy(make_manager, compiler)
    manager.submit(spec(id=1))
    manager.close(flush=0)
    compiler.gate.set()
    counted = [manager.metrics.value("dotllm_compiles", "json_schema", outcome) for outcome in ("failed", "cancelled")]
    assert counted == [0, 2]


def test_back_pressure_by_bytes(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager, blocker = busy(make_manager, compiler, queue_bytes=10_000)
    first = manager.submit(spec(text="x" * 9_000))
    second = manager.submit(spec(text="y" * 9_000))
    with pytest.raises(QueueFull):
        second.result(0)
    compiler.gate.set()
    assert blocker.result(60) and first.result(60)
    assert manager.submit(spec(text="z" * 50_000)).result(60), "a single large one is taken when nothing waits"


def test_bytes_are_those_of_utf8(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager, blocker = busy(make_manager, compiler, queue_bytes=10_000)
    first = manager.submit(Specification.create("json_schema", '{"text": "' + "é" * 3_000 + '"}'))
    second = manager.submit(Specification.create("json_schema", '{"text": "' + "ü" * 3_000 + '"}'))
    with pytest.raises(QueueFull, match="bytes"):
        second.result(0)
    compiler.gate.set()
    assert blocker.result(60) and first.result(60)


def test_time_limit(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    manager = make_manager(compile_timeout=0.1)
    compiler.gate = threading.Event()  # closed for longer than the time limit
    with pytest.raises(CompileTimeout, match="longer than"):
        manager.submit(spec(gated=True)).result(60)
    with pytest.raises(CompileTimeout):
        manager.submit(spec(gated=True)).result(0.1)
    compiler.gate.set()


class Endless:
    """A compile that ends only when it learns that nobody wants its result."""

    def __init__(self) -> None:
        self.began, self.ended = threading.Semaphore(0), threading.Semaphore(0)
        self.endless = True

    def __call__(self, specification: Any, vocabulary: Any) -> Any:
        self.began.release()
        try:
            while self.endless:
                cancellation.check()
                time.sleep(0.005)
        finally:
            self.ended.release()
        return fake_engine.FakeIndex(specification.text, 10)


def test_a_compile_on_a_thread_ends_when_its_time_is_over(make_manager: Make) -> None:
    compile_ = Endless()
    manager = make_manager(compile_timeout=0.1, compiler=compile_)
    with pytest.raises(CompileTimeout):
        manager.submit(spec(id=1)).result(60)
    assert compile_.ended.acquire(timeout=60)
    with pytest.raises(CompileTimeout):  # does not compile again: the failure is remembered
        manager.submit(spec(id=1)).result(60)
    assert manager.metrics.value("dotllm_compiles", "json_schema", "cancelled") == 0


def test_a_compile_on_a_thread_ends_when_nobody_waits(make_manager: Make) -> None:
    compile_ = Endless()
    manager = make_manager(compiler=compile_)
    ticket = manager.submit(spec(id=1))
    assert compile_.began.acquire(timeout=60)
    ticket.cancel()
    assert compile_.ended.acquire(timeout=60)
    wait_for(lambda: not manager._table.jobs)
    compile_.endless = False
    assert manager.submit(spec(id=1)).result(60), "and it can be asked for again"


def test_loading_the_engine_is_not_time_of_the_first_compile(make_manager: Make) -> None:
    """On a machine without compiled kernels, loading takes a minute, and the limit of a compile is 20 s."""
    manager = make_manager(compile_timeout=1.0)
    loaded = threading.Event()

    def prepare() -> None:
        if not loaded.is_set():
            time.sleep(1.5)  # beyond the limit
            loaded.set()

    manager._engine = manager._engine._replace(prepare=prepare)
    assert manager.submit(spec(id=1)).result(60)
    assert loaded.is_set()

    def broken() -> None:
        raise ImportError("no kernels")

    manager._engine = manager._engine._replace(prepare=broken)
    with pytest.raises(CompilationError, match="ImportError: no kernels"):
        manager.submit(spec(id=2)).result(60)


def test_close_fails_what_waits_and_ends_all_threads(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    compiler.gate = threading.Event()
    before = threading.active_count()
    manager = make_manager(disk_bytes=1 << 20, compile_threads=1)
    running, queued = manager.submit(spec(gated=True)), manager.submit(spec(id=2))
    compiler.gate.set()
    manager.close()
    for ticket in (running, queued):
        assert ticket.done()
    assert isinstance(manager.submit(spec(id=3)).exception(1), CompilationError)
    wait_for(lambda: threading.active_count() <= before)
    manager.close()


def test_memory_is_bounded_and_growth_is_noticed(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.compilation.manager.REMEASURE_INTERVAL_S", 0.05)
    manager = make_manager(cache_memory_bytes=1_000_000)
    for number in range(200):
        manager.submit(spec(id=number, bytes=20_000)).result(60)
        assert manager._table.memory.nbytes <= 1_000_000
    kept = len(manager._table.memory)
    assert 40 <= kept <= 50
    manager.cached(spec(id=199, bytes=20_000)).index.nbytes = 600_000  # type: ignore[union-attr]
    wait_for(lambda: len(manager._table.memory) < kept)
    assert manager._table.memory.nbytes <= 1_000_000
    assert manager.cached(spec(id=199, bytes=20_000)) is not None, "the least recently used went, not this one"
    wait_for(lambda: manager.metrics.value("dotllm_evictions", "memory") >= 150)


def test_submit_does_not_wait_while_memory_is_measured(make_manager: Make) -> None:
    asked: list[bool] = []

    class Index(fake_engine.FakeIndex):
        measured = False

        @property
        def nbytes(self) -> int:
            if Index.measured:
                asked.append(manager._table.lock.locked())
            return 100

        @nbytes.setter
        def nbytes(self, _: int) -> None:
            pass

    manager = make_manager(compiler=lambda specification, vocabulary: Index(specification.text, 100))
    for number in range(600):
        manager.submit(spec(id=number)).result(60)
    wait_for(lambda: not manager._table.jobs)
    Index.measured = True
    manager._measure_memory(0.0)
    assert len(asked) >= 600 and not any(asked)


def test_what_goes_while_it_is_measured_counts_no_more(make_manager: Make) -> None:
    manager = make_manager()
    for number in range(10):
        manager.submit(spec(id=number)).result(60)
    memory = manager._table.memory
    measured = memory.measured()
    for entry, _ in measured:
        entry.index.nbytes += 1000
    sizes = grown(measured)
    assert [entry.key for entry, _ in sizes] == [entry.key for entry, _ in measured]
    evicted = memory.evict(0.5)
    assert [json.loads(entry.specification.text)["id"] for entry in evicted] == [0, 1, 2, 3, 4]
    assert memory.resize(sizes) == []
    assert memory.nbytes == sum(entry.nbytes for entry, _ in sizes if entry not in evicted)
    assert not grown(memory.measured())
    memory.evict(1.0)
    assert memory.nbytes == 0 and not memory.measured()


def test_one_log_line_per_compile(make_manager: Make, caplog: pytest.LogCaptureFixture) -> None:
    manager = make_manager()
    with caplog.at_level(logging.INFO, logger="dotllm.compilation.manager"):
        good, refused = spec(id=1, bytes=77), spec(refuse="no")
        manager.submit(good).result(60)
        manager.submit(good).result(60)
        manager.submit(refused).exception(5)
        wait_for(lambda: len(caplog.records) >= 2)
    lines = [json.loads(record.getMessage().removeprefix("compile ")) for record in caplog.records]
    assert [line["outcome"] for line in lines] == ["ok", "refused"]
    assert lines[0]["key"] == manager.key(good) and lines[0]["level"] == "compile" and lines[0]["bytes"] == 77
    assert lines[1]["error"] == "UnsupportedError: no (at /a)"


def test_many_threads_many_specifications(make_manager: Make, compiler: fake_engine.Compiler) -> None:
    """Hits, joins, refusals and cancellations at the same time: every ticket ends, every key compiles once."""
    manager = make_manager(compile_threads=2, failure_ttl=60.0)
    results: list[tuple[Any, Any]] = []

    def client(seed: int) -> None:
        for number in range(300):
            which = (number * 7 + seed) % 100
            request = spec(id=which, refuse="no") if which % 10 == 0 else spec(id=which)
            ticket = manager.submit(request)
            if (number + seed) % 13 == 0:
                ticket.cancel()
                continue
            results.append((which, ticket))

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for which, ticket in results:
        error = ticket.exception(10)
        assert isinstance(error, UnsupportedError) if which % 10 == 0 else error is None
    assert len(compiler.compiled) == len(set(compiler.compiled))
    assert not manager._table.jobs


def test_shared_rows_are_bounded(make_manager: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows beyond half the bound: first unreferenced rows are freed, then the oldest indexes, until the rest fits."""
    monkeypatch.setattr("dotllm.compilation.manager.REMEASURE_INTERVAL_S", 0.05)
    manager = make_manager(cache_memory_bytes=1_000_000, disk_bytes=1 << 20)
    collections = []

    def collect(vocabulary: Any) -> int:
        collections.append(len(manager._table.memory))
        vocabulary.shared_nbytes = min(vocabulary.shared_nbytes, 10_000 * len(manager._table.memory))
        return 0

    manager._engine = manager._engine._replace(collect=collect)
    for number in range(100):
        manager.submit(spec(id=number, bytes=1000)).result(60)
    held = manager.cached(spec(id=0, bytes=1000))
    manager.flush()
    manager.vocabulary.shared_nbytes = 400_000
    time.sleep(0.15)
    assert not collections and len(manager._table.memory) == 100
    manager.cached(spec(id=99, bytes=1000))
    manager.vocabulary.shared_nbytes = 1_000_000
    wait_for(lambda: manager.vocabulary.shared_nbytes <= 500_000)
    time.sleep(0.15)
    assert 35 <= len(manager._table.memory) <= 50, "a quarter at a time"
    assert manager.cached(spec(id=99, bytes=1000)), "the last used is still there"
    assert manager.cached(spec(id=1, bytes=1000)) is None and held is not None and held.guide()
    assert manager.submit(spec(id=1, bytes=1000)).result(60).level == "disk", "evicted, not lost"


def test_what_is_about_one_text_is_kept_in_memory_only(make_manager: Make) -> None:
    manager = make_manager(disk_bytes=1 << 20)
    plain = spec(id="source")
    of_text = Specification.create(plain.kind, plain.text, {"source": "what a user wrote"})
    for specification, used in ((of_text, False), (plain, True)):
        assert manager.submit(specification).result(5).level == "compile"
        assert manager.cached(specification) is not None
        manager.flush()
        assert bool(manager._stored.disk.used) is used


@pytest.mark.parametrize("what", [{"refuse": "no"}, {"exceed": "memory"}, {"fail": "boom"}])
def test_a_failure_keeps_nothing_alive(make_manager: Make, what: dict[str, str]) -> None:
    """Neither the compile (through a traceback's frames), nor later requests for the same while it is remembered."""
    manager = make_manager()
    asked: list[weakref.ref[Any]] = []
    gc.disable()
    try:
        for _ in range(3):
            ticket = manager.submit(spec(id=what, **what))
            asked.append(weakref.ref(ticket))
            with pytest.raises((UnsupportedError, CompilationError)) as caught:
                ticket.result(60)
            without_frames(caught.value)  # as `errors` does at the end of a request
            del ticket, caught
        wait_for(lambda: not any(ref() for ref in asked))
        failure = manager._table.failures.get(manager.key(spec(id=what, **what)), 0.0)
        assert failure is not None and failure.__traceback__ is None
        assert failure.__context__ is None and failure.__cause__ is None
    finally:
        gc.enable()


def test_a_ticket_whose_grammar_cannot_be_made_frees_its_index(make_manager: Make) -> None:
    manager = make_manager(cache_memory_bytes=0)
    seen: list[weakref.ref[Any]] = []

    def breaks(compiled: Any) -> Any:
        seen.append(weakref.ref(compiled.index))
        raise ValueError("no guide")

    gc.disable()
    try:
        ticket = manager.submit(spec(id="breaks"), breaks)
        assert isinstance(ticket.exception(5), ValueError)
        wait_for(lambda: seen[0]() is None)
    finally:
        gc.enable()
