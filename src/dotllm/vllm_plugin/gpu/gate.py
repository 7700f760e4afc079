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
    """Open at first. One thread closes and opens it, any number wait."""

    def __init__(self) -> None:
        self._opened = threading.Event()
        self._opened.set()
        self._until = 0.0

    def close(self, seconds: float) -> None:
        """Let nobody through before `open`, or before ``seconds`` have passed. A closed gate does not close again."""
        now = time.monotonic()
        if self._opened.is_set() or now >= self._until:
            self._until = now + seconds
            self._opened.clear()

    def open(self) -> None:
        """Let everybody through."""
        if not self._opened.is_set():  # mostly it is, and this is asked in every step
            self._opened.set()

    def wait(self) -> None:
        """Return when the gate is open."""
        if not self._opened.is_set():
            self._opened.wait(max(0.0, self._until - time.monotonic()))
