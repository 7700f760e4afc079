"""Rare orders of events, at random (`rare_orders`) and one by one: every token is drawn under the right mask."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

import quick_kernels
from played_engine import ANSWER, EOS, Engine, spelt
from rare_orders import OneToken, PlayedRunner, Trouble

from dotllm import Index, Vocabulary
from tests.cases import EVERY

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


@pytest.mark.parametrize("first", [0, 20, 100, 1591] if EVERY else [0, 1591])
def test_requests_in_trouble(
    vllm_config: Any, index: Index, others: list[Index], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    entered = 0
    for seed in range(first, first + 10):
        with monkeypatch.context() as patched:
            trouble = Trouble(vllm_config, index, patched, seed, others=others)
            trouble.run(12)
            trouble.check()
            entered += trouble.entered
    assert entered, "no forced text was entered into any of them"


@pytest.mark.parametrize("first", [0, 40] if EVERY else [0])
def test_steps_of_requests_in_trouble_are_late(
    vllm_config: Any, index: Index, others: list[Index], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    begun = late = 0
    for seed in range(first, first + 15):
        with monkeypatch.context() as patched:
            trouble = Trouble(vllm_config, index, patched, seed, others=others, late=True)
            trouble.run(12)
            trouble.check()
            assert trouble.threads is not None
            trouble.threads.go_on(1.0)
            assert not trouble.scheduler._batch.held()
            begun += trouble.threads.begun
            late += trouble.threads.late
    assert 5 < late < begun


@pytest.mark.parametrize("first", [0, 20, 100] if EVERY else [0])
def test_drafts_of_requests_in_trouble(
    drafting_config: Any, index: Index, others: list[Index], monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """Reasoning and texts end within drafts; the device keeps the drafts that the grammar allows, and no more."""
    run = kept = 0
    for seed in range(first, first + 10):
        with monkeypatch.context() as patched:
            trouble = Trouble(drafting_config, index, patched, seed, others=others)
            trouble.run(12)
            trouble.check()
            run += trouble.engine.runner.drafts_run
            kept += trouble.engine.runner.drafts_kept
    assert 0.1 * run < kept < 0.9 * run


def test_a_request_goes_on_behind_the_end_of_its_text(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``ignore_eos`` it goes on freely, without an error."""
    quick_kernels.use(monkeypatch)
    engine = Engine(vllm_config, index, seed=1, blocks=200)
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


@pytest.mark.parametrize("blocks", [200, 12])
def test_answers_through_tritons_kernels(vllm_config: Any, index: Index, blocks: int) -> None:
    """Next to free requests, and with a cache that is too small for all."""
    engine = Engine(vllm_config, index, seed=5, blocks=blocks)
    engine.add("free", 10, structured_outputs=None, max_tokens=40)
    for i in range(4):
        engine.add(str(i), 18 + i)
    engine.run()
    for i in range(4):
        assert ANSWER.fullmatch(engine.text(str(i))) and engine.reasons[str(i)] == "stop"
        engine.check(str(i))
    assert (engine.preemptions > 0) == (blocks == 12)


def test_answers_begin_when_the_reasoning_has_ended(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the prompt ends the reasoning, the answer is constrained from its first token."""
    quick_kernels.use(monkeypatch)
    ends = frozenset(range(128, 144))
    reasoner = type("Reasoner", (OneToken,), {"ends": ends})
    engine = Engine(vllm_config, index, seed=7, blocks=200, reasoner=reasoner)
    for i in range(6):
        engine.add(f"reasons {i}", 9 + i)
        engine.add(f"answers {i}", 5, first=min(ends))
    engine.run()
    whole, drawn = 0, set()
    for i in range(6):
        assert ANSWER.fullmatch(engine.text(f"answers {i}"))
        tokens = engine.answers[f"reasons {i}"]
        end = reasoner.length(tokens)
        drawn.update(tokens[:end])
        if end is not None and engine.reasons[f"reasons {i}"] == "stop":
            assert ANSWER.fullmatch(spelt(tokens[end:]))
            whole += 1
    assert whole > 2 and len(drawn) > 40, "a mask held while they reasoned"
