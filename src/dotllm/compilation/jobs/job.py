"""Ticket: one request's interest in an index. Job: the one compile that all tickets of a key wait for.

A ticket is a `concurrent.futures.Future`, which vLLM's scheduler knows how to wait for. A job keeps only weak
references to its tickets: a ticket that is cancelled *or simply dropped* (the request was aborted and forgotten) waits
no more. A job without waiters is not started, or its worker process is killed.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from enum import Enum, auto
from typing import Any

from dotllm.compilation.compiled import Compiled
from dotllm.compilation.specification import Specification
from dotllm.errors import without_frames

Transform = Callable[[Compiled], Any]


class Ticket(Future[Any]):
    """Resolves to ``transform(compiled)`` (default: the `Compiled` itself) or raises why there is none."""

    def __init__(self, transform: Transform | None = None) -> None:
        super().__init__()
        self._transform = transform
        self.submitted = time.monotonic()

    def resolve(self, compiled: Compiled) -> None:
        """Give the result (once; later calls and cancelled tickets are ignored)."""
        try:
            result = compiled if self._transform is None else self._transform(compiled)
        except Exception as error:
            self.fail(error)
            return
        with contextlib.suppress(InvalidStateError):
            self.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Give the failure, without its frames (once; later calls and cancelled tickets are ignored)."""
        with contextlib.suppress(InvalidStateError):
            self.set_exception(without_frames(error))


class JobState(Enum):
    """Where a job is on its way. `JobTable` makes the steps, with its lock held."""

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
    """One compile in flight. All fields but the constants are guarded by the lock of `JobTable`."""

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
        """Set when the result is no longer needed: no ticket waits, the index came from elsewhere, the time is over."""
        self.store_pending = False
        """A shared-store look-up has not answered yet."""
        self.failure: Exception | None = None
        """Why it is `AWAITING_STORE`."""
        self._tickets: list[weakref.ref[Ticket]] = []
        self._detached = False

    def attach(self, ticket: Ticket, *, detached: bool) -> None:
        """One more ticket waits. ``detached``: go on even when no ticket does (compiling ahead of time)."""
        self._tickets.append(weakref.ref(ticket))
        self._detached |= detached

    def waiting(self) -> list[Ticket]:
        """The tickets that still wait."""
        alive = (ref() for ref in self._tickets)
        return [ticket for ticket in alive if ticket is not None and not ticket.done()]

    def has_waiters(self) -> bool:
        """Whether the result is wanted."""
        return self._detached or bool(self.waiting())

    def again(self) -> Job:
        """A new job for the waiters of this one."""
        job = Job(self.key, self.specification, self.estimate_s)
        job._tickets = [weakref.ref(ticket) for ticket in self.waiting()]
        job._detached = self._detached
        return job
