"""Gate: work that can wait a moment lets the engine's loop launch a step first.

The loop is Python, and so is what the threads beside it do, such as filling tables ahead. A thread that wakes up while
the loop launches a prompt, some milliseconds of Python between calls that let go of the interpreter's lock, gets the
lock at the next of these calls, and the loop waits for it. A moment later the loop waits for the device, and the thread
is in nobody's way. So the loop closes a gate before it launches and opens it behind; nobody waits at one longer than it
was closed for.
"""

from __future__ import annotations

import threading
import time


class Gate:
    """Open at first. One thread closes and opens it, one other waits.

    Mostly nobody waits when the loop closes and opens it, once in each step that launches a prompt; an event set and
    cleared each time would take it 15 us. So a closed gate is a time, and there is an event for those who wait only.
    """

    def __init__(self) -> None:
        self._until = 0.0
        self._somebody_waits = False
        self._opened = threading.Event()

    def close(self, seconds: float) -> None:
        """Let nobody through before `open`, or before ``seconds`` have passed. A closed gate does not close again."""
        now = time.monotonic()
        if now >= self._until:
            self._until = now + seconds

    def open(self) -> None:
        """Let everybody through."""
        self._until = 0.0
        if self._somebody_waits:
            self._opened.set()

    def wait(self) -> None:
        """Return when the gate is open."""
        if self._until <= time.monotonic():
            return
        self._opened.clear()
        self._somebody_waits = True
        # Looked at anew: who has opened it before that did not know of anybody.
        left = self._until - time.monotonic()
        if left > 0:
            self._opened.wait(left)
        self._somebody_waits = False
