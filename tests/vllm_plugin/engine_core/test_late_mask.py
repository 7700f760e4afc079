"""The prompt runs whole while the index compiles: vLLM's own scheduler with our mixins, step by step."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from dotllm.errors import Unsupported
from dotllm.vllm_plugin.engine_core import errors, late_mask
from dotllm.vllm_plugin.engine_core.pending_grammars import has_recurrent_state
from tests.vllm_plugin.engine_core.test_pending_grammars import BLOCK, Bench, Grammar, Pending, _aborted, vllm_config

pytestmark = pytest.mark.serve
__all__ = ["vllm_config"]


@pytest.fixture
def bench(vllm_config: Any) -> Bench:
    return Bench(vllm_config)


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long steps would have waited; nothing comes meanwhile."""
    seen: list[float] = []
    monkeypatch.setattr(late_mask, "wait", lambda futures, timeout: seen.append(timeout))
    return seen


def late(bench: Bench, name: str, tokens: int, pending: Any, **more: Any) -> Any:
    return bench.add(name, tokens, pending, seed=None, **more)


def run_out(bench: Bench, name: str) -> None:
    while bench.finish_reason(name) is None:
        bench.step()


def test_compile_that_ends_beside_the_forward_pass_costs_nothing(bench: Bench, monkeypatch: Any) -> None:
    waited: list[float] = []

    def comes(futures: list[Future[Any]], timeout: float) -> None:
        waited.append(timeout)
        futures[0].set_result(grammar)

    grammar = Grammar()
    monkeypatch.setattr(late_mask, "wait", comes)
    late(bench, "a", 30, Pending())
    assert bench.step() == {"a": 30} and bench.tokens_of("a") == [7]
    run_out(bench, "a")
    assert bench.tokens_of("a") == [7] * 4 == grammar.accepted
    assert len(waited) == 1 and 0 < waited[0] <= late_mask.GRAMMAR_WAIT_S and not bench.scheduler._unmasked


def test_token_without_its_mask_is_sampled_again(bench: Bench, waits: list[float]) -> None:
    pending = Pending()
    request = late(bench, "a", 100, pending)
    bench.says["a"] = [5]  # what is sampled without a mask
    assert [bench.step() for _ in range(4)] == [{"a": 64}, {"a": 36}, {}, {}]
    assert bench.tokens_of("a") == [] and bench.says["a"] == [] and request.num_output_tokens == 0
    assert len(waits) == 1, "a step waits for it once"
    pending.set_result(grammar := Grammar())
    assert bench.step() == {"a": 1}, "the last token of its prompt, in the first step after its compile"
    run_out(bench, "a")
    assert bench.tokens_of("a") == [7] * 4 == grammar.accepted


def test_grammar_that_comes_between_two_parts_of_the_prompt(bench: Bench) -> None:
    pending = Pending()
    late(bench, "a", 100, pending)
    assert bench.step() == {"a": 64}
    pending.set_result(Grammar())
    assert bench.step() == {"a": 36} and bench.tokens_of("a") == [7]


def test_others_in_the_batch_go_on(bench: Bench, waits: list[float]) -> None:
    late(bench, "slow", 30, Pending())
    bench.add("free", 10, start=1000)
    assert bench.step() == {"slow": 30, "free": 10}
    quick = Pending()
    quick.set_result(Grammar())
    bench.add("quick", 10, quick, start=2000)
    assert bench.step() == {"free": 1, "quick": 10}
    run_out(bench, "quick")
    run_out(bench, "free")
    assert bench.tokens_of("free") == bench.tokens_of("quick") == [7] * 4
    assert bench.tokens_of("slow") == [] and len(waits) == 1


@pytest.mark.parametrize("when", ["admitted", "waited for", "parked"])
def test_failed_compile_ends_its_request_alone(bench: Bench, when: str, monkeypatch: Any) -> None:
    pending = Pending()

    def fails(*_: Any) -> None:
        if not pending.done():
            pending.set_exception(Unsupported("refused", pointer="/x"))

    late(bench, "bad", 80, pending)
    bench.add("free", 10, start=1000)
    if when == "waited for":
        monkeypatch.setattr(late_mask, "wait", fails)
    bench.step()
    if when == "parked":
        bench.step()
    if when != "waited for":
        fails()
    for _ in range(8):
        bench.step()
    assert bench.finish_reason("bad") == "error" and bench.tokens_of("bad") == []
    (output,) = bench.outputs["bad"]
    assert errors.decode(output.stop_reason) == (400, "refused (at /x)")
    assert bench.tokens_of("free") == [7] * 4
    assert not bench.scheduler._unmasked and "bad" not in bench.scheduler.requests
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 199, "its blocks are free again"


@pytest.mark.parametrize("tokens", [1, BLOCK, BLOCK + 1])
def test_prompt_that_is_cached_but_for_its_last_token(bench: Bench, tokens: int) -> None:
    there = Pending()
    there.set_result(Grammar())
    bench.add("warm", tokens, there)
    run_out(bench, "warm")
    pending = Pending()
    late(bench, "same", tokens, pending)
    bench.add("behind", 10, start=1000)
    first = bench.step()
    assert first["behind"] == 10 and first["same"] >= 1
    pending.set_result(Grammar())
    bench.step()
    assert bench.tokens_of("same") == [7]


