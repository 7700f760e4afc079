"""Drafts kept or dropped: vLLM's own synchronous scheduler with our mixins, step by step, on a clock that we turn.

The model says what we decide and verifies drafts as vLLM does: those are accepted that it would have said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("vllm")

from vllm.v1.request import RequestStatus  # noqa: E402

from dotllm.vllm_plugin import draft_pace, registry  # noqa: E402
from dotllm.vllm_plugin.draft_shares import AT_ONCE, DraftShares  # noqa: E402
from dotllm.vllm_plugin.engine_core import scheduler_mixins as scheduler_class  # noqa: E402
from dotllm.vllm_plugin.jump_forward import coalescence  # noqa: E402
from dotllm.vllm_plugin.seldom_drafts import EVERY, FEWEST, IN_VAIN  # noqa: E402
from tests.vllm_plugin.engine_core.test_scheduler import BLOCK, Bench, Grammar  # noqa: E402

pytestmark = pytest.mark.serve

K = 3
PLAIN, EXTRA, PROMPT = 4e-3, 3e-3, 1e-3  # seconds
WRONG = 99


@pytest.fixture(scope="module")
def vllm_config(demo_model: Path) -> Any:
    from dotllm.cli import vllm_metadata
    from dotllm.vllm_plugin import register

    vllm_metadata.patch_version()
    register()
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(demo_model), max_model_len=2048, max_num_seqs=64, max_num_batched_tokens=512, block_size=BLOCK,
        speculative_config={
            "method": "ngram", "num_speculative_tokens": K, "prompt_lookup_max": 4, "prompt_lookup_min": 2,
        },
    )  # fmt: skip
    return arguments.create_engine_config()


class Checked(Grammar):
    """Allows everything but ``WRONG``; counts how often it was asked about drafts."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        self.asked += bool(tokens)
        return tokens[: tokens.index(WRONG)] if WRONG in tokens else tokens


Draft = Callable[[Any], list[int]]


class Paced(Bench):
    """See the module. ``draft`` says what is proposed for a request; the model says token ``position % 50``."""

    def __init__(self, vllm_config: Any, draft: Draft, extra: float = EXTRA) -> None:
        super().__init__(vllm_config, blocks=5000)
        self.counted: dict[str, float] = {}
        metrics = SimpleNamespace(add=self.count, observe=lambda *_, **__: None)
        self.manager.backend.compiler = SimpleNamespace(metrics=metrics, resume=lambda: None)
        self.draft, self.extra = draft, extra
        self.now = 100.0
        if self.scheduler.draft_pace is not None:
            self.scheduler.draft_pace.clock = lambda: self.now
        self.drafted: list[int] = []  # draft tokens of each step
        self.steps = self.asked = 0

    def count(self, *name: str, amount: float) -> None:
        self.counted[".".join(name)] = self.counted.get(".".join(name), 0.0) + amount

    @staticmethod
    def says_at(position: int) -> int:
        return position % 50

    def structured(self, name: str, max_tokens: int = 200) -> Any:
        return self.add(name, 8, Checked(), max_tokens=max_tokens)

    def step(self) -> dict[str, int]:
        from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput

        output = self.scheduler.schedule()
        self.scheduler.get_grammar_bitmask(output)
        names, drafts = list(output.num_scheduled_tokens), output.scheduled_spec_decode_tokens
        requests = [self.scheduler.requests[name] for name in names]
        sampled = [
            [] if one.is_prefill_chunk else self._verify(one, drafts.get(one.request_id, ())) for one in requests
        ]
        self.drafted.append(sum(map(len, drafts.values())))
        self.now += PLAIN + (self.extra if drafts else 0)
        self.now += PROMPT * (output.total_num_scheduled_tokens - self.drafted[-1] > len(names))
        self.steps += 1
        index = {name: i for i, name in enumerate(names)}
        result = ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=sampled)
        for client in self.scheduler.update_from_output(output, result).values():
            for one in client.outputs:
                self.outputs.setdefault(one.request_id, []).append(one)
        asked = output.num_spec_tokens_to_schedule > 0
        self.asked += asked
        proposed = [self.draft(one) if tokens and asked else [] for one, tokens in zip(requests, sampled, strict=True)]
        self.scheduler.update_draft_token_ids(DraftTokenIds(names, proposed))
        return dict(output.num_scheduled_tokens)

    def _verify(self, request: Any, drafts: Sequence[int]) -> list[int]:
        said = []
        for drafted in drafts:
            said.append(self.says_at(request.num_tokens + len(said)))
            if drafted != said[-1]:
                return said
        return [*said, self.says_at(request.num_tokens + len(said))]

    def run(self, steps: int) -> list[int]:
        """Draft tokens of each of ``steps`` steps."""
        for _ in range(steps):
            self.step()
        return self.drafted[-steps:]


