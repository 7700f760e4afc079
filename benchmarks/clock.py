"""Timing: CPU time of this process for single calls, wall time where threads should help.

CPU time (``time.process_time_ns``) does not include what other processes take from a shared core, and it includes the
threads that an engine starts. Reading it is a system call of about half a microsecond, as long as a warm mask. This
cost is measured once per process and subtracted from every sample, for all engines alike.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

cpu_ns = time.process_time_ns
wall_ns = time.perf_counter_ns


def _overhead() -> int:
    samples = []
    for _ in range(5000):
        start = cpu_ns()
        samples.append(cpu_ns() - start)
    return int(statistics.median(samples))


OVERHEAD_NS = _overhead()


def timed(call: Callable[[], object]) -> int:
    """CPU nanoseconds of one call, without the clock's own cost (never below 0)."""
    start = cpu_ns()
    call()
    return max(0, cpu_ns() - start - OVERHEAD_NS)


@contextmanager
def quiet() -> Iterator[None]:
    """Prevent garbage collection inside: it would be charged to the engine that happens to run."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def pin(core: int | None) -> None:
    """Bind this process to one core (None: leave it free)."""
    if core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def rss_bytes() -> int:
    """Resident memory of this process now."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
