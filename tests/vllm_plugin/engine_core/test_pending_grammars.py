"""Prefill during compilation: vLLM's own scheduler with ours before it, without a model, step by step."""

from __future__ import annotations

import gc
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from benchmarks.stand_ins import a_backend
from dotllm.compilation.errors import CompilationError, NoProcess, QueueFull
from dotllm.compilation.metrics import Metrics
from dotllm.errors import BudgetExceededError, EngineFault, Pointer, UnsupportedError
from dotllm.vllm_plugin import register
from dotllm.vllm_plugin.enforce import errors, request_errors
from dotllm.vllm_plugin.enforce.errors import TokenNotAllowed
from dotllm.vllm_plugin.speed import pending_grammars
from dotllm.vllm_plugin.speed.pending_grammars import PendingGrammars, why_not
from dotllm.vocabulary import Vocabulary
from tests.serve.releases import INSTALLED

pytestmark = pytest.mark.serve

BLOCK = 16


@pytest.fixture(scope="module")
def vllm_config(demo_model: Path) -> Any:
    from dotllm.cli import vllm_metadata

    vllm_metadata.patch_version()
    register()
    from vllm.engine.arg_utils import EngineArgs

    arguments = EngineArgs(
        model=str(demo_model),
        max_model_len=2048,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        enable_prefix_caching=True,
        block_size=BLOCK,
    )
    return arguments.create_engine_config()


class Pending(Future[Any]):
    """A compile that ends when the test says so."""


class Grammar:
    """The part of a compiled grammar that the scheduler needs."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        self.accepted += tokens
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return tokens

    def fill_bitmask(self, bitmask: Any, index: int) -> None:
        bitmask[index].fill_(-1)

    def is_terminated(self) -> bool:
        return False

    def rollback(self, tokens: int) -> None: ...


class Bench:
    """A scheduler and the loop around it: every step samples token 7 for requests that have run all their tokens."""

    def __init__(self, vllm_config: Any, blocks: int = 200) -> None:
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        vllm_config.cache_config.num_gpu_blocks = blocks
        self.manager = StructuredOutputManager(vllm_config)
        self.manager.backend = a_backend(
            compiler=SimpleNamespace(metrics=Metrics()),
            vocabulary=Vocabulary.from_bytes([*(bytes([i]) for i in range(100)), None], eos_token_ids=100),
        )
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.scheduler = vllm_config.scheduler_config.get_scheduler_cls()(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=self.manager,
            block_size=BLOCK,
        )
        self.outputs: dict[str, list[Any]] = {}
        self.says: dict[str, list[int]] = {}

    def add(
        self,
        name: str,
        tokens: int,
        pending: Any = None,
        *,
        ours: bool = True,
        start: int = 0,
        resumable: bool = False,
        **parameters: Any,
    ) -> Any:
        """Add a request, or (``resumable``) a turn of a session."""
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.request import Request

        init_none_hash(sha256)
        structured = StructuredOutputsParams(regex="a") if pending is not None else None
        given = {"max_tokens": 4, **parameters}
        sampling = SamplingParams(ignore_eos=True, structured_outputs=structured, **given)
        if structured is not None:
            structured._backend = "dotllm" if ours else "xgrammar"
        request = Request(
            request_id=name,
            prompt_token_ids=[start + number for number in range(tokens)],
            sampling_params=sampling,
            pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
            resumable=resumable,
        )
        if pending is not None:
            request.structured_output_request.grammar = pending
        self.scheduler.add_request(request)
        return request

    def step(self) -> dict[str, int]:
        """Run one step. Returns the number of scheduled tokens by request."""
        from vllm.v1.outputs import ModelRunnerOutput

        scheduled = self.scheduler.schedule()
        names = list(scheduled.num_scheduled_tokens)
        requests = [self.scheduler.requests[name] for name in names]
        samples = [not request.is_prefill_chunk for request in requests]
        grammar = self.scheduler.get_grammar_bitmask(scheduled)
        sampled = [[self.next_token(r)] if does else [] for r, does in zip(requests, samples, strict=True)]
        constrained = set() if grammar is None else set(grammar.structured_output_request_ids)
        unmasked = [one for one in requests if one.use_structured_output and one.request_id not in constrained]
        before = [request.num_output_tokens for request in unmasked]
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: number for number, name in enumerate(names)},
            sampled_token_ids=sampled,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        for client in self.scheduler.update_from_output(scheduled, output).values():
            for one in client.outputs:
                self.outputs.setdefault(one.request_id, []).append(one)
        assert [one.num_output_tokens for one in unmasked] == before, "a token that was sampled without its mask counts"
        return dict(scheduled.num_scheduled_tokens)

    def next_token(self, request: Any) -> int:
        """The model's next token: from ``says`` if it has any, else 7."""
        said = self.says.get(request.request_id)
        return said.pop(0) if said else 7

    def tokens_of(self, name: str) -> list[int]:
        return [token for output in self.outputs.get(name, []) for token in output.new_token_ids]

    def finish_reason(self, name: str) -> str | None:
        reasons = [
            str(output.finish_reason) for output in self.outputs.get(name, []) if output.finish_reason is not None
        ]
        return reasons[-1] if reasons else None


