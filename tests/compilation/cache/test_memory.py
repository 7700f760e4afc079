"""Sizes of what is cached are measured again, in both directions (the rest: tests/compilation/test_manager.py)."""

from __future__ import annotations

import fake_engine

from dotllm.compilation.cache.memory import MemoryCache, grown
from dotllm.compilation.compiled import Compiled


def test_an_index_that_has_shrunk_is_measured_too() -> None:
    index = fake_engine.FakeIndex("", 100)
    entry = Compiled("k", fake_engine.spec(), index, "compile")
    cache, beside = MemoryCache(10_000), entry.nbytes - 100
    cache.put(entry)
    assert grown(cache.measured()) == []
    for size in (300, 40):
        index.nbytes = size
        assert grown(cache.measured()) == [(entry, size + beside)]
        assert cache.resize(grown(cache.measured())) == [] and cache.nbytes == size + beside
