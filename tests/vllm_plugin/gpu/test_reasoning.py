"""Requests that reason first, where the GPU follows the grammars; see `played_engine` for what plays the model runner."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("vllm")

from played_engine import ANSWER, EOS, TOKENS, Engine, spelt

from dotllm import Index
from dotllm.vllm_plugin.gpu import reasoning as gpu_reasoning
from dotllm.vllm_plugin.gpu import walk_scheduler
from dotllm.vllm_plugin.gpu_masks import constrained
from dotllm.vllm_plugin.jump_forward import jump_forward
from tests.serve.releases import since

pytestmark = pytest.mark.serve

ENDS = frozenset(range(128, 144))  # tokens that end the reasoning: one of seventeen, where everything is allowed


class Reasoner:
    """vLLM's ``ReasoningParser``, as far as the manager asks it."""

    def __init__(self, **_: Any) -> None:
        pass

    def is_reasoning_end(self, token_ids: list[int]) -> bool:
        return not ENDS.isdisjoint(token_ids)

    def is_reasoning_end_streaming(self, token_ids: Any, delta: Any) -> bool:
        return not ENDS.isdisjoint(delta)


@pytest.fixture
def engine_of(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(*, seed: int, jumps: bool = False, blocks: int = 200, reasoner: type = Reasoner) -> Engine:
        engine = Engine(vllm_config, index, monkeypatch, jumps=jumps, seed=seed, blocks=blocks)
        engine.scheduler.structured_output_manager.reasoner_cls = reasoner
        engine.scheduler.structured_output_manager.tokenizer = None
        return engine

    return make


def parts(engine: Engine, name: str) -> tuple[list[int], str]:
    """(reasoning with its last token, answer)"""
    tokens = engine.answers[name]
    end = next((i for i, token in enumerate(tokens) if token in ENDS), len(tokens))
    return tokens[: end + 1], spelt(tokens[end + 1 :])


def check(engine: Engine) -> int:
    """All answers. How many requests came to one."""
    assert engine.scheduler._walk is not None, "it goes the ordinary way"
    whole = 0
    for name in engine.requests:
        engine.check(name)
        reasoning, answer = parts(engine, name)
        if engine.reasons[name] == "stop" and reasoning[-1] in ENDS:
            assert ANSWER.fullmatch(answer), answer
            whole += 1
        else:  # an end token while it reasoned, or cut
            assert reasoning[-1] == EOS or engine.reasons[name] == "length"
    return whole


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_answers_begin_when_the_reasoning_has_ended(engine_of: Any, seed: int, jumps: bool) -> None:
    engine = engine_of(seed=seed, jumps=jumps)
    for i in range(10):
        engine.add(str(i), 5 + 7 * i)
    engine.run()
    assert check(engine) > 5
    longest = max(len(answer) for answer in engine.answers.values())
    # a step each for the end of the reasoning, for places that were not known, and for requests that waited
    assert jumps or engine.steps < longest + 60
    assert not engine.scheduler._reasoning.free and not engine.scheduler._reasoning.late


def test_vllm_is_asked_about_the_end_alone_where_it_is_known(engine_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.reasoning.basic_parsers import BaseThinkingReasoningParser

    end, asked = min(ENDS), []

    class OneToken(BaseThinkingReasoningParser):
        start_token, end_token = "<think>", "</think>"

        def __init__(self, **_: Any) -> None:
            self.start_token_id, self.end_token_id = 0, end

    inherited = OneToken.is_reasoning_end_streaming

    def is_reasoning_end_streaming(self: Any, token_ids: Any, delta: Any) -> bool:
        delta = list(delta)  # (an iterator until 0.27)
        asked.extend(delta)
        return inherited(self, token_ids, delta)

    monkeypatch.setattr(BaseThinkingReasoningParser, "is_reasoning_end_streaming", is_reasoning_end_streaming)
    engine = engine_of(seed=4, reasoner=OneToken)
    for i in range(8):
        engine.add(str(i), 9, max_tokens=450)
    engine.run()
    whole = 0
    for name in engine.requests:
        engine.check(name)
        tokens = engine.answers[name]
        if end in tokens and engine.reasons[name] == "stop":
            text = spelt(tokens[tokens.index(end) + 1 :])
            assert ANSWER.fullmatch(text)
            whole += 1
    assert whole > 1 and asked and set(asked) == {end}


def test_free_tokens_are_drawn_from_all(engine_of: Any) -> None:
    engine = engine_of(seed=1)
    for i in range(12):
        engine.add(str(i), 9)
    engine.run()
    drawn = {token for name in engine.requests for token in parts(engine, name)[0]}
    assert len(drawn) > 60, "a mask held while they reasoned"


def test_among_constrained_and_free_requests(engine_of: Any) -> None:
    """A prompt that ends the reasoning is constrained from its first token on."""
    engine = engine_of(seed=7)
    for i in range(4):
        engine.add(f"reasons {i}", 9 + i)
        engine.add(f"answers {i}", 5, first=min(ENDS))
        engine.add(f"free {i}", 7, structured_outputs=None, max_tokens=30)
    engine.run()
    for i in range(4):
        assert ANSWER.fullmatch(engine.text(f"answers {i}"))
        engine.check(f"answers {i}")
        engine.check(f"free {i}")
        engine.check(f"reasons {i}")
        reasoning, answer = parts(engine, f"reasons {i}")
        assert reasoning[-1] == EOS or ANSWER.fullmatch(answer)


@pytest.mark.parametrize("jumps", [False, True])
def test_preempted_requests_go_on(engine_of: Any, jumps: bool) -> None:
    preempted = whole = 0
    for seed in range(6):
        engine = engine_of(seed=seed, jumps=jumps, blocks=14)
        for i in range(6):
            engine.add(str(i), 18 + i)
        engine.run()
        preempted += engine.preemptions
        whole += check(engine)
    assert preempted > 5 and whole > 15, "the cache was large enough for all"


@pytest.mark.parametrize("limit", [1, 2, 5, 9, 20])
def test_max_tokens_holds(engine_of: Any, limit: int) -> None:
    engine = engine_of(seed=limit)
    for i in range(8):
        engine.add(str(i), 6, max_tokens=limit)
    engine.run()
    for name in engine.requests:
        assert len(engine.answers[name]) <= limit
        engine.check(name)


def test_a_request_whose_grammar_comes_after_its_reasoning(engine_of: Any) -> None:
    """It stands still without one; the others go on."""
    engine = engine_of(seed=3)
    engine.scheduler._reasons_late = True
    pending: Future[Any] = Future()
    for i in range(3):
        engine.add(str(i), 9)
    request = engine.add("late", 9)
    structured = request.structured_output_request
    from dotllm.vllm_plugin.engine_core.late_grammar import LateGrammar

    structured._grammar = LateGrammar(pending)
    waited: list[int] = []

    def watch(outputs: Any = None) -> None:
        if structured.reasoning_ended and not waited:
            waited.append(engine.steps)

    steps = dict.fromkeys(range(1, 200), watch)

    def comes() -> None:
        structured.grammar = engine.grammar()
        pending.set_result(structured.grammar)

    steps[60] = comes
    engine.run(steps)
    engine.check("late")
    reasoning, answer = parts(engine, "late")
    assert waited and waited[0] < 50, "the seed has to be one that ends its reasoning sooner"
    assert reasoning[-1] in ENDS and ANSWER.fullmatch(answer), engine.answers["late"]


def test_tokens_that_the_grammar_does_not_allow_for_an_end_stay_forbidden(
    engine_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM 0.33 does for tokens that end the reasoning and begin the answer."""
    forbidden = tuple(sorted(ENDS))[4:]
    stance_of = constrained.stance_of

    def with_forbidden(manager: Any, request: Any) -> Any:
        stance = stance_of(manager, request)
        return stance if stance.holds else stance._replace(forbidden=forbidden)

    monkeypatch.setattr(gpu_reasoning, "stance_of", with_forbidden)
    engine = engine_of(seed=5)
    for i in range(10):
        engine.add(str(i), 9)

    def collect() -> None:
        for _ in range(3):  # row numbers that no index knows are given to others
            engine.index.space.collect()

    engine.run(dict.fromkeys(range(10, 200, 7), collect))
    check(engine)
    drawn = {token for name in engine.requests for token in parts(engine, name)[0]}
    assert drawn & (ENDS - set(forbidden)) and not drawn & set(forbidden)


@since("0.30", "asks should_advance")
def test_an_end_token_that_is_part_of_the_answer(engine_of: Any) -> None:
    """vLLM 0.33: the token that ends the reasoning may be the first one of the answer; the grammar has taken it."""
    engine = engine_of(seed=2)
    manager = engine.scheduler.structured_output_manager
    accept = type(manager).accept_tokens
    brace = TOKENS.index(b'{"')

    def accept_tokens(request: Any, tokens: list[int]) -> bool:
        structured = request.structured_output_request
        if structured is not None and not structured.reasoning_ended:
            if tokens != [brace]:
                structured.reasoning_ended = False
                return True
            structured.reasoning_ended = True
            return bool(structured.grammar.accept_tokens(request.request_id, tokens))
        return bool(accept(manager, request, tokens))

    manager.accept_tokens = accept_tokens
    for i in range(12):
        engine.add(str(i), 9, max_tokens=400)
    engine.run()
    whole = 0
    for name in engine.requests:
        engine.check(name)
        tokens = engine.answers[name]
        if brace in tokens:
            text = spelt(tokens[tokens.index(brace) :])
            assert ANSWER.fullmatch(text) or engine.reasons[name] == "length", text
            whole += 1
    assert whole > 2


def test_counts_of_penalties_forget_what_did_not_count() -> None:
    import torch

    counts = torch.zeros((4, 300), dtype=torch.int32)
    counts[2, 77] = 3
    states = SimpleNamespace(
        req_id_to_index={"a": 2, "b": 1}, last_sampled_tokens=torch.tensor([[1], [5], [77], [9]], dtype=torch.int64)
    )
    runner = SimpleNamespace(
        req_states=states, sampler=SimpleNamespace(penalties_state=SimpleNamespace(output_bin_counts=counts))
    )
    jump_forward.uncount(
        runner,
        [jump_forward.Jump("a", 8, [3], 8, uncount=True), jump_forward.Jump("b", 8, [3], 8),
         jump_forward.Jump("gone", 8, [3], 8, uncount=True)],
    )  # fmt: skip
    assert counts[2, 77] == 2 and int(counts.sum()) == 2


def test_where_a_reasoning_parser_is_a_hindrance(monkeypatch: pytest.MonkeyPatch) -> None:
    def scheduler(reasoner: Any, processors: Any) -> Any:
        return SimpleNamespace(
            structured_output_manager=SimpleNamespace(reasoner_cls=reasoner),
            vllm_config=SimpleNamespace(model_config=SimpleNamespace(logits_processors=processors)),
        )

    assert gpu_reasoning.why_not(scheduler(None, ["mine.Processor"])) == ""
    assert gpu_reasoning.why_not(scheduler(Reasoner, None)) == ""
    assert "logits processor" in gpu_reasoning.why_not(scheduler(Reasoner, ["mine.Processor"]))
    monkeypatch.setattr(jump_forward, "entry_points", lambda group: ["a plugin's"])
    assert "logits processor" in gpu_reasoning.why_not(scheduler(Reasoner, None))
    assert gpu_reasoning.why_not(scheduler(None, None)) == ""
    assert walk_scheduler.reasoning is gpu_reasoning