@pytest.fixture
def bench(vllm_config: Any) -> Bench:
    return Bench(vllm_config)


def test_the_class_is_vllms_with_ours_before_it(bench: Bench) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    from dotllm.vllm_plugin.enforce.scheduler import DotllmScheduler

    assert isinstance(bench.scheduler, Scheduler) and isinstance(bench.scheduler, DotllmScheduler)
    assert bench.scheduler._pending._runs_ahead and not bench.scheduler._pending._lets_reason


def test_prompt_runs_and_waits_where_its_grammar_is_needed(bench: Bench) -> None:
    pending = Pending()
    bench.add("a", 100, pending)
    assert [bench.step() for _ in range(4)] == [{"a": 64}, {"a": 36}, {}, {}]
    assert bench.tokens_of("a") == [], "what was sampled without a mask does not count"
    pending.set_result(grammar := Grammar())
    assert bench.step() == {"a": 4}, "its first token within one step; the blocks of its prompt are cached"
    assert bench.tokens_of("a") == [7] == grammar.accepted
    while bench.finish_reason("a") is None:
        bench.step()
    assert bench.tokens_of("a") == [7] * 4 and not bench.scheduler._pending.requests


def test_who_goes_on_at_once_is_new_to_the_worker(bench: Bench) -> None:
    """vLLM's first runner drops a request that has no part in a step, so it must receive all its tokens again."""
    pending = Pending()
    bench.add("a", 60, pending)
    assert bench.step() == {"a": 60} and bench.tokens_of("a") == []
    pending.set_result(Grammar())
    scheduled = bench.scheduler.schedule()
    assert not bench.scheduler.use_v2_model_runner
    assert scheduled.scheduled_cached_reqs.all_token_ids == {"a": list(range(60))}


def test_grammar_that_comes_during_the_prompt_costs_nothing(bench: Bench) -> None:
    pending = Pending()
    bench.add("a", 100, pending)
    assert bench.step() == {"a": 64}
    pending.set_result(Grammar())
    assert bench.step() == {"a": 36} and bench.tokens_of("a") == [7]


