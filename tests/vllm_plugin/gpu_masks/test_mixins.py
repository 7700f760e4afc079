"""The mixins of an engine's scheduler, and the short ways of vLLM's loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from played_engine import Engine

from dotllm import Index
from dotllm.vllm_plugin.engine_core import batch_accept, draft_limit, errors, pending_grammars
from dotllm.vllm_plugin.jump_forward import jump_forward
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench

pytestmark = pytest.mark.serve


def an_engine(vllm_config: Any, index: Index) -> Engine:
    return Engine(vllm_config, index, seed=3, blocks=200)


def test_the_class_is_vllms_with_ours_before_it(vllm_config: Any, index: Index) -> None:
    engine = an_engine(vllm_config, index)
    found = type(engine.scheduler)
    assert found.__name__ == "DotllmAsyncScheduler" and found.__module__ == "vllm.v1.core.sched.async_scheduler"
    assert [base.__name__ for base in found.__bases__] == [
        pending_grammars.PendingGrammarsScheduler.__name__,
        errors.FailureScheduler.__name__,
        draft_limit.DraftLimitScheduler.__name__,
        batch_accept.BatchAcceptScheduler.__name__,
        jump_forward.JumpForwardScheduler.__name__,
        "AsyncScheduler",
    ]
    assert type(an_engine(vllm_config, index).scheduler) is found


@pytest.mark.parametrize(("backend", "default_backend"), [("xgrammar", "dotllm"), ("auto", "vllm")])
def test_an_engine_on_another_backend_has_none(
    vllm_config: Any, monkeypatch: pytest.MonkeyPatch, backend: str, default_backend: str
) -> None:
    """It died of its first constrained request: xgrammar's backend has a ``compiler``, too, and ours was asked of it."""
    monkeypatch.setenv("DOTLLM_DEFAULT_BACKEND", default_backend)
    monkeypatch.setattr(vllm_config.structured_outputs_config, "backend", backend)
    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    assert type(Bench(vllm_config).scheduler) is AsyncScheduler


def test_vllm_is_told_at_once_what_has_been_taken(vllm_config: Any, index: Index) -> None:
    """And asks a grammar that has not taken a token, or has failed since."""
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
