"""The jobs in flight, one per key (single flight), and the steps between their states.

    QUEUED ─► RUNNING ─┬──────────────────► FINISHED
      ▲         │  ▲   └► AWAITING_STORE ─►
      │         ▼  │
      └────── OFFLOADED

One lock guards the jobs, the cache in memory and the remembered failures, so that a specification is in exactly one of
these places. It is held for microseconds: never while an index is compiled, loaded
or written, nor while a ticket is resolved (which runs foreign code). So the methods return the tickets to resolve.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

from dotllm.compilation.cache.failures import FailureCache
from dotllm.compilation.cache.memory import MemoryCache
from dotllm.compilation.compiled import Compiled
from dotllm.compilation.contract import CompiledIndex
from dotllm.compilation.errors import CompilationError, QueueFull
from dotllm.compilation.jobs.job import Job, JobState, Ticket
from dotllm.compilation.jobs.queue import JobQueue
from dotllm.compilation.specification import Specification
from dotllm.errors import BudgetExceededError, SpecError

# Guessed seconds per character, and a constant; only the order of jobs depends on the guess (`queue`).
_BASE_COST_S, _COST_PER_CHARACTER_S = 0.001, 1e-6


class JobTable:
    """Thread-safe."""

    def __init__(self, memory: MemoryCache, failures: FailureCache, on_cancelled: Callable[[Job], object]) -> None:
        """``on_cancelled`` is told of each job that ends without a result, since it has no waiters."""
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
        self, key: str, specification: Specification, ticket: Ticket, queue: JobQueue, *, detached: bool
    ) -> tuple[Compiled | Exception | None, str]:
        """An index or a failure at hand, else None: then ``ticket`` waits for a job, perhaps a new one in ``queue``.

        The text says what answered, for metrics. ``detached``: as in `Job.attach`.
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
                job.attach(ticket, detached=detached)
                return None, "joined"
            job = Job(key, specification, _BASE_COST_S + _COST_PER_CHARACTER_S * specification.size)
            job.attach(ticket, detached=detached)
            try:
                self._enqueue(job, queue)
            except QueueFull as error:
                return error, "refused"
            return None, "miss"

    def begin(self, job: Job) -> bool:
        """Start the clock of a job that was in a queue. False: it has ended, or must (`restart`)."""
        with self.lock:
            if job.state is JobState.FINISHED or job.cancelled.is_set() or not job.has_waiters():
                return False
            job.state = JobState.RUNNING
            job.started = time.monotonic()
            return True

    def ask_store(self, job: Job) -> None:
        """A look-up in the shared store begins."""
        with self.lock:
            job.store_pending = True

    def store_answered(self, job: Job) -> Exception | None:
        """The shared store has answered; the failure of a job that waited for that."""
        with self.lock:
            job.store_pending = False
            return job.failure

    def step(self, job: Job, state: JobState) -> None:
        """Between `RUNNING` and `OFFLOADED`."""
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
        """Enter an index and end the job: its tickets. None: the job had ended before."""
        with self.lock:
            if job.state is JobState.FINISHED:
                return None
            self._end(job)
            self.memory.put(compiled)
            return job.waiting()

    def upgrade(self, compiled: Compiled, warmth: Callable[[Compiled], int]) -> Compiled | None:
        """Use a later index of a job that has ended if it is warmer: the entry that has it now."""
        with self.lock:
            known = self.memory.get(compiled.key)
            if known is None or warmth(compiled) <= warmth(known):
                return None
            known.upgrade(compiled.index, compiled.level)
            self.memory.resize([(known, known.nbytes)])
            return known

    def fail(self, job: Job, failure: SpecError | CompilationError) -> list[Ticket] | None:
        """End the job without an index: its tickets. None: it had ended, or the store may still have the index."""
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
        """End a cancelled job, or one without waiters. If it has waiters again, a new one takes its place, which is
        returned if the queue is full."""
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
        """The jobs that have left the queue, and those of them without waiters."""
        with self.lock:
            running = [job for job in self.jobs.values() if job.started is not None]
            return running, [job for job in running if not job.has_waiters()]

    def close(self) -> list[Job] | None:
        """No job is taken from now on: those in flight. None: the table was closed before."""
        with self.lock:
            if self.closed:
                return None
            self.closed = True
            return list(self.jobs.values())

    def _enqueue(self, job: Job, queue: JobQueue) -> None:
        """With the lock held. Raises `QueueFull` if all that fills ``queue`` has waiters."""
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
        """With the lock held."""
        job.state = JobState.FINISHED
        if self.jobs.get(job.key) is job:
            del self.jobs[job.key]


def _may_differ_elsewhere(failure: Exception) -> bool:
    """Whether another server may have an index all the same: it had more time or memory, or met no bug. A refusal is
    the same everywhere, and must not wait for a store that hangs."""
    return isinstance(failure, BudgetExceededError) or not isinstance(failure, SpecError)
