"""Answers end within the tokens that they have left, with vLLM's asynchronous scheduler and a step in flight."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

import quick_kernels
from played_engine import EOS, Engine, spelt
from rare_orders import OneToken, PlayedRunner

from dotllm import Index, Vocabulary
from dotllm.errors import InvalidSpecError, TooFewTokensError
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.extra.answer_limit import AnswerLimit
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling

pytestmark = pytest.mark.serve

PATTERNS = (
    r'\{"number_of_items":([0-9]{1,9},)*"is_(true|false)*"\}',
    "(x|yy|z)+",
    "[a-f]{2,30}(true|false)",
    '(number_of_items"|shipping_address"){2,}[0-9]+',
)
LONGEST = 512


@pytest.fixture(scope="module")
def indexes(vocabulary: Vocabulary) -> list[Index]:
    return [Index.from_regex(pattern, vocabulary) for pattern in PATTERNS]


@pytest.fixture(autouse=True)
def no_limits_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RequestGrammar, "limited", False)


class Tokenizer:
    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        return list(text.encode("latin-1"))


class Answers:
    """An engine and its requests."""

    def __init__(self, config: Any, indexes: list[Index], *, blocks: int, reasoner: Any = None, seed: int = 3) -> None:
        self.engine = Engine(config, indexes[0], seed=seed, blocks=blocks, reasoner=reasoner)
        self.scheduler = self.engine.scheduler
        self.manager = self.scheduler.structured_output_manager
        self.manager.tokenizer = Tokenizer()
        self.runner = self.engine.runner = PlayedRunner(seed, blocks, self.scheduler.num_spec_tokens)
        self.runner.drafter = self._guess
        self.runner.is_there = lambda name: name in self.scheduler.requests
        self.indexes, self.of, self.forced = indexes, {}, False
        self.draw = np.random.default_rng(seed)

    def add(self, name: str, which: int, beyond: int, *, prompt: int = 6, more: int = 0, **parameters: Any) -> None:
        """Add a request with ``beyond`` tokens above the minimum; the model's length must leave room for that."""
        index = self.indexes[which]
        request = self.engine.add(name, prompt, max_tokens=LONGEST, **parameters)
        limit = AnswerLimit(self.manager, request, more)
        least = index.tokens_to_finish() + len(limit.reasoning_end)
        request.max_tokens = least - 1
        with pytest.raises(InvalidSpecError, match=f"takes {least} tokens, and .* leave {least - 1};"):
            limit.begin(request, LONGEST, index.tokens_to_finish())
        request.max_tokens = least + beyond if prompt < 400 else LONGEST
        limit.begin(request, LONGEST, index.tokens_to_finish())
        grammar = RequestGrammar(
            index.guide(), (), index.vocabulary, spelling_of=ForcedSpelling.of if self.forced else None, limit=limit
        )  # fmt: skip
        request.structured_output_request.grammar = grammar
        self.of[name] = (which, least + beyond if prompt < 400 else LONGEST - prompt)

    def _guess(self, name: str, length: int) -> list[int]:
        """Drafts that the grammar allows from its current place, as long as there are any."""
        if name not in self.of:
            return [1] * self.scheduler.num_spec_tokens
        request, guide = self.engine.requests[name], self.indexes[self.of[name][0]].guide()
        state = self.runner.states.req_id_to_index[name]
        said = self.runner.states.all_token_ids.gpu[state, request.num_prompt_tokens : length].tolist()
        if self.manager.reasoner_cls is not None:
            said = said[next((i for i, token in enumerate(said) if token in self.manager.reasoner_cls.ends), -1) + 1 :]
        drafts: list[int] = []
        standing = all(map(guide.advance, said))
        while len(drafts) < self.scheduler.num_spec_tokens:
            tokens = [token for token in guide.allowed_tokens() if token != EOS] if standing else []
            drafts.append(int(self.draw.choice(tokens)) if tokens else EOS)
            standing = standing and guide.advance(drafts[-1])
        return drafts

    def check(self) -> int:
        """Check all answers. Returns how many ended because of their limit."""
        closed = 0
        for name, (which, most) in self.of.items():
            tokens = self.engine.answers[name]
            assert self.engine.reasons[name] == "stop" and len(tokens) <= most, (name, tokens)
            if self.manager.reasoner_cls is not None:
                end = self.manager.reasoner_cls.length(tokens)
                assert EOS not in tokens[:end]
                tokens = tokens[end:]
            assert re.fullmatch(PATTERNS[which], spelt(tokens)), (name, tokens)
            assert self.stop_reasons[name] in (None, AnswerLimit.CLOSED)
            closed += self.stop_reasons[name] == AnswerLimit.CLOSED
        assert self.engine.metrics.get("dotllm_answers_closed", 0) == closed
        return closed

    def run(self, monkeypatch: pytest.MonkeyPatch, before: Any = None) -> None:
        """Run until all have ended, and check the place for which each mask is computed."""
        self.stop_reasons: dict[str, Any] = {}
        update = self.scheduler.update_from_output

        def update_from_output(*args: Any) -> Any:
            found = update(*args)
            for outputs in found.values():
                self.stop_reasons.update({one.request_id: one.stop_reason for one in outputs.outputs})
            return found

        self.scheduler.update_from_output = update_from_output
        by_grammar = {
            id(r.structured_output_request.grammar): name for name, r in self.engine.requests.items() if name in self.of
        }
        change_rows, self.masks = AnswerLimit.change_rows, 0

        def looked_at(grammar: Any, drafts: Any, left: int, *args: Any) -> int:
            name = by_grammar[id(grammar)]
            tokens = self.engine.answers[name]
            if self.manager.reasoner_cls is None:
                # All sampled tokens have been taken, whatever is in flight.
                assert grammar.guide.tokens_taken == len(tokens) and left == self.of[name][1] - len(tokens)
            self.masks += 1
            return change_rows(grammar, drafts, left, *args)

        monkeypatch.setattr(AnswerLimit, "change_rows", staticmethod(looked_at))
        self.engine.run(before)


