"""Late steps: steps of guides for which a batch does not wait. Threads do them.

In a step, the guides of a batch (`running`) do only work that takes about a millisecond; a hostile specification's mask
takes 300 ms. The rest of the work becomes a `LateStep`. If it is not done soon after, its automaton is *slow*: from
then on only threads do the steps of its guides, because the caller of the batch would wait for the lock that a thread
holds. After several quick steps in a row, its guides may run again.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from dotllm.index.batch import THREADS
from dotllm.index.running import Running

QUICK_S, MANY = 0.001, 8

_NICENESS = 10
"""The priority of the threads, below that of others: when they took all CPUs, the batch waited up to 5 ms a step."""


@dataclass(eq=False)
class LateStep:
    """The next mask of a guide, perhaps after a token."""

    lock: threading.RLock
    """The lock of the guide's automaton."""
    row: int = -1
    """The row of the mask, when it is ``done``."""
    done: Future[Any] = field(default_factory=Future)
    seconds: float = 0.0

    def do(self, work: Callable[[], tuple[int, Any]]) -> None:
        """Call ``work``, which raises nothing, to find the row and the result of ``done``."""
        if self.done.set_running_or_notify_cancel():
            began = time.perf_counter()
            self.row, result = work()
            self.seconds = time.perf_counter() - began
            self.done.set_result(result)


class _Threads:
    """The threads of this process that do late steps."""

    def __init__(self) -> None:
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._started = 0

    def do(self, work: Callable[[], None]) -> None:
        """Let a thread do ``work``, which raises nothing."""
        if self._started < max(1, THREADS - 1):  # (the batch has a CPU to itself)
            self._started += 1
            name = f"dotllm-steps-{self._started}"
            threading.Thread(target=self._work_forever, args=(self._work,), name=name, daemon=True).start()
        self._work.put(work)

    @staticmethod
    def _work_forever(work: SimpleQueue[Callable[[], None]]) -> None:
        if sys.platform == "linux":  # elsewhere, priorities are those of processes
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while True:
            work.get()()


_THREADS = _Threads()


class LateSteps:
    """The late steps of a batch's guides, by the guides' names. Not thread-safe."""

    def __init__(self) -> None:
        self.steps: dict[str, LateStep] = {}
        """Each guide's last step."""
        self._quick: dict[threading.RLock, int] = {}
        """For each slow automaton, how many steps in a row were quick."""

    def is_slow(self, lock: threading.RLock) -> bool:
        """Whether only threads do the steps of the automaton with this lock."""
        return lock in self._quick

    def begin(self, name: str, lock: threading.RLock, work: Callable[[], tuple[int, Any]]) -> None:
        """Let a thread do a step, as in `LateStep.do`."""
        step = self.steps[name] = LateStep(lock)
        _THREADS.do(lambda: step.do(work))

    def unfinished(self) -> list[str]:
        """The guides whose steps are not done."""
        return [name for name, step in self.steps.items() if not step.done.done()]

    def isolate(self, running: Running) -> list[str]:
        """Mark the automata of unfinished steps as slow, and stop running their guides. Returns the stopped guides."""
        left = []
        for lock in {self.steps[name].lock for name in self.unfinished()}.difference(self._quick):
            self._quick[lock] = 0
            for name, row in running.leave_all(lock).items():
                self.steps[name] = step = LateStep(lock, row)
                step.done.set_result(None)
                left.append(name)
        return left

    def rows(self, names: Sequence[str]) -> dict[str, int]:
        """The rows of those masks of ``names`` that have been found. Guides whose automata are not slow, or no longer
        slow, are forgotten and may run."""
        rows = {}
        for name in names:
            step = self.steps[name]
            if step.done.done():
                rows[name] = step.row
                if step.lock in self._quick:
                    self._quick[step.lock] = self._quick[step.lock] + 1 if step.seconds < QUICK_S else 0
        at_work = {self.steps[name].lock for name in self.unfinished()}
        self._quick = {
            step.lock: self._quick.get(step.lock, 0)
            for step in self.steps.values()
            if step.lock in at_work or self._quick.get(step.lock, MANY) < MANY
        }
        self.steps = {name: step for name, step in self.steps.items() if step.lock in self._quick}
        return rows

    def forget(self, name: str) -> bool:
        """Forget a guide that is no longer needed. False: a thread is doing its step, and holds the lock until then."""
        step = self.steps.get(name)
        if step is not None and not (step.done.cancel() or step.done.done()):
            return False
        self.steps.pop(name, None)
        return True
