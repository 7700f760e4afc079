"""Growing an arena: regions move, nothing is lost, and the whole arena is copied only rarely."""

from __future__ import annotations

import numpy as np
import pytest

from dotllm import Index, Vocabulary
from dotllm.automata.machine import arena, layout
from dotllm.errors import BudgetExceededError, EngineFault, SpecError


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)


def walked(index: Index, text: str) -> list[int]:
    guide = index.guide()
    rows = []
    for byte in text.encode():
        rows.append(guide.mask_row)
        assert guide.advance(byte)
    return rows


@pytest.mark.parametrize("region", range(layout.REGIONS))
def test_every_region_grows_and_nothing_is_lost(vocabulary: Vocabulary, region: int) -> None:
    text = '{"a": [1, 2, {"b": "x"}], "cc": null}'
    index = Index.from_json_object(vocabulary)
    rows = walked(index, text)
    plain = [r for r in range(layout.REGIONS) if r not in (layout.LISTS, layout.TRIPLES)]
    before = [arena.contents(index.mem, r).copy() for r in plain]
    for _ in range(5):
        if len(index.mem) < arena._LARGE:
            index.mem[arena.used(index.mem) :] = 3  # free space may hold anything
        index._set_memory(arena.grow(index.mem, region))
    for r, part in zip(plain, before, strict=True):
        assert np.array_equal(arena.contents(index.mem, r)[: len(part)], part)
    states, configurations = index.states, index.configurations
    assert walked(index, text) == rows
    assert (index.states, index.configurations) == (states, configurations), "everything was found again"


def test_the_arena_is_copied_rarely(vocabulary: Vocabulary) -> None:
    index = Index.from_json_object(vocabulary)
    copied = 0
    while arena.used(index.mem) < 1 << 23:
        for region in (layout.POOL, layout.CONFIG, layout.TRIPLES):
            before = arena.used(index.mem)
            grown = arena.grow(index.mem, region)
            copied += before if grown is not index.mem else 0
            index._set_memory(grown)
    assert 0 < copied < 2 * arena.used(index.mem), "all copies together are about as large as the last one"
    assert not index.mem[arena.used(index.mem) :].any(), "the free space of a large arena is zero"


def test_the_limit_is_named(vocabulary: Vocabulary) -> None:
    index = Index.from_regex("[a-z]+", vocabulary)
    index.mem[layout.H_LIMIT] = arena.used(index.mem) + 100
    with pytest.raises(BudgetExceededError, match="MiB"):
        arena.grow(index.mem, layout.POOL)


@pytest.mark.parametrize("region", range(layout.REGIONS))
def test_at_the_limit_a_region_takes_the_place_of_its_smaller_one(vocabulary: Vocabulary, region: int) -> None:
    text = '{"a": [1, 2, {"b": "x"}], "cc": null}'
    index = Index.from_json_object(vocabulary)
    rows = walked(index, text)
    states, configurations = index.states, index.configurations
    for _ in range(3):
        index._set_memory(arena.grow(index.mem, region))
    before = index.mem
    grown = arena.grow(before.copy(), region)
    capacity, larger = (mem[layout.R + 1 : layout.R + 3 * layout.REGIONS : 3] for mem in (before, grown))
    needed = int(((larger != capacity) * larger) @ np.array(layout.WIDTH))
    index.mem[layout.H_LIMIT] = arena._copied_size(before) + needed - 1  # with the old region it would be too large
    index._set_memory(arena.grow(index.mem, region))
    assert index.mem is not before and arena.used(index.mem) < arena._copied_size(before) + needed
    assert walked(index, text) == rows
    assert (index.states, index.configurations) == (states, configurations), "everything was found again"
    with pytest.raises(BudgetExceededError):
        for _ in range(9):
            index._set_memory(arena.grow(index.mem, region))


def test_a_broken_invariant_is_no_refusal(vocabulary: Vocabulary) -> None:
    index = Index.from_json_object(vocabulary)
    with pytest.raises(EngineFault, match="fault -4") as found:
        arena.recover(index.mem, layout.FAULT)
    assert not isinstance(found.value, SpecError)  # a SpecError would be an HTTP 400