def test_while_nothing_runs_the_mask_is_asked_for_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step for the last prompt token alone would cost more than waiting for most compiles."""
    waits: list[float] = []

    def comes(futures: list[Any], timeout: float) -> None:
        waits.append(timeout)
        for future in futures:
            future.set_result(Grammar())

    monkeypatch.setattr(pending_grammars, "wait", comes)
    for name, start in (("a", 0), ("a2", 3000)):
        bench.add(name, 30, Pending(), start=start)
    assert bench.step() == {"a": 30, "a2": 30} and bench.tokens_of("a") == bench.tokens_of("a2") == [7]
    assert waits == [pending_grammars.COMPILE_WAIT_S] and pending_grammars.COMPILE_WAIT_S <= 0.01
    bench.add("b", 30, Pending(), start=500)
    assert bench.step() == {"a": 1, "a2": 1, "b": 30} and len(waits) == 1, "it would be the others' time"
    assert bench.tokens_of("b") == []
    while bench.finish_reason("a") is None:
        bench.step()
    bench.scheduler.finish_requests(["b"], _aborted())
    bench.add("long", 100, Pending(), start=1000)
    assert bench.step() == {"long": 64} and len(waits) == 1, "nothing is needed yet"
    assert bench.step() == {"long": 36} and len(waits) == 2 and bench.tokens_of("long") == [7]
    bench.add("theirs", 20, Pending(), ours=False, start=2000)
    bench.step()
    assert len(waits) == 2


def test_a_mask_that_comes_too_late_costs_the_step_and_nothing_else(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_grammars, "COMPILE_WAIT_S", 0.001)
    pending = Pending()
    bench.add("a", 40, pending)
    assert bench.step() == {"a": 40} and bench.tokens_of("a") == [], "what it sampled without a mask does not count"
    assert bench.step() == {} and bench.step() == {}, "it runs ahead once"
    bench.add("b", 30, start=500)
    assert bench.step() == {"b": 30} and bench.tokens_of("b") == [7], "nobody waits for it"
    pending.set_result(grammar := Grammar())
    assert bench.step() == {"a": 8, "b": 1}, "two blocks of its prompt are cached"
    assert bench.tokens_of("a") == [7] == grammar.accepted
    while bench.finish_reason("a") is None:
        bench.step()
    assert bench.tokens_of("a") == [7] * 4 and not bench.scheduler._pending.requests


@pytest.mark.parametrize("when", ["before the mask", "after the step"])
def test_a_compile_that_fails_where_the_mask_is_asked_for_late(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    pending = Pending()
    if when == "before the mask":
        monkeypatch.setattr(pending_grammars, "wait", lambda *_: pending.set_exception(UnsupportedError("no")))
    else:
        monkeypatch.setattr(pending_grammars, "COMPILE_WAIT_S", 0.001)
    bench.add("a", 40, pending)
    assert bench.step() == {"a": 40}
    if when == "after the step":
        pending.set_exception(UnsupportedError("no"))
    for _ in range(3):
        bench.step()
    assert bench.tokens_of("a") == [] and bench.finish_reason("a") is not None
    assert not bench.scheduler._pending.requests and not bench.scheduler.requests


def test_abort_where_the_mask_is_asked_for_late(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_grammars, "COMPILE_WAIT_S", 0.001)
    pending = Pending()
    bench.add("a", 40, pending)
    bench.step()
    bench.scheduler.finish_requests(["a"], _aborted())
    assert pending.cancelled() and not bench.scheduler._pending.requests
    bench.add("b", 30, start=500)
    assert bench.step() == {"b": 30} and bench.tokens_of("b") == [7]


def _aborted() -> Any:
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


def test_grammar_already_there_is_vllms_business(bench: Bench) -> None:
    pending = Pending()
    pending.set_result(Grammar())
    bench.add("a", 50, pending)
    assert bench.step() == {"a": 50} and not bench.scheduler._pending.requests


def test_others_are_not_held_up(bench: Bench) -> None:
    bench.add("slow", 30, Pending())
    bench.add("free", 10, start=1000)
    assert bench.step() == {"slow": 30, "free": 10} and bench.tokens_of("free") == [7]
    quick = Pending()
    quick.set_result(Grammar())
    bench.add("quick", 10, quick, start=2000)
    assert bench.step() == {"free": 1, "quick": 10}
    while bench.finish_reason("quick") is None or bench.finish_reason("free") is None:
        bench.step()
    assert bench.tokens_of("free") == bench.tokens_of("quick") == [7] * 4
    assert bench.tokens_of("slow") == []


@pytest.mark.parametrize("when", ["before", "admitted", "held"])
def test_failed_compile_ends_its_request_alone(bench: Bench, when: str) -> None:
    pending, failure = Pending(), UnsupportedError("refused", location=Pointer("/x"))
    if when == "before":
        pending.set_exception(failure)
    bench.add("bad", 30, pending)
    bench.add("free", 10, start=1000)
    if when != "before":
        bench.step()
        if when == "held":
            bench.step()
        pending.set_exception(failure)
    for _ in range(8):
        bench.step()
    assert bench.finish_reason("bad") == "error" and bench.tokens_of("bad") == []
    (output,) = bench.outputs["bad"]
    assert (errors.decode(output.stop_reason) or ())[:3] == (400, "refused (at /x)", "unsupported")
    assert all(output.stop_reason is None for output in bench.outputs["free"])
    assert bench.tokens_of("free") == [7] * 4
    assert failure.__traceback__ is None, "while it is remembered it keeps no request"
    assert not bench.scheduler._pending.requests and "bad" not in bench.scheduler.requests
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 199, "its blocks are free again"


@pytest.mark.parametrize("tokens", [30, 100])
def test_failure_while_a_step_is_put_together(bench: Bench, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """This case killed the prototype's engine."""
    pending = Pending()
    bench.add("bad", tokens, pending)
    if tokens == 100:
        assert bench.step() == {"bad": 64}
    _while_the_next_step_is_put_together(bench, monkeypatch, lambda: pending.set_exception(ValueError("refused")))
    assert bench.step() and pending.done() and bench.tokens_of("bad") == []
    bench.step()
    assert bench.finish_reason("bad") == "error" and bench.tokens_of("bad") == []


