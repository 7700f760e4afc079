"""Judgements that an event loop awaits: on a few threads, equal ones once, and none that nobody waits for any more.

The threads share the interpreter with the loop, so they are few, and while they work all threads hand over the
interpreter's lock more often (`SwitchInterval`). They are no executor's, which would hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from dotllm.compilation.switch_interval import SwitchInterval

THREADS = 2
MOST_JOBS = 64
"""Judgements under way or waiting for a thread; more are not taken."""


@dataclass(eq=False)
class _Job:
    key: str
    work: Callable[[], None]
    waiting: set[asyncio.Future[None]] = field(default_factory=set)
    begun: bool = False
    error: Exception | None = None


class VerdictPool:
    """See the module. A thread starts when it is needed, and stays."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._jobs: dict[str, _Job] = {}  # until they are done
        self._queue: deque[_Job] = deque()
        self._threads = 0
        self._working = 0
        self._switch_interval = SwitchInterval()

    async def run(self, key: str, work: Callable[[], None], timeout_s: float | None) -> bool:
        """Whether ``work``, which ``key`` names, has been done within ``timeout_s``. If not, it goes on where it has
        begun; where too much waits it is not taken. Raises what it raises."""
        done = asyncio.get_running_loop().create_future()
        with self._changed:
            job = self._jobs.get(key)
            if job is None:
                if len(self._jobs) >= MOST_JOBS:
                    return False
                job = self._jobs[key] = _Job(key, work)
                self._queue.append(job)
                if self._threads < THREADS and self._threads < len(self._jobs):
                    self._threads += 1
                    threading.Thread(target=self._run, name="dotllm-verdict", daemon=True).start()
                self._changed.notify()
            job.waiting.add(done)
        try:
            await asyncio.wait((done,), timeout=timeout_s)
        finally:
            with self._changed:
                job.waiting.discard(done)
                if not job.waiting and not job.begun and self._jobs.get(key) is job:
                    del self._jobs[key]
                    self._queue.remove(job)
        if done.done() and job.error is not None:
            raise job.error
        return done.done()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue:
                    self._changed.wait()
                job = self._queue.popleft()
                job.begun = True
                self._working += 1
                self._switch_interval.set(short=True)
            try:
                job.work()
            except Exception as error:
                job.error = error
            with self._changed:
                del self._jobs[job.key]
                self._working -= 1
                self._switch_interval.set(short=self._working > 0)
                for done in job.waiting:
                    with suppress(RuntimeError):  # its loop has been closed
                        done.get_loop().call_soon_threadsafe(_finish, done)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
