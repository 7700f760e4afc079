"""Mask rows that no index knows are freed and their numbers reused, without any index noticing."""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.index.batch import fill_masks
from dotllm.index.token_space import TokenSpace

TOKENS = [bytes([byte]) for byte in range(256)]


@pytest.fixture
def vocabulary() -> Iterator[Vocabulary]:
    yield Vocabulary.from_bytes([*TOKENS, b"ab", b"abc", b"12", None], eos_token_ids=259)


def walk(index: Index, length: int, seed: int) -> list[np.ndarray]:
    """The masks along a random walk."""
    generator = random.Random(seed)
    guide = index.guide()
    masks = []
    for _ in range(length):
        masks.append(index.masks[guide.mask_row].copy())
        allowed = list(guide.allowed_tokens())
        if not guide.advance(generator.choice(allowed)) or guide.is_finished:
            break
    return masks


def pattern(number: int) -> str:
    """A pattern that shares few masks with the others."""
    low, high = chr(97 + number % 23), chr(97 + number % 23 + 2)
    return f"x{number}[{low}-{high}]{{2,5}}y{number * 7919}"


def test_rows_go_with_their_indexes(vocabulary: Vocabulary) -> None:
    space = TokenSpace.of(vocabulary)
    kept = Index.from_regex(pattern(1), vocabulary)
    before = walk(kept, 20, seed=1)
    alone = space.row_count
    for number in range(2, 60):
        walk(Index.from_regex(pattern(number), vocabulary), 20, seed=number)
    gc.collect()
    many = space.row_count
    assert many > 3 * alone
    high = int(space.rows_used[0])
    assert space.collect() == 0, "rows interned in the epoch before are kept, whoever knows them"
    assert space.collect() >= many - alone - 2
    assert space.row_count <= alone + 2 and space.nbytes < many * space.words * 4 + space._nodes.used * 17
    for number in range(100, 150):
        walk(Index.from_regex(pattern(number), vocabulary), 20, seed=number)
    assert int(space.rows_used[0]) <= high + 5, "their numbers are used again"
    for mask, again in zip(before, walk(kept, 20, seed=1), strict=True):
        assert (mask == again).all()
    assert space.versions.max() >= 2


def test_equal_rows_stay_one_row_after_collection(vocabulary: Vocabulary) -> None:
    space = TokenSpace.of(vocabulary)
    first = Index.from_regex("[0-9]+", vocabulary)
    row = first.guide().mask_row
    walk(Index.from_regex(pattern(5), vocabulary), 20, seed=1)
    gc.collect()
    space.collect()
    space.collect()
    assert Index.from_regex("[0-9a]+", vocabulary).guide().mask_row != row
    assert Index.from_regex("[0-9]+", vocabulary).guide().mask_row == row


