"""Of whom vLLM asks the grammars about tokens that the GPU's walk has taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from played_engine import ANSWER, Engine

from dotllm import Index
from dotllm.vllm_plugin.engine_core.request_grammar import RequestGrammar
from dotllm.vllm_plugin.gpu.asked import MIN_REQUESTS_TO_ASK, Asked

pytestmark = pytest.mark.serve


class Manager:
    """As vLLM's, as far as it is asked about tokens."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def accept_tokens(self, request: Any, tokens: list[int]) -> bool:
        self.asked.append(request.request_id)
        return False

    def should_advance(self, request: Any, new_token_ids: list[int] | None = None) -> bool:
        self.asked.append(request.request_id)
        return True


def answers(manager: Manager) -> list[Any]:
    found: list[Any] = []
    for name in "ab":
        request = SimpleNamespace(request_id=name)
        found += [manager.accept_tokens(request, [1]), manager.should_advance(request, new_token_ids=[1])]
    return found


def test_only_those_are_asked_about() -> None:
    manager = Manager()
    asked = Asked(manager)
    asked.after(["b"], [])
    with asked:
        assert answers(manager) == [True, False, False, True]
    assert manager.asked == ["b", "b"]
    assert answers(manager)[:2] == [False, True] and not set(vars(manager)) - {"asked"}


def test_a_step_of_which_nothing_is_known_asks_about_all() -> None:
    manager = Manager()
    asked = Asked(manager)
    asked.after([], [])
    with asked:
        pass
    with asked:
        assert answers(manager) == [False, True, False, True]


def test_an_error_of_vllm_leaves_nothing_behind() -> None:
    manager = Manager()
    asked = Asked(manager)
    asked.after([], [])
    with pytest.raises(KeyError), asked:
        raise KeyError
    assert not set(vars(manager)) - {"asked"}


def test_while_a_grammar_has_failed_all_are_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    manager, failed = Manager(), SimpleNamespace(failed=False)
    asked = Asked(manager)
    grammars: Any = [None, failed]
    failed.failed = True
    monkeypatch.setattr(RequestGrammar, "failures", RequestGrammar.failures + 1)
    asked.after([], grammars)
    assert asked.about is None
    asked.after([], grammars[:1])  # its request has ended
    assert asked.about == set()


def test_a_failing_request_ends_at_its_next_token(
    vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at the end of the text."""
    engine = Engine(vllm_config, index, monkeypatch, jumps=False, seed=5, blocks=200)
    engine.add("bad", 20)
    for i in range(MIN_REQUESTS_TO_ASK):
        engine.add(f"good {i}", 20)
    length = 0

    def fail() -> None:
        nonlocal length
        request = engine.scheduler.requests["bad"]
        request.structured_output_request.grammar.fail("a test", RuntimeError("made up"))
        length = request.num_output_tokens

    engine.run({6: fail})
    assert engine.reasons["bad"] == "error" and length < len(engine.answers["bad"]) <= length + 2
    assert all(ANSWER.fullmatch(engine.text(f"good {i}")) for i in range(MIN_REQUESTS_TO_ASK))
