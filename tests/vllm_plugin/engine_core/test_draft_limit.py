"""Drafts of constrained requests that outgrow vLLM's largest graph: vLLM's own scheduler, without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.vllm_plugin.speed import draft_limit
from tests.vllm_plugin.engine_core.test_pending_grammars import Bench, Grammar, Pending, vllm_config  # noqa: F401

pytestmark = pytest.mark.serve


def engine(graph: int = 512, drafts: int = 3, asynchronous: bool = False, by_batch: Any = None) -> Any:
    return SimpleNamespace(
        num_spec_tokens=drafts,
        vllm_config=SimpleNamespace(
            compilation_config=SimpleNamespace(max_cudagraph_capture_size=graph),
            scheduler_config=SimpleNamespace(async_scheduling=asynchronous),
            speculative_config=SimpleNamespace(num_speculative_tokens_per_batch_size=by_batch) if drafts else None,
        ),
    )


@pytest.mark.parametrize(
    ("of", "most"),
    [
        (engine(), 128),
        (engine(drafts=1), 256),
        (engine(graph=64, drafts=4), 12),
        (engine(drafts=0), None),
        (engine(graph=0), None),
        (engine(asynchronous=True), None),
        (engine(by_batch=[(1, 64, 3), (65, 256, 0)]), None),
    ],
    ids=["usual", "one draft", "small graphs", "no speculation", "no graphs", "asynchronous", "said by the user"],
)
def test_the_batches_whose_steps_fit_into_a_graph(of: Any, most: int | None) -> None:
    assert draft_limit.most_drafting(of) == most


def test_larger_batches_verify_the_drafts_of_free_requests_only(
    vllm_config: Any,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vllm.v1.outputs import DraftTokenIds

    monkeypatch.setattr(draft_limit, "most_drafting", lambda _: 2)
    bench = Bench(vllm_config)
    counted: list[float] = []
    metrics = bench.manager.backend.compiler.metrics
    metrics.add = lambda name, *, amount: name == "dotllm_drafts_dropped" and counted.append(amount)

    def drafted() -> dict[str, list[int]]:
        names = list(bench.scheduler.requests)
        bench.scheduler.update_draft_token_ids(DraftTokenIds(names, [[5, 6] for _ in names]))
        return {name: list(bench.scheduler.requests[name].spec_token_ids) for name in names}

    def add(name: str, start: int) -> None:
        there = Pending()
        there.set_result(Grammar())
        bench.add(name, 10, there, start=start, max_tokens=20)

    add("a", 0)
    bench.add("free", 10, start=100, max_tokens=20)
    bench.step()
    assert drafted() == {"a": [5, 6], "free": [5, 6]} and not counted
    for request in bench.scheduler.requests.values():
        request.spec_token_ids = []
    bench.step()
    add("b", 200)
    bench.step()
    bench.scheduler.requests["a"].spec_token_ids = [9]
    assert drafted() == {"a": [], "free": [5, 6], "b": []}
    assert counted == [4]
