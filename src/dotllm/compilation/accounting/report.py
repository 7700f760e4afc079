"""The report of a job that has ended: a count, and one line in the log."""

from __future__ import annotations

import json
import logging
import time

from dotllm.compilation.accounting.metrics import Metrics
from dotllm.compilation.compiled import Compiled
from dotllm.compilation.jobs.job import Job

# The name that docs/operations.md gives to operators, who filter by it.
logger = logging.getLogger("dotllm.compilation.manager")


def report(
    metrics: Metrics,
    job: Job,
    outcome: str,
    level: str = "",
    *,
    compiled: Compiled | None = None,
    warmth: int = 0,
    error: BaseException | None = None,
) -> None:
    """Count the end of ``job`` and log it. ``warmth`` is that of the index of ``compiled``."""
    kind = job.specification.kind.value
    metrics.add("dotllm_compiles", kind, outcome)
    now = time.monotonic()
    line = {
        "key": job.key,
        "kind": kind,
        "outcome": outcome,
        "level": level,
        "characters": job.specification.size,
        "queued_ms": round(((job.started or now) - job.submitted) * 1e3, 3),
        "seconds": round(now - (job.started or now), 6),
    }
    if compiled is not None:
        line["bytes"] = int(compiled.index.nbytes)
        line["warmth"] = warmth
    if error is not None:
        line["error"] = f"{type(error).__name__}: {error}"[:500]
    logger.info("compile %s", json.dumps(line))
