"""The queue of jobs: short work first, bounded, without starvation.

Order is by *virtual deadline*: submission time plus a multiple of the guessed cost. A small regex submitted after a
1 MiB document overtakes it. The deadline of a large job does come, so a stream of small ones cannot delay it for ever.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time

from dotllm.compilation.errors import QueueFull
from dotllm.compilation.jobs.job import Job, JobState

# How many times its own guessed cost a job lets others go before it.
PATIENCE_FACTOR = 50.0


class JobQueue:
    """A bounded priority queue of jobs, closed at the end. Thread-safe."""

    def __init__(self, limit: int, bytes_limit: int) -> None:
        self.limit = limit
        self.bytes_limit = bytes_limit
        self._heap: list[tuple[float, int, Job]] = []
        self._bytes = 0
        self._order = itertools.count()
        self._condition = threading.Condition()
        self._idle = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def idle(self) -> int:
        """How many workers wait for a job."""
        return self._idle

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
            self._idle += 1
            try:
                while not self._closed and not self._heap:
                    left = None if end is None else end - time.monotonic()
                    if left is not None and left <= 0:
                        break
                    self._condition.wait(left)
            finally:
                self._idle -= 1
            if self._closed or not self._heap:
                return None
            job = heapq.heappop(self._heap)[2]
            self._bytes -= job.nbytes
            return job

    def oldest(self) -> float | None:
        """Submission time of the job that has waited longest."""
        with self._condition:
            return min((job.submitted for _, _, job in self._heap), default=None)

    def drop_unwanted(self) -> list[Job]:
        """Take out the jobs that have ended or have no waiters. The caller must end the others: no thread will."""
        with self._condition:
            dropped = [job for _, _, job in self._heap if job.state is JobState.FINISHED or not job.has_waiters()]
            if dropped:
                gone = set(map(id, dropped))  # (their waiters may change meanwhile)
                self._heap = [entry for entry in self._heap if id(entry[2]) not in gone]
                heapq.heapify(self._heap)
                self._bytes -= sum(job.nbytes for job in dropped)
            return dropped

    def close(self) -> list[Job]:
        """Wake all workers for the last time; returns the jobs that no thread will run."""
        with self._condition:
            self._closed = True
            left = [job for _, _, job in self._heap]
            self._heap.clear()
            self._bytes = 0
            self._condition.notify_all()
            return left

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed
