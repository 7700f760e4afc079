"""Whether a step of several tokens pays, by an engine whose every step takes what we say."""

from __future__ import annotations

import pytest

from dotllm.vllm_plugin.jump_forward.pace import AGAIN, SAMPLES, Pace

PLAIN, MIXED = 0.002, 0.005  # seconds


class Clock:
    """Steps one after another; ``host``: the host sets the pace, so a step costs when it is launched."""

    def __init__(self, pace: Pace, requests: int, *, host: bool) -> None:
        self.pace, self.requests, self.host = pace, requests, host
        self.now = 100.0
        self.before = requests
        self.step(requests)

    def step(self, tokens: int) -> None:
        slow = (tokens if self.host else self.before) > self.requests
        self.now += MIXED if slow else PLAIN
        self.before = tokens
        self.pace.results(tokens, self.requests, self.now)


@pytest.mark.parametrize("host", [True, False])
@pytest.mark.parametrize("pattern", [(40,), (40, 32), (40, 32, 32, 32)])
def test_it_pays_where_the_steps_saved_take_longer(host: bool, pattern: tuple[int, ...]) -> None:
    """At 32 requests, three milliseconds are what 48 requests' steps of 2 ms take."""
    pace = Pace(graph_tokens=256)
    clock = Clock(pace, 32, host=host)
    for _ in range(SAMPLES + 1):
        clock.step(32)
    for _ in range(60):
        for tokens in pattern:
            clock.step(tokens)
    assert not pace.pays(32, 32, 40)
    assert pace.pays(64, 32, 40)


def test_both_kinds_are_tried_first() -> None:
    pace = Pace(graph_tokens=256)
    assert not pace.pays(1000, 32, 40), "what a plain step takes is not known yet"
    clock = Clock(pace, 32, host=False)
    for _ in range(SAMPLES + 1):
        clock.step(32)
    assert pace.pays(1, 32, 40), "what another takes is not known yet"
    for _ in range(SAMPLES + 2):
        clock.step(40)
    assert not pace.pays(1, 32, 40)
    assert pace.pays(1, 32, 300), "that of steps beyond vLLM's graphs is another matter"
    assert not pace.pays(1000, 4, 8), "and so are other batches"


def test_now_and_then_it_is_tried_again() -> None:
    pace = Pace(graph_tokens=256)
    clock = Clock(pace, 32, host=False)
    for tokens in [32] * (SAMPLES + 1) + [40] * (SAMPLES + 2):
        clock.step(tokens)
    answers = [pace.pays(1, 32, 40) for _ in range(AGAIN + 1)]
    assert answers == [False] * AGAIN + [True]


def test_long_prompts_and_pauses_teach_nothing() -> None:
    pace = Pace(graph_tokens=256)
    clock = Clock(pace, 1, host=False)
    for tokens in [1] * (SAMPLES + 1) + [3] * (SAMPLES + 2):
        clock.step(tokens)
    assert pace.pays(2, 1, 3) and not pace.pays(1, 1, 3)
    for _ in range(50):
        pace.results(1000, 1, clock.now + 0.3)
        clock.now += 10
        pace.results(1, 1, clock.now)
    assert pace.pays(2, 1, 3) and not pace.pays(1, 1, 3)
