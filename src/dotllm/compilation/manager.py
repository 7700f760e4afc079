"""CompilationManager: from a specification to an index, once, without ever blocking the caller.

`submit` looks into memory and otherwise only puts a job into a queue; it never blocks and never raises. A worker thread
then looks on disk, asks the shared store *while* it compiles, and the first answer resolves all tickets of the job.

    submit ─► memory ─► remembered failure ─► job in flight ─► new job ─► queue ─► worker
                                                                                   │ disk
                                                                                   ├ store (in the background)
                                                                                   ├ compile here
                                                                  offload queue ◄──┘ large specifications
                                                                          └► compile in a process, on Ray

Rules that the code below keeps:
 * one job per key (single flight); every job ends exactly once (`JobTable`);
 * no lock is held while anything is compiled, loaded, written, or a ticket resolved (which runs foreign code);
 * whatever goes wrong with a job, its tickets get an exception, and nothing else is affected.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from dotllm.cancellation import Cancelled, cancellable
from dotllm.compilation import specification
from dotllm.compilation.compiled import Compiled, CompiledIndex, Engine
from dotllm.compilation.compiler import ENGINE
from dotllm.compilation.errors import CompilationError, CompileTimeout, PinnedMemoryFull, QueueFull
from dotllm.compilation.jobs import (
    CompileThreads,
    Job,
    JobQueue,
    JobState,
    JobTable,
    Supervisor,
    SwitchInterval,
    Ticket,
    Transform,
)
from dotllm.compilation.memory import FailureCache, MemoryCache, PinnedIndexes, grown
from dotllm.compilation.metrics import Metrics, reason
from dotllm.compilation.options import CompilationOptions
from dotllm.compilation.specification import Specification
from dotllm.compilation.store import SharedStore
from dotllm.compilation.stored import StoredIndexes
from dotllm.errors import SpecError, without_frames

if TYPE_CHECKING:
    from dotllm.compilation.process import ProcessCompiler

# The report of a job that has ended: it is counted by its outcome, and one line in the log gives its key, level and
# time.


# Operators filter by this name: docs/operations.md documents it.
logger = logging.getLogger("dotllm.compilation.manager")


def report(
    metrics: Metrics,
    job: Job,
    outcome: str,
    level: str = "",
    *,
    now: float,
    size: int = 0,
    warmth: int = 0,
    error: BaseException | None = None,
) -> None:
    """Count the end of ``job``, at ``now``, and log it. size, warmth: the bytes and the warmth of its index."""
    kind = job.specification.kind.value
    metrics.add("dotllm_compiles", kind, outcome)
    line = {
        "key": job.key,
        "kind": kind,
        "outcome": outcome,
        "level": level,
        "characters": job.specification.size,
        "queued_ms": round(((job.started or now) - job.submitted) * 1e3, 3),
        "seconds": round(now - (job.started or now), 6),
    }
    if error is None:
        line |= {"bytes": size, "warmth": warmth}
    else:
        line["error"] = f"{type(error).__name__}: {error}"[:500]
    logger.info("compile %s", json.dumps(line))


def offload_compiler(
    vocabulary: Any, options: CompilationOptions, load: Callable[[bytes, Any], Any]
) -> ProcessCompiler | None:
    """The compiler outside the threads of this process: processes of this machine, other machines, or none.
    ``load``: as in `Engine`."""
    if options.compile_processes <= 0:
        return None
    limits: dict[str, Any] = {
        "processes": options.compile_processes,
        "timeout": options.compile_timeout,
        "memory": options.compile_memory,
        "load": load,
    }
    if options.compile_on:
        from dotllm.compilation.remote import RayCompiler

        return RayCompiler(options.compile_on, vocabulary, **limits)
    from dotllm.compilation.process import ProcessCompiler

    return ProcessCompiler(vocabulary, **limits)


PUBLISH_INTERVAL_S = 0.5
# Threads beyond the configured number, for when all of those are busy (`CompileThreads.relieve`).
EXTRA_THREADS = 30
SLOW_TRANSFORMS = 4  # at once
REMEMBERED_FAILURES = 4096
# A compile that has run for this long is slow.
SLOW_AFTER_S = 0.05
REMEASURE_INTERVAL_S = 2.0
EVICTED_SHARE = 0.25
MEASURED_AT_ONCE = 256  # some 0.3 ms
# Specifications this many times as large as the smallest offloaded ones wait even for a process that is still starting.
OFFLOAD_WAIT_FACTOR = 8
# With `always_offload`, a compile waits for a process as long as the latest compile began at most this many seconds
# ago, but no longer than four times that in all. Then its thread compiles, and takes the GIL from the engine's loop.
OFFLOAD_PATIENCE_S = 0.25


class CompilationManager:
    """One per engine process and vocabulary. Thread-safe; `submit` neither blocks nor raises."""

    def __init__(
        self,
        vocabulary: Any,
        options: CompilationOptions | None = None,
        *,
        engine: Engine = ENGINE,
        offload: ProcessCompiler | None = None,
        store: SharedStore | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """``offload`` and ``store`` default to those that the options ask for."""
        self.vocabulary = vocabulary
        self.options = options = options or CompilationOptions.from_environment()
        self.metrics = metrics or Metrics()
        self._context = specification.context(vocabulary.fingerprint)
        self._engine = engine
        self._stored = StoredIndexes(vocabulary, engine, options, self.metrics, store)
        bound = options.cache_memory_bytes - self._stored.memory_bytes
        self._table = JobTable(
            MemoryCache(bound, lambda: engine.shared_bytes(vocabulary)),
            FailureCache(options.failure_ttl, REMEMBERED_FAILURES),
            lambda job: self.metrics.add("dotllm_compiles", job.specification.kind.value, "cancelled"),
        )
        self._pinned = PinnedIndexes(options.max_pinned_bytes)
        self._offload = offload if offload is not None else offload_compiler(vocabulary, options, engine.load)
        self._queue = JobQueue(options.queue_limit, options.queue_bytes)
        threads = max(1, options.compile_threads)
        self._threads = CompileThreads(self._queue, self._run, threads, threads + EXTRA_THREADS)
        # Only a few offloaded jobs compile at a time. The others wait in their own queue, not on a thread each.
        at_once = self._offload.at_once if self._offload is not None else 0
        self._offload_queue = JobQueue(options.queue_limit, options.queue_bytes)
        run = partial(self._attempt, work=self._compile_offloaded)
        self._offload_threads = CompileThreads(self._offload_queue, run, min(at_once, 2), at_once)
        self._transforms = ThreadPoolExecutor(SLOW_TRANSFORMS, thread_name_prefix="dotllm-transform")
        self._always_offload = False
        self._switch_interval = SwitchInterval()
        self._reports: deque[Callable[[], None]] = deque()  # of jobs that have ended
        self._supervisor = Supervisor(
            self._has_work,
            (self._threads.relieve, self._offload_threads.relieve, self._look_at_running, self._send_reports),
            self._stored.tick,
            ((REMEASURE_INTERVAL_S, self._measure_memory), (PUBLISH_INTERVAL_S, self._publish)),
        )
        self._supervisor.start()

    # ------------------------------------------------------------------ what callers use

    def submit(self, specification: Specification, transform: Transform | None = None, *, slow: bool = False) -> Ticket:
        """A ticket for the index of ``specification``.

        The ticket resolves to ``transform(compiled)`` (called on another thread, or here if the index is in memory and
        the transform is not ``slow``); it fails with the refusal (`dotllm.errors.SpecError`), `QueueFull`, or a
        `CompilationError`. A ticket that is dropped or cancelled no longer waits.
        """
        ticket = Ticket(transform)
        key = self.key(specification)
        answer, level = self._table.find_or_join(key, specification, ticket, self._queue)
        if isinstance(answer, Compiled):
            self._resolve(ticket, answer, slow=slow)
        elif answer is not None:
            ticket.fail(answer)
        if isinstance(answer, QueueFull):
            self.metrics.add("dotllm_compiles", specification.kind.value, "queue_full")
        self.metrics.add("dotllm_index_lookups", level)
        return ticket

    def _resolve(self, ticket: Ticket, compiled: Compiled, *, slow: bool) -> None:
        if slow:
            with contextlib.suppress(RuntimeError):  # closed in the meantime
                self._transforms.submit(ticket.resolve, compiled)
                return
        ticket.resolve(compiled)

    def start_processes(self) -> None:
        """Start the compile processes and wait until they can compile, so that no specification waits for a process to
        start."""
        if self._offload is not None:
            self._offload.start_all()

    def always_offload(self) -> None:
        """From now on, offload every compile for which a process is free: on a GPU host the engine's loop holds the
        GIL, and a compile thread would only interleave with it."""
        self._always_offload = True
        # Each compile in a process takes a thread, which waits. Two more load indexes and begin the next compiles.
        self._threads.grow(self.options.compile_processes + 2)
        if self._offload is not None:
            self._offload.ensure_worker()  # (a process takes a second to start)

    def key(self, specification: Specification) -> str:
        """The key of a specification in every cache."""
        return specification.key(self._context)

    def cached(self, specification: Specification) -> Compiled | None:
        """The compiled specification, if it is in memory."""
        return self._table.cached(self.key(specification))

    def compile(self, specification: Specification, timeout: float | None = None) -> Compiled:
        """`submit` and wait, for callers that can block. Raises what the ticket would raise."""
        compiled: Compiled = self.submit(specification).result(timeout)
        return compiled

    def flush(self, timeout: float = 30.0) -> None:
        """Write every new index to disk and to the store."""
        self._stored.write_back.flush(timeout)

    def close(self, flush: float = 2.0) -> None:
        """End all threads and processes; waiting tickets fail. New indexes are stored first, in at most ``flush``
        seconds."""
        jobs = self._table.close()
        if jobs is None:
            return
        if flush > 0:
            self._stored.write_back.flush(flush)
        self._queue.close()
        self._offload_queue.close()
        self._transforms.shutdown(wait=False)
        for job in jobs:
            job.cancelled.set()
            self._fail(job, CompilationError("the compilation manager was closed"))
        self._stored.close()
        if self._offload is not None:
            self._offload.close()
        self._supervisor.stop()
        self._threads.join(1.0)
        self._offload_threads.join(1.0)
        self._supervisor.join(1.0)
        self._send_reports()
        self._switch_interval.set(short=False)
        self._publish(time.monotonic())

    # ------------------------------------------------------------------ a job's life

    def _run(self, job: Job) -> None:
        """On a worker thread: take a job to its end, or into the queue of offloaded jobs."""
        try:
            self._engine.prepare()  # before the clock of the job's time limit starts
        except BaseException as error:
            self._fail(job, error)
            return
        self._attempt(job, self._find_or_compile)

    def _attempt(self, job: Job, work: Callable[[Job], tuple[CompiledIndex, str] | None]) -> None:
        """Start the job's clock and call ``work``, a part of the job. If that returns an index (with its level) or
        raises, the job ends; if it returns None, the job continues elsewhere."""  # noqa: DOC501
        if not self._table.begin(job):
            self._restart(job)
            return
        try:
            if self._pinned.is_full(self._table.cached_indexes):
                raise PinnedMemoryFull(self._pinned.limit)
            outcome = work(job)
        except Cancelled:
            self._restart(job)
        except BaseException as error:  # including SystemExit of a front end: the tickets must not wait for ever
            self._fail(job, error)
        else:
            if outcome is not None:
                self._finish(job, *outcome)

    def _find_or_compile(self, job: Job) -> tuple[CompiledIndex, str] | None:
        stored = not job.specification.is_of_one_text
        index = self._stored.from_disk(job.key) if stored else None
        if index is not None:
            return index, "disk"
        if stored and self._stored.store is not None:
            self._table.ask_store(job)
            self._stored.fetch(job.key, lambda fetched: self._fetched(job, fetched))
        if self._offload is None or not self._is_large(job):
            return self._compile_here(job), "compile"
        self._table.requeue(job, self._offload_queue)
        return None

    def _compile_offloaded(self, job: Job) -> tuple[CompiledIndex, str]:
        assert self._offload is not None
        self._table.step(job, JobState.OFFLOADED)
        start = time.perf_counter()
        index = self._offload.compile(job.specification, job.cancelled)
        self.metrics.observe("dotllm_compile_seconds", job.specification.kind.value, value=time.perf_counter() - start)
        return index, self._offload.level

    def _compile_here(self, job: Job) -> CompiledIndex:
        """Compile on this thread or, where that would disturb the engine's loop, in a process that can begin soon."""
        specification = job.specification
        start = time.perf_counter()
        index = None
        if self._offload is not None and self._always_offload:
            self._table.step(job, JobState.OFFLOADED)
            index = self._offload.try_compile(specification, job.cancelled, OFFLOAD_PATIENCE_S)
        if index is None:
            self._table.step(job, JobState.RUNNING)
            with cancellable(job.cancelled):
                index = self._engine.compile(specification, self.vocabulary)
        self.metrics.observe("dotllm_compile_seconds", specification.kind.value, value=time.perf_counter() - start)
        return index

    def _is_large(self, job: Job) -> bool:
        """Whether to offload a job because of its size. While the first process is starting, all but very large jobs
        stay here."""
        assert self._offload is not None
        if job.nbytes < self.options.subprocess_threshold_bytes:
            return False
        if self._offload.ready:
            return True
        self._offload.ensure_worker()
        return job.nbytes >= OFFLOAD_WAIT_FACTOR * self.options.subprocess_threshold_bytes

    def _fetched(self, job: Job, index: CompiledIndex | None) -> None:
        """The shared store answered (on one of its threads): an index, or None."""
        failure = self._table.store_answered(job)
        if index is not None:
            self._finish(job, index, "store")
        elif failure is not None:
            self._fail(job, failure)

    def _finish(self, job: Job, index: CompiledIndex, level: str) -> None:
        """Give the job an index. The first index resolves the tickets; a later one from the store replaces it if it is
        warmer."""
        compiled = Compiled(job.key, job.specification, index, level)
        self._pinned.add(index)
        waiting = self._table.finish(job, compiled)
        if waiting is None:
            upgraded = self._table.upgrade(compiled, self._warmth) if level == "store" else None
            if upgraded is not None:
                self._stored.write_back.watch(upgraded, stored=True)
            return
        job.cancelled.set()  # a compile that is still running is no longer needed
        if not job.specification.is_of_one_text:
            self._stored.write_back.watch(compiled, stored=level in ("disk", "store"))
        now = time.monotonic()
        for ticket in waiting:
            ticket.resolve(compiled)
        waits, size = [now - ticket.submitted for ticket in waiting], int(index.nbytes)
        tell = partial(self._report, job, level, waits, now=now, size=size, warmth=self._warmth(compiled))
        if self._always_offload:  # A report now would take the GIL from a loop that has just got its index.
            self._reports.append(tell)
        else:
            tell()

    def _report(self, job: Job, level: str, waits: Sequence[float], **about: Any) -> None:
        """Count and log the end of a job that has got an index. waits: for how many seconds each ticket has waited."""
        for seconds in waits:
            self.metrics.observe("dotllm_wait_seconds", level, value=seconds)
        report(self.metrics, job, "ok" if level in ("compile", "remote") else "cached", level, **about)

    def _fail(self, job: Job, error: BaseException) -> None:
        """Let the job fail, unless the store may still have an index."""
        failure = error if isinstance(error, SpecError | CompilationError) else CompilationError.of(error)
        known = job.failure is failure or job.state is JobState.FINISHED
        if not (known or self._table.closed or isinstance(failure, SpecError) or failure.passes):
            logger.error("compiling %s failed", job.key[:12], exc_info=error)
        without_frames(failure)
        waiting = self._table.fail(job, failure)
        if waiting is None:
            return
        job.cancelled.set()
        for ticket in waiting:
            ticket.fail(failure)
        outcome = "queue_full" if isinstance(failure, QueueFull) else "cancelled" if self._table.closed else "failed"
        if isinstance(failure, SpecError):
            outcome = "refused"
            self.metrics.add("dotllm_refused", job.specification.kind.value, reason(failure))
        report(self.metrics, job, outcome, now=time.monotonic(), error=failure)

    def _restart(self, job: Job) -> None:
        """End a job that was cancelled because it had no waiters. If it has new waiters, it begins again."""
        full = self._table.restart(job, self._queue)
        if full is not None:
            self._fail(*full)

    def _warmth(self, compiled: Compiled) -> int:
        return self._engine.warmth(compiled.index)

    # ------------------------------------------------------------------ periodic work (`Supervisor`)

    def _has_work(self) -> bool:
        return bool(self._table.jobs or self._reports) or self._switch_interval.is_short

    def _send_reports(self, _: float = 0.0) -> None:
        while True:
            try:
                tell = self._reports.popleft()
            except IndexError:  # (`close` may send what a slow supervisor has not sent)
                return
            tell()

    def _look_at_running(self, now: float) -> None:
        """Fail jobs that take too long, and cancel jobs without waiters.

        Compiles in processes and on Ray keep the time limit themselves, from the moment they begin.
        """
        running, unwanted = self._table.running()
        for job in unwanted:
            job.cancelled.set()
        slow = any(job.started is not None and now - job.started > SLOW_AFTER_S for job in running)
        self._switch_interval.set(short=slow)
        limit = self.options.compile_timeout
        for job in running:
            if job.state is JobState.RUNNING and job.started is not None and now - job.started > limit:
                # A thread cannot be killed, but it ends soon (`cancellation`). The requests do not wait for it.
                self._fail(job, CompileTimeout.beyond(limit))

    def _measure_memory(self, _: float) -> None:
        """Keep to the memory bound, although indexes and the rows that they share grow while they are used.

        Rows may take half of the bound, and three quarters of their table. Above that, rows that no index refers to are
        freed. If this is not enough, the least recently used indexes are evicted, so that the next round can free their
        rows.
        """
        most = min(self.options.cache_memory_bytes // 2, self._engine.most_shared_bytes(self.vocabulary))
        crowded = self._engine.shared_bytes(self.vocabulary) > most
        if crowded:
            self._engine.collect(self.vocabulary)
            crowded = self._engine.shared_bytes(self.vocabulary) > most
        with self._table.lock:
            measured = self._table.memory.measured()
        sizes: list[tuple[Compiled, int]] = []
        for first in range(0, len(measured), MEASURED_AT_ONCE):
            part = grown(measured[first : first + MEASURED_AT_ONCE])
            for entry, _ in part:
                entry.prepare()  # (otherwise the engine's thread would do it, for the next guide)
            sizes += part
            time.sleep(0)  # threads that wait for the interpreter come first
        with self._table.lock:
            evicted = self._table.memory.resize(sizes)
            if crowded:
                evicted += self._table.memory.evict(EVICTED_SHARE)
        del evicted, measured, sizes  # without the lock
        self._pinned.count(self._table.cached_indexes())

    def _publish(self, _: float) -> None:
        set_gauge = self.metrics.set
        with self._table.lock:
            memory, jobs = self._table.memory, list(self._table.jobs.values())
            waiting = sum(len(job.waiting()) for job in jobs)
            entries, size, evictions = len(memory), memory.nbytes, memory.evictions
            memory.evictions = 0
        set_gauge("dotllm_queue_depth", value=len(self._queue) + len(self._offload_queue))
        set_gauge("dotllm_compiles_running", value=sum(job.started is not None for job in jobs))
        set_gauge("dotllm_requests_waiting", value=waiting)
        set_gauge("dotllm_cache_bytes", "memory", value=size)
        set_gauge("dotllm_cache_entries", "memory", value=entries)
        set_gauge("dotllm_pinned_index_bytes", value=self._pinned.nbytes)
        if self._stored.disk.enabled:
            set_gauge("dotllm_cache_bytes", "disk", value=self._stored.disk.used)
        if evictions:
            self.metrics.add("dotllm_evictions", "memory", amount=evictions)
        self.metrics.publish()
