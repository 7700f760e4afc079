"""The class of an engine's scheduler, its parts, and the shortcuts in vLLM's loop."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from played_engine import Engine

from dotllm import Index
from dotllm.errors import InvalidSpecError
from dotllm.vllm_plugin.enforce import scheduler
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.enforce.scheduler import OVERRIDDEN, DotllmScheduler
from dotllm.vllm_plugin.extra import jump_forward
from dotllm.vllm_plugin.speed import batch_accept, draft_limit, pending_grammars
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench

pytestmark = pytest.mark.serve


def an_engine(vllm_config: Any, index: Index) -> Engine:
    return Engine(vllm_config, index, seed=3, blocks=200)


def test_the_class_is_vllms_with_ours_before_it(vllm_config: Any, index: Index) -> None:
    engine = an_engine(vllm_config, index)
    found = type(engine.scheduler)
    assert found.__name__ == "DotllmAsyncScheduler" and found.__module__ == "vllm.v1.core.sched.async_scheduler"
    assert [base.__name__ for base in found.__bases__] == ["DotllmScheduler", "AsyncScheduler"]
    assert type(an_engine(vllm_config, index).scheduler) is found
    parts = (
        pending_grammars.PendingGrammars, draft_limit.DraftLimit, batch_accept.BatchAccept,
        jump_forward.JumpForward,
    )  # fmt: skip
    own = engine.scheduler
    assert tuple(map(type, (own._pending, own._drafts, own._batch, own._forced))) == parts


def test_all_that_is_overridden_is_a_target() -> None:
    own = {name for name, member in vars(DotllmScheduler).items() if callable(member)} - {"__init__"}
    assert own == {*OVERRIDDEN}


@pytest.mark.parametrize(("backend", "default_backend"), [("xgrammar", "dotllm"), ("auto", "vllm")])
def test_an_engine_on_another_backend_has_none(
    vllm_config: Any, monkeypatch: pytest.MonkeyPatch, backend: str, default_backend: str
) -> None:
    """Its first constrained request killed it: xgrammar's backend also has a ``compiler``, which we took for ours."""
    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", default_backend)
    monkeypatch.setattr(vllm_config.structured_outputs_config, "backend", backend)
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    assert type(Bench(vllm_config).scheduler) is AsyncScheduler


def test_vllm_is_told_at_once_what_has_been_taken(vllm_config: Any, index: Index) -> None:
    """It only asks a grammar that has not taken a token, or that has failed since."""
    engine = an_engine(vllm_config, index)
    manager = engine.scheduler.structured_output_manager
    asked: list[list[int]] = []
    grammar = SimpleNamespace(accepted_ahead=True, failed=False, accept_tokens=lambda _, tokens: asked.append(tokens))
    request = engine.add("one", 8)
    request.structured_output_request._grammar = grammar
    assert manager.accept_tokens(request, [1]) is True and not asked
    grammar.failed = True
    assert manager.accept_tokens(request, [2]) is False and asked == [[2]]
    grammar.accepted_ahead = grammar.failed = False
    assert manager.accept_tokens(request, [3]) is False and asked == [[2], [3]]
    assert manager.accept_tokens(engine.add("free", 8, structured_outputs=None), [4]) is True


def test_enforced_with_no_part_at_all(vllm_config: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    """``DOTLLM_HOOKS=enforce``: vLLM handles our grammars one after another, and failures give the reason."""
    monkeypatch.setattr(scheduler, "_parts", {})
    monkeypatch.setattr(batch_accept, "accept", lambda *_: pytest.fail("speed"))
    bench = Bench(vllm_config)
    own = bench.scheduler
    assert {type(part) for part in (own._pending, own._drafts, own._batch, own._forced)} == {scheduler.Part}
    late: Future[Any] = Future()
    bench.add("late", 3, late, max_tokens=3)
    grammars = [RequestGrammar(index.guide(), (), index.vocabulary) for _ in range(10)]
    for i, grammar in enumerate(grammars):
        bench.add(str(i), 3, grammar, max_tokens=4)
        bench.says[str(i)] = [ord("{"), ord('"')] if i else [ord("{"), ord("x")]
    bench.step()
    assert not bench.tokens_of("late"), "its prompt waits for its grammar, as in vLLM"
    assert bench.tokens_of("5") == [ord("{")] and grammars[5].guide.tokens_taken == 1
    late.set_exception(InvalidSpecError("not a constraint"))
    bench.step()
    bench.step()
    assert "does not allow" in str(bench.outputs["0"][-1].stop_reason) and bench.finish_reason("0") == "error"
    assert "not a constraint" in str(bench.outputs["late"][-1].stop_reason)
    assert all(grammar.guide.tokens_taken == 2 for grammar in grammars[1:3])
