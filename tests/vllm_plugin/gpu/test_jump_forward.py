"""Forced text entered into requests; see `played_engine` for what plays the model runner."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

from played_engine import ANSWER, TOKENS, Engine

from dotllm import Index
from dotllm.errors import Unsupported
from dotllm.vllm_plugin.gpu import late_place, walk_scheduler
from dotllm.vllm_plugin.gpu.walk import Walk
from dotllm.vllm_plugin.jump_forward.forced_tokens import ForcedTokens

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("seed", range(3))
def test_answers_are_valid_and_take_fewer_steps(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    steps = {}
    for jumps in (False, True):
        engine = Engine(vllm_config, index, monkeypatch, jumps=jumps, seed=seed, blocks=200)
        for i in range(6):
            engine.add(str(i), 5 + 7 * i)
        engine.run()
        for name in engine.requests:
            assert ANSWER.fullmatch(engine.text(name)), engine.text(name)
            assert engine.reasons[name] == "stop"
            engine.check(name)
        steps[jumps] = engine.steps
        assert (engine.metrics.get("dotllm_forced_tokens.accepted", 0) > 0) == jumps
    assert steps[True] < 0.8 * steps[False], steps


def test_requests_come_one_after_another(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """States and slots are used again, and tables are known from before."""
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=11, blocks=200)
    for i in range(12):
        engine.add(str(i), 9)
        engine.run()
    for name in engine.requests:
        assert ANSWER.fullmatch(engine.text(name))
        engine.check(name)


def test_tables_know_the_places_that_requests_jump_from(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the first one who comes to forced text asks the machine: it has gone on before its mask was wanted."""
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=5, blocks=200)
    asked: list[int] = []
    slowly = Walk._take_slowly

    def take_slowly(self: Walk, slot: int, token: int, config: int) -> None:
        asked.append(int(self.batch.configs[slot]))
        slowly(self, slot, token, config)

    monkeypatch.setattr(Walk, "_take_slowly", take_slowly)
    for i in range(40):
        engine.add(str(i), 9)
        engine.run()
    ends = sum(ANSWER.fullmatch(engine.text(name)) is not None for name in engine.requests)
    assert ends == 40
    assert engine.metrics["dotllm_forced_tokens.accepted"] > 40
    # (an end token is always the machine's)
    asked.clear()
    for i in range(40, 50):
        engine.add(str(i), 9)
        engine.run()
    assert len(asked) <= 10 + 5, asked


def test_preempted_requests_go_on(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    preempted = 0
    for seed in range(4):
        engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=seed, blocks=14)
        for i in range(6):
            engine.add(str(i), 18 + i)
        engine.run()
        preempted += engine.preemptions
        for name in engine.requests:
            assert ANSWER.fullmatch(engine.text(name)), engine.text(name)
            engine.check(name)
    assert preempted, "the cache was large enough for all"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 13])
def test_max_tokens_holds_within_entered_text(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=2, blocks=200)
    for i in range(4):
        engine.add(str(i), 6, max_tokens=limit)
    engine.run()
    for name in engine.requests:
        assert len(engine.answers[name]) == limit and engine.reasons[name] == "length"
        engine.check(name)


@pytest.mark.parametrize(
    "parameters",
    [
        {"logprobs": 1},
        {"presence_penalty": 0.5},
        {"frequency_penalty": 0.5},
        {"repetition_penalty": 1.2},
        {"allowed_token_ids": list(range(len(TOKENS)))},
    ],
)
def test_what_the_sampler_must_see_is_generated(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, Any]
) -> None:
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=3, blocks=200)
    engine.add("a", 6, **parameters)
    engine.run()
    assert ANSWER.fullmatch(engine.text("a"))
    assert not engine.metrics
    engine.check("a")


