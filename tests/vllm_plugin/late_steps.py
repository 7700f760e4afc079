"""Steps that are late at random: each step with something new goes to a thread, which runs it when chance says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from dotllm.index import batch, late_steps, running
from dotllm.vllm_plugin.speed import slow_steps


class LateThreads:
    """Replaces the threads of `late_steps`; its clock stands still."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.random = Random(seed)
        self.work: list[Callable[[], None]] = []
        self.begun = self.late = 0
        monkeypatch.setattr(late_steps, "_THREADS", self)
        monkeypatch.setattr(slow_steps, "wait", self.wait)
        monkeypatch.setattr(late_steps, "MANY", self.random.choice([1, 3, 1000]))
        for module in (batch, running):
            monkeypatch.setattr(module, "HURRIED_FUEL", 0)

    def do(self, work: Callable[[], None]) -> None:
        """Ask a thread to do ``work``."""
        self.begun += 1
        self.work.append(work)
        self.go_on(0.1)

    def wait(self, futures: Iterable[Any], timeout: float) -> None:
        """Wait as the engine does; sometimes that is long enough."""
        self.go_on(0.7)
        self.late += sum(not future.done() for future in futures)

    def go_on(self, chance: float = 0.5) -> None:
        """Let time pass."""
        while self.work and self.random.random() < chance:
            self.work.pop(0)()
