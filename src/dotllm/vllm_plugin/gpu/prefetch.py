"""Byte tables are filled ahead of their first visitors, by a thread of low ambition.

Every place that the GPU does not know costs one request one step, and the batch the time it takes to find and send it.
Most places of a schema are few steps from its beginning, so after a request has come with a new index, the places
reachable from its start are visited breadth first: their transitions, and their masks.

A visit is of many places at a time: what costs the loop is not the compiled code that finds their masks, but that each
visit takes the interpreter's lock from it some times. The loop may want the index meanwhile; then the visit ends after
the mask it is at (`claim`).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from dotllm.errors import SpecError
from dotllm.index.gpu_tables import ROW, UNKNOWN_ROW
from dotllm.index.token_space import TokenSpace
from dotllm.vllm_plugin.engine_core.step_phases import LAUNCH_S
from dotllm.vllm_plugin.gpu.claim import Claims
from dotllm.vllm_plugin.gpu.gate import Gate
from dotllm.vllm_plugin.gpu_masks.message import TABLE_SLOTS

if TYPE_CHECKING:
    from dotllm.vllm_plugin.gpu.entry import Entry

logger = logging.getLogger(__name__)

# Places of an index that are visited ahead. Ten schemas of bounded strings have 90 to 2,300 each: with 1,024 of them,
# and 512 masks, a sixth of their first 700 random tokens came to a place that was not known; with all of them, none.
PLACES = 4096
MASKS = 512  # of an index, found ahead: distinct ones, which may travel in one step (8 MiB); these ten have up to 248
MASKS_OF_ALL = TABLE_SLOTS // 2  # distinct masks; beyond, none is found ahead
MIN_PAUSE_S = 0.0005  # seconds, in which the engine's loop gets its turn, at least
PAUSES_PER_VISIT = 2  # times as long as a visit worked: the loop of a small model has no time to give
SPARE_S = 0.001  # seconds of a step in which the loop waits for the device; with more a pause is as long as the visit
IDLE_S = 0.02  # seconds without a step, after which there is nobody to give way to
VISIT_S = 0.002  # seconds that a visit should work
VISITED = 64  # places a visit, at most
HEAD_START_S = 0.004  # seconds, in which the loop launches the first step of the request that has come
WAITING = 64  # indexes; the least recently wanted ones are forgotten


class Prefetcher:
    """See the module. ``changed`` of an entry tells the engine's loop what to send."""

    def __init__(self, space: TokenSpace) -> None:
        self.space = space
        self._wanted: OrderedDict[Entry, int] = OrderedDict()  # and the next place to visit
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False
        self.gate = Gate()  # closed by the engine's loop while it launches a prompt
        self.claims = Claims()  # how the engine's loop takes the lock of an index
        self._count = 4  # places a visit
        self._launched = 0.0  # when a step had its message
        self._spare = 0.0  # seconds that the loop waits in a step, smoothed
        self.last_step = 0.0  # when the engine's loop launched one (`time.monotonic`); set by it

    def want(self, entry: Entry) -> None:
        """Fill the table of ``entry``, before those asked for earlier. Only tables without stop tokens' masks."""
        with self._lock:
            self._wanted.setdefault(entry, 1)
            self._wanted.move_to_end(entry)
            if len(self._wanted) > WAITING:
                forgotten, _ = self._wanted.popitem(last=False)
                forgotten.filled = True  # as far as it will be
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dotllm-prefetch", daemon=True)
                self._thread.start()
        self._wake.set()

    def step_has_its_message(self) -> None:
        """The engine's loop samples now, and waits for results then."""
        self._launched = time.monotonic()

    def results_are_there(self) -> None:
        """They have come, of that step or one before."""
        if self._launched:
            waited = time.monotonic() - self._launched - LAUNCH_S
            self._spare += (max(0.0, waited) - self._spare) / 8
            self._launched = 0.0

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.clear()  # before looking: what is wanted after the look wakes
            if self._closed:
                return
            with self._lock:
                entry, place = next(reversed(self._wanted.items()), (None, 0))
            if entry is None:
                self._wake.wait()
                time.sleep(HEAD_START_S)
                continue
            self.gate.wait()
            began = time.thread_time()  # not the clock: waiting for the interpreter is no work
            try:
                reached = 0 if entry.gone else self.visit(entry, place, self._count)
            except SpecError:  # its budget is spent; who goes there pays for himself
                reached = 0
            except Exception:
                logger.exception("finding masks ahead of time failed; they are found when they are needed")
                reached = 0
            worked = time.thread_time() - began
            if worked > VISIT_S:
                self._count = max(1, self._count // 2)
            elif worked < VISIT_S / 2:
                self._count = min(VISITED, 2 * self._count)
            with self._lock:
                if not reached:
                    self._wanted.pop(entry, None)
                    entry.filled = True
                elif entry in self._wanted:
                    self._wanted[entry] = reached
            time.sleep(self._pause(worked))

    def _pause(self, worked: float) -> float:
        if time.monotonic() - self.last_step >= IDLE_S:
            return MIN_PAUSE_S
        return max(MIN_PAUSE_S, worked * (1 if self._spare > SPARE_S else PAUSES_PER_VISIT))

    def visit(self, entry: Entry, place: int, count: int = 1) -> int:
        """Find the transitions and the masks of ``count`` configurations from number ``place`` on, or of fewer if the
        loop claims the index. Returns the next one, or 0 if there is none. Raises BudgetExceeded."""
        index, table, stop = entry.index, entry.table, self.claims.waiting
        with index.lock:
            after = min(PLACES, index.configurations, place + count)
            if place >= after:
                return 0
            entry.changed.update(table.expand(range(place, after)))
            if len(entry.found_ahead) < MASKS and self._room():
                epoch = self.space.epoch
                places = [p for p in range(place, min(after, len(table.rows))) if table.rows[p, ROW] == UNKNOWN_ROW]
                rows = entry.mask_rows(places, stop)
                if epoch == self.space.epoch:  # else the numbers may mean other rows by now
                    for config, row in zip(places, rows, strict=True):
                        if 0 <= row < TABLE_SLOTS:
                            table.set_row(config, row)
                            entry.changed.add(config)
                            entry.found_ahead.add(row)
                if stop[0]:
                    return next((p for p, row in zip(places, rows, strict=True) if row < 0), after)
            return after

    def _room(self) -> bool:
        return int(self.space.rows_used[0]) < MASKS_OF_ALL