def test_the_spelling_is_the_forced_one(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entered or generated, forced text is spelt in one way: that is what makes entering it exact."""
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=5, blocks=200)
    for i in range(6):
        engine.add(str(i), 6, **({"logprobs": 1} if i % 2 else {}))
    engine.run()
    forced = ForcedTokens.shared()
    for name, answer in engine.answers.items():
        config = index.guide().config
        for token in answer:
            expected = forced.after(index, config)
            assert not expected or token == expected[0], name
            config = index.advance(config, token)


def test_a_prompt_runs_while_its_index_compiles(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The late one repeats the last token of its prompt until its grammar has come; the others do not notice."""
    monkeypatch.setattr(late_place, "GRAMMAR_WAIT_S", 0.0)
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=6, blocks=200)
    pending: Future[Any] = Future()
    pending.set_running_or_notify_cancel()
    for i in range(3):
        engine.add(str(i), 8)
    late = engine.add("late", 70, pending)  # (more than a step runs)
    came = []
    engine.run({12: lambda: (came.append(len(engine.answers["0"])), pending.set_result(engine.grammar()))})
    assert came[0] >= 5, "the others have begun"
    assert late.num_computed_tokens >= 70
    for name in engine.requests:
        assert ANSWER.fullmatch(engine.text(name)), (name, engine.text(name))
        engine.check(name)


def test_a_step_of_one_waits_a_moment(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_place, "GRAMMAR_WAIT_S", 30.0)
    engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=6, blocks=200)
    pending: Future[Any] = Future()
    pending.set_running_or_notify_cancel()
    engine.add("late", 8, pending)
    timer = threading.Timer(0.2, lambda: pending.set_result(engine.grammar()))
    timer.start()
    engine.run()
    assert ANSWER.fullmatch(engine.text("late"))
    assert engine.steps < 2 * len(engine.answers["late"]), "no step was run for nothing while it compiled"
    engine.check("late")


def test_a_late_failure_ends_its_request_alone(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_place, "GRAMMAR_WAIT_S", 0.0)
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=6, blocks=200)
    pending: Future[Any] = Future()
    pending.set_running_or_notify_cancel()
    engine.add("good", 8)
    engine.add("bad", 8, pending)
    engine.run({9: lambda: pending.set_exception(Unsupported("no", keyword="x"))})
    assert ANSWER.fullmatch(engine.text("good"))
    assert engine.reasons["bad"] == "error" and not engine.answers["bad"]
    engine.check("good")


def test_an_error_where_places_are_found_stays_there(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must not reach vLLM's loop, where it would end the engine."""
    monkeypatch.setattr(late_place, "GRAMMAR_WAIT_S", 0.0)
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=6, blocks=200)
    pending: Future[Any] = Future()
    pending.set_running_or_notify_cancel()
    engine.add("late", 8, pending)

    def fails(*_: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(Walk, "begin", fails)
    engine.run({6: lambda: pending.set_result(engine.grammar())})
    assert engine.reasons["late"] == "error" and not engine.answers["late"]


def test_nothing_is_sampled_without_a_mask_when_walking_ends(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(late_place, "GRAMMAR_WAIT_S", 0.0)
    engine = Engine(vllm_config, index, monkeypatch, jumps=True, seed=6, blocks=200)
    pending: Future[Any] = Future()
    pending.set_running_or_notify_cancel()
    engine.add("late", 8, pending)
    engine.add("other", 8)
    from vllm.v1.request import RequestStatus

    aborted = RequestStatus.FINISHED_ABORTED
    engine.run({6: lambda: engine.scheduler.finish_requests("other", aborted), 9: engine.scheduler._stop_walking})
    assert engine.reasons["late"] == "error" and not engine.answers["late"]
    assert pending.cancelled() or not pending.done()


@pytest.mark.parametrize("mode", ["FULL", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"])
def test_graphs_that_entered_text_cannot_trust_are_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    from vllm.config import CUDAGraphMode

    monkeypatch.setattr(walk_scheduler, "coalescence", lambda: "canonical")
    monkeypatch.setattr(walk_scheduler.logger, "propagate", True)
    config = SimpleNamespace(compilation_config=SimpleNamespace(cudagraph_mode=CUDAGraphMode[mode]))
    with caplog.at_level(logging.WARNING):
        assert walk_scheduler.may_jump(config)
    assert ("NaN" in caplog.text) == (mode == "FULL")
