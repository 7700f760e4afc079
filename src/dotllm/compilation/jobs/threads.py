"""Threads that compile. The kernels release the GIL; docs/decisions/compilation.md has the cost to the engine's loop.

One slow compile must not delay the others, as it does in vLLM's pool of (CPUs + 1) // 2 threads. So a base of threads
always exists, and `relieve` starts another one whenever a job has waited too long because all threads are busy. Extra
threads end when they have nothing to do. All are daemons: a stuck compile never keeps the process from ending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from dotllm.compilation.jobs.job import Job
from dotllm.compilation.jobs.queue import JobQueue

logger = logging.getLogger(__name__)

# A job that has waited this long while every thread is busy gets a thread of its own.
RELIEF_AFTER_S = 0.05
# An extra thread with nothing to do for this long ends.
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
        for _ in range(base):
            self._start(extra=False)

    def __len__(self) -> int:
        return len(self._threads)

    def relieve(self, now: float) -> None:
        """Start another thread if a job waits behind slow ones. Called often by the supervisor; cheap."""
        if not len(self._queue) or self._queue.idle or len(self._threads) >= self.limit:
            return
        oldest = self._queue.oldest()
        if oldest is not None and now - oldest >= RELIEF_AFTER_S:
            self._start(extra=True)

    def grow(self, base: int) -> None:
        """Let there be ``base`` threads at least from now on."""
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
            self._threads.add(thread)  # now, so that `join` meets no thread that has not been started

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
        """Wait for the threads after the queue was closed, at most ``timeout`` seconds in all."""
        deadline = time.monotonic() + timeout
        for thread in list(self._threads):
            thread.join(max(0.0, deadline - time.monotonic()))
