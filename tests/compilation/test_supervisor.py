"""What the supervisor's thread calls, and when."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from dotllm.compilation.jobs import Supervisor, SwitchInterval


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_rounds_go_on_whatever_a_task_raises() -> None:
    calls: dict[str, int] = {}
    working = threading.Event()

    def task(name: str) -> Callable[[float], None]:
        def called(now: float) -> None:
            calls[name] = calls.get(name, 0) + 1
            if name == "fails":
                raise RuntimeError("no")

        return called

    supervisor = Supervisor(
        working.is_set,
        [task("at work")],
        task("always"),
        [(1e6, task("once")), (0.0, task("often")), (0, task("fails"))],
    )
    supervisor.start()
    wait_for(lambda: calls.get("fails", 0) >= 3)
    assert "at work" not in calls and calls["once"] == 1 and calls["often"] >= 3 and calls["always"] >= 3
    working.set()
    wait_for(lambda: calls.get("at work", 0) >= 2)
    supervisor.stop()
    supervisor.join(5.0)
    rounds = calls["always"]
    time.sleep(0.3)
    assert calls["always"] == rounds


def test_the_switch_interval_comes_back() -> None:
    before = sys.getswitchinterval()
    interval = SwitchInterval()
    try:
        interval.set(short=False)
        assert sys.getswitchinterval() == before and not interval.is_short
        for _ in range(2):
            interval.set(short=True)
            assert sys.getswitchinterval() < before and interval.is_short
    finally:
        interval.set(short=False)
    assert sys.getswitchinterval() == before and not interval.is_short
