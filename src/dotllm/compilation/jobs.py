"""Compiles in flight: tickets and jobs, their queue, the threads that run them, and their supervisor.

Ticket: one request's interest in an index. Job: the compile that all tickets of a key wait for.

A ticket is a `concurrent.futures.Future`, which vLLM's scheduler knows how to wait for. A job keeps only weak
references to its tickets: a ticket that is cancelled *or dropped* (its request was aborted and forgotten) no longer
waits. A job without waiters is not started; if it already runs in a process, that process is killed.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from enum import Enum, auto
from threading import Lock
from typing import Any

from dotllm.compilation.compiled import Compiled, CompiledIndex
from dotllm.compilation.errors import CompilationError, QueueFull
from dotllm.compilation.memory import FailureCache, MemoryCache
from dotllm.compilation.specification import Specification
from dotllm.errors import BudgetExceededError, SpecError, without_frames

Transform = Callable[[Compiled], Any]


class Ticket(Future[Any]):
    """Resolves to ``transform(compiled)`` (default: the `Compiled` itself), or fails with the reason why there is
    none."""

    def __init__(self, transform: Transform | None = None) -> None:
        super().__init__()
        self._transform = transform
        self.submitted = time.monotonic()

    def resolve(self, compiled: Compiled) -> None:
        """Set the result (once; later calls, and calls on cancelled tickets, are ignored)."""
        try:
            result = compiled if self._transform is None else self._transform(compiled)
        except Exception as error:
            self.fail(error)
            return
        with contextlib.suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Set the failure, without tracebacks (once; later calls, and calls on cancelled tickets, are ignored)."""
        with contextlib.suppress(InvalidStateError):
            self.set_exception(without_frames(error))


class JobState(Enum):
    """The state of a job. `JobTable` changes it, with its lock held."""

    QUEUED = auto()
    """It waits for a thread."""
    RUNNING = auto()
    """A thread of this process works on it, under the time limit."""
    OFFLOADED = auto()
    """A process or another machine compiles it, and keeps the time limit."""
    AWAITING_STORE = auto()
    """It failed here, and the shared store may still have the index."""
    FINISHED = auto()


class Job:
    """One compile in flight. The lock of `JobTable` guards all fields but the constants."""

    def __init__(self, key: str, specification: Specification, estimate_s: float) -> None:
        """``estimate_s``: guessed seconds; only their order matters."""
        self.key = key
        self.specification = specification
        self.estimate_s = estimate_s
        self.nbytes = specification.nbytes
        self.submitted = time.monotonic()
        self.state = JobState.QUEUED
        self.started: float | None = None
        """When it left the queue; None while it is in one."""
        self.cancelled = threading.Event()
        """Set when the result is no longer needed: no ticket waits, the index came from elsewhere, or the time limit
        has passed."""
        self.store_pending = False
        """Whether a look-up in the shared store is in flight."""
        self.failure: Exception | None = None
        """The failure that made it `AWAITING_STORE`."""
        self._tickets: list[weakref.ref[Ticket]] = []

    def attach(self, ticket: Ticket) -> None:
        """Add a ticket that waits."""
        self._tickets.append(weakref.ref(ticket))

    def waiting(self) -> list[Ticket]:
        """The tickets that still wait."""
        alive = (ref() for ref in self._tickets)
        return [ticket for ticket in alive if ticket is not None and not ticket.done()]

    def has_waiters(self) -> bool:
        """Whether anything waits for the result."""
        return bool(self.waiting())

    def again(self) -> Job:
        """A new job for the waiters of this one."""
        job = Job(self.key, self.specification, self.estimate_s)
        job._tickets = [weakref.ref(ticket) for ticket in self.waiting()]
        return job


# The queue of jobs: short work first, bounded, without starvation.
#
# Jobs are ordered by *virtual deadline*: submission time plus a multiple of the guessed cost. A small regex overtakes
# a document of 1 MiB that was submitted before it. But even a large job's deadline comes, so a stream of small jobs
# cannot delay it for ever.