def right(count: int = K) -> Draft:
    return lambda request: [Paced.says_at(request.num_tokens + i) for i in range(count)]


def wrong(request: Any) -> list[int]:
    """The first of them fits the grammar, but the model never says it."""
    return [77, 78, WRONG]


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_pace, "is_ours", lambda scheduler: True)
    monkeypatch.delenv("DOTLLM_DRAFTS", raising=False)


def test_right_drafts_are_used_by_a_single_request(vllm_config: Any) -> None:
    bench = Paced(vllm_config, right())
    bench.structured("a", 120)
    while bench.finish_reason("a") is None:
        bench.step()
    assert bench.tokens_of("a") == [bench.says_at(8 + i) for i in range(120)]
    assert bench.steps <= 120 / (K + 1) + 6


def test_wrong_drafts_are_dropped_unchecked(vllm_config: Any) -> None:
    bench = Paced(vllm_config, wrong)
    grammars = [bench.structured(str(i)).structured_output_request.grammar for i in range(32)]
    bench.run(20)
    asked = sum(grammar.asked for grammar in grammars)
    assert sum(tokens > 0 for tokens in bench.run(150)) <= 2
    assert sum(grammar.asked for grammar in grammars) <= asked + 2 * 32, "what is dropped need not be checked"
    assert bench.counted["dotllm_drafts_dropped"] == bench.scheduler.draft_pace.tokens_dropped > 32 * 3 * IN_VAIN
    assert bench.tokens_of("5") == [bench.says_at(8 + i) for i in range(170)]


def test_it_is_learnt_that_drafts_got_better_without_verifying_any(vllm_config: Any) -> None:
    bench = Paced(vllm_config, wrong)
    for i in range(32):
        bench.structured(str(i), 2000)
    bench.run(100)
    bench.draft = right()
    assert sum(tokens > 0 for tokens in bench.run(30)) >= 10
    bench.draft = wrong
    bench.run(30)
    assert sum(tokens > 0 for tokens in bench.run(60)) <= 2, "and that they got worse"


def test_a_few_good_drafts_do_not_hold_up_a_batch(vllm_config: Any) -> None:
    bench = Paced(vllm_config, lambda request: right()(request) if request.request_id == "0" else [])
    for i in range(32):
        bench.structured(str(i))
    assert sum(tokens > 0 for tokens in bench.run(150)[20:]) <= 3


def test_drafts_of_free_requests_are_left_alone_and_ours_go_along(vllm_config: Any) -> None:
    drafts: dict[str, Draft] = {}
    bench = Paced(vllm_config, lambda request: drafts.get(request.request_id[0], wrong)(request))
    for i in range(16):
        bench.structured(f"s{i}")
    bench.add("free", 8, max_tokens=150)
    drafts["f"] = lambda request: []
    bench.run(60)
    assert bench.run(20) == [0] * 20
    drafts["f"] = lambda request: [5, 6]
    bench.run(1)
    assert set(bench.run(20)) == {2 + 16 * 2}, "the step has drafts anyway (two of each three fit the grammar)"


def test_free_requests_alone_are_as_without_us(vllm_config: Any) -> None:
    bench = Paced(vllm_config, wrong)
    for i in range(8):
        bench.add(f"free{i}", 8, max_tokens=60)
    assert bench.run(40)[1:] == [8 * K] * 39


def test_other_backends_requests_are_as_without_us(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_pace, "is_ours", lambda scheduler: False)
    bench = Paced(vllm_config, wrong)
    bench.structured("a", 60)
    assert bench.run(40)[1:] == [2] * 39


