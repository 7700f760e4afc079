"""Byte tables are filled ahead of their first visitors, by a thread of low ambition.

Every place that the GPU does not know costs one request one step, and the batch the time it takes to find and send it.
Most places of a schema are few steps from its beginning, so after a request has come with a new index, the places
reachable from its start are visited breadth first: their transitions, and the masks of the first of them.

The thread holds an index's lock for one place at a time, since the engine's loop may want it.
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
from dotllm.vllm_plugin.gpu.message import TABLE_SLOTS

if TYPE_CHECKING:
    from dotllm.vllm_plugin.gpu.walk import Entry

logger = logging.getLogger(__name__)

PLACES = 2048  # of an index, whose transitions are found ahead
MASKS = 1024  # of an index, whose masks are found ahead
MASKS_OF_ALL = TABLE_SLOTS // 2  # distinct masks; beyond, none is found ahead
PAUSE = 0.0005  # seconds, in which the engine's loop gets its turn, at least
PAUSES = 3  # times as long as a visit took: the loop finds the lock free in three cases of four
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

    def want(self, entry: Entry) -> None:
        """Fill the table of ``entry``, before those asked for earlier. Only tables without stop tokens' masks."""
        with self._lock:
            self._wanted.setdefault(entry, 1)
            self._wanted.move_to_end(entry)
            if len(self._wanted) > WAITING:
                self._wanted.popitem(last=False)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="dotllm-prefetch", daemon=True)
                self._thread.start()
        self._wake.set()

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()

    def _run(self) -> None:
        while not self._closed:
            with self._lock:
                entry, place = next(reversed(self._wanted.items()), (None, 0))
            if entry is None:
                self._wake.clear()
                self._wake.wait()
                continue
            started = time.monotonic()
            try:
                more = self.visit(entry, place)
            except SpecError:  # its budget is spent; who goes there pays for himself
                more = False
            except Exception:
                logger.exception("finding masks ahead of time failed; they are found when they are needed")
                more = False
            with self._lock:
                if not more:
                    self._wanted.pop(entry, None)
                    entry.filled = True
                elif entry in self._wanted:
                    self._wanted[entry] = place + 1
            time.sleep(max(PAUSE, PAUSES * (time.monotonic() - started)))

    def visit(self, entry: Entry, place: int) -> bool:
        """Find the transitions and the mask of configuration number ``place``. Whether there may be more."""
        index, table = entry.index, entry.table
        with index.lock:
            if place >= min(PLACES, index.configurations):
                return False
            if table.expand([place]):
                entry.changed.add(place)
            if place < MASKS and int(table.rows[place, ROW]) == UNKNOWN_ROW and self._room():
                row = index.mask_row(place)
                if row < TABLE_SLOTS:
                    table.set_row(place, row)
                    entry.changed.add(place)
            return True

    def _room(self) -> bool:
        return int(self.space.rows_used[0]) < MASKS_OF_ALL
