"""CompilationManager against a sequential model of it: the answer of each ticket, in whatever order things end.

Compiles wait (on the manager's own threads) until the model lets them end: with an index, a refusal, an exceeded
budget, a bug, a dead process, or too late. The shared store answers when the model says so, or never, or with something
that is not an index. Small specifications compile in threads, large ones in "processes". The model is a dictionary of
jobs and two caches.
"""

from __future__ import annotations

import gc
import json
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fake_engine
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dotllm import cancellation
from dotllm.cancellation import Cancelled
from dotllm.compilation import CompilationManager, CompilationOptions, Specification, disk
from dotllm.compilation import disk as disk_cache
from dotllm.compilation.errors import CompilationError, CompileMemory, CompileTimeout, ProcessDied
from dotllm.compilation.jobs import Ticket
from dotllm.compilation.metrics import Metrics
from dotllm.errors import UnsupportedError
from tests.model_based import sequences

THRESHOLD = 500  # bytes; larger specifications compile in processes
SPECIFICATIONS = {
    name: fake_engine.spec(id=name, text="x" * (THRESHOLD if name.startswith("large") else 1))
    for name in ("a", "b", "c", "large 1", "large 2")
}
ENDS: dict[str, Callable[[], Exception]] = {
    "refused": lambda: UnsupportedError("no"),
    "budget": lambda: CompileMemory.beyond(1 << 20),
    "bug": lambda: ZeroDivisionError("a bug"),
    "died": lambda: ProcessDied(-9),
}
RAISED = {"refused": UnsupportedError, "budget": CompileMemory, "bug": CompilationError, "died": ProcessDied}
FOR_EVER = 1e6  # seconds
WAIT_S = 30.0


class Gates:
    """Compiles that wait for permission to end."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.active: dict[str, int] = {}
        self.lock = threading.Lock()

    def compile(self, specification: Specification, check: Callable[[], None]) -> Any:
        name = json.loads(specification.text)["id"]
        with self.lock:
            self.active[name] = self.active.get(name, 0) + 1
        try:
            while True:
                check()
                with self.lock:
                    how = self.ends.pop(name, None)
                if how == "ok":
                    return fake_engine.FakeIndex(specification.text, 100)
                if how is not None:
                    raise ENDS[how]()
                time.sleep(0.0005)
        finally:
            with self.lock:
                self.active[name] -= 1


class Processes:
    """In place of a `ProcessCompiler`."""

    level, at_once, ready = "compile", 4, True

    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    def compile(self, specification: Specification, cancelled: threading.Event) -> Any:
        def check() -> None:
            if cancelled.is_set():
                raise Cancelled

        return self.gates.compile(specification, check)

    def ensure_worker(self) -> None: ...

    def close(self) -> None: ...


class Store:
    """A `SharedStore` that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: dict[str, list[Callable[[bytes | None], None]]] = {}

    def fetch(self, key: str, on_answer: Callable[[bytes | None], None]) -> None:
        self.asked.setdefault(key, []).append(on_answer)

    def publish(self, key: str, data: bytes) -> bool:
        return True

    def expire(self, now: float) -> None: ...

    def flush(self, timeout: float) -> bool:
        return True

    def close(self) -> None: ...


@dataclass
class Job:
    """What the model knows about a compile in flight."""

    tickets: list[Ticket] = field(default_factory=list)
    compiles: bool = True
    failure: type[Exception] | None = None
    """its compile has failed, so it waits for the store"""

    @property
    def is_wanted(self) -> bool:
        return bool(self.tickets)