def test_it_can_be_switched_off(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_DRAFTS", "always")
    bench = Paced(vllm_config, wrong)
    for i in range(32):
        bench.structured(str(i))
    assert bench.run(40)[1:] == [64] * 39


def test_a_batch_with_prompts_in_most_steps(vllm_config: Any) -> None:
    """A closed loop: whenever a request ends another begins."""
    bench = Paced(vllm_config, wrong)
    running: set[str] = set()
    number = 0
    for _ in range(300):
        running -= {name for name in running if bench.finish_reason(name) is not None}
        while len(running) < 32:
            name, number = f"r{number}", number + 1
            running.add(name)
            bench.structured(name, 20 + number % 40)
        bench.step()
    assert sum(tokens > 0 for tokens in bench.drafted[100:]) <= 4


def test_steps_that_outgrow_the_largest_graph(vllm_config: Any) -> None:
    """Where all drafts would be too many, those of the requests that are the most promising are kept."""
    good = {f"{i}" for i in range(8)}
    bench = Paced(vllm_config, lambda request: right()(request) if request.request_id in good else [77, 78, 79])
    bench.scheduler.draft_pace.times.graph_tokens = 64
    for i in range(32):
        bench.structured(str(i), 400)
    bench.extra = 0.5e-3
    bench.run(60)
    assert all(tokens <= 32 for tokens in bench.run(40))
    good_tokens = sum(len(bench.tokens_of(name)) for name in good) / 8
    assert good_tokens > 2 * len(bench.tokens_of("20"))


def test_drafts_that_do_not_pay_are_seldom_asked_for(vllm_config: Any) -> None:
    """… unless there are unconstrained requests, whose drafts are vLLM's business, or only a few of all."""
    bench = Paced(vllm_config, wrong)
    for i in range(FEWEST):
        bench.structured(str(i), 1000)
    bench.run(IN_VAIN + 10)
    bench.asked = 0
    bench.run(10 * EVERY)
    assert bench.asked <= 12
    bench.add("free", 8, max_tokens=20)
    bench.asked = 0
    bench.run(20)
    assert bench.asked >= 19
    bench.run(IN_VAIN + 10)
    bench.scheduler.finish_requests(["0"], RequestStatus.FINISHED_ABORTED)
    bench.asked = 0
    bench.run(20)
    assert bench.asked == 20


def test_free_text_is_seldom_looked_at(vllm_config: Any) -> None:
    bench = Paced(vllm_config, lambda request: [])
    for i in range(32):
        bench.structured(str(i), 1000)
    bench.run(IN_VAIN + 10)
    bench.asked = 0
    bench.run(10 * EVERY)
    assert bench.asked == 10
    bench.draft = right()
    bench.run(4 * EVERY)
    bench.asked = 0
    bench.run(20)
    assert bench.asked == 20, "it repeats itself now"


def test_a_proposer_that_is_not_asked_proposes_nothing() -> None:
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    registry.apply_all()
    alone = object.__new__(NgramProposer)  # without its buffers: nothing is looked at
    assert alone.propose(0, [[1], [], [2]], None, None) == [[], [], []]
    with pytest.raises(AssertionError):
        alone.k = 1
        alone.propose(2, [[1]], None, None)


@pytest.fixture
def coalescing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`CoalescenceScheduler` before the others, with forced text that a test makes up."""
    monkeypatch.setenv("DOTLLM_COALESCENCE", "lossless")
    mixins = [mixin for mixin in scheduler_class._mixins if mixin is not draft_pace.DraftPaceScheduler]
    added = () if coalescence.CoalescenceScheduler in mixins else (coalescence.CoalescenceScheduler,)
    monkeypatch.setattr(scheduler_class, "_mixins", [*mixins, *added, draft_pace.DraftPaceScheduler])


@pytest.mark.parametrize("fits", [True, False])
def test_forced_text_is_judged_too(
    vllm_config: Any, coalescing: None, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    def draft(self: Any, request: Any) -> None:
        drafting = self._drafting.setdefault(request.request_id, coalescence.Drafting(K))
        if drafting.given:
            self._count(min(drafting.given, max(0, request.num_tokens - drafting.tokens_before - 1)))
        drafting.given, drafting.tokens_before = K, request.num_tokens
        request.spec_token_ids = right()(request) if fits else [77, 78, 79]

    monkeypatch.setattr(coalescence.CoalescenceScheduler, "_draft", draft)
    bench = Paced(vllm_config, lambda request: [])
    for i in range(32):
        bench.structured(str(i), 1000)
    bench.run(20)
    drafted = bench.run(100)
    counts = bench.scheduler.coalescence
    if fits:
        assert sum(tokens == 32 * K for tokens in drafted) >= 98
        assert counts["accepted"] >= counts["proposed"] - 32 * K, "but for the last step's"
        assert counts["proposed"] == sum(bench.drafted)
    else:
        assert sum(tokens > 0 for tokens in drafted) <= 2
        assert counts["accepted"] == 0 and counts["proposed"] == sum(bench.drafted)


def test_shares_of_large_batches_are_learnt_in_turns() -> None:
    shares = DraftShares()
    requests = [SimpleNamespace(request_id=str(i), num_tokens=5, all_token_ids=[0] * 5) for i in range(2 * AT_ONCE + 3)]
    for _ in range(60):
        shares.observe([(request, [1, 2]) for request in requests])
        for i, request in enumerate(requests):
            request.all_token_ids += [1, 2 if i % 2 else 3]
            request.num_tokens += 2
    assert shares.expected("new", 2) == pytest.approx(1.5, abs=0.2)
    assert shares.expected("0", 2) == pytest.approx(1, abs=0.2)
    assert shares.expected(str(len(requests) - 2), 2) == pytest.approx(2, abs=0.3)
    for request in requests:
        shares.forget(request.request_id)
    assert not shares._of and not shares._open
