"""Rare orders of events, at random (`rare_orders`) and one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

import quick_kernels
import torch
from played_engine import EOS, TOKENS, Engine
from rare_orders import PlayedRunner, Trouble

from dotllm import Index, Vocabulary
from dotllm.vllm_plugin.engine_core.request_grammar import BitmaskView, RequestGrammar
from dotllm.vllm_plugin.gpu.entry import Entry
from dotllm.vllm_plugin.gpu.heap import HEADER, Heap
from dotllm.vllm_plugin.gpu.prefetch import Prefetcher
from dotllm.vllm_plugin.gpu.reasoning import Reasoning
from dotllm.vllm_plugin.gpu.walk import Walk
from dotllm.vllm_plugin.gpu.walk_message import COLUMNS, CONFIG, FREE, MASK
from dotllm.vllm_plugin.gpu_masks.rows import RowSender
from dotllm.vllm_plugin.jump_forward.forced_tokens import ForcedTokens

pytestmark = pytest.mark.serve


@pytest.fixture(scope="module")
def others(vocabulary: Vocabulary) -> list[Index]:
    patterns = (
        "a{1,5}b",
        "[ab]{3}(number_of_items|shipping_address)[0-9]{1,3}",
        "(x|yy|z)+",
        "[a-f]{2,30}(true|false)",
    )
    return [Index.from_regex(pattern, vocabulary) for pattern in patterns]


# (100: a table that began anew on a full heap. 1591: a preempted request whose first chunk is one token long.)
@pytest.mark.parametrize("first", [0, 20, 100, 1591])
def test_requests_in_trouble(
    vllm_config: Any, index: Index, others: list[Index], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    for seed in range(first, first + (1 if first == 1591 else 10)):
        with monkeypatch.context() as patched:
            trouble = Trouble(vllm_config, index, patched, seed, others=others)
            trouble.run(12)
            trouble.check()


def test_a_request_goes_on_behind_the_end_of_its_text(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``ignore_eos``: freely, and not with an error."""
    quick_kernels.use(monkeypatch)
    monkeypatch.setattr(Prefetcher, "want", lambda *_: None)
    engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=1, blocks=200)
    engine.runner = PlayedRunner(1, 200)
    for i in range(4):
        engine.add(str(i), 6, ignore_eos=True, max_tokens=120)
    engine.run()
    behind = set()
    for name in engine.requests:
        assert engine.reasons[name] == "length" and len(engine.answers[name]) == 120
        engine.check(name)
        behind |= set(engine.answers[name][engine.answers[name].index(EOS) + 1 :])
    assert len(behind) > 60, "a mask held behind the end"
    assert engine.scheduler._walk.misses < engine.steps, "every second step is repeated"


def test_a_table_without_rows_gets_no_place_on_the_heap(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header would be what is left there of another table, which the device would follow."""
    walk = Walk(index.space, RowSender(index.space), 4)
    monkeypatch.setattr(Prefetcher, "want", lambda *_: None)
    grammar = RequestGrammar(index.guide(), (), index.vocabulary, BitmaskView())
    walk.assign("a", grammar, 5)
    walk.message()
    (entry,) = walk._entries.values()
    assert entry.capacity and walk.batch.places[walk.slot_of["a"], COLUMNS]
    entry.table.rows[:] = 0  # as one that `lead.waits` has kept from being filled
    walk._clear_heap()
    assert not len(walk.message().runs)
    assert not entry.capacity and not walk.batch.places[walk.slot_of["a"], COLUMNS]


def test_a_heap_keeps_no_room_for_a_blank_table(index: Index) -> None:
    entry = Entry(index)
    found = Heap(Walk(index.space, RowSender(index.space), 1)._prefetcher.claims)
    found.changed[entry] = None
    assert not found.patches(1).moved and not found.used
    entry.table.expand([1])
    entry.changed = {1}
    found.changed[entry] = None
    assert found.patches(2).moved == [entry] and found.used >= HEADER


def test_quick_kernels_walk_as_the_kernel_does(index: Index) -> None:
    """`quick_kernels.follow_and_mask` and `walk_kernels._follow_and_mask`, on the same places."""
    from dotllm.vllm_plugin.gpu import walk_kernels

    draw = np.random.default_rng(3)
    walk = Walk(index.space, RowSender(index.space), 8)
    for i in range(3):
        walk.assign(str(i), RequestGrammar(index.guide(), (), index.vocabulary, BitmaskView()), 5 + i)
    walk.stay_free("3", 9, ())
    step = walk.message()
    assert step.places is not None
    memory = torch.zeros(1 << 18, dtype=torch.int32)
    at = 0
    for start, count in step.runs.tolist():
        memory[start : start + count] = torch.from_numpy(step.patch[at : at + count])
        at += count
    table = torch.zeros((64, index.space.words), dtype=torch.int32)
    table[torch.from_numpy(step.new_slots).long()] = torch.from_numpy(step.new_rows)
    tokens = walk._tokens()
    for shift in range(3):
        sampled = torch.from_numpy(draw.integers(0, len(TOKENS), 4).astype(np.int32))
        results = []
        for launch in (walk_kernels._launch, quick_kernels.Quick(quick_kernels.follow_and_mask)):
            logits, walked = torch.zeros((4, len(TOKENS))), torch.zeros((8, 2, 8), dtype=torch.int32)
            counts = torch.zeros((2, 4), dtype=torch.int32)
            launch(
                (), (4, 1, 1), logits, torch.arange(4), sampled, torch.arange(4), torch.full((4,), 20), torch.full((4,), 9),
                counts[0], counts[1], torch.tensor([walk.slot_of[str(i)] for i in range(4)], dtype=torch.int32),
                torch.tensor([5 + shift, 6 + shift, 7, 9 + shift], dtype=torch.int32), torch.from_numpy(step.places),
                walked, memory, torch.from_numpy(tokens.data), torch.from_numpy(tokens.offset),
                torch.from_numpy(tokens.ends), table, table.stride(0), logits.stride(0), len(TOKENS), 8192,
            )  # fmt: skip
            results.append((logits, counts, walked))
        for one, two in zip(*results, strict=True):
            assert torch.equal(one, two)
    assert (step.places[:, CONFIG] == FREE).any()


def test_who_stands_still_keeps_no_mask_of_an_old_epoch(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Masks of forced text, and those with stop tokens in them, are no index's: after two collections their row numbers are those of others."""
    monkeypatch.setattr(Prefetcher, "want", lambda *_: None)
    walk = Walk(index.space, RowSender(index.space), 4)
    grammar = RequestGrammar(index.guide(), (), index.vocabulary, BitmaskView(), ForcedTokens.shared())
    walk.assign("a", grammar, 5)
    place = walk.batch.places[walk.slot_of["a"]]
    walk.message()
    before = index.space.rows[place[MASK]].copy()
    for n in range(4):
        index.space.collect()
        for k in range(20):
            index.space.intern(np.full(index.space.words, 1 + 20 * n + k, np.int32))
        walk.message()
        assert (index.space.rows[place[MASK]] == before).all()


def test_an_error_where_a_reasoning_has_ended_stays_there(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not reach vLLM's loop, where it would end the engine; requests go on with vLLM's waiting."""

    def fails(*_: Any) -> None:
        raise ValueError("broken")

    met = 0
    for seed in range(1, 9):
        with monkeypatch.context() as patched:
            patched.setattr(Reasoning, "_begin", fails)
            trouble = Trouble(vllm_config, index, patched, seed)
            trouble.run(12)
            met += any("behind a reasoning failed" in error for error in trouble.errors)
            trouble.errors.clear()
            trouble.check()
    assert met > 2
