"""Ticket: one request's interest in an index. Job: the one compile that all tickets of a key wait for.

A ticket is a `concurrent.futures.Future`, which is what vLLM's scheduler knows how to wait for. A job keeps only weak
references to its tickets: when every ticket is cancelled *or simply dropped* (the request was aborted and forgotten),
nobody waits any more, and the job is not started, or its worker process is killed.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
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


class Job:
    """One compile in flight. All fields but the constants are guarded by the manager's lock."""

    def __init__(self, key: str, specification: Specification, estimate: float) -> None:
        self.key = key
        self.specification = specification
        self.estimate = estimate
        """Guessed seconds; only their order matters."""
        self.nbytes = specification.nbytes
        self.submitted = time.monotonic()
        self.started: float | None = None
        self.elsewhere = False
        """Its compile keeps the time limit itself, in a process or on another machine."""
        self.finished = False
        self.cancelled = threading.Event()
        """Set when the result is of no use any more: an index came from elsewhere, or the time limit passed."""
        self.store_pending = False
        """A shared-store look-up has not answered yet."""
        self.error: BaseException | None = None
        """The compile failed while the store may still have the index."""
        self._tickets: list[weakref.ref[Ticket]] = []
        self._detached = False

    def attach(self, ticket: Ticket) -> None:
        """One more ticket waits."""
        self._tickets.append(weakref.ref(ticket))

    def detach(self) -> None:
        """Go on even when nobody waits (compiling ahead of time)."""
        self._detached = True

    def waiting(self) -> list[Ticket]:
        """The tickets that still wait."""
        alive = (ref() for ref in self._tickets)
        return [ticket for ticket in alive if ticket is not None and not ticket.done()]

    def wanted(self) -> bool:
        """Whether anybody still waits for the result."""
        return not self.cancelled.is_set() and (self._detached or bool(self.waiting()))

    def again(self) -> Job | None:
        """A new job for those who still wait for this one, which is over; None if nobody does."""
        waiting = self.waiting()
        if not waiting and not self._detached:
            return None
        job = Job(self.key, self.specification, self.estimate)
        job._tickets = [weakref.ref(ticket) for ticket in waiting]
        job._detached = self._detached
        return job
