"""Work that nobody waits for any more ends itself.

A thread cannot be killed. So whoever has work done says by an event that it is of no use (`abandonable`), and the work
asks now and then (`check`): where budgets are spent, which is where it may fail anyway, and between its stages. From
one such place to the next it is some milliseconds; a second at most, in the kernels that make the automaton of a huge
grammar. Without an event, or before it is set, asking takes 0.1 us.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Abandoned(Exception):
    """The result is of no use any more."""


class _Work(threading.local):
    """What this thread is at."""

    event: threading.Event | None = None


_work = _Work()


@contextmanager
def abandonable(event: threading.Event) -> Iterator[None]:
    """Within, on this thread, `check` raises `Abandoned` once ``event`` is set."""
    outer = _work.event
    _work.event = event
    try:
        yield
    finally:
        _work.event = outer


def check() -> None:
    """Raise `Abandoned` if nobody wants the result of what this thread is at."""
    event = _work.event
    if event is not None and event.is_set():
        raise Abandoned
