"""The queue of jobs: pauses. (Order, bounds and closing are in test_manager.)"""

from __future__ import annotations

import threading
import time

from dotllm.compilation import Specification
from dotllm.compilation.queue import JobQueue
from dotllm.compilation.ticket import Job


def job() -> Job:
    return Job("key", Specification.create("regex", "a"), 0.001)


def test_nothing_is_given_away_in_a_pause() -> None:
    queue = JobQueue(10, 1000)
    queue.pause(60)
    queue.put(job())
    assert queue.get(0.01) is None and len(queue) == 1
    queue.resume()
    assert queue.get(0.01) is not None


def test_resuming_wakes_who_waits() -> None:
    queue = JobQueue(10, 1000)
    queue.pause(60)
    found: list[Job | None] = []
    threads = [threading.Thread(target=lambda: found.append(queue.get(30))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(2):
        queue.put(job())
    queue.resume()
    for thread in threads:
        thread.join(20)
    assert len(found) == 2 and None not in found


def test_a_pause_ends_by_itself_and_does_not_grow() -> None:
    queue = JobQueue(10, 1000)
    start = time.monotonic()
    queue.pause(0.05)
    queue.pause(1000)
    queue.put(job())
    assert queue.get(600) is not None and time.monotonic() - start >= 0.05


def test_closing_ends_a_pause() -> None:
    queue = JobQueue(10, 1000)
    queue.pause(60)
    queue.put(job())
    assert len(queue.close()) == 1 and queue.get(30) is None