def test_their_number_is_limited_and_the_next_are_held_back(bench: Bench) -> None:
    pending = [Pending() for _ in range(12)]
    for number, one in enumerate(pending):
        late(bench, f"r{number}", 5, one, start=100 * number)
    bench.step()
    assert len(bench.scheduler._unmasked) == 8 and len(bench.scheduler._held) == 4
    for one in pending:
        one.set_result(Grammar())
    for _ in range(12):
        bench.step()
    assert all(bench.finish_reason(f"r{number}") == "length" for number in range(12))
    assert all(bench.tokens_of(f"r{number}") == [7] * 4 for number in range(12))


def test_abort_while_parked(bench: Bench) -> None:
    pending = Pending()
    late(bench, "gone", 30, pending)
    bench.step()
    bench.scheduler.finish_requests("gone", _aborted())
    assert pending.cancelled(), "nobody waits for this compile any more"
    assert not bench.scheduler._unmasked and bench.step() == {}


def test_preempted_while_parked(vllm_config: Any) -> None:
    """With few blocks a decoding request takes those of a parked one, which begins again later, without its mask."""
    bench = Bench(vllm_config, blocks=8)
    free = bench.add("free", 30, start=1000)
    free.max_tokens = 60
    bench.step()
    pending = Pending()
    late(bench, "parked", 60, pending)
    for _ in range(50):
        bench.step()
    assert bench.scheduler.requests["parked"].num_preemptions >= 1, "the test must make it happen"
    run_out(bench, "free")
    assert bench.tokens_of("parked") == []
    pending.set_result(Grammar())
    run_out(bench, "parked")
    assert bench.tokens_of("free") == [7] * 60 and bench.tokens_of("parked") == [7] * 4


@pytest.mark.parametrize("noticed", [{"seed": 3}, {"seed": None, "prompt_logprobs": 1}])
def test_requests_that_would_notice_are_held_back(bench: Bench, noticed: dict[str, Any]) -> None:
    pending = Pending()
    bench.add("a", 100, pending, **noticed)
    assert [bench.step() for _ in range(3)] == [{"a": 64}, {"a": 35}, {}]
    assert not bench.scheduler._unmasked
    pending.set_result(Grammar())
    assert bench.step() == {"a": 1}


def test_asynchronous_scheduling_and_the_second_runner_have_none_of_it(bench: Bench, monkeypatch: Any) -> None:
    assert late_mask.why_not(bench.scheduler) == ""
    monkeypatch.setattr(bench.scheduler, "use_v2_model_runner", True)
    assert "second model runner" in late_mask.why_not(bench.scheduler)
    monkeypatch.setattr(bench.scheduler.vllm_config.scheduler_config, "async_scheduling", True)
    assert "asynchronous" in late_mask.why_not(bench.scheduler)


def test_a_recurrent_state_takes_no_token_twice(bench: Bench, monkeypatch: Any) -> None:
    """A parked request runs the last token of its prompt again."""
    model = SimpleNamespace(is_hybrid=True, is_attention_free=False)
    monkeypatch.setattr(bench.scheduler.vllm_config, "model_config", model)
    assert "recurrent state" in late_mask.why_not(bench.scheduler)


def test_compiles_begin_when_the_forward_pass_is_launched(bench: Bench) -> None:
    class Compiler:
        elsewhere = False

        def __init__(self) -> None:
            self.calls: list[str] = []

        def begins_elsewhere(self) -> bool:
            return self.elsewhere

        def pause(self, seconds: float) -> None:
            self.calls.append("pause")

        def resume(self) -> None:
            self.calls.append("resume")

    compiler = Compiler()
    bench.manager.backend.compiler = compiler
    bench.add("first", 10, start=1000)
    bench.step()
    steps = bench.manager.backend.steps
    assert compiler.calls == ["resume"]
    steps.request_arrives(compiler)
    assert compiler.calls == ["resume", "pause"], "between two steps"
    scheduled = bench.scheduler.schedule()
    bench.scheduler.get_grammar_bitmask(scheduled)
    steps.request_arrives(compiler)
    assert compiler.calls == ["resume", "pause", "resume"], "the model runs: the compile may begin at once"
    steps.landed()
    compiler.elsewhere = True
    steps.request_arrives(compiler)
    assert compiler.calls == ["resume", "pause", "resume"], "a process takes nothing from the loop"


@pytest.mark.parametrize("kind", ["is_hybrid", "is_attention_free", "a cache", "one of several caches"])
def test_a_model_with_a_recurrent_state_takes_no_token_twice(kind: str) -> None:
    """A request whose token is dropped runs its last token again, and the state would take it in twice: answers would
    be worse, and nobody would know why."""
    from vllm.v1.kv_cache_interface import MambaSpec

    model = SimpleNamespace(is_hybrid=False, is_attention_free=False)
    attention = SimpleNamespace(kv_cache_spec=SimpleNamespace())
    caches = SimpleNamespace(kv_cache_groups=[attention])
    scheduler: Any = SimpleNamespace(vllm_config=SimpleNamespace(model_config=model), kv_cache_config=caches)
    assert not has_recurrent_state(scheduler)
    state: Any = object.__new__(MambaSpec)
    if kind == "a cache":
        caches.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=state))
    elif kind == "one of several caches":
        several = SimpleNamespace(kv_cache_specs={"layer 0": SimpleNamespace(), "layer 1": state})
        caches.kv_cache_groups.append(SimpleNamespace(kv_cache_spec=several))
    else:
        setattr(model, kind, True)
    assert has_recurrent_state(scheduler)