@pytest.mark.parametrize("blocks", [200, 12])
@pytest.mark.parametrize("mode", ["", "canonical", "drafts"])
def test_every_answer_ends_in_time(
    vllm_config: Any, drafting_config: Any, indexes: list[Index], monkeypatch: pytest.MonkeyPatch, blocks: int, mode: str
) -> None:  # fmt: skip
    """From the minimum upwards, next to free requests, at the end of the model's length, and with preemption."""
    quick_kernels.use(monkeypatch)
    monkeypatch.setenv("DOTLLM_COALESCENCE", mode if mode == "canonical" else "off")
    answers = Answers(drafting_config if mode == "drafts" else vllm_config, indexes, blocks=blocks)
    answers.forced = mode == "canonical"
    for beyond in (0, 1, 2, 5, 20):
        for which in range(len(indexes)):
            answers.add(f"{which} {beyond}", which, beyond, prompt=13)
    if blocks > 100:
        for which in range(len(indexes)):
            answers.add(f"long {which}", which, 0, prompt=LONGEST - 40)
    answers.engine.add("free", 5, structured_outputs=None, max_tokens=30, ignore_eos=True)
    answers.run(monkeypatch)
    assert answers.check() > 10 and answers.engine.reasons["free"] == "length"
    assert answers.masks > 20 and (answers.engine.preemptions > 0) == (blocks == 12)
    if mode == "drafts":
        assert answers.runner.drafts_kept > 20
    if mode == "canonical" and blocks > 100:
        assert answers.engine.metrics["dotllm_forced_tokens"] > 20


def test_masks_of_a_request_that_is_preempted_in_flight(
    vllm_config: Any, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_kernels.use(monkeypatch)
    answers = Answers(vllm_config, indexes, blocks=200)
    for beyond in range(12):
        answers.add(str(beyond), beyond % 3, beyond)

    def reset() -> None:
        answers.scheduler.reset_prefix_cache(reset_running_requests=True)

    answers.run(monkeypatch, {4: reset, 7: reset, 8: reset, 12: reset})
    assert answers.check() > 4


@pytest.mark.parametrize("drafts", [False, True])
@pytest.mark.parametrize("more", [0, 7])
def test_reasoning_ends_in_time(
    vllm_config: Any, drafting_config: Any, indexes: list[Index], monkeypatch: pytest.MonkeyPatch, drafts: bool, more: int
) -> None:  # fmt: skip
    quick_kernels.use(monkeypatch)
    reasoner = type("Reasoner", (OneToken,), {"ends": frozenset([200]), "reasoning_end_str": chr(200)})
    answers = Answers(drafting_config if drafts else vllm_config, indexes, blocks=200, reasoner=reasoner)
    for beyond in (0, 1, 2, 5, 20, 50):
        for which in range(len(indexes)):
            answers.add(f"{which} {beyond}", which, beyond, more=more)
    answers.run(monkeypatch)
    assert answers.check() > 10
    for name, (which, most) in answers.of.items():
        end = reasoner.length(answers.engine.answers[name])
        assert most - end >= min(most - 1, indexes[which].tokens_to_finish() + more)


def test_without_a_limit_nothing_is_looked_at(
    vllm_config: Any, indexes: list[Index], monkeypatch: pytest.MonkeyPatch
) -> None:
    quick_kernels.use(monkeypatch)
    engine = Engine(vllm_config, indexes[1], seed=3, blocks=200)
    monkeypatch.setattr("dotllm.vllm_plugin.speed.rows.tokens_left", lambda *_: pytest.fail("asked"))
    engine.add("a", 5, max_tokens=30)
    engine.run()


def test_a_limit_that_cannot_be_kept_ends_the_request_with_its_reason(indexes: list[Index]) -> None:
    """Whatever took the tokens."""
    manager: Any = SimpleNamespace(reasoner_cls=None)
    request: Any = SimpleNamespace(
        max_tokens=90, num_output_tokens=0, num_tokens=1, sampling_params=SimpleNamespace(min_tokens=0)
    )
    limit = AnswerLimit(manager, request, 0)
    limit.begin(request, 100, indexes[0].tokens_to_finish())
    grammar = RequestGrammar(indexes[0].guide(), (), indexes[0].vocabulary, limit=limit)
    rows = np.array([grammar.guide.mask_row], np.int32)
    assert limit.change_rows(grammar, (), 3, rows, np.array([grammar.guide.config], np.int32)) == -1
    assert grammar.failed and isinstance(grammar.error, TooFewTokensError) and not limit.was_needed(0)


def test_a_limit_below_the_shortest_answer_is_refused_with_its_remedy() -> None:
    manager: Any = SimpleNamespace(reasoner_cls=None)
    parameters = SimpleNamespace(min_tokens=90)
    request: Any = SimpleNamespace(max_tokens=90, num_output_tokens=0, num_tokens=1, sampling_params=parameters)
    with pytest.raises(InvalidSpecError, match="takes 91 tokens") as refused:
        AnswerLimit(manager, request, 0).begin(request, 100, 5)
    assert refused.value.code == "too_few_tokens" and refused.value.help == "raise or omit max_tokens"