class Manager(RuleBasedStateMachine):
    @initialize(disk=st.booleans(), store=st.booleans())
    def begin(self, disk: bool, store: bool) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.options = CompilationOptions(
            cache_dir=str(self.directory), disk_bytes=(1 << 22) if disk else 0, compile_processes=0, compile_threads=4,
            subprocess_threshold_bytes=THRESHOLD, failure_ttl=FOR_EVER, compile_timeout=FOR_EVER,
            store_write_interval=FOR_EVER,
        )  # fmt: skip
        self.with_disk, self.with_store = disk, store
        disk_cache.logger.disabled = True  # pytest keeps log records; an error's frames would hold a ticket
        self.on_disk: set[str] = set()
        self.tickets: list[weakref.ref[Ticket]] = []
        self.start()

    def start(self) -> None:
        self.gates, self.store = Gates(), Store()
        engine = fake_engine.engine(lambda specification, _: self.gates.compile(specification, cancellation.check))
        self.manager = CompilationManager(
            fake_engine.FakeVocabulary(), self.options, engine=engine, metrics=Metrics(),
            store=self.store if self.with_store else None, offload=Processes(self.gates),  # type: ignore[arg-type]
        )  # fmt: skip
        self.memory: set[str] = set()
        self.unwritten: set[str] = set()
        """compiled but not yet written to disk: held for the write even after memory has evicted them"""
        self.failures: dict[str, type[Exception]] = {}
        self.jobs: dict[str, Job] = {}
        self.unanswered: list[tuple[str, Job]] = []

    def until(self, condition: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"{what}: {self.jobs}"
            time.sleep(0.0005)

    def settle(self) -> None:
        """Wait until the manager agrees with the model."""
        table = self.manager._table
        for name, specification in SPECIFICATIONS.items():
            job, key = self.jobs.get(name), self.manager.key(specification)
            if job is not None and not job.is_wanted and job.compiles:
                self.manager._look_at_running(time.monotonic())
                del self.jobs[name]
                job = None
            self.until(lambda key=key, job=job: (key in table.jobs) == (job is not None), f"the job of {name}")  # type: ignore[misc]
            compiling = int(job is not None and job.compiles)
            self.until(lambda name=name, n=compiling: self.gates.active.get(name, 0) == n, f"compiles of {name}")  # type: ignore[misc]

    def ends(self, name: str, failure: type[Exception] | None, *, is_remembered: bool = True) -> None:
        """End the job of ``name`` with an index or a failure for all its tickets."""
        self.ends_now(name, failure, is_remembered=is_remembered)
        self.settle()

    def ends_now(self, name: str, failure: type[Exception] | None, *, is_remembered: bool = True) -> None:
        """The same without settling, for jobs that end at the same time."""
        job = self.jobs.pop(name)
        if failure is None:
            self.memory.add(name)
        elif is_remembered:
            self.failures[name] = failure
        for ticket in job.tickets:
            self.check(ticket, name, failure)

    def check(self, ticket: Ticket, name: str, failure: type[Exception] | None) -> None:
        error = ticket.exception(WAIT_S)
        if failure is None:
            assert error is None, error
            assert ticket.result().index.text == SPECIFICATIONS[name].text
        else:
            assert type(error) is failure, error

    # ---- what happens

    @rule(name=st.sampled_from(sorted(SPECIFICATIONS)), count=st.integers(1, 3))
    def submit(self, name: str, count: int) -> None:
        for _ in range(count):
            self.submit_one(name)
        self.settle()

    def submit_one(self, name: str) -> None:
        ticket = self.manager.submit(SPECIFICATIONS[name])
        self.tickets.append(weakref.ref(ticket))
        job = self.jobs.get(name)
        if name in self.memory or name in self.failures:
            assert ticket.done(), "a cache answers at once"
            self.check(ticket, name, self.failures.get(name) if name not in self.memory else None)
        elif job is None and name in self.on_disk:
            self.check(ticket, name, None)
            self.memory.add(name)
        else:
            assert not ticket.done()
            if job is None:
                job = self.jobs[name] = Job()
                if self.with_store:
                    self.unanswered.append((name, job))
            job.tickets.append(ticket)

    def some_job(self, data: Any, *, compiling: bool = False) -> str | None:
        names = sorted(name for name, job in self.jobs.items() if job.compiles or not compiling)
        return data.draw(st.sampled_from(names), "job") if names else None

    @precondition(lambda self: any(job.compiles for job in self.jobs.values()))
    @rule(data=st.data(), how=st.sampled_from(["ok", "ok", *ENDS]))
    def a_compile_ends(self, data: Any, how: str) -> None:
        name = self.some_job(data, compiling=True)
        assert name is not None
        job = self.jobs[name]
        self.gates.ends[name] = how
        if how == "ok":
            self.ends(name, None)
            self.unwritten.add(name)
        elif how != "refused" and self.asks_store(job):
            job.compiles, job.failure = False, RAISED[how]
            self.settle()
        else:
            self.ends(name, RAISED[how], is_remembered=how != "died")

    def asks_store(self, job: Job) -> bool:
        return any(one is job for _, one in self.unanswered)

    @rule()
    def the_time_is_over(self) -> None:
        """Only compiles in threads: processes keep the limit themselves."""
        self.manager._look_at_running(time.monotonic() + 2 * FOR_EVER)
        for name, job in list(self.jobs.items()):
            if not name.startswith("large") and job.compiles and job.failure is None:
                if self.asks_store(job):
                    job.failure = CompileTimeout  # and the job goes on
                else:
                    self.ends_now(name, CompileTimeout)
        self.settle()

    @precondition(lambda self: self.unanswered)
    @rule(data=st.data(), has_it=st.booleans(), unreadable=st.sampled_from([False, False, True]))
    def the_store_answers(self, data: Any, has_it: bool, unreadable: bool = False) -> None:
        """``unreadable``: a whole entry that is not an index of this engine. It counts as missing."""
        at = data.draw(st.integers(0, len(self.unanswered) - 1), "look-up")
        name, job = self.unanswered.pop(at)
        specification = SPECIFICATIONS[name]
        key = self.manager.key(specification)
        earlier = [one for one, _ in self.unanswered[:at]].count(name)
        answer = self.store.asked[key].pop(earlier)
        index = fake_engine.FakeIndex(specification.text, 100)
        if has_it and unreadable:
            has_it = False
            answer(disk.seal(b"no index", key))
        elif has_it:
            answer(disk.seal(index.to_bytes(), key))
            self.on_disk |= {name} if self.with_disk else set()
        else:
            answer(None)
        if self.jobs.get(name) is not job:
            self.settle()
        elif has_it:
            self.ends(name, None)
        elif job.failure is not None:
            self.ends(name, job.failure, is_remembered=job.failure is not ProcessDied)

    @precondition(lambda self: self.jobs)
    @rule(data=st.data(), dropped=st.booleans(), everyone=st.booleans(), again=st.booleans())
    def some_wait_no_more(self, data: Any, dropped: bool, everyone: bool, again: bool) -> None:
        """``again``: another request comes before the supervisor has looked."""
        name = self.some_job(data)
        assert name is not None
        job = self.jobs[name]
        gone = [job.tickets.pop() for _ in range(len(job.tickets) if everyone else min(1, len(job.tickets)))]
        for ticket in gone:
            if not dropped:
                assert ticket.cancel()
        del gone[:]
        ticket = None
        if again and self.manager.key(SPECIFICATIONS[name]) in self.manager._table.jobs and job.is_wanted:
            self.submit_one(name)
        self.settle()

    @rule()
    def memory_is_evicted(self) -> None:
        self.write()
        with self.manager._table.lock:
            self.manager._table.memory.evict(1.0)
        self.memory.clear()

    @rule()
    def failures_get_old(self) -> None:
        table = self.manager._table
        with table.lock:
            for key, (_, failure) in table.failures._entries.items():
                table.failures._entries[key] = (0.0, failure)
        self.failures.clear()

    def write(self) -> None:
        self.manager.flush()
        if self.with_disk:
            self.on_disk |= self.unwritten
        self.unwritten.clear()

    @precondition(lambda self: self.on_disk)
    @rule(data=st.data(), content=st.binary(max_size=200))
    def a_file_is_damaged(self, data: Any, content: bytes) -> None:
        name = data.draw(st.sampled_from(sorted(self.on_disk)), "file")
        self.manager._stored.disk.path(self.manager.key(SPECIFICATIONS[name])).write_bytes(content)
        self.on_disk.discard(name)

    @rule()
    def the_server_starts_again(self) -> None:
        self.write()
        self.stop()
        self.start()

    @invariant()
    def nobody_is_answered_early(self) -> None:
        assert not any(ticket.done() for job in getattr(self, "jobs", {}).values() for ticket in job.tickets)

    def stop(self) -> None:
        self.manager.close()
        for job in self.jobs.values():
            for ticket in job.tickets:
                assert type(ticket.exception(WAIT_S)) is CompilationError
        self.until(lambda: not any(self.gates.active.values()), "compiles go on")
        ticket = self.manager.submit(SPECIFICATIONS["b"])
        assert ticket.done(), "and nobody waits for a closed one"
        assert not self.manager._table.jobs
        self.jobs.clear()

    def teardown(self) -> None:
        if not hasattr(self, "manager"):
            return
        try:
            self.stop()
            self.unanswered.clear()
            del self.manager, self.store
            if any(reference() is not None for reference in self.tickets):
                gc.collect()
                assert not any(reference() is not None for reference in self.tickets), "a ticket is held"
        finally:
            disk_cache.logger.disabled = False
            shutil.rmtree(self.directory, ignore_errors=True)


class Answers:
    """Replaces Hypothesis's `data` in a sequence that is written down."""

    def __init__(self, **values: Any) -> None:
        self.values = values

    def draw(self, strategy: Any, label: str) -> Any:
        return self.values[label.replace("-", "_")]


def test_what_waits_for_its_first_write_repairs_a_damaged_file() -> None:
    """One sequence of tens of thousands found this: compiled, then stored through the shared store's late answer."""
    state = Manager()
    try:
        state.begin(disk=True, store=True)
        state.submit("c", 1)
        state.a_compile_ends(Answers(job="c"), "ok")
        state.the_store_answers(Answers(look_up=0), True)
        state.a_file_is_damaged(Answers(file="c"), b"")
        state.memory_is_evicted()
        assert state.on_disk == {"c"}
        state.submit("c", 1)
    finally:
        state.teardown()


def test_manager() -> None:
    run_state_machine_as_test(Manager, settings=sequences(200, steps=25))  # type: ignore[no-untyped-call]
