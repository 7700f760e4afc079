"""The thread that looks around: some things have to happen now and then, whoever compiles or asks.

It takes the interpreter from the engine's loop for some 50 µs each time, and to publish metrics for more: forty and
four times a second that was half a percent of every step of a small model, constrained or not. So it looks around often
only while there is work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

TICK = 0.025
IDLE_TICK = 0.1

Task = Callable[[float], object]
"""called with the time (``time.monotonic``)"""


class Supervisor:
    """Calls ``always`` in every round, ``at_work`` in those with work, and each of ``seldom`` when its seconds have
    passed. What a task raises is logged, and the next round comes all the same."""

    def __init__(
        self, has_work: Callable[[], bool], at_work: Sequence[Task], always: Task, seldom: Sequence[tuple[float, Task]]
    ) -> None:
        self._has_work, self._at_work, self._always = has_work, at_work, always
        self._seldom = tuple(seldom)
        self._due = [0.0] * len(self._seldom)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dotllm-supervisor", daemon=True)

    def start(self) -> None:
        """Begin to look around."""
        self._thread.start()

    def stop(self) -> None:
        """No further round begins."""
        self._stop.set()

    def join(self, seconds: float) -> None:
        """Wait for the last round."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while not self._stop.wait(TICK if self._has_work() else IDLE_TICK):
            try:
                self._round(time.monotonic())
            except Exception:
                logger.exception("compilation supervisor: going on")

    def _round(self, now: float) -> None:
        if self._has_work():
            for task in self._at_work:
                task(now)
        self._always(now)
        for i, (seconds, task) in enumerate(self._seldom):
            if now >= self._due[i]:
                self._due[i] = now + seconds
                task(now)
