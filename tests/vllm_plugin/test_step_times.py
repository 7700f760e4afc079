"""Which drafts pay, in an engine whose every step takes what we say."""

from __future__ import annotations

import pytest

from dotllm.vllm_plugin.step_times import AGAIN, BEYOND, PLAIN, SAMPLES, WITHIN, Option, StepTimes

GRAPH = 512  # tokens


class Engine:
    """Steps of ``requests`` requests: the drafts of each are judged, then it runs."""

    def __init__(self, times: StepTimes, requests: int, plain: float, extra: dict[int, float]) -> None:
        self.times, self.requests, self.plain, self.extra = times, requests, plain, extra
        self.seconds = 0.0  # less what was saved, by all requests on the average
        self.chosen: list[int | None] = []

    def step(self, saved: float, drafts: int) -> int | None:
        kind = self.times.kind(self.requests, drafts)
        chosen = self.times.choose(self.requests, [Option(saved, kind)])
        self.run(drafts if chosen is not None else 0)
        self.chosen.append(chosen)
        if chosen is not None:
            self.seconds -= saved * self.plain / self.requests
        return chosen

    def run(self, drafts: int) -> None:
        kind = self.times.kind(self.requests, drafts)
        took = self.plain + (self.extra[kind] if drafts else 0.0)
        self.seconds += took
        self.times.learn(self.requests, self.requests, drafts, took)

    def share_drafted(self, last: int) -> float:
        return sum(choice is not None for choice in self.chosen[-last:]) / last


def engine(requests: int, plain: float = 4e-3, within: float = 2e-3, beyond: float = 8e-3) -> Engine:
    return Engine(StepTimes(GRAPH), requests, plain, {WITHIN: within, BEYOND: beyond})


@pytest.mark.parametrize(
    ("requests", "saved", "drafts", "pays"),
    [
        (1, 0.6, 3, True),  # 0.6 steps of 4 ms against 2 ms for one
        (1, 0.4, 3, False),
        (32, 20, 64, True),
        (32, 10, 64, False),
        (256, 200, 256, True),  # within vLLM's largest graph
        (256, 200, 400, False),  # beyond it: 8 ms for each of 256
        (256, 600, 400, True),
    ],
)
def test_drafts_pay_where_the_steps_saved_take_longer(requests: int, saved: float, drafts: int, pays: bool) -> None:
    run = engine(requests)
    for _ in range(400):
        run.step(saved, drafts)
    if pays:
        assert run.share_drafted(300) >= 1 - 2 / AGAIN
    else:
        assert run.share_drafted(300) <= 0.05


@pytest.mark.parametrize(("requests", "drafts", "saved"), [(1, 3, 0.01), (1, 3, 0.3), (32, 60, 6), (256, 400, 100)])
def test_trying_costs_little(requests: int, drafts: int, saved: float) -> None:
    run = engine(requests)
    for _ in range(20):
        run.step(saved, drafts)
    run.seconds = 0.0
    for _ in range(2000):
        run.step(saved, drafts)
    assert run.seconds < 1.015 * 2000 * run.plain


def test_the_first_steps_cost_little_too() -> None:
    """A batch of 256 that ends within 80 steps must not be spent on trying."""
    run = engine(256, plain=8e-3, within=6e-3, beyond=9e-3)
    for _ in range(80):
        run.step(60, 400)
    assert run.seconds < 1.05 * 80 * run.plain


def test_what_a_plain_step_takes_comes_first() -> None:
    times = StepTimes(GRAPH)
    option = [Option(1000, WITHIN)]
    for _ in range(SAMPLES):
        assert times.choose(32, option) is None
        times.learn(32, 32, 0, 4e-3)
    assert times.choose(32, option) == 0


def test_a_change_is_noticed() -> None:
    run = engine(32)
    for _ in range(200):
        run.step(10, 64)
    assert run.share_drafted(100) <= 0.05
    run.extra = dict.fromkeys(run.extra, 0.5e-3)
    for _ in range(600):
        run.step(10, 64)
    assert run.share_drafted(50) >= 0.95, "drafts got cheaper"
    run.extra = dict.fromkeys(run.extra, 4e-3)
    for _ in range(100):
        run.step(10, 64)
    assert run.share_drafted(50) <= 0.05, "and dearer again"


def test_plain_steps_are_timed_again() -> None:
    """Else a batch whose plain steps got faster would draft for ever."""
    run = engine(32, plain=6e-3, within=1e-3)
    for _ in range(50):
        run.step(10, 64)
    assert run.share_drafted(20) == 1
    run.plain, run.extra = 2e-3, dict.fromkeys(run.extra, 5e-3)  # steps with drafts take what they did
    for _ in range(6 * AGAIN):
        run.step(10, 64)
    assert run.share_drafted(100) <= 0.05


def test_other_sizes_are_guessed_from_the_nearest() -> None:
    run = engine(64)
    for _ in range(100):
        run.step(5, 64)
    other = Engine(run.times, 128, run.plain, run.extra)
    for _ in range(SAMPLES + 20):
        assert other.step(10, 64) is None, "known to be too dear without being tried"


def test_a_new_size_drafts_at_once_where_the_nearest_did() -> None:
    run = engine(32)
    for _ in range(50):
        run.step(25, 64)
    other = Engine(run.times, 64, run.plain, run.extra)
    for _ in range(40):
        other.step(50, 128)
    assert other.chosen[0] is not None
    assert SAMPLES <= other.chosen.count(None) <= SAMPLES + 1, "just so many that plain steps of this size are known"


def test_pauses_decide_nothing() -> None:
    run = engine(8)
    for number in range(400):
        run.step(6, 20)
        if number % 9 == 0:
            run.times.learn(8, 8, 0, 0.2)  # the interpreter cleans up
        if number % 7 == 0:
            run.times.learn(8, 8, 20, 0.3)  # a kernel is compiled
        run.times.learn(8, 8, 0, 50.0)  # an engine that waited
        run.times.learn(8, 8000, 0, 0.4)  # a long prompt
    assert run.share_drafted(300) >= 0.95


def test_where_a_step_has_drafts_anyway_more_cost_nothing() -> None:
    times = StepTimes(GRAPH)
    assert times.choose(32, [Option(0.1, WITHIN)], without=WITHIN) == 0, "even if nothing is known"
    for _ in range(SAMPLES):
        times.learn(300, 300, 0, 4e-3)
        times.learn(300, 300, 100, 6e-3)
        times.learn(300, 300, 400, 12e-3)
    assert times.choose(300, [Option(0.1, WITHIN)], without=WITHIN) == 0
    assert times.choose(300, [Option(0.1, WITHIN)], without=PLAIN) is None
    assert times.choose(300, [Option(40, BEYOND), Option(20, WITHIN)], without=WITHIN) == 1
    assert times.choose(300, [Option(500, BEYOND), Option(20, WITHIN)], without=WITHIN) == 0