# A job lets others go first for this many times its own guessed cost.
PATIENCE_FACTOR = 50.0


class JobQueue:
    """A bounded priority queue of jobs that can be closed. Thread-safe."""

    def __init__(self, limit: int, bytes_limit: int) -> None:
        self.limit = limit
        self.bytes_limit = bytes_limit
        self._heap: list[tuple[float, int, Job]] = []
        self._bytes = 0
        self._order = itertools.count()
        self._condition = threading.Condition()
        self.idle = 0
        """Number of threads that wait for a job."""
        self.last_taken = 0.0
        """When a thread last took a job (``time.monotonic``)."""
        self.closed = False
        """Whether `close` was called."""

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, job: Job) -> None:
        """Add a job; raises `QueueFull`. Jobs without waiters count until `drop_unwanted`."""
        size = job.nbytes
        with self._condition:
            if len(self._heap) >= self.limit:
                raise QueueFull(
                    f"{len(self._heap)} specifications are waiting to be compiled (limit {self.limit}, "
                    "--dotllm-queue-limit); try again later"
                )
            if self._bytes + size > self.bytes_limit and self._heap:
                raise QueueFull(
                    f"{self._bytes} bytes of specifications are waiting to be compiled (limit {self.bytes_limit}, "
                    "--dotllm-queue-bytes); try again later"
                )
            heapq.heappush(self._heap, (job.submitted + PATIENCE_FACTOR * job.estimate_s, next(self._order), job))
            self._bytes += size
            self._condition.notify()

    def get(self, timeout: float | None = None) -> Job | None:
        """The next job; None after ``timeout`` seconds without one, or when the queue is closed."""
        end = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            self.idle += 1
            try:
                while not self.closed and not self._heap:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._condition.wait(left)
            finally:
                self.idle -= 1
            if self.closed or not self._heap:
                return None
            job = heapq.heappop(self._heap)[2]
            self._bytes -= job.nbytes
            self.last_taken = time.monotonic()
            return job

    def oldest(self) -> float | None:
        """Submission time of the job that has waited longest."""
        with self._condition:
            return min((job.submitted for _, _, job in self._heap), default=None)

    def drop_unwanted(self) -> list[Job]:
        """Take out the jobs that have ended or have no waiters. The caller must end the latter: no thread will."""
        with self._condition:
            dropped = [job for _, _, job in self._heap if job.state is JobState.FINISHED or not job.has_waiters()]
            if dropped:
                gone = set(map(id, dropped))  # (other threads may change their waiters meanwhile)
                self._heap = [entry for entry in self._heap if id(entry[2]) not in gone]
                heapq.heapify(self._heap)
                self._bytes -= sum(job.nbytes for job in dropped)
            return dropped

    def close(self) -> list[Job]:
        """Wake all threads for the last time; returns the jobs that none of them will run."""
        with self._condition:
            self.closed = True
            left = [job for _, _, job in self._heap]
            self._heap.clear()
            self._bytes = 0
            self._condition.notify_all()
            return left


# The jobs in flight, one per key (single flight), and the steps between their states.
#
#     QUEUED ─► RUNNING ─┬──────────────────► FINISHED
#       ▲         │  ▲   └► AWAITING_STORE ─►
#       │         ▼  │
#       └────── OFFLOADED
#
# One lock guards the jobs, the cache in memory and the remembered failures, so that a specification is in exactly one
# of these places. It is held for microseconds, and never while an index is compiled, loaded or written or a ticket is
# resolved (which runs foreign code). So the methods return the tickets, and the caller resolves them.


# The estimated seconds of a compile: a constant, and a cost per character. Only the order of jobs depends on it
# (`JobQueue`).
_BASE_COST_S, _COST_PER_CHARACTER_S = 0.001, 1e-6


