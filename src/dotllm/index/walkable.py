"""Walkable: the interface of an index for guides and batches. With it, they need not import the index's class."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from dotllm.arrays import Int32, Int64
from dotllm.index.token_space import TokenSpace
from dotllm.vocabulary import Vocabulary

TokenSets = list[tuple[frozenset[int], bool]]
"""Sets of token ids: (ids, whether the set is all tokens except these)."""


class Remembers(Protocol):
    """A stateful guide: it remembers the values in its text."""

    index: Walkable

    @property
    def nbytes(self) -> int:
        """The bytes that it holds, approximately."""


class Guides:
    """The living stateful guides of an automaton. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._guides: weakref.WeakSet[Remembers] = weakref.WeakSet()

    def add(self, guide: Remembers) -> None:
        """Add a guide."""
        with self._lock:
            self._guides.add(guide)

    def nbytes_on(self, index: Walkable) -> int:
        """The bytes that the guides on this index hold."""
        with self._lock:
            guides = list(self._guides)
        return sum(guide.nbytes for guide in guides if guide.index is index)


class Walkable(Protocol):
    """The part of `GrammarIndex` that guides and batches use; each member is described there."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokens."""

    @property
    def space(self) -> TokenSpace:
        """The data that all indexes of the vocabulary share."""

    @property
    def lock(self) -> threading.RLock:
        """Held while a kernel works on the arena."""

    @property
    def mem(self) -> Int32:
        """The arena, int32 [n]; a new array after it has grown."""

    @property
    def machine(self) -> bytes:
        """The words that tell kernels where the arena and its token sets are (`kernels.MACHINE`)."""

    @property
    def token_sets(self) -> TokenSets:
        """The sets of token ids that the grammar names."""

    @property
    def token_rows(self) -> Int32:
        """The bitmasks of `token_sets`, int32 [sets, words]."""

    @property
    def unique_nodes(self) -> frozenset[int]:
        """Nodes that begin arrays without equal items, or objects without equal keys."""

    @property
    def remembering(self) -> Guides:
        """The stateful guides of all indexes of the automaton."""

    @property
    def configurations(self) -> int:
        """The number of configurations, which are numbered from 0."""

    @property
    def masks(self) -> Int32:
        """The table of mask rows, int32 [rows, words]."""

    def newest(self, full: Walkable | None = ...) -> Walkable:
        """The index of the same automaton on which new guides begin."""

    def renewed(self) -> Walkable:
        """A new index of the same automaton."""

    def carried(self, other: Walkable, config: int) -> int:
        """The configuration of this index that equals a configuration of another index of the same automaton."""

    def run(self, kernel: Callable[[Int32], int]) -> int:
        """Call a kernel on the arena, and grow the arena when the kernel asks for it."""

    def recover(self, code: int, *, hurried: bool = ...) -> None:
        """Recover from an error code of a kernel."""

    def check_configuration(self, config: int) -> int:
        """Raise an error unless this is the number of a configuration."""

    def advance(self, config: int, token: int) -> int:
        """The configuration after a token; -1: not allowed."""

    def advance_bytes(self, config: int, data: bytes) -> int:
        """The configuration after raw bytes; -1: not allowed."""

    def forced_bytes(self, config: int, limit: int = ...) -> bytes:
        """The bytes that must come next."""

    def can_finish(self, config: int) -> bool:
        """Whether the text may end."""

    def mask_row(self, config: int) -> int:
        """The number of the row of the mask."""

    def tokens_to_finish(self, config: int = ...) -> int:
        """The number of tokens that suffice to end the text."""

    def mask_within(self, config: int, tokens_left: int) -> Int32 | None:
        """The mask under a limit, if the limit changes it."""


def machines_of(indexes: Sequence[Walkable]) -> Int64:
    """The words of the machines of ``indexes``, int64 [n * MACHINE], as kernels take them."""
    return np.frombuffer(bytearray().join([index.machine for index in indexes]), np.int64)


class Locks:
    """Holds the locks of some indexes, always taken in the same order (an ExitStack costs more)."""

    __slots__ = ("_locks",)

    def __init__(self, indexes: Sequence[Walkable]) -> None:
        self._locks = sorted({index.lock for index in indexes}, key=id)

    def __enter__(self) -> None:
        for lock in self._locks:
            lock.acquire()

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()
