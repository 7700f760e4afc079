"""A closed loop: a fixed number of requests is in flight, and when a request ends the next one is sent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from dotllm.bench.client import BenchRequest, BenchTarget, Sample


async def closed_loop(
    target: BenchTarget, requests: Sequence[BenchRequest], concurrency: int, done: Callable[[], None] = lambda: None
) -> tuple[list[Sample], float]:
    """Samples in the order of ``requests``, and the wall time. ``done`` is called after each request."""
    found: list[Sample | None] = [None] * len(requests)
    waiting = iter(enumerate(requests))

    async def worker() -> None:
        for number, request in waiting:
            found[number] = await target.send(request)
            done()

    start = time.perf_counter()
    await asyncio.gather(*(worker() for _ in range(min(concurrency, len(requests)))))
    wall = time.perf_counter() - start
    return [sample for sample in found if sample is not None], wall
