"""The sizes of cached indexes are measured again, up and down (the rest: tests/compilation/test_manager.py)."""

from __future__ import annotations

import fake_engine

from dotllm.compilation.compiled import Compiled
from dotllm.compilation.jobs import JobTable
from dotllm.compilation.memory import FailureCache, MemoryCache, grown
from dotllm.compilation.specification import Specification


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


def test_a_warmer_index_counts_with_its_size() -> None:
    colder, warmer = (fake_engine.FakeIndex("", size) for size in (100, 700))
    entry, better = (Compiled("k", fake_engine.spec(), index, "compile") for index in (colder, warmer))
    memory = MemoryCache(10_000)
    table = JobTable(memory, FailureCache(1.0, 1), lambda job: None)
    memory.put(entry)
    before = memory.nbytes

    def warmth(one: Compiled) -> int:
        return one.index.nbytes

    assert table.upgrade(better, warmth) is entry and entry.index is warmer and memory.nbytes == before + 600
    assert table.upgrade(better, warmth) is None, "as warm as what is there"
    assert table.upgrade(Compiled("other", fake_engine.spec(), warmer, "disk"), warmth) is None
    assert memory.nbytes == before + 600


def test_texts_of_specifications_count() -> None:
    index = fake_engine.FakeIndex("", 100)
    short, long = (Compiled("k", fake_engine.spec(id="x" * n), index, "compile").nbytes for n in (1, 1001))
    assert short > 100 and long == short + 1000
    wide = Compiled("k", Specification.create("regex", "й" * 1000), index, "compile").nbytes
    assert wide >= Compiled("k", Specification.create("regex", ""), index, "compile").nbytes + 2000


def test_failures_that_are_too_old_are_not_kept() -> None:
    failures = FailureCache(ttl=60.0, limit=100)
    for number in range(50):
        failures.put(str(number), ValueError("no"), now=float(number))
    failures.put("40", ValueError("again"), now=50.0)
    failures.put("new", ValueError("no"), now=105.0)
    assert len(failures) == 6
    assert [key for key in (*map(str, range(50)), "new") if failures.get(key, 105.0)] == [
        "40",
        *["46", "47", "48", "49", "new"],
    ]


def test_failures_need_not_be_kept_at_all() -> None:
    failures = FailureCache(ttl=0.0, limit=100)
    failures.put("a", ValueError("no"), now=1.0)
    assert len(failures) == 0


def test_the_least_recently_used_go_and_are_counted() -> None:
    entries = [Compiled(str(n), fake_engine.spec(), fake_engine.FakeIndex("", 1000), "compile") for n in range(4)]
    size = entries[0].nbytes
    cache = MemoryCache(3 * size)
    for entry in (*entries[:3], entries[0]):  # putting an entry again counts as use
        cache.put(entry)
    assert cache.nbytes == 3 * size and cache.evictions == 0, "exactly the bound"
    assert cache.get("1") is entries[1]
    cache.put(entries[3])
    assert cache.get("2") is None and cache.evictions == 1 and len(cache.measured()) == 3
    assert cache.evict(0.67) == [entries[0], entries[1]] and cache.evictions == 3
    assert cache.evict(0.01) == [entries[3]] and cache.evict(1.0) == [] and cache.nbytes == 0
