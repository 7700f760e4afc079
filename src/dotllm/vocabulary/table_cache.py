"""Tables of character sets in memory: least recently used first out, by bytes, but none that is in use."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable

from dotllm.charset import CharSet
from dotllm.vocabulary.charset_table import CharsetTable

DEFAULT_LIMIT = 32 * 2**20
"""Bytes of tables kept per vocabulary."""
_OWN_REFERENCES = 2
"""What ``sys.getrefcount`` counts for a table that only the cache holds: the cache's reference and its own argument."""


class TableCache:
    """Thread-safe; a table is built once however many threads ask for it.

    A table that an Index still holds is never dropped: its memory would not be freed, and the next request for it would
    build a second one. So the limit may be exceeded by what is in use.
    """

    def __init__(self, build: Callable[[CharSet], CharsetTable], limit: int = DEFAULT_LIMIT) -> None:
        self._build = build
        self._limit = limit
        self._tables: OrderedDict[CharSet, CharsetTable] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        self._build_lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all tables kept."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, charset: CharSet) -> CharsetTable:
        """The table of ``charset``, built if it is not kept."""
        table = self._find(charset)
        if table is not None:
            return table
        with self._build_lock:  # one at a time: builders would compete for the same cores, often for the same table
            table = self._find(charset)
            if table is None:
                table = self._build(charset)
                with self._lock:
                    self._tables[charset] = table
                    self._nbytes += table.nbytes
                    self._shrink()
        return table

    def _find(self, charset: CharSet) -> CharsetTable | None:
        with self._lock:
            table = self._tables.get(charset)
            if table is not None:
                self._tables.move_to_end(charset)
            return table

    def _shrink(self) -> None:
        if self._nbytes <= self._limit:
            return
        for charset in list(self._tables):
            if sys.getrefcount(self._tables[charset]) <= _OWN_REFERENCES:
                self._nbytes -= self._tables.pop(charset).nbytes
                if self._nbytes <= self._limit:
                    return
