"""Memo: a cache of a function's results, bounded in bytes. For functions of users' texts.

`functools.lru_cache` counts entries, and the entries of a function that makes automata differ by five orders of
magnitude. A Memo keeps two generations of half the bytes each. An entry that is used moves to the younger generation.
When the younger generation is full, it becomes the older one, and the entries of the older one are dropped. A hit
costs one look-up in a dict.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
V = TypeVar("V")


class Memo(Generic[P, V]):
    """A function of hashable positional arguments with its cache. Thread-safe; threads that ask for the same unknown
    result at the same time each compute it."""

    def __init__(self, function: Callable[P, V], nbytes: Callable[..., int], limit: int) -> None:
        """``nbytes``: the size of a value and its arguments; at most ``limit`` bytes are kept."""
        self._function, self._nbytes_of, self._half = function, nbytes, limit // 2
        self._young: dict[tuple[Any, ...], tuple[V, int]] = {}
        self._old: dict[tuple[Any, ...], tuple[V, int]] = {}
        self._young_bytes = self._old_bytes = 0
        self._lock = threading.Lock()
        update_wrapper(self, function)

    @property
    def nbytes(self) -> int:
        """The bytes of all entries."""
        return self._young_bytes + self._old_bytes

    def __len__(self) -> int:
        return len(self._young) + sum(key not in self._young for key in self._old)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> V:
        """The function's result; ``kwargs`` are only for the type checker."""
        entry = self._young.get(args)
        if entry is not None:
            return entry[0]
        entry = self._old.get(args)
        if entry is None:
            value = self._function(*args, **kwargs)
            entry = value, self._nbytes_of(value, *args, **kwargs)
        self._keep(args, entry)
        return entry[0]

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._young, self._old = {}, {}
            self._young_bytes = self._old_bytes = 0

    def _keep(self, key: tuple[Any, ...], entry: tuple[V, int]) -> None:
        if entry[1] > self._half:
            return
        with self._lock:
            if key in self._young:
                return
            if self._young_bytes + entry[1] > self._half:
                self._old, self._old_bytes = self._young, self._young_bytes
                self._young, self._young_bytes = {}, 0
            self._young[key] = entry
            self._young_bytes += entry[1]


def memoised(nbytes: Callable[..., int], limit: int) -> Callable[[Callable[P, V]], Memo[P, V]]:
    """A decorator that makes a `Memo` of a function."""
    return lambda function: Memo(function, nbytes, limit)
