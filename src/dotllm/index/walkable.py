"""Walkable: the interface of an index for guides and batches, so that they need not import the index's class."""

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
    def vocabulary(self) -> Vocabulary: ...
    @property
    def space(self) -> TokenSpace: ...
    @property
    def lock(self) -> threading.RLock: ...
    @property
    def mem(self) -> Int32: ...
    @property
    def machine(self) -> bytes: ...
    @property
    def token_sets(self) -> TokenSets: ...
    @property
    def token_rows(self) -> Int32: ...
    @property
    def unique_nodes(self) -> frozenset[int]: ...
    @property
    def remembering(self) -> Guides: ...
    @property
    def lease(self) -> object: ...
    @property
    def configurations(self) -> int: ...
    @property
    def masks(self) -> Int32: ...
    def newest(self, full: Walkable | None = ...) -> Walkable: ...
    def renewed(self) -> Walkable: ...
    def carried(self, other: Walkable, config: int) -> int: ...
    def run(self, kernel: Callable[[Int32], int]) -> int: ...
    def recover(self, code: int, *, hurried: bool = ...) -> None: ...
    def check_configuration(self, config: int) -> int: ...
    def advance(self, config: int, token: int) -> int: ...
    def advance_bytes(self, config: int, data: bytes) -> int: ...
    def forced_bytes(self, config: int, limit: int = ...) -> bytes: ...
    def can_finish(self, config: int) -> bool: ...
    def mask_row(self, config: int) -> int: ...
    def tokens_to_finish(self, config: int = ...) -> int: ...
    def mask_within(self, config: int, tokens_left: int) -> Int32 | None: ...


def machines_of(indexes: Sequence[Walkable]) -> Int64:
    """The words of the machines of ``indexes``, int64 [n * MACHINE], as kernels take them."""
    return np.frombuffer(bytearray().join([index.machine for index in indexes]), np.int64)


class Locks:
    """Holds the locks of several indexes, always taken in the same order (an ExitStack costs more)."""

    __slots__ = ("_locks",)

    def __init__(self, indexes: Sequence[Walkable]) -> None:
        self._locks = sorted({index.lock for index in indexes}, key=id)

    def __enter__(self) -> None:
        for lock in self._locks:
            lock.acquire()

    def take_now(self) -> bool:
        """Take all locks if no other thread holds any of them. (Leave the context to release them.)"""
        for i, lock in enumerate(self._locks):
            if not lock.acquire(blocking=False):
                for taken in self._locks[:i]:
                    taken.release()
                return False
        return True

    def __exit__(self, *_: object) -> None:
        for lock in self._locks:
            lock.release()
