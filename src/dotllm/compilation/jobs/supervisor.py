"""The supervisor: a thread that does what has to be done now and then, while other threads compile or wait.

Each round takes the interpreter from the engine's loop for some 50 µs, a publication of metrics for longer. At forty
rounds and four publications a second this was half a percent of every step of a small model, constrained or not. So
rounds are frequent only while there is work.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

logger = logging.getLogger(__name__)

TICK_S = 0.025
IDLE_TICK_S = 0.1

Task = Callable[[float], object]
"""called with the time (``time.monotonic``)"""


class Supervisor:
    """Calls ``every_tick`` in every round, ``while_busy`` in rounds with work, and each task of ``periodic`` when its
    seconds have passed. An exception of a task is logged, and the next round comes all the same."""

    def __init__(
        self,
        has_work: Callable[[], bool],
        while_busy: Sequence[Task],
        every_tick: Task,
        periodic: Sequence[tuple[float, Task]],
    ) -> None:
        self._has_work, self._while_busy, self._every_tick = has_work, while_busy, every_tick
        self._periodic = tuple(periodic)
        self._due = [0.0] * len(self._periodic)
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
        while not self._stop.wait(TICK_S if self._has_work() else IDLE_TICK_S):
            try:
                self._round(time.monotonic())
            except Exception:
                logger.exception("compilation supervisor: going on")

    def _round(self, now: float) -> None:
        if self._has_work():
            for task in self._while_busy:
                task(now)
        self._every_tick(now)
        for i, (seconds, task) in enumerate(self._periodic):
            if now >= self._due[i]:
                self._due[i] = now + seconds
                task(now)
