"""Compiled: the result of a ticket, the best index of a specification known so far.

A compile races with the shared store (`manager`). If the compile wins, the request may start at once; if the store's
index, warmed by other servers, arrives a moment later, later guides use it. So plugins keep the `Compiled` and call
`guide()` when the first mask is needed (after prefill), not when the ticket resolves.
"""

from __future__ import annotations

from collections.abc import Callable
from sys import getsizeof
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from dotllm.compilation.specification import Specification

if TYPE_CHECKING:
    from dotllm.index import GrammarIndex

CompiledIndex: TypeAlias = "GrammarIndex"
"""In tests, other classes with the same ``nbytes``, ``result_bytes``, ``remembered_bytes``, ``generations``,
``newest``, ``to_bytes`` and ``guide``."""


class Engine(NamedTuple):
    """The engine as a set of functions, which tests replace."""

    compile: Callable[[Specification, Any], CompiledIndex]
    """(specification, vocabulary) → index; raises `dotllm.errors.SpecError` for a refused specification."""
    load: Callable[[bytes, Any], CompiledIndex]
    """(content of a file, vocabulary) → index; raises for a damaged, foreign or newer file."""
    shared_bytes: Callable[[Any], int]
    """Bytes that all indexes of a vocabulary share: its mask rows."""
    most_shared_bytes: Callable[[Any], int]
    """Bytes of mask rows above which a vocabulary has little room for more, whatever the bound of the cache is."""
    collect: Callable[[Any], Any]
    """Free the shared rows that no living index of a vocabulary knows any more (perhaps not before the next call)."""
    warmth: Callable[[CompiledIndex], int]
    """A number that grows as an index finds states and rows."""
    prepare: Callable[[], None] = lambda: None
    """Load what every compile needs. It may take a minute, once per machine; no compile's time limit includes it."""


# Bytes of one entry without its index (key, text, list slots), so that 10,000 empty indexes do not count as free.
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
        """Whether a guide has been made since write-back last looked."""
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

        If that index is nearly full, the guide begins on a new index of the same automaton, which then replaces the
        full one here.
        """
        self.used = True
        index = self._index
        guide: Any = index.guide()
        if guide.index is not index:
            self._index = guide.index
        return guide

    def prepare(self) -> None:
        """If the next guide will begin on a new index, make that index now."""
        self._index.newest()

    @property
    def nbytes(self) -> int:
        """Bytes this entry keeps alive."""
        return self._index.nbytes + getsizeof(self.specification.text) + ENTRY_OVERHEAD_BYTES
