"""Steps that a thread finishes while other requests go on: vLLM's own scheduler with ours before it, step by step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("vllm")

from vllm.v1.request import RequestStatus

from dotllm import Index, Vocabulary
from dotllm.device_masks.sender import Bitmasks
from dotllm.index import batch, late_steps, running
from dotllm.vllm_plugin.enforce import errors
from tests.vllm_plugin.engine_core.test_batch_accept import AB, EOS, TOKENS, A, B, C, grammar
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench, vllm_config

pytestmark = pytest.mark.serve
__all__ = ["vllm_config"]

PATIENCE_S = 120.0


class Says(Bench):
    """A model that gives the same token whenever it is asked again for a position."""

    def next_token(self, request: Any) -> int:
        return self.says[request.request_id][request.num_output_tokens]


class Stuck:
    """A thread that holds an automaton's lock until it is allowed to go on."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.may_go_on = threading.Event()
        self.expired = False
        self.threads: list[threading.Thread] = []

    def do(self, work: Callable[[], None]) -> None:
        holds = threading.Event()

        def run() -> None:
            with self.lock:
                holds.set()
                self.expired |= not self.may_go_on.wait(PATIENCE_S)
                work()

        thread = threading.Thread(target=run)
        thread.start()
        self.threads.append(thread)
        assert self.may_go_on.is_set() or len(self.threads) > 1 or holds.wait(PATIENCE_S)

    def go_on(self) -> None:
        self.may_go_on.set()
        while self.threads:
            self.threads.pop(0).join()


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)


@pytest.fixture
def easy(vocabulary: Vocabulary) -> Index:
    """An index that knows all of its steps."""
    index = Index.from_regex("(ab|c)*", vocabulary)
    guide = index.guide()
    for token in (C, A, B, AB, C):
        assert guide.mask_row >= 0 and guide.advance(token) and guide.mask_row >= 0
    return index


@pytest.fixture
def hostile(vocabulary: Vocabulary) -> Index:
    return Index.from_regex("(a|b|ab){9,20}c?", vocabulary)


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch, hostile: Index) -> Iterator[Stuck]:
    stuck = Stuck()
    stuck.lock = hostile.lock
    monkeypatch.setattr(late_steps, "_THREADS", stuck)
    for module in (batch, running):
        monkeypatch.setattr(module, "HURRIED_FUEL", 0)
    yield stuck
    stuck.go_on()


@pytest.fixture
def bench(vllm_config: Any, easy: Index) -> Bench:
    bench = Says(vllm_config)
    bench.manager.backend.step_masks = Bitmasks(easy.space, 1)
    for name in ("e1", "e2"):
        bench.add(name, 3, grammar(easy), max_tokens=60)
        bench.says[name] = [C, A, B, AB] * 15
    bench.step()
    return bench


def others_go_on(bench: Bench, stuck: Stuck, steps: int = 4) -> None:
    for _ in range(steps):
        before = len(bench.tokens_of("e1"))
        scheduled = bench.step()
        assert {*scheduled} >= {"e1", "e2"} and len(bench.tokens_of("e1")) == before + 1
    assert not stuck.expired, "the engine waited for the lock"


def comes(bench: Bench, name: str, index: Index, says: list[int], **parameters: Any) -> Any:
    bench.says[name] = [*says]
    return bench.add(name, 40, grammar(index), **{"max_tokens": len(says), **parameters})


def run_out(bench: Bench, name: str, stuck: Stuck) -> None:
    for _ in range(100):
        stuck.go_on()
        if bench.finish_reason(name) is not None:
            return
        bench.step()
    raise AssertionError("it does not end")


def test_a_slow_request_sits_out(bench: Bench, stuck: Stuck, hostile: Index) -> None:
    """Its mask is late once; then it is not scheduled until it has one. The others' answers stay the same."""
    says = [A, B, AB, A, A, B, B, A, AB, A, C]
    request = comes(bench, "h", hostile, says)
    others_go_on(bench, stuck)
    assert bench.tokens_of("h") == [] and request.num_preemptions == 1
    for taken in range(1, 4):
        stuck.go_on()
        stuck.may_go_on.clear()
        others_go_on(bench, stuck)
        assert bench.tokens_of("h") == says[:taken] and request.num_preemptions == 1
        assert request in bench.scheduler.running, "it holds its blocks"
    run_out(bench, "h", stuck)
    assert bench.tokens_of("h") == says and bench.finish_reason("h") == "length" and request.num_preemptions == 1
    assert bench.tokens_of("e1") == bench.tokens_of("e2") == ([C, A, B, AB] * 15)[: len(bench.tokens_of("e1"))]


