"""Tables are filled ahead in large pieces, and whoever needs an index meanwhile gets it at once."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

from dotllm import Index, Vocabulary
from dotllm.index.gpu_tables import ROW, UNKNOWN_ROW
from dotllm.vllm_plugin.engine_core.backend import DotllmBackend
from dotllm.vllm_plugin.gpu import prefetch
from dotllm.vllm_plugin.gpu.entry import Entry
from dotllm.vllm_plugin.gpu.prefetch import Prefetcher
from dotllm.vllm_plugin.gpu.walk import Walk

PATTERN = "the quick brown fox jumps over the lazy dog, who (a|bc){0,9} sleeps"


@pytest.fixture
def bytes_vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([bytes([i]) for i in range(256)] + [b"<eos>"], eos_token_ids=256)


def filled(entry: Entry) -> list[int]:
    """The masks that a table has, of all configurations but the two with fixed numbers."""
    return [int(row) for row in entry.table.rows[1 : entry.index.configurations, ROW]]


def test_a_claim_ends_a_visit_and_the_next_one_goes_on_there(bytes_vocabulary: Vocabulary) -> None:
    plain = Entry(Index.from_regex(PATTERN, bytes_vocabulary))
    prefetcher, at = Prefetcher(plain.index.space), 1
    while at:
        at = prefetcher.visit(plain, at, 8)

    entry, at = Entry(Index.from_regex(PATTERN, bytes_vocabulary)), 1
    visits, claimed = 0, 0
    while at:
        prefetcher.claims.waiting[0] = claims = visits % 2
        before, at = at, prefetcher.visit(entry, at, 8)
        if claims and at:  # (a place whose mask is another one's, too, may be passed)
            assert UNKNOWN_ROW not in filled(entry)[before - 1 : at - 1]
            claimed += at < before + 8
        visits += 1
    assert claimed > 5
    assert entry.index.configurations == plain.index.configurations
    assert filled(entry) == filled(plain)
    assert entry.changed == plain.changed


def test_all_places_are_found_while_a_loop_claims_the_index(
    bytes_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "HEAD_START_S", 0.0)
    entry = Entry(Index.from_regex("(a|bc|[0-9]x){0,90}d", bytes_vocabulary))
    prefetcher = Prefetcher(entry.index.space)
    prefetcher.want(entry)
    deadline, claims = time.monotonic() + 60, 0
    while not entry.filled and time.monotonic() < deadline:
        prefetcher.last_step = time.monotonic()
        with prefetcher.claims.on(entry.index.lock):
            claims += 1
        time.sleep(0.0005)
    prefetcher.close()
    assert entry.filled and claims
    assert all(entry.table.is_expanded(c) for c in range(1, entry.index.configurations))
    assert UNKNOWN_ROW not in filled(entry)


def test_waiting_for_the_interpreter_is_no_work(bytes_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a visit that was kept waiting by the loop would pause for many times as long, and be made smaller."""
    monkeypatch.setattr(prefetch, "HEAD_START_S", 0.0)
    worked, done = [], threading.Event()
    entry = Entry(Index.from_regex(PATTERN, bytes_vocabulary))
    prefetcher = Prefetcher(entry.index.space)

    def visit(*_: object) -> int:
        time.sleep(0.2)
        return 0 if len(worked) else 1

    def pause(seconds: float) -> float:
        worked.append(seconds)
        if len(worked) == 2:
            done.set()
        return 0.0

    monkeypatch.setattr(prefetcher, "visit", visit)
    monkeypatch.setattr(prefetcher, "_pause", pause)
    prefetcher.want(entry)
    assert done.wait(60)
    prefetcher.close()
    assert max(worked) < 0.1
    assert prefetcher._count > 4, "more places a visit"


@pytest.mark.parametrize("moment", ["clear", "wait"])
def test_what_is_wanted_while_the_thread_goes_to_sleep_wakes_it(
    moment: str, bytes_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was forgotten until the next one came."""
    monkeypatch.setattr(prefetch, "HEAD_START_S", 0.0)
    first, late = (Entry(Index.from_regex(pattern, bytes_vocabulary)) for pattern in ("a", "b"))
    prefetcher = Prefetcher(first.index.space)

    class Wake(threading.Event):
        def wants(self, now: str) -> None:
            if now == moment and first.filled and not late.filled and not prefetcher._wanted:
                prefetcher.want(late)

        def clear(self) -> None:
            self.wants("clear")
            super().clear()

        def wait(self, timeout: float | None = None) -> bool:
            self.wants("wait")
            return super().wait(timeout)

    prefetcher._wake = Wake()
    prefetcher.want(first)
    deadline = time.monotonic() + 20
    while not late.filled and time.monotonic() < deadline:
        time.sleep(0.001)
    prefetcher.close()
    assert late.filled


def test_a_backend_that_is_destroyed_leaves_no_thread_that_holds_its_tables(bytes_vocabulary: Vocabulary) -> None:
    sender: Any = SimpleNamespace(sender=0)
    entry = Entry(Index.from_regex("a", bytes_vocabulary))
    walk = Walk(entry.index.space, sender, 16)
    walk._prefetcher.want(entry)
    thread, held = walk._prefetcher._thread, weakref.ref(walk._prefetcher)
    backend: Any = object.__new__(DotllmBackend)
    backend.walk, backend.compiler = walk, SimpleNamespace(close=lambda: None)
    backend.destroy()
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    del walk, backend
    gc.collect()
    assert held() is None
