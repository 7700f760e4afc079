"""Cooperative cancellation of compiles whose result is no longer needed.

A thread cannot be killed. So the owner of a compile holds an event (`cancellable`), and the compile checks the event
(`check`) between its stages and wherever it spends its budget, because it may fail there anyway. Checks are a few
milliseconds apart, and at most a second in the kernels that make the automaton of a huge grammar. A check takes 0.1 µs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cancelled(Exception):
    """The result is no longer needed."""


class _Work(threading.local):
    """The work of this thread."""

    event: threading.Event | None = None


_work = _Work()


@contextmanager
def cancellable(event: threading.Event) -> Iterator[None]:
    """A context in which `check` raises `Cancelled` on this thread once ``event`` is set."""
    outer = _work.event
    _work.event = event
    try:
        yield
    finally:
        _work.event = outer


def check() -> None:
    """Stop this thread's work if its result is no longer needed.

    Raises:
        Cancelled: the result is no longer needed.
    """
    event = _work.event
    if event is not None and event.is_set():
        raise Cancelled
