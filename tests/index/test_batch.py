"""Batches do what single guides do, whatever they mix; a guide that fails fails alone."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from dotllm import Guide, Index, Vocabulary
from dotllm.index import advance_guides, fill_masks, mask_rows

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
    from dotllm.automata.machine import layout

    bad_index.mem[layout.H_LIMIT] = 1  # no room to grow at all
    bad_index.mem[layout.R + 3 * layout.LOCAL + 1] = 0  # and something to grow for
    bitmask = np.full((2, bytes_vocabulary.words), -1, np.int32)
    failures = fill_masks([bad, good], bitmask)
    assert list(failures) == [0]
    assert "MiB" in str(failures[0])
    assert not bitmask[0].any()
    assert bitmask[1].any()