class JobTable:
    """The jobs in flight, the cache in memory and the remembered failures. Thread-safe."""

    def __init__(self, memory: MemoryCache, failures: FailureCache, on_cancelled: Callable[[Job], object]) -> None:
        """``on_cancelled`` is called for each job that ends without a result because it has no waiters."""
        self.lock = Lock()
        self.memory = memory
        self.failures = failures
        self.jobs: dict[str, Job] = {}
        self.closed = False
        self._on_cancelled = on_cancelled

    def cached(self, key: str) -> Compiled | None:
        """The index of ``key`` if it is in memory."""
        with self.lock:
            return self.memory.get(key)

    def cached_indexes(self) -> list[CompiledIndex]:
        """All indexes in memory."""
        with self.lock:
            return [entry.index for entry, _ in self.memory.measured()]

    def find_or_join(
        self, key: str, specification: Specification, ticket: Ticket, queue: JobQueue
    ) -> tuple[Compiled | Exception | None, str]:
        """A known index or failure; else None, and ``ticket`` waits for a job, perhaps a new one in ``queue``.

        The string names the source of the answer, for metrics.
        """
        with self.lock:
            compiled = self.memory.get(key)
            if compiled is not None:
                return compiled, "memory"
            if self.closed:
                return CompilationError("the compilation manager is closed"), "refused"
            failure = self.failures.get(key, time.monotonic())
            if failure is not None:
                return failure, "failure"
            job = self.jobs.get(key)
            if job is not None:
                job.attach(ticket)
                return None, "joined"
            job = Job(key, specification, _BASE_COST_S + _COST_PER_CHARACTER_S * specification.size)
            job.attach(ticket)
            try:
                self._enqueue(job, queue)
            except QueueFull as error:
                return error, "refused"
            return None, "miss"

    def begin(self, job: Job) -> bool:
        """Start the clock of a job that was in a queue. False if the job has ended, or must end (`restart`)."""
        with self.lock:
            if job.state is JobState.FINISHED or job.cancelled.is_set() or not job.has_waiters():
                return False
            job.state = JobState.RUNNING
            job.started = time.monotonic()
            return True

    def ask_store(self, job: Job) -> None:
        """Record that a look-up in the shared store begins."""
        with self.lock:
            job.store_pending = True

    def store_answered(self, job: Job) -> Exception | None:
        """Record that the shared store has answered. Returns the failure of a job that waited for the answer."""
        with self.lock:
            job.store_pending = False
            return job.failure

    def step(self, job: Job, state: JobState) -> None:
        """Change between `RUNNING` and `OFFLOADED`."""
        with self.lock:
            if job.state is not JobState.FINISHED:
                job.state = state

    def requeue(self, job: Job, queue: JobQueue) -> None:
        """Let the job wait in another queue, unless the store was quicker. Raises `QueueFull`."""
        with self.lock:
            if job.state is not JobState.FINISHED:
                self._enqueue(job, queue)
                job.state, job.started = JobState.QUEUED, None

    def finish(self, job: Job, compiled: Compiled) -> list[Ticket] | None:
        """Keep an index and end the job. Returns its tickets, or None if the job had ended before."""
        with self.lock:
            if job.state is JobState.FINISHED:
                return None
            self._end(job)
            self.memory.put(compiled)
            return job.waiting()

    def upgrade(self, compiled: Compiled, warmth: Callable[[Compiled], int]) -> Compiled | None:
        """Use an index that comes after its job has ended, if it is warmer. Returns the entry that has it now, if
        any."""
        with self.lock:
            known = self.memory.get(compiled.key)
            if known is None or warmth(compiled) <= warmth(known):
                return None
            known.upgrade(compiled.index, compiled.level)
            self.memory.resize([(known, known.nbytes)])
            return known

    def fail(self, job: Job, failure: SpecError | CompilationError) -> list[Ticket] | None:
        """End the job without an index. Returns its tickets, or None if it had ended or the store may still have the
        index."""
        with self.lock:
            if job.state is JobState.FINISHED:
                return None
            if job.store_pending and not self.closed and _may_differ_elsewhere(failure):
                job.state, job.failure = JobState.AWAITING_STORE, failure
                return None
            self._end(job)
            if isinstance(failure, SpecError) or not failure.passes:
                self.failures.put(job.key, failure, time.monotonic())
            return job.waiting()

    def restart(self, job: Job, queue: JobQueue) -> tuple[Job, QueueFull] | None:
        """End a cancelled job, or one without waiters. If it has waiters again, a new job takes its place; if the queue
        is full, the new job is returned, with the error."""
        with self.lock:
            if job.state is JobState.FINISHED or self.closed:  # (`close` fails it)
                return None
            self._end_cancelled(job)
            if not job.has_waiters():
                return None
            again = job.again()
            try:
                self._enqueue(again, queue)
            except QueueFull as error:
                return again, error
            return None

    def running(self) -> tuple[list[Job], list[Job]]:
        """The jobs that have left the queue, and those of them that have no waiters."""
        with self.lock:
            running = [job for job in self.jobs.values() if job.started is not None]
            return running, [job for job in running if not job.has_waiters()]

    def close(self) -> list[Job] | None:
        """Take no more jobs. Returns those in flight, or None if the table was closed before."""
        with self.lock:
            if self.closed:
                return None
            self.closed = True
            return list(self.jobs.values())

    def _enqueue(self, job: Job, queue: JobQueue) -> None:
        """With the lock held. Raises `QueueFull` if ``queue`` is full of jobs that have waiters."""
        try:
            queue.put(job)
        except QueueFull:
            for unwanted in queue.drop_unwanted():
                if unwanted.state is not JobState.FINISHED:
                    self._end_cancelled(unwanted)
            queue.put(job)
        self.jobs[job.key] = job

    def _end_cancelled(self, job: Job) -> None:
        """With the lock held: end the job without a result."""
        self._end(job)
        self._on_cancelled(job)

    def _end(self, job: Job) -> None:
        """With the lock held: mark the job as finished and forget it."""
        job.state = JobState.FINISHED
        if self.jobs.get(job.key) is job:
            del self.jobs[job.key]


