"""A session whose input streams in: each turn is constrained by its own specification."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

from tests.vllm_plugin.engine_core import test_pending_grammars
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench, Grammar, Pending

pytestmark = pytest.mark.serve
vllm_config = test_pending_grammars.vllm_config


@pytest.fixture
def bench(vllm_config: Any) -> Bench:
    return Bench(vllm_config)


def done(grammar: Grammar) -> Pending:
    pending = Pending()
    pending.set_result(grammar)
    return pending


def run(bench: Bench, steps: int = 12) -> None:
    for _ in range(steps):
        bench.step()  # fails if a constrained token counts that was sampled without a mask


@pytest.mark.parametrize("kinds", itertools.product(["grammar", "free", "later"], repeat=3))
@pytest.mark.parametrize("early", [False, True])
def test_each_turn_has_its_own_grammar(bench: Bench, kinds: tuple[str, ...], early: bool) -> None:
    """``early``: all chunks of input arrive while the first answer is written."""
    grammars = [Grammar() for _ in kinds]
    pendings = [None if kind == "free" else Pending() for kind in kinds]

    def add(turn: int) -> None:
        pending = pendings[turn]
        if kinds[turn] == "grammar" and pending is not None:
            pending.set_result(grammars[turn])
        bench.add("s", 5, pending, resumable=True, max_tokens=3, start=10 * turn)

    session = None
    for turn in range(len(kinds)) if early else ():
        add(turn)
    for turn, kind in enumerate(kinds):
        if not early:
            add(turn)
        session = bench.scheduler.requests["s"]
        before = len(bench.tokens_of("s"))
        if kind == "later":
            run(bench)
            assert len(bench.tokens_of("s")) == before, "its specification is not compiled"
            assert not any(grammar.accepted for grammar in grammars[turn:])
            pending = pendings[turn]
            assert pending is not None
            pending.set_result(grammars[turn])
        bench.says["s"] = [20 + turn] * 3
        while len(bench.tokens_of("s")) < before + 3:
            bench.step()
        if early and turn + 1 < len(kinds) and kinds[turn + 1] != "later":
            bench.says["s"] = [20 + turn + 1] * 3
    run(bench)
    assert session is not None
    for turn, kind in enumerate(kinds):
        assert grammars[turn].accepted == ([] if kind == "free" else [20 + turn] * 3)
    assert bench.tokens_of("s") == [20] * 3 + [21] * 3 + [22] * 3


def test_a_turn_whose_specification_is_refused_ends_the_session(bench: Bench) -> None:
    from dotllm.errors import InvalidSpecError

    bench.add("s", 5, done(Grammar()), resumable=True, max_tokens=2)
    run(bench)
    assert len(bench.tokens_of("s")) == 2
    refused = Pending()
    refused.set_exception(InvalidSpecError("unknown type 'x'"))
    bench.add("s", 5, refused, resumable=True, max_tokens=2)
    run(bench, 4)
    assert bench.finish_reason("s") == "error" and len(bench.tokens_of("s")) == 2
    assert "unknown type" in str(bench.outputs["s"][-1].stop_reason)


def test_a_session_that_was_preempted_is_new_to_the_workers_in_its_next_turn(vllm_config: Any) -> None:
    bench = Bench(vllm_config)
    request = bench.add("s", 5, done(Grammar()), resumable=True, max_tokens=2)
    run(bench)
    request.num_preemptions = 1
    bench.add("s", 5, done(Grammar()), resumable=True, max_tokens=2)
    scheduled = bench.scheduler.schedule()
    assert [one.req_id for one in scheduled.scheduled_new_reqs] == ["s"]


def test_engines_on_other_backends_keep_vllms_own(demo_model: Path) -> None:
    """A chunk's constraint is set, but nothing in vLLM looks at it."""
    from vllm.v1.core.sched.scheduler import Scheduler

    assert not hasattr(Scheduler._update_request_as_session, "dotllm_replacements")
