"""The number of CPUs that this process may use: in a container mostly fewer than the machine has.

``os.cpu_count`` counts the machine's CPUs. A container has fewer by affinity (``--cpuset-cpus``) or by a quota of its
control group (``--cpus``, Kubernetes' limits). A container that exceeds its quota is stopped for the rest of a tenth of
a second. The threads that share the masks of a batch work for microseconds, so they must not outnumber the CPUs: eight
on one CPU take 3.7 ms for the masks of 128 requests, one takes 1.2 ms.

https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "MICROSECONDS PERIOD" or "max PERIOD"
_QUOTA_V1 = tuple(Path("/sys/fs/cgroup/cpu") / name for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


@cache
def usable() -> int:
    """CPUs that this process may use at once, at least 1. A part of a CPU counts as one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _quota() -> float | None:
    """The control group's quota in CPUs; None: there is no limit, or it cannot be read."""
    try:
        if _QUOTA.exists():
            time, period = _QUOTA.read_text().split()
        else:
            time, period = (path.read_text().strip() for path in _QUOTA_V1)
        return int(time) / int(period) if int(time) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # ValueError: "max", too
        return None