def test_a_full_table_can_be_used_again(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dotllm.index.token_space.MAX_ROW_BYTES", 64 * 4 * vocabulary.words)
    space = TokenSpace.of(vocabulary)
    alive = []
    with pytest.raises(ValueError, match="distinct masks"):
        for number in range(300):
            alive.append(Index.from_regex(pattern(number), vocabulary))
            walk(alive[-1], 20, seed=number)
    alive.clear()
    gc.collect()
    space.collect()
    space.collect()
    index = Index.from_regex(pattern(9), vocabulary)
    expected = Index.from_regex(pattern(9), Vocabulary.from_bytes([*TOKENS, b"ab", b"abc", b"12", None], 259))
    for ours, theirs in zip(walk(index, 20, seed=4), walk(expected, 20, seed=4), strict=True):
        assert (ours == theirs).all()


def test_a_process_that_only_makes_indexes_never_fills_the_table(
    vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compile process, and a program without a `CompilationManager`: nobody collects rows for them."""
    monkeypatch.setattr("dotllm.index.token_space.MAX_ROW_BYTES", 256 * 4 * vocabulary.words)
    monkeypatch.setattr("dotllm.index.token_space.EPOCH_S", 0.0)
    for number in range(300):
        walk(Index.from_regex(pattern(number), vocabulary), 20, seed=number)


def test_an_epoch_lasts_longer_than_a_step(vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that no index knows is valid for a step, however many indexes are made meanwhile."""
    monkeypatch.setattr("dotllm.index.token_space.MAX_ROW_BYTES", 64 * 4 * vocabulary.words)
    monkeypatch.setattr("dotllm.index.token_space.EPOCH_S", 1000.0)
    space = TokenSpace.of(vocabulary)
    while space.row_count < 60:
        space.intern(np.full(space.words, space.row_count, np.int32))
    for number in range(5):
        Index.from_regex(f"{number}", vocabulary)
    assert space.epoch == 1 and space.row_count >= 60


def test_threads_use_indexes_while_rows_are_collected(vocabulary: Vocabulary, tmp_path: Path) -> None:
    """Threads compile, walk, batch, save and load while rows are collected; every mask is what it must be."""
    reference = Vocabulary.from_bytes([*TOKENS, b"ab", b"abc", b"12", None], eos_token_ids=259)
    expected = {n: walk(Index.from_regex(pattern(n), reference), 12, seed=n) for n in range(40)}
    space = TokenSpace.of(vocabulary)
    stop = threading.Event()
    errors: list[str] = []
    rounds = [0]

    def check(number: int, masks: list[np.ndarray], how: str) -> None:
        for place, (mask, right) in enumerate(zip(masks, expected[number], strict=True)):
            if not (mask == right).all():
                errors.append(f"pattern {number}, mask {place}, {how}")

    def use(seed: int) -> None:
        generator = random.Random(seed)
        try:
            while not stop.is_set():
                number = generator.randrange(40)
                index = Index.from_regex(pattern(number), vocabulary)
                check(number, walk(index, 12, seed=number), "walked")
                path = tmp_path / f"{seed}"
                index.save(path)
                loaded = Index.load(path, vocabulary)
                check(number, walk(loaded, 12, seed=number), "loaded")
                bitmask = np.zeros((2, vocabulary.words), np.int32)
                assert not fill_masks([index.guide(), loaded.guide()], bitmask)
                check(number, [bitmask[0], *expected[number][1:]], "batch")
                check(number, [bitmask[1], *expected[number][1:]], "batch")
        except Exception as error:
            errors.append(repr(error))

    def collect() -> None:
        while not stop.is_set():
            space.collect()
            rounds[0] += 1

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(3)] + [threading.Thread(target=collect)]
    for thread in threads:
        thread.start()
    stop.wait(4)
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors, errors[:5]
    assert rounds[0] > 10


@pytest.mark.parametrize("part", ["magic", "lengths", "checksum", "header", "payload", "cut", "empty"])
def test_damaged_files_are_refused_wherever_the_damage_is(vocabulary: Vocabulary, tmp_path: Path, part: str) -> None:
    index = Index.from_regex("a[0-9]{1,3}", vocabulary)
    walk(index, 10, seed=1)
    path = tmp_path / "index"
    index.save(path)
    whole = path.read_bytes()
    at = {"magic": 3, "lengths": 9, "checksum": 30, "header": 60, "payload": len(whole) - 5}.get(part, 0)
    damaged = {"cut": whole[:-1], "empty": b""}.get(part, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    path.write_bytes(damaged)
    with pytest.raises(ValueError):
        Index.load(path, vocabulary)
    path.write_bytes(whole + b"what a cache keeps behind it")
    loaded = Index.load(path, vocabulary)
    for mask, again in zip(walk(index, 10, seed=1), walk(loaded, 10, seed=1), strict=True):
        assert (mask == again).all()


def test_collections_do_not_overlap(bytes_vocabulary: Vocabulary) -> None:
    """One waits for an index that is busy. A later one must not end epochs meanwhile: the first would free rows that
    were interned after it had looked at their index."""
    index, busy = (Index.from_regex(pattern, bytes_vocabulary) for pattern in ("[a-c]x[d-f]y[g-i]", "zzz"))
    space, seen = index.space, threading.Event()

    class InOrder(list[Any]):
        def add(self, added: Any) -> None:
            self.append(added)

    class Busy:
        """Its lock is asked for after ``index`` has been seen."""

        lock = threading.RLock()

        def row_numbers(self) -> list[Any]:
            return busy.row_numbers()

    class Lock:
        def __enter__(self) -> None:
            seen.set()
            Busy.lock.acquire()

        def __exit__(self, *_: object) -> None:
            Busy.lock.release()

    last: Any = Busy()
    last.lock = Lock()
    known, space._indexes = space._indexes, InOrder([index, last])  # type: ignore[assignment]
    try:
        with Busy.lock:
            thread = threading.Thread(target=space.collect)
            thread.start()
            assert seen.wait(60)
            guide = index.guide()
            for byte in b"ax":
                assert guide.advance(byte)
            row = guide.mask_row
            before, epoch = space.rows[row].copy(), space.epoch
            others = [threading.Thread(target=space.collect) for _ in range(3)]
            for other in others:
                other.start()
            for other in others:
                other.join(1.0)
            assert space.epoch == epoch
        for each in (thread, *others):
            each.join()
        for i in range(2000):
            space.intern(np.full(space.words, 10_000 + i, np.int32))
        assert np.array_equal(space.rows[row], before)
    finally:
        space._indexes = known