@pytest.mark.parametrize("tokens", [30, 100])
def test_success_while_a_step_is_put_together(bench: Bench, monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    pending = Pending()
    bench.add("a", tokens, pending)
    if tokens == 100:
        assert bench.step() == {"a": 64}
    _while_the_next_step_is_put_together(bench, monkeypatch, lambda: pending.set_result(Grammar()))
    assert bench.step() and pending.done() and bench.tokens_of("a") == [7]


def _while_the_next_step_is_put_together(bench: Bench, monkeypatch: pytest.MonkeyPatch, happens: Any) -> None:
    manager = bench.scheduler.kv_cache_manager
    original = manager.allocate_slots

    def allocate_slots(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(manager, "allocate_slots", original)
        happens()
        return original(*args, **kwargs)

    monkeypatch.setattr(manager, "allocate_slots", allocate_slots)


@pytest.mark.parametrize("tokens", [1, BLOCK + 1, 3 * BLOCK + 1])
def test_a_prompt_that_is_cached_but_for_its_last_token(bench: Bench, tokens: int) -> None:
    first = Pending()
    first.set_result(Grammar())
    bench.add("warm", tokens, first)
    while bench.finish_reason("warm") is None:
        bench.step()
    pending = Pending()
    bench.add("same", tokens, pending)
    bench.add("behind", 10, start=1000)
    assert bench.step() == {"same": 1, "behind": 10} and bench.tokens_of("same") == []
    pending.set_result(Grammar())
    bench.step()
    assert bench.tokens_of("same") == [7]


def test_requests_that_wait_hold_nothing(bench: Bench) -> None:
    pending = [Pending() for _ in range(12)]
    for number, one in enumerate(pending):
        bench.add(f"r{number}", 6, one, start=100 * number)
    bench.add("free", 6, start=5000, max_tokens=40)
    while bench.tokens_of("free") == []:
        bench.step()
    bench.step()
    assert [request.request_id for request in bench.scheduler.running] == ["free"]
    assert bench.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == 198
    for one in pending:
        one.set_result(Grammar())
    for _ in range(12):
        bench.step()
    assert all(bench.finish_reason(f"r{number}") == "length" for number in range(12))
    assert not bench.scheduler._pending.requests


def test_nothing_is_drafted_behind_a_step_that_is_dropped(bench: Bench) -> None:
    """There is no grammar that could check the drafts."""
    from vllm.v1.outputs import DraftTokenIds

    pending = Pending()
    request = bench.add("a", 30, pending)
    bench.step()
    bench.scheduler.update_draft_token_ids(DraftTokenIds(["a"], [[7, 7]]))
    assert request.spec_token_ids == []
    pending.set_result(Grammar())
    assert bench.step() == {"a": 14} and bench.tokens_of("a") == [7]
    bench.scheduler.update_draft_token_ids(DraftTokenIds(["a"], [[7, 7]]))
    assert request.spec_token_ids == [7, 7]


def test_a_request_with_a_parameter_that_nobody_here_knows_waits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later vLLM may add a parameter, with any meaning. Nobody has tried to drop a step with it."""
    import msgspec
    from vllm import sampling_params

    later = msgspec.defstruct("Later", [("new", int, 0)], bases=(sampling_params.SamplingParams,), kw_only=True)
    monkeypatch.setattr(sampling_params, "SamplingParams", later)
    for name, new in (("a", 0), ("b", 1)):
        pending = Pending()
        bench.add(name, 30, pending, new=new)
        assert bench.step() == ({} if new else {name: 30}), name
        pending.set_result(Grammar())
        while bench.finish_reason(name) is None:
            bench.step()
        assert bench.tokens_of(name) == [7] * 4


@pytest.mark.parametrize("parameters", [{"seed": 1}, {"prompt_logprobs": 1}, {"routed_experts_prompt_start": 1}])
def test_requests_that_a_dropped_step_would_change_wait(bench: Bench, parameters: dict[str, int]) -> None:
    """V1 draws from a generator per request; the prompt's logprobs come with the step that may be dropped."""
    pending = Pending()
    bench.add("a", 30, pending, **parameters)
    assert bench.step() == {}
    pending.set_result(Grammar())
    assert bench.step() == {"a": 30} and bench.tokens_of("a") == [7]


def test_abort_while_pending(bench: Bench) -> None:
    from vllm.v1.request import RequestStatus

    pending = Pending()
    bench.add("gone", 30, pending)
    bench.step()
    bench.scheduler.finish_requests("gone", RequestStatus.FINISHED_ABORTED)
    assert pending.cancelled(), "nobody waits for this compile any more"
    assert not bench.scheduler._pending.requests and bench.step() == {}
    waiting = Pending()
    bench.add("waits", BLOCK + 1, waiting)
    bench.step()
    bench.scheduler.finish_requests(None, RequestStatus.FINISHED_ABORTED)
    assert waiting.cancelled()


def test_a_dropped_request_drops_its_ticket(bench: Bench) -> None:
    import weakref

    from vllm.v1.request import RequestStatus

    pending = Pending()
    seen = weakref.ref(pending)
    bench.add("gone", 30, pending)
    bench.step()
    bench.scheduler.finish_requests("gone", RequestStatus.FINISHED_ABORTED)
    del pending
    bench.step()
    gc.collect()
    assert seen() is None


def test_preempted_while_held(vllm_config: Any) -> None:
    """With few blocks, a decoding request takes those of a held one, which starts again later, still held."""
    bench = Bench(vllm_config, blocks=8)
    pending = Pending()
    free = bench.add("free", 30, start=1000)
    free.max_tokens = 60
    bench.step()
    bench.add("held", 60, pending)
    seen = [bench.step() for _ in range(50)]
    assert any("held" in step for step in seen)
    assert bench.scheduler.requests["held"].num_preemptions >= 1, "the test must make it happen"
    assert bench.tokens_of("held") == []
    while bench.finish_reason("free") is None:
        bench.step()
    pending.set_result(Grammar())
    for _ in range(8):
        bench.step()
    assert bench.tokens_of("free") == [7] * 60 and bench.tokens_of("held") == [7] * 4


def test_other_backends_wait_as_ever(bench: Bench) -> None:
    pending = Pending()
    bench.add("theirs", 30, pending, ours=False)
    assert bench.step() == {} and not bench.scheduler._pending.requests
    pending.set_result(Grammar())
    assert bench.step() == {"theirs": 30}


def test_switched_off(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOTLLM_OVERLAP", "0")
    bench = Bench(vllm_config)
    bench.add("a", 30, Pending())
    assert bench.step() == {} and not bench.scheduler._pending.requests


def test_features_it_does_not_go_with(bench: Bench) -> None:

    assert why_not(bench.scheduler) == ""
    for name, value in (
        ("connector", object()),
        ("ec_connector", object()),
        ("is_encoder_decoder", True),
        ("need_mamba_block_aligned_split", True),
    ):
        before = getattr(bench.scheduler, name)
        setattr(bench.scheduler, name, value)
        assert why_not(bench.scheduler)
        setattr(bench.scheduler, name, before)


def test_engines_in_which_a_request_does_not_reason_first(reasoning: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PendingGrammars(reasoning.scheduler)._lets_reason
    monkeypatch.setattr(reasoning.scheduler, "num_spec_tokens", 3)
    assert not PendingGrammars(reasoning.scheduler)._lets_reason
    monkeypatch.setattr(reasoning.scheduler, "num_spec_tokens", 0)
    monkeypatch.setattr(reasoning.manager, "enable_in_reasoning", True)
    assert not PendingGrammars(reasoning.scheduler)._lets_reason


def test_a_failed_compile_of_a_held_request_is_named_as_one(bench: Bench) -> None:
    """A bug in a compile: the status is 500, and the message says that the compile failed."""
    pending = Pending()
    bench.add("bad", 30, pending)
    bench.step()
    pending.set_exception(CompilationError("boom"))
    for _ in range(3):
        bench.step()
    found = errors.decode(bench.outputs["bad"][-1].stop_reason)
    assert found[:3] == (500, "the specification could not be compiled: boom", "")


def test_a_scheduler_of_somebody_else(vllm_config: Any) -> None:
    from vllm.config import SchedulerConfig
    from vllm.v1.core.sched.scheduler import Scheduler

    from dotllm.vllm_plugin.enforce.scheduler import DotllmScheduler

    class Own(Scheduler):
        pass

    config = SchedulerConfig(max_model_len=64, is_encoder_decoder=False, scheduler_cls=Own)
    assert issubclass(config.get_scheduler_cls(), DotllmScheduler) and issubclass(config.get_scheduler_cls(), Own)


@pytest.mark.parametrize(
    ("error", "parameters", "status", "message"),
    [
        (TokenNotAllowed(7), {}, 500, "token 7"),
        (
            TokenNotAllowed(7),
            {"allowed_token_ids": [3, 4], "bad_words": ["x"]},
            400,
            "allowed_token_ids and bad_words forbid",
        ),
        (BudgetExceededError("too many states"), {"allowed_token_ids": [3, 4]}, 400, "too many states"),
        (ZeroDivisionError("bug"), {}, 500, "could not be followed: bug"),
    ],
)
def test_a_request_that_its_constraint_ends_is_told_why(
    bench: Bench,
    error: Exception,
    parameters: dict[str, Any],
    status: int,
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It ends at its second token; the other request goes on. The log gives the same reason as the client's error."""

    class Ends(Grammar):
        error: Exception | None = None

        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            super().accept_tokens(request_id, tokens)
            self.error = error if len(self.accepted) == 2 else None
            return self.error is None

    pending = Pending()
    pending.set_result(Ends())
    bad_words = parameters.pop("bad_words", None)
    request = bench.add("bad", 30, pending, **parameters)
    request.sampling_params.bad_words = bad_words  # (set late, because the constructor needs a tokenizer for them)
    bench.add("free", 10, start=1000)
    for _ in range(8):
        bench.step()
    assert bench.finish_reason("bad") == "error" and bench.tokens_of("free") == [7] * 4
    found = errors.decode(bench.outputs["bad"][-1].stop_reason)
    assert found is not None and found[0] == status and message in found[1]
    assert [record.getMessage() for record in caplog.records if record.name.startswith("dotllm")] == [
        f"request bad was ended: {found[1].removeprefix('the constraint could not be followed: ')}"
    ]
    assert all(output.stop_reason is None for output in bench.outputs["free"])


def test_logits_processors_that_leave_nothing_are_named(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the operator's classes in the worker, and all that we see of them is the sampled token."""

    class Bans: ...

    class Rejects(Grammar):
        error = TokenNotAllowed(7)

        def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
            return False

    monkeypatch.setattr(vllm_config.model_config, "logits_processors", ["mine:Bans", Bans])
    bench = Bench(vllm_config)
    pending = Pending()
    pending.set_result(Rejects())
    bench.add("bad", 10, pending)
    for _ in range(3):
        bench.step()
    found = errors.decode(bench.outputs["bad"][-1].stop_reason)
    assert found is not None and found[0] == 400
    assert "logits processors (mine:Bans, " in found[1] and "Bans)" in found[1] and "NaN" not in found[1]


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UnsupportedError("too large", keyword="memory"), 400, "too large"),
        (QueueFull("full"), 503, "full"),
        (NoProcess("none starts"), 503, "none starts"),
        (CompilationError("boom"), 500, "could not be compiled: boom"),
        (EngineFault("internal fault -4"), 500, "internal fault -4"),
    ],
)
def test_reasons_become_the_answer(error: Exception, status: int, message: str) -> None:
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response
    from vllm.outputs import CompletionOutput, RequestOutput

    def output(finish_reason: str, stop_reason: Any) -> Any:
        completion = CompletionOutput(0, "", [], None, None, finish_reason=finish_reason, stop_reason=stop_reason)
        return RequestOutput("r", "", [], None, [completion], finished=True)

    failure = request_errors.as_exception(output("error", errors.encode(error)))
    assert failure is not None
    answer = create_error_response(failure).error
    assert answer.code == status and message in answer.message
    assert request_errors.as_exception(output("error", None)) is None
    assert request_errors.as_exception(output("stop", "\n")) is None
    # Since 0.33, such an output also has an error. vLLM would raise it as an exception without the refusal's code.
    reasons = (errors.encode(error), None)
    of_engine = [SimpleNamespace(error=RequestError("", ""), stop_reason=reason) for reason in reasons]
    for one in of_engine:
        one.request_id = "unknown"
    processor: Any = SimpleNamespace(request_states={})
    request_errors._process_outputs(processor, of_engine, original=lambda _, outputs: outputs)
    assert [one.error is None for one in of_engine] == [True, False]
    offline = output("error", errors.encode(error)), output("error", None), output("stop", "\n")
    for told in offline:
        request_errors.tell(told)
    assert message in offline[0].outputs[0].stop_reason and "{" not in offline[0].outputs[0].stop_reason
    assert [told.outputs[0].stop_reason for told in offline[1:]] == [None, "\n"]


@pytest.mark.parametrize(
    ("kind", "aborted"), [("DELTA", ["1_r", "2_r"]), ("CUMULATIVE", ["1_r", "2_r"]), ("FINAL_ONLY", [])]
)
def test_an_error_ends_all_answers_of_a_stream(kind: str, aborted: list[str]) -> None:
    """Nobody would read the other answers. A response that is not streamed waits for all of them."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine import EngineCoreOutput, EngineCoreRequest, FinishReason
    from vllm.v1.engine.output_processor import OutputProcessor, RequestOutputCollector
    from vllm.v1.engine.parallel_sampling import ParentRequest

    params = SamplingParams(n=3, output_kind=RequestOutputKind[kind], detokenize=False)
    request = EngineCoreRequest("r", [1], None, params, None, 0.0, None, None, None, external_req_id="x")
    processor: Any = OutputProcessor(None, log_stats=False)
    parent, collector = ParentRequest(request), RequestOutputCollector(params.output_kind, "r")
    for i in range(3):
        name, own = parent.get_child_info(i)
        child = EngineCoreRequest(name, [1], None, own, None, 0.0, None, None, None, external_req_id="x")
        processor.add_request(child, None, parent, i, collector)
    free = EngineCoreRequest("free", [1], None, SamplingParams(), None, 0.0, None, None, None, external_req_id="y")
    processor.add_request(free, None, None, 0, RequestOutputCollector(RequestOutputKind.DELTA, "free"))

    def process(*outputs: EngineCoreOutput) -> Any:
        return request_errors._process_outputs(
            processor, list(outputs), original=OutputProcessor.process_outputs
        ).reqs_to_abort

    assert process(*(EngineCoreOutput(f"{i}_r", [5]) for i in range(3))) == []
    reason = errors.encode(CompilationError("boom"))
    assert sorted(process(EngineCoreOutput("0_r", [], finish_reason=FinishReason.ERROR, stop_reason=reason))) == aborted
    assert set(processor.request_states) == {"free", *(() if aborted else ("1_r", "2_r"))}
    assert bool(processor.parent_requests) is not bool(aborted)


@pytest.mark.parametrize(
    ("changed_with_left", "reason"), [(None, None), (0, None), (3, "dotllm: closed within max_tokens")]
)
def test_an_answer_that_its_limit_has_changed_says_so(
    bench: Bench, changed_with_left: int | None, reason: str | None
) -> None:
    """The stop token ends it with two of its four tokens left; with three left, the limit had changed the mask."""
    from dotllm.vllm_plugin.extra.answer_limit import AnswerLimit

    class Ends(Grammar):
        limit: AnswerLimit | None = None

        def is_terminated(self) -> bool:
            return len(self.accepted) > 1

    pending, grammar = Pending(), Ends()
    pending.set_result(grammar)
    request = bench.add("a", 10, pending, stop_token_ids=[9])
    bench.add("free", 10, start=1000, stop_token_ids=[9])
    if changed_with_left is not None:
        grammar.limit = AnswerLimit(bench.manager, request, 0)
        grammar.limit.note(4, -1)
        grammar.limit.note(3, 0 if changed_with_left else -1)
    counted: list[str] = []
    bench.manager.backend.compiler.metrics.add = lambda name, **_: counted.append(name)
    bench.says |= {"a": [7, 9], "free": [7, 9]}
    for _ in range(3):
        bench.step()
    assert [bench.finish_reason(name) for name in ("a", "free")] == ["stop", "stop"]
    assert bench.outputs["a"][-1].stop_reason == (reason or 9) and bench.outputs["free"][-1].stop_reason == 9
    assert counted.count("dotllm_answers_closed") == (reason is not None)


class RequestError(NamedTuple):
    """vLLM's class, for releases without it."""

    code: str
    message: str
    retryable: bool = False


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (UnsupportedError("too large", keyword="memory"), 400, "too large"),
        (QueueFull("full"), 503, "full"),
        (CompilationError("boom"), 500, "the specification could not be compiled: boom"),
    ],
)
@pytest.mark.parametrize("stop_reason", [None, 0])
def test_vllms_own_words_about_a_compile_give_way(
    error: Exception, status: int, message: str, stop_reason: int | None
) -> None:
    """Since 0.33, vLLM blames the request for every failed compile, even for a full queue or a bug.

    Also, a token that was sampled although none is allowed may be one of the request's stop tokens."""
    from vllm import outputs as vllm_outputs
    from vllm.entrypoints.serve.exception_handling.error_response import create_error_response

    error_class = getattr(vllm_outputs, "RequestError", RequestError)

    def theirs(message: str) -> Any:
        return error_class(code="validation_error", message=message)

    failed, other = (SimpleNamespace(request_id=name, structured_output_request=None) for name in ("failed", "other"))
    failed.structured_output_request = SimpleNamespace(_grammar=error)

    config = SimpleNamespace(model_config=SimpleNamespace(logits_processors=None))
    failures = errors.Failures(SimpleNamespace(vllm_config=config, requests={"other": other}))  # type: ignore[arg-type]
    failures.watch()
    failures.ended(failed)  # type: ignore[arg-type]
    outputs = [
        SimpleNamespace(request_id="failed", finish_reason="error", stop_reason=stop_reason,
                        error=theirs(f"Invalid structured outputs: {error}")),
        SimpleNamespace(request_id="other", finish_reason="error", stop_reason=None, error=theirs("not ours")),
    ]  # fmt: skip
    failures.explain({0: SimpleNamespace(outputs=outputs)})
    of_failed, of_other = outputs
    code = "unsupported" if status == 400 else ""
    assert (errors.decode(of_failed.stop_reason) or ())[:3] == (status, message, code)
    assert of_other.error == theirs("not ours") and of_other.stop_reason is None
    said = of_failed.error
    assert (said.code == "validation_error", said.retryable, said.message) == (status == 400, status == 503, message)
    if INSTALLED >= (0, 33):
        assert create_error_response(said.to_exception()).error.code == status


def test_one_of_several_streamed_answers_says_why_it_ended() -> None:
    """With n > 1, an output is finished only with its last answer. The client got "Internal server error"."""
    from vllm.exceptions import VLLMValidationError
    from vllm.outputs import CompletionOutput, RequestOutput
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.output_processor import RequestOutputCollector

    register()
    collector = RequestOutputCollector(RequestOutputKind.DELTA, "r")
    why = errors.encode(UnsupportedError("stop_token_ids leave no token", keyword="stop_token_ids"))
    for index, (finish, reason) in enumerate([(None, None), ("error", why)]):
        completion = CompletionOutput(index, "", [], None, None, finish_reason=finish, stop_reason=reason)
        collector.put(RequestOutput("r", "", [], None, [completion], finished=False))
    with pytest.raises(VLLMValidationError, match="leave no token"):
        collector.get_nowait()


# ---------------------------------------------------------------- with a reasoning parser

END = 99  # the token that ends the reasoning


class Reasoner:
    """Like vLLM's reasoning parsers: a token ends the reasoning."""

    def __init__(self, tokenizer: Any, **_: Any) -> None: ...

    def is_reasoning_end(self, ids: list[int]) -> bool:
        return END in ids

    def is_reasoning_end_streaming(self, ids: list[int], delta: list[int]) -> bool:
        return END in delta


@pytest.fixture
def reasoning(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> Bench:
    from vllm.v1.structured_output import StructuredOutputManager

    original = StructuredOutputManager.__init__

    def with_reasoner(self: Any, config: Any) -> None:
        original(self, config)
        self.reasoner_cls = Reasoner

    monkeypatch.setattr(StructuredOutputManager, "__init__", with_reasoner)
    return Bench(vllm_config)


def test_a_request_reasons_while_its_index_compiles(reasoning: Bench) -> None:
    pending = Pending()
    request = reasoning.add("a", 30, pending, start=200)
    request.max_tokens = 20
    reasoning.says["a"] = [1, 2, 3, END, 4, 5, 6]
    assert [reasoning.step() for _ in range(5)] == [{"a": 30}, {"a": 1}, {"a": 1}, {"a": 1}, {"a": 1}]
    assert reasoning.tokens_of("a") == [1, 2, 3, END], "the constraint begins, and there is no mask"
    assert reasoning.step() == {} and reasoning.step() == {}
    pending.set_result(grammar := Grammar())
    assert reasoning.step() == {"a": 2}
    reasoning.step()
    assert reasoning.tokens_of("a") == [1, 2, 3, END, 5, 6] and grammar.accepted == [5, 6]


def test_the_index_comes_while_it_reasons(reasoning: Bench) -> None:
    pending = Pending()
    reasoning.add("a", 30, pending, start=200).max_tokens = 6
    reasoning.says["a"] = [1, 2, END, 4, 5, 6]
    reasoning.step()
    pending.set_result(grammar := Grammar())
    for _ in range(6):
        reasoning.step()
    assert reasoning.tokens_of("a") == [1, 2, END, 4, 5, 6] and grammar.accepted == [4, 5, 6]
    assert not reasoning.scheduler._pending.requests


def test_reasoning_that_ended_in_the_prompt(reasoning: Bench) -> None:
    pending = Pending()
    request = reasoning.add("a", 30, pending)
    request.prompt_token_ids[5] = END
    assert reasoning.step() == {"a": 30} and reasoning.step() == {} and reasoning.tokens_of("a") == []
    pending.set_result(Grammar())
    assert reasoning.step() == {"a": 14} and reasoning.tokens_of("a") == [7]


@pytest.mark.parametrize("when", ["reasoning", "ended"])
def test_a_compile_that_fails_behind_a_reasoning_request(reasoning: Bench, when: str) -> None:
    pending = Pending()
    reasoning.add("bad", 30, pending, start=200).max_tokens = 20
    reasoning.add("free", 10, start=1000)
    reasoning.says["bad"] = [1, 2] if when == "reasoning" else [1, END]
    for _ in range(3):
        reasoning.step()
    pending.set_exception(UnsupportedError("refused"))
    for _ in range(5):
        reasoning.step()
    assert reasoning.finish_reason("bad") == "error"
    assert (errors.decode(reasoning.outputs["bad"][-1].stop_reason) or ())[:3] == (400, "refused", "unsupported")
    assert reasoning.tokens_of("free") == [7] * 4 and not reasoning.scheduler._pending.requests


def test_abort_while_it_reasons(reasoning: Bench) -> None:
    from vllm.v1.request import RequestStatus

    pending = Pending()
    reasoning.add("gone", 30, pending, start=200)
    reasoning.step()
    reasoning.scheduler.finish_requests("gone", RequestStatus.FINISHED_ABORTED)
    assert pending.cancelled() and not reasoning.scheduler._pending.requests and reasoning.step() == {}


def test_a_stand_in_asked_too_early_answers_late_and_right() -> None:
    import threading

    from dotllm.vllm_plugin.speed.deferred_grammar import DeferredGrammar

    future: Future[Any] = Future()
    late = DeferredGrammar(future)
    assert late.accept_tokens("r", []) and not late.is_terminated() and not future.done()
    grammar = Grammar()
    threading.Timer(0.1, future.set_result, (grammar,)).start()
    assert late.validate_tokens([3]) == [3]
    assert late.accept_tokens("r", [4]) and grammar.accepted == [4]
    asked: list[Any] = []
    grammar.rollback = asked.append  # type: ignore[method-assign]
    grammar.fill_bitmask = lambda *given: asked.append(given)  # type: ignore[method-assign]
    late.rollback(2)
    late.fill_bitmask("masks", 5)  # type: ignore[arg-type]
    assert asked == [2, ("masks", 5)]


def test_a_compile_that_was_withdrawn_or_failed_has_no_grammar() -> None:
    withdrawn, failed, there = Pending(), Pending(), Pending()
    withdrawn.cancel()
    failed.set_exception(ValueError("no"))
    there.set_result(Grammar())
    found = [pending_grammars.Pending(None, None, one, False) for one in (Pending(), withdrawn, failed, there)]  # type: ignore[arg-type]
    assert [one.is_compiled for one in found] == [False, False, False, True], "nobody gets it by waiting"


def test_ranks_that_step_together_wait_for_no_compile(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data-parallel ranks of a mixture of experts would all wait for the rank whose request compiles."""
    waited: list[Any] = []
    monkeypatch.setattr(pending_grammars, "wait", lambda futures, seconds: waited.append(seconds))
    for ranks, experts, waits in ((1, False, True), (2, False, True), (1, True, True), (2, True, False)):
        waited.clear()
        with monkeypatch.context() as patched:
            patched.setattr(vllm_config.parallel_config, "data_parallel_size", ranks)
            patched.setattr(type(vllm_config.model_config), "is_moe", experts)
            bench = Bench(vllm_config)
        bench.add("a", 10, Pending())
        bench.step()
        assert bool(waited) == waits


def test_a_pooling_model_has_vllms_own_scheduler(vllm_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.vllm_plugin.enforce.scheduler import DotllmScheduler

    monkeypatch.setattr(vllm_config.model_config, "runner_type", "pooling")
    assert not isinstance(Bench(vllm_config).scheduler, DotllmScheduler)


def test_rows_of_a_step_are_known_to_have_come_with_its_results(bench: Bench) -> None:
    """The scheduler tells the sender about each step that is sent, and about each whose results come, in order."""
    told: list[tuple[str, int]] = []
    bench.manager.backend.step_masks = SimpleNamespace(
        space=SimpleNamespace(moved=None),
        sent_with=lambda step: told.append(("sent", id(step))),
        arrived=lambda step: told.append(("arrived", id(step))),
    )
    pending = Pending()
    pending.set_result(Grammar())
    bench.add("a", 10, pending)
    for _ in range(3):
        bench.step()
    sent = [step for what, step in told if what == "sent"]
    assert len(sent) >= 2
    for step in sent:
        assert told.index(("sent", step)) < told.index(("arrived", step))