def _may_differ_elsewhere(failure: Exception) -> bool:
    """Whether another server may have an index although this one failed: it may have had more time or memory, or not
    have met the bug. A refusal is the same everywhere, and must not wait for a store that hangs."""
    return isinstance(failure, BudgetExceededError) or not isinstance(failure, SpecError)


# Threads that compile. The kernels release the GIL; docs/decisions/compilation.md gives the cost to the engine's loop.
#
# Slow compiles must not delay the others, as they do in vLLM's pool of (CPUs + 1) // 2 threads. So a base number of
# threads always exists, and `relieve` starts another if jobs wait and no thread has taken one for a while. (A long
# queue alone does not suffice: threads that wait for the same processes only take the GIL from the engine's loop.)
# Extra threads end after a while without work. All are daemons, so a stuck compile never keeps the process from ending.


logger = logging.getLogger(__name__)

# If jobs wait, and no thread has taken one for this long, an extra thread starts.
RELIEF_AFTER_S = 0.05
# An extra thread that has been idle for this long ends.
EXTRA_IDLE_S = 5.0


class CompileThreads:
    """Threads that run jobs from a queue. ``run`` must not raise (if it does, the thread survives and logs)."""

    def __init__(self, queue: JobQueue, run: Callable[[Job], None], base: int, limit: int) -> None:
        self._queue = queue
        self._run = run
        self.base = base
        self.limit = max(base, limit)
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._ever = 0
        self._last_relieved = 0.0
        for _ in range(base):
            self._start(extra=False)

    def __len__(self) -> int:
        return len(self._threads)

    def relieve(self, now: float) -> None:
        """Start another thread if slow jobs keep a job waiting. Cheap, because the supervisor calls it often."""
        if not len(self._queue) or self._queue.idle or len(self._threads) >= self.limit:
            return
        oldest = self._queue.oldest()
        # (A new thread needs the GIL to take its first job, so the next one is not started at once.)
        if oldest is not None and now - max(oldest, self._queue.last_taken, self._last_relieved) >= RELIEF_AFTER_S:
            self._last_relieved = now
            self._start(extra=True)

    def grow(self, base: int) -> None:
        """Keep at least ``base`` threads from now on."""
        for _ in range(base - self.base):
            self._start(extra=False)
        self.base = max(self.base, base)
        self.limit = max(self.limit, self.base)

    def _start(self, *, extra: bool) -> None:
        with self._lock:
            self._ever += 1
            name = f"dotllm-compile-{self._ever}"
            thread = threading.Thread(target=self._loop, args=(extra,), name=name, daemon=True)
            thread.start()
            self._threads.add(thread)  # under the lock, so that `join` never sees an unstarted thread

    def _loop(self, extra: bool) -> None:
        try:
            while not self._queue.closed:
                job = self._queue.get(EXTRA_IDLE_S if extra else None)
                if job is None:
                    if extra:
                        return
                    continue
                try:
                    self._run(job)
                except BaseException:
                    logger.exception("compile worker: job %s escaped its own error handling", job.key[:12])
                del job  # an idle thread must not keep the last job (and its specification) alive
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def join(self, timeout: float) -> None:
        """After the queue is closed, wait until the threads end, at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))


# The supervisor: a thread that does periodic work while other threads compile or wait.
#
# Each round keeps the interpreter from the engine's loop for some 50 µs; publishing metrics takes longer. Forty rounds
# and four publications a second cost half a percent of every step of a small model, constrained or not. So rounds are
# frequent only while there is work.


TICK_S = 0.025
IDLE_TICK_S = 0.1

Task = Callable[[float], object]
"""Called with the time (``time.monotonic``)."""


class Supervisor(threading.Thread):
    """Calls ``every_tick`` in every round, ``while_busy`` in rounds with work, and each task of ``periodic`` when its
    seconds have passed. If a task raises, the exception is logged and the rounds continue."""

    def __init__(
        self,
        has_work: Callable[[], bool],
        while_busy: Sequence[Task],
        every_tick: Task,
        periodic: Sequence[tuple[float, Task]],
    ) -> None:
        super().__init__(name="dotllm-supervisor", daemon=True)
        self._has_work, self._while_busy, self._every_tick = has_work, while_busy, every_tick
        self._periodic = tuple(periodic)
        self._due = [0.0] * len(self._periodic)
        self._ended = threading.Event()

    def stop(self) -> None:
        """Begin no further round."""
        self._ended.set()

    def run(self) -> None:
        """The rounds."""
        while not self._ended.wait(TICK_S if self._has_work() else IDLE_TICK_S):
            try:
                self._round(time.monotonic())
            except Exception:
                logger.exception("compilation supervisor: round failed; continuing")

    def _round(self, now: float) -> None:
        if self._has_work():
            for task in self._while_busy:
                task(now)
        self._every_tick(now)
        for i, (seconds, task) in enumerate(self._periodic):
            if now >= self._due[i]:
                self._due[i] = now + seconds
                task(now)


# How often threads hand over the GIL (``sys.setswitchinterval``) while a compile and the engine's loop share it.


SLOW_SWITCH_INTERVAL_S = 0.0005  # seconds, while a slow compile runs


class SwitchInterval:
    """While a slow compile runs, threads hand over the GIL ten times as often: the engine's loop needs it about a dozen
    times a step, and waits a switch interval each time (figures: docs/decisions/compilation.md)."""

    def __init__(self) -> None:
        self._ordinary: float | None = None

    @property
    def is_short(self) -> bool:
        """Whether the interval is shortened."""
        return self._ordinary is not None

    def set(self, *, short: bool) -> None:
        """Shorten or restore the interval."""
        if short and self._ordinary is None:
            self._ordinary = sys.getswitchinterval()
            sys.setswitchinterval(min(self._ordinary, SLOW_SWITCH_INTERVAL_S))
        elif not short and self._ordinary is not None:
            sys.setswitchinterval(self._ordinary)
            self._ordinary = None
