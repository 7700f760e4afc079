"""Indexes that running requests hold: beyond a bound nothing new is compiled, and nothing else changes."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest
from fake_engine import spec

from dotllm.compilation import CompilationManager
from dotllm.compilation.errors import PinnedMemoryFull
from dotllm.compilation.memory import PinnedIndexes

Make = Callable[..., CompilationManager]


class Sized:
    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.generations: list[Sized] = []
        self.remembered_bytes = 0


def test_what_nobody_has_does_not_count() -> None:
    held = PinnedIndexes(100)
    some = [Sized(40), Sized(50)]
    for index in some:
        held.add(index)  # type: ignore[arg-type]  # all that is asked of it
    cached = Sized(70)
    assert not held.is_full(lambda: pytest.fail("90 bytes need no counting"))
    held.add(cached)  # type: ignore[arg-type]
    assert held.is_full(list), "as long as it is not in the cache"
    assert not held.is_full(lambda: [cached]) and held.nbytes == 90  # type: ignore[list-item]
    some[0].nbytes = 60  # indexes grow
    assert held.count([cached]) == 110 and held.is_full(lambda: [cached])  # type: ignore[list-item]
    del some[0], index
    gc.collect()
    assert held.count([cached]) == 50  # type: ignore[list-item]
    known_by_the_cache = Sized(50)
    assert held.count([cached, known_by_the_cache]) == 50  # type: ignore[list-item]
    assert held.count([cached]) == 100 and not held.is_full(list), "the other one is beyond the cache now: the limit"  # type: ignore[list-item]


def test_what_guides_have_moved_to_counts() -> None:
    held = PinnedIndexes(100)
    full, newest, own = Sized(40), Sized(30), Sized(20)
    full.generations = newest.generations = own.generations = [full, newest, own]
    held.add(full)  # type: ignore[arg-type]
    assert held.count([]) == 90
    assert held.count([newest]) == 60  # type: ignore[list-item]
    newest.remembered_bytes = 15
    assert held.count([newest]) == 75, "the guides of a cached index hold memory, too"  # type: ignore[list-item]


def test_beyond_the_bound_nothing_new_is_compiled(make_manager: Make) -> None:
    manager = make_manager(cache_memory_bytes=30_000, max_pinned_bytes=50_000)
    running = [manager.compile(spec(id=i, bytes=20_000)).index for i in range(4)]  # one of them is in the cache
    with pytest.raises(PinnedMemoryFull, match="--dotllm-max-pinned-bytes"):
        manager.compile(spec(id="new"))
    assert manager.metrics.value("dotllm_compiles", "json_schema", "queue_full") == 1
    manager.compile(spec(id=3, bytes=20_000))  # a cached index is served
    running.clear()
    gc.collect()
    manager.compile(spec(id="new"))  # accepted immediately: the refusal is not remembered
