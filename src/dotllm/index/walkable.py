"""Walkable: what guides and batches need of an index, so that they do not import the class that makes them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from dotllm.arrays import Int32
from dotllm.index.token_space import TokenSpace
from dotllm.vocabulary import Vocabulary

TokenSets = list[tuple[frozenset[int], bool]]
"""Sets of token ids: (ids, whether all tokens but these are meant)."""


class Walkable(Protocol):
    """The part of `GrammarIndex` that is used here; each member is described there."""

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
    def masks(self) -> Int32: ...

    def run(self, kernel: Callable[[Int32], int]) -> int: ...

    def recover(self, code: int) -> None: ...

    def advance(self, config: int, token: int) -> int: ...

    def forced_bytes(self, config: int, limit: int = ...) -> bytes: ...

    def can_finish(self, config: int) -> bool: ...

    def mask_row(self, config: int) -> int: ...
