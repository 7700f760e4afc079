"""A look ahead finds the masks that are needed next, and never stands in the way. (`test_running` has guides with looks
against guides without.)"""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine.masks import known_row
from dotllm.index import ahead
from dotllm.index.running import Running

EOS = 256


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([bytes([byte]) for byte in range(EOS)] + [None], eos_token_ids=EOS)


def started(index: Index, count: int) -> tuple[Running, list[str]]:
    running, names = Running(index.space), [str(i) for i in range(count)]
    for name in names:
        running.enter(name, index.guide())
    running.rows(names)
    return running, names


def look(running: Running, names: list[str], tokens: list[int], *, patience: float = 60.0) -> None:
    """Look ahead until the helper is done."""
    running.look_ahead(names, np.array(tokens, np.int64))
    assert running._looking is not None
    until = time.monotonic() + patience
    while not ahead._POOL._job[ahead.CONTENT + ahead._GROUPS] and time.monotonic() < until:
        time.sleep(0.001)
    running.end_look()


def test_new_masks_are_known_when_they_are_needed(vocabulary: Vocabulary) -> None:
    """No guide has moved. (While the arena is too small, a look finds what fits; the batch makes room later.)"""
    words = [f"{chr(97 + i)}{chr(97 + i // 2)}{i}" for i in range(26)]
    index = Index.from_choice([first + word for word in words for first in "ABCDE"], vocabulary)
    counts = []
    for first in "ABCDE":
        running, names = started(index, 26)
        assert running.take(names, [[ord(first)]] * 26) == []
        running.rows(names)
        tokens = [ord(word[0]) for word in words]
        before = running._configs.copy()
        look(running, names, tokens)
        assert np.array_equal(running._configs, before)
        at = [int(before[running._place[name]]) for name in names]
        known = [known_row(index.mem, index.advance(*each)) for each in zip(at, tokens, strict=True)]
        counts.append(sum(row >= 0 for row in known))
        assert running.take(names, [[token] for token in tokens]) == []
        rows, missing = running.rows(names)
        assert not missing and all(k in (-1, row) for k, row in zip(known, rows.tolist(), strict=True))
    assert counts[0] == 26, counts


def test_a_look_is_worth_its_time_while_many_masks_are_new(vocabulary: Vocabulary) -> None:
    """Whether the batch finds them or a look; not when all are known, nor for a few guides."""
    texts = [f"{chr(97 + i)}{chr(97 + i // 2)}{i:02d}{chr(97 + i // 3)}x" for i in range(26)]
    for count, looks in ((26, False), (26, True), (3, False)):
        index = Index.from_choice(texts, vocabulary)
        for is_new in (True, False):
            running, names = started(index, count)
            worth = []
            for place in range(5):
                tokens = [ord(text[place]) for text in texts[:count]]
                if looks and is_new:
                    look(running, names, tokens)
                assert running.take(names, [[token] for token in tokens]) == []
                running.rows(names)
                worth.append(running.is_worth_a_look)
            assert worth[-1] == (is_new and count == 26)


def test_a_look_at_what_never_comes_changes_nothing(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[ab]{3}c", vocabulary)
    running, names = started(index, 8)
    before = running._configs.copy()
    for tokens in ([ord("z")] * 8, [-1] * 8, [EOS] * 8, [10**6] * 8, [*b"abababab"]):
        running.look_ahead(["nobody", *names[1:]], np.array(tokens, np.int64))
        running.end_look()
    assert np.array_equal(running._configs, before) and running.take(names, [[ord("b")]] * 8) == []


@pytest.mark.parametrize("strangers", [1, 63, 64, 300])
def test_a_batch_has_more_requests_than_guides(vocabulary: Vocabulary, strangers: int) -> None:
    """Free requests, and those whose guides do not run."""
    index = Index.from_regex("[ab]{3}c", vocabulary)
    running, names = started(index, 8)
    names = [*(f"free {i}" for i in range(strangers)), *names]
    running.rows(names)
    look(running, names, [ord("a")] * len(names))
    after = index.advance(int(running._configs[running._place["0"]]), ord("a"))
    assert known_row(index.mem, after) >= 0


def test_an_index_that_is_in_use_is_left_alone(vocabulary: Vocabulary) -> None:
    """Another thread works on one of the indexes, or needs one while a look lasts."""
    index = Index.from_regex("[ab]{3}c", vocabulary)
    running, names = started(index, 8)
    holds, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with index.lock:
            holds.set()
            go_on.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert holds.wait(60)
    running.look_ahead(names, np.full(8, ord("a"), np.int64))
    assert running._looking is None
    go_on.set()
    thread.join()
    running.look_ahead(names, np.full(8, ord("a"), np.int64))
    assert running._looking is not None
    waits = threading.Thread(target=lambda: index.guide().advance(ord("a")))
    waits.start()
    waits.join(0.05)
    assert waits.is_alive()
    running.take(names, [[ord("a")]] * 8)
    waits.join(60)
    assert not waits.is_alive() and running._looking is None


def test_two_batches_take_turns(vocabulary: Vocabulary) -> None:
    """There is one helper: the second batch does without, and its indexes are free."""
    first, names = started(Index.from_regex("[ab]{3}c", vocabulary), 8)
    other_index = Index.from_regex("[ab]{4}c", vocabulary)
    second, _ = started(other_index, 8)
    first.look_ahead(names, np.full(8, ord("a"), np.int64))
    second.look_ahead(names, np.full(8, ord("a"), np.int64))
    assert first._looking is not None and second._looking is None
    thread = threading.Thread(target=lambda: other_index.guide().advance(ord("a")))
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    first.leave("0")
    assert first._looking is None
    second.look_ahead(names, np.full(8, ord("a"), np.int64))
    assert second._looking is not None
    second.end_look()


def test_a_look_that_fails_leaves_the_indexes_free(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    index = Index.from_regex("[ab]{3}c", vocabulary)
    running, names = started(index, 8)

    def fail(*_: object) -> None:
        raise MemoryError

    for method in ("begin", "end"):
        with monkeypatch.context() as patch:
            original = getattr(ahead.LookAhead, method)
            if method == "end":
                patch.setattr(ahead.LookAhead, method, lambda self, end=original: fail(end(self)))
            else:
                patch.setattr(ahead.LookAhead, method, fail)
            with pytest.raises(MemoryError):
                running.look_ahead(names, np.full(8, ord("a"), np.int64))
                running.end_look()
        thread = threading.Thread(target=lambda: index.guide().advance(ord("a")))
        thread.start()
        thread.join(60)
        assert not thread.is_alive() and running._looking is None
    assert running.take(names, [[ord("a")]] * 8) == []
