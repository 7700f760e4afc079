"""Batches do what single guides do, whatever guides they mix; if a guide fails, it fails alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.automata.machine import layout
from dotllm.errors import EngineFault
from dotllm.index import advance_guides, fill_masks, mask_rows
from dotllm.index.batch import recover_each
from dotllm.index.draft_rows import advance_along, allowed_drafts
from dotllm.index.mask_table import CONTENTS, confirm_row, equal_rows, likely_row, row_hash
from dotllm.index.token_space import TokenSpace

PATTERNS = ["[a-z]{3,9}", "(ab|cd)*", r"\d+(\.\d+)?", "hello( world)?", '"[^"]*"', "x{0,50}y"]


def fresh(vocabulary: Vocabulary) -> list[Guide]:
    indexes = [Index.from_regex(pattern, vocabulary) for pattern in PATTERNS]
    return [index.guide() for index in indexes for _ in range(3)]


@pytest.mark.parametrize("threads", [1, 2])
def test_batch_equals_single(threads: int, bytes_vocabulary: Vocabulary) -> None:
    random = Random(threads)
    batch, single = fresh(bytes_vocabulary), fresh(bytes_vocabulary)
    bitmask = np.zeros((len(batch) + 4, bytes_vocabulary.words), np.int32)
    row = np.zeros((1, bytes_vocabulary.words), np.int32)
    for _ in range(12):
        assert not fill_masks(batch, bitmask, targets=range(2, len(batch) + 2), threads=threads)
        tokens = []
        for i, guide in enumerate(single):
            guide.write_mask(row)
            assert np.array_equal(bitmask[i + 2], row[0])
            tokens.append(random.choice(guide.allowed_tokens()) if random.random() < 0.9 else random.randrange(256))
        accepted, failures = advance_guides(batch, tokens)
        assert not failures
        assert accepted == [guide.advance(token) for guide, token in zip(single, tokens, strict=True)]
        assert [g.can_finish for g in batch] == [g.can_finish for g in single]
    assert not bitmask[[0, 1, -1, -2]].any()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_many_guides_in_any_order_of_their_indexes(threads: int, bytes_vocabulary: Vocabulary) -> None:
    """More guides than a chunk, several per index at the same place and at others, and rows wider than a mask."""
    random = Random(threads)
    patterns = [f"{a}[a-z]{{{n},9}}{b}+" for n in (1, 2, 3) for a, b in ("xy", "zq")]
    single, cold = ([Index.from_regex(pattern, bytes_vocabulary) for pattern in patterns] for _ in range(2))
    expected, guides = [], []
    for _ in range(200):
        which = random.randrange(len(patterns))
        one, other = single[which].guide(), cold[which].guide()
        for _ in range(random.choice((0, 0, 1, 2, 5))):
            token = random.choice(list(one.allowed_tokens()))
            assert one.advance(token) and other.advance(token)
        expected.append(one.mask_row)
        guides.append(other)
    targets = random.sample(range(230), 200)
    bitmask = np.full((230, bytes_vocabulary.words + 3), -1, np.int32)
    assert not fill_masks(guides, bitmask, targets=targets, threads=threads)
    for target, row in zip(targets, expected, strict=True):
        assert np.array_equal(bitmask[target], np.append(single[0].masks[row], [0, 0, 0]))
    assert (np.delete(bitmask, targets, axis=0) == -1).all()
    rows, failures = mask_rows(guides, threads)
    assert rows.tolist() == expected and not failures


@pytest.mark.parametrize("threads", [1, 2])
def test_rows_of_new_guides_are_numbers_too(threads: int, bytes_vocabulary: Vocabulary) -> None:
    single, cold = fresh(bytes_vocabulary), [guide for _ in range(8) for guide in fresh(bytes_vocabulary)]
    rows, failures = mask_rows(cold, threads)
    assert not failures and rows.tolist() == [guide.mask_row for guide in single] * 8


def test_a_guess_that_no_longer_holds_is_no_row(bytes_vocabulary: Vocabulary) -> None:
    """Between the guess and the lock, the row is freed and its number is used again, for other content or the same."""
    space = TokenSpace(bytes_vocabulary)
    rows, used, table, about, _ = space.row_store
    content = np.arange(space.words, dtype=np.int32) + 77
    number, tag = space.intern(content), row_hash(content)
    since = int(used[CONTENTS])
    assert likely_row(rows, table, tag, content) == number and confirm_row(used, about, number, tag, since)
    assert likely_row(rows, table, tag, content + 1) == -1
    for _ in range(3):
        space.collect()
    assert likely_row(rows, table, tag, content) == -1 and not confirm_row(used, about, number, tag, since)
    assert space.intern(content) == number and not confirm_row(used, about, number, tag, since)
    assert confirm_row(used, about, number, tag, int(used[CONTENTS]))


def test_rows_that_differ_by_a_bit_are_told_apart() -> None:
    for words in (1, 2, 7, 64, 130, 4096):
        empty = np.zeros(words, np.int32)
        hashes = [row_hash(empty)]
        for bit in range(0, 32 * words, 1 if words < 200 else 97):
            row = empty.copy()
            row[bit // 32] = np.uint32(1 << bit % 32).astype(np.int32)
            hashes.append(row_hash(row))
            assert not equal_rows(row, empty) and equal_rows(row, row.copy())
        assert min(hashes) >= 0 and len(set(hashes)) > 0.95 * len(hashes)


def test_rows_are_shared_between_indexes(bytes_vocabulary: Vocabulary) -> None:
    one, other = (Index.from_regex(p, bytes_vocabulary).guide() for p in ("[a-z]+x", "[a-z]*y"))
    assert one.mask_row == other.mask_row


def test_empty_batch(bytes_vocabulary: Vocabulary) -> None:
    assert len(mask_rows([])[0]) == 0
    assert advance_guides([], []) == ([], {})


def test_failure_stays_with_its_guide(bytes_vocabulary: Vocabulary) -> None:
    good = Index.from_regex("[a-z]+", bytes_vocabulary).guide()
    bad_index = Index.from_regex("([a-z]{1,200},){1,200}", bytes_vocabulary)
    bad = bad_index.guide()
    bad_index.mem[layout.H_LIMIT] = 1  # no room to grow at all
    bad_index.mem[layout.R + 3 * layout.LOCAL + 1] = 0  # and a region that has to grow
    bitmask = np.full((2, bytes_vocabulary.words), -1, np.int32)
    failures = fill_masks([bad, good], bitmask)
    assert list(failures) == [0]
    assert "MiB" in str(failures[0])
    assert not bitmask[0].any()
    assert bitmask[1].any()


def test_a_fault_of_the_engine_stays_with_its_guide(bytes_vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]+", bytes_vocabulary)
    failures = recover_each([(1, index, layout.FAULT)])
    assert list(failures) == [1]
    assert isinstance(failures[1], EngineFault)


def test_several_tokens_equal_single(bytes_vocabulary: Vocabulary) -> None:
    """How many of them are allowed, and whether all of them are taken, or none; guides that remember are left out."""
    random = Random(3)
    unique = Index.from_json_schema(
        {"type": "array", "uniqueItems": True, "items": {"type": "string"}}, bytes_vocabulary
    )
    batch, single = ([*fresh(bytes_vocabulary), i.guide()] for i in (unique, unique))
    assert batch[-1].is_stateful
    for _ in range(8):
        tokens = []
        for guide in single:
            ahead, own = guide.fork(), []
            for _ in range(random.randrange(4)):
                good = random.random() < 0.8 and not ahead.is_finished
                own.append(random.choice(list(ahead.allowed_tokens())) if good else random.randrange(-1, 256))
                ahead.advance(own[-1])
            tokens.append(own)
        expected = [guide.accepts(own) for guide, own in zip(single, tokens, strict=True)]
        assert allowed_drafts(batch, tokens) == [*expected[:-1], -1]
        whole = [count == len(own) for count, own in zip(expected, tokens, strict=True)]
        assert advance_along(batch, tokens) == [*whole[:-1], False]
        for guide, own, taken in zip(single[:-1], tokens, whole, strict=False):
            assert not taken or all(map(guide.advance, own))
        assert [(g.config, g.tokens_taken) for g in batch] == [(g.config, g.tokens_taken) for g in single]
    assert allowed_drafts([], []) == advance_along([], []) == []
    for call in (allowed_drafts, advance_along):
        with pytest.raises(ValueError, match="expected one number for each of"):
            call(batch, [[]])
