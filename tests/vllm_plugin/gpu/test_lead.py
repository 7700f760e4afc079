"""Steps wait for tokens while most of these lead to places that the device does not know; see `played_engine`."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

from played_engine import ANSWER, SCHEMA, Engine

from dotllm import Index
from dotllm.errors import BudgetExceeded
from dotllm.vllm_plugin.engine_core.request_grammar import BitmaskView, RequestGrammar
from dotllm.vllm_plugin.gpu import walk
from dotllm.vllm_plugin.gpu.lead import FULL_WEIGHT_REQUESTS, GO, WAIT, Lead

pytestmark = pytest.mark.serve


def test_unknown_places_make_steps_wait_until_they_are_known() -> None:
    lead, steps = Lead(), 0
    for _ in range(100):
        lead.took(32, 0)
    assert not lead.waits and lead.unknown == 0
    while not lead.waits:
        lead.took(32, 16)
        steps += 1
    assert steps < 8
    for _ in range(100):
        lead.took(32, 2)
    assert lead.waits == (GO < 2 / 32) and GO < lead.unknown < WAIT, "neither begins to wait nor ends it"
    for _ in range(100):
        lead.took(32, 1)
    assert not lead.waits


def test_one_token_says_less_than_many() -> None:
    lead = Lead()
    lead.took(1, 1)
    one = lead.unknown
    assert not lead.waits
    lead = Lead()
    lead.took(8, 8)
    assert lead.unknown == pytest.approx(FULL_WEIGHT_REQUESTS * one)


class Sometimes(Lead):
    """Waits now and then."""

    random = Random(7)

    @property
    def waits(self) -> bool:  # type: ignore[override]
        return self.random.random() < 0.5

    @waits.setter
    def waits(self, value: bool) -> None:
        pass


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("blocks", [200, 14])
def test_waiting_or_not_answers_are_right(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, jumps: bool, blocks: int
) -> None:
    """Whatever else happens: entered text, preemption, requests that come and go."""
    monkeypatch.setattr(walk, "Lead", Sometimes)
    for seed in range(2):
        engine = Engine(vllm_config, index, monkeypatch, jumps=jumps, seed=seed, blocks=blocks)
        engine.add("free", 10, structured_outputs=None, max_tokens=60)
        for i in range(5):
            engine.add(str(i), 18 + i)
        engine.run({9: lambda engine=engine: engine.add("late", 30)})
        for name in engine.requests:
            engine.check(name)
            assert name == "free" or ANSWER.fullmatch(engine.text(name)), engine.text(name)


def fresh(engine: Engine, count: int) -> None:
    """Requests, each with an index that nobody has seen."""
    for i in range(count):
        index = Index.from_json_schema(SCHEMA, engine.index.vocabulary, any_whitespace=False)
        engine.add(str(i), 9 + i, RequestGrammar(index.guide(), (), index.vocabulary, BitmaskView()))


def test_a_schema_for_each_request_takes_hardly_more_steps(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Than its longest answer has tokens; twice as many where steps never wait."""
    repeated = {}
    for waits in (False, True):
        if not waits:
            monkeypatch.setattr(walk.Lead, "took", lambda *_: None)
        monkeypatch.setattr(walk.Prefetcher, "want", lambda *_: None)
        engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=4, blocks=400)
        fresh(engine, 12)
        engine.run()
        monkeypatch.undo()
        for name in engine.requests:
            assert ANSWER.fullmatch(engine.text(name)), engine.text(name)
            engine.check(name)
        longest = max(len(answer) for answer in engine.answers.values())
        repeated[waits] = engine.steps - longest
    assert repeated[True] < 12 < 0.7 * repeated[False], repeated


def test_who_fails_among_many_fails_alone(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk.Prefetcher, "want", lambda *_: None)  # which may find all masks before us
    engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=4, blocks=400)
    fresh(engine, 8)
    broken = engine.requests["3"].structured_output_request.grammar.guide.index
    together, found = walk.masks_of, 0

    def some_fail(guides: Any) -> Any:
        nonlocal found
        rows, failures = together(guides)
        found += 1
        for i, guide in enumerate(guides):
            if guide.index is broken:
                rows[i], failures[i] = -1, BudgetExceeded("no room")
        return rows, failures

    monkeypatch.setattr(walk, "masks_of", some_fail)
    engine.run()
    assert found
    assert engine.reasons.pop("3") == "error"
    assert set(engine.reasons.values()) == {"stop"}
    assert all(ANSWER.fullmatch(engine.text(name)) for name in engine.reasons)


def test_tables_of_schemas_that_come_once_are_not_filled(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[Any] = []
    monkeypatch.setattr(walk.Prefetcher, "want", lambda _, entry: wanted.append(entry.index))
    engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=1, blocks=400)
    fresh(engine, 4)
    engine.run()
    assert len(wanted) == 4, "nothing said that they would come once"
    assert engine.scheduler._walk.lead.waits
    again = engine.requests["0"].structured_output_request.grammar.guide.index
    for name in ("new", "old"):
        new = Index.from_json_schema(SCHEMA, index.vocabulary, any_whitespace=False) if name == "new" else again
        engine.add(name, 9, RequestGrammar(new.guide(), (), new.vocabulary, BitmaskView()))
        engine.run()
        assert ANSWER.fullmatch(engine.text(name))
    assert wanted[4:] == [again]
