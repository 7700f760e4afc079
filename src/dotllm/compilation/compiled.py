"""Compiled: the result of a ticket, which is the best index of a specification known so far.

A compile races with the shared store (`manager`). If the compile wins, the request may start at once; if the store's
index, warmed by other servers, arrives a moment later, later guides use it. So plugins keep the `Compiled` and call
`guide()` when the first mask is needed (after prefill), not when the ticket resolves.
"""

from __future__ import annotations

from typing import Any

from dotllm.compilation.contract import CompiledIndex
from dotllm.compilation.specification import Specification

# Bookkeeping of one entry beside its index (key, text, list slots), so that 10,000 empty indexes are not free.
ENTRY_OVERHEAD_BYTES = 1024


class Compiled:
    """One compiled specification. Attribute reads and writes are single bytecodes: no lock is needed."""

    __slots__ = ("__weakref__", "_index", "key", "level", "specification", "used")

    def __init__(self, key: str, specification: Specification, index: CompiledIndex, level: str) -> None:
        self.key = key
        self.specification = specification
        self.level = level
        """Where the index came from: "compile", "disk", "store" or "remote"."""
        self.used = False
        """Whether a guide was made since the write-back last looked."""
        self._index = index

    @property
    def index(self) -> CompiledIndex:
        """The best index known so far."""
        return self._index

    def upgrade(self, index: CompiledIndex, level: str) -> None:
        """Use a better (warmer) index for guides made from now on."""
        self._index = index
        self.level = level

    def guide(self) -> Any:
        """A new guide on the best index known now.

        On an empty one of the same automaton if that is nearly full, so that outputs that made it grow to its limit are
        no harm to later requests.
        """
        self.used = True
        if self._index.nearly_full:
            self._index = self._index.renewed()
        return self._index.guide()

    @property
    def nbytes(self) -> int:
        """Bytes this entry keeps alive."""
        return self._index.nbytes + len(self.specification.text) + ENTRY_OVERHEAD_BYTES