def test_two_of_one_automaton(bench: Bench, stuck: Stuck, hostile: Index) -> None:
    """The second request comes while a thread has the lock."""
    first = comes(bench, "h1", hostile, [A, B] * 6)
    others_go_on(bench, stuck)
    second = comes(bench, "h2", hostile, [AB, A] * 6)
    others_go_on(bench, stuck)
    assert bench.tokens_of("h1") == bench.tokens_of("h2") == []
    for name in ("h1", "h2"):
        run_out(bench, name, stuck)
    assert bench.tokens_of("h1") == [A, B] * 6 and bench.tokens_of("h2") == [AB, A] * 6
    assert first.num_preemptions == second.num_preemptions == 1
    bench.step()
    assert not bench.scheduler._batch._slow.steps


def test_abort_while_a_thread_works(bench: Bench, stuck: Stuck, hostile: Index) -> None:
    comes(bench, "h", hostile, [A] * 12)
    others_go_on(bench, stuck)
    bench.scheduler.finish_requests(["h"], RequestStatus.FINISHED_ABORTED)
    comes(bench, "h2", hostile, [A] * 12)
    others_go_on(bench, stuck)
    assert bench.tokens_of("h2") == [], "the thread still has the lock"
    run_out(bench, "h2", stuck)
    assert bench.tokens_of("h2") == [A] * 12 and bench.tokens_of("h") == []
    bench.step()
    assert not bench.scheduler._batch._slow.steps and "h" not in bench.scheduler.requests


def test_preemption_while_a_thread_works(bench: Bench, stuck: Stuck, hostile: Index) -> None:
    request = comes(bench, "h", hostile, [A] * 12)
    others_go_on(bench, stuck)
    stuck.go_on()
    stuck.may_go_on.clear()
    others_go_on(bench, stuck)
    assert request in bench.scheduler.running and bench.tokens_of("h") == [A]
    bench.scheduler.reset_prefix_cache(reset_running_requests=True)
    others_go_on(bench, stuck)
    assert request.num_preemptions >= 2 and bench.tokens_of("h") == [A]
    run_out(bench, "h", stuck)
    assert bench.tokens_of("h") == [A] * 12


def test_back_to_the_batch(bench: Bench, stuck: Stuck, hostile: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request returns to the batch after several quick steps in a row."""
    monkeypatch.setattr(late_steps, "MANY", 4)
    monkeypatch.setattr(late_steps, "QUICK_S", PATIENCE_S)
    comes(bench, "h", hostile, [A] * 18)
    others_go_on(bench, stuck, 1)
    for module in (batch, running):
        monkeypatch.setattr(module, "HURRIED_FUEL", 1 << 12)
    for _ in range(30):
        stuck.go_on()
        bench.step()
        if "h" in bench.scheduler._batch._running:
            break
    assert 3 <= len(bench.tokens_of("h")) < 10 and not bench.scheduler._batch._slow.steps
    run_out(bench, "h", stuck)
    assert bench.tokens_of("h") == [A] * 18


def test_a_step_that_fails(bench: Bench, stuck: Stuck, hostile: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends its request, with a named error."""
    monkeypatch.setattr("dotllm.index.index.FUEL", 0)
    comes(bench, "h", hostile, [A] * 12)
    run_out(bench, "h", stuck)
    assert bench.finish_reason("h") == "error" and len(bench.tokens_of("h")) < 12
    assert (errors.decode(bench.outputs["h"][-1].stop_reason) or ())[2] == "too_large"
    others_go_on(bench, stuck)


def test_what_must_not_be_dropped_is_waited_for(
    bench: Bench, stuck: Stuck, hostile: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine waits once. From then on the request is scheduled only with a mask, so nothing must be dropped."""
    assert not bench.scheduler.vllm_config.use_v2_model_runner
    timer = threading.Timer(0.2, stuck.may_go_on.set)
    request = comes(bench, "h", hostile, [A] * 12, seed=1)
    timer.start()
    bench.step()
    timer.join()
    assert bench.tokens_of("h") == [A] and request.num_preemptions == 0
    stuck.may_go_on.clear()
    others_go_on(bench, stuck)
    run_out(bench, "h", stuck)
    assert bench.tokens_of("h") == [A] * 12 and request.num_preemptions == 0 and not stuck.expired
