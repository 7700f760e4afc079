"""How long requests stand still for their index: what overlapping compiles with other work has not hidden.

One observation of ``dotllm_held_seconds`` for every request that was scheduled before its index was there: 0 if the
index came before the request had nothing else to do.
"""

from __future__ import annotations

import time
from typing import Any

from dotllm.vllm_plugin.engine_core.compile_hook import backend_of


class HoldTimes:
    """The requests of one scheduler that stand still, by id, and since when."""

    def __init__(self, where: str) -> None:
        """``where`` they do: the metric's label."""
        self._where = where
        self._since: dict[str, float] = {}

    def stands_still(self, request_id: str) -> None:
        """There is nothing to run for it (called in every step in which that is so)."""
        self._since.setdefault(request_id, time.monotonic())

    def goes_on(self, request_id: str, scheduler: Any) -> None:
        """Its index has come."""
        since = self._since.pop(request_id, None)
        backend = backend_of(scheduler.structured_output_manager)
        if backend is not None:
            seconds = 0.0 if since is None else time.monotonic() - since
            backend.compiler.metrics.observe("dotllm_held_seconds", self._where, value=seconds)

    def forget(self, request_id: str) -> None:
        """It has ended."""
        self._since.pop(request_id, None)
