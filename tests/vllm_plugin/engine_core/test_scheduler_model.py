"""vLLM's scheduler with ours before it, driven at random: whatever happens to requests and compiles, answers are valid.

vLLM's loop and scheduler are real; only the worker is played. It samples at random under the bitmasks that it receives,
and anything if it receives none. Sometimes it samples a forbidden token, as if the logits were NaN. Tickets are those
of the CompilationManager, and end when the test says so. These must hold:

 * no token counts that was sampled without its mask, or against it;
 * each request that ends with "stop" has an answer that `re`, `jsonschema` or a few lines here find valid;
 * every request ends or is aborted; afterwards none of its tickets, grammars, pending entries or blocks is held.

gpu_masks/rare_orders.py drives reasoning, forced text and rows on the device in the same way.
"""

from __future__ import annotations

import gc
import json
import logging
import queue
import re
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import jsonschema
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from benchmarks.stand_ins import a_backend
from dotllm import Index, Vocabulary
from dotllm.compilation.errors import CompilationError, CompileTimeout, QueueFull
from dotllm.compilation.jobs import Ticket
from dotllm.compilation.metrics import Metrics
from dotllm.errors import UnsupportedError
from dotllm.index.running import Running
from tests.model_based import sequences
from tests.vllm_plugin.early_results import async_output
from tests.vllm_plugin.late_steps import LateThreads

pytestmark = pytest.mark.serve

WORDS = [b'":', b'{"', b'"}', b'","', b"name", b"true", b"ab", b"cd", b"12", b"))", b"], "]
TOKENS: list[bytes | None] = [bytes([i]) for i in range(256)] + WORDS + [None]
EOS = len(TOKENS) - 1
VOCABULARY = Vocabulary.from_bytes(TOKENS, eos_token_ids=EOS)
BLOCK = 16
CLOSED = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[a-c]{1,4}$"}, "true": {"type": "boolean"}},
    "required": ["name", "true"],
    "additionalProperties": False,
}
DISTINCT = {"type": "array", "items": {"enum": [1, 12, "ab", True]}, "uniqueItems": True, "maxItems": 4}


def parentheses(text: str) -> bool:
    """Whether the parentheses are balanced, with one pair around all others."""
    depths = [text[:end].count("(") - text[:end].count(")") for end in range(1, len(text) + 1)]
    return set(text) == set("()") and min(depths[:-1]) > 0 and depths[-1] == 0


def valid(schema: Any) -> Callable[[str], bool]:
    return lambda text: bool(jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)))


LANGUAGES: dict[str, tuple[Index, Callable[[str], Any]]] = {
    "regex": (Index.from_regex("(ab|cd){1,4}[0-9]{0,3}", VOCABULARY), re.compile("(ab|cd){1,4}[0-9]{0,3}").fullmatch),
    "schema": (Index.from_json_schema(CLOSED, VOCABULARY, any_whitespace=False), valid(CLOSED)),
    "distinct": (Index.from_json_schema(DISTINCT, VOCABULARY, any_whitespace=False), valid(DISTINCT)),
    "choice": (Index.from_choice(["true", "abab", "ab"], VOCABULARY), {"true", "abab", "ab"}.__contains__),
    "grammar": (Index.from_grammar('start: "(" start~0..2 ")"', VOCABULARY), parentheses),
}


def leaves_no_token(language: str | None, stops: set[int], tokens: list[int]) -> bool:
    """Whether an answer reaches a place where only the request's stop tokens are allowed, but the text may not end."""
    guide = LANGUAGES[language][0].guide() if language and stops else None
    for token in tokens if guide is not None else ():
        if stops.issuperset(guide.allowed_tokens()) and not guide.can_finish:
            return True
        if not guide.advance(token):
            return False
    return False


ENDS: dict[str, Callable[[], Exception]] = {
    "refused": lambda: UnsupportedError("no"),
    "timeout": lambda: CompileTimeout.beyond(1.0),
    "full": lambda: QueueFull("full"),
    "fault": lambda: CompilationError("a bug"),
}


class Worker:
    """vLLM's executor."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.random = Random(0)
        self.wrong = False
        self.early = True
        """whether tokens may be there when the next step is put together"""
        self.waiting: Any = None
        self.proposed: tuple[list[str], list[list[int]]] = ([], [])
        self.spoilt: set[str] = set()
        """requests that were given a token that their mask forbids"""
        self.failures = 0
        """steps with loads that failed"""
        self.unmasked: dict[int, set[str]] = {}
        """by step: constrained requests that were sampled without a mask"""

    def execute_model(self, output: Any, non_block: bool = True) -> Future[Any]:
        future: Future[Any] = Future()
        if output.total_num_scheduled_tokens:
            names = list(output.num_scheduled_tokens)
            requests = [self.scheduler.requests[name] for name in names]
            samples = [not request.is_prefill_chunk for request in requests]
            constrained = {r.request_id for r in requests if r.structured_output_request is not None}
            self.waiting = (output, names, samples, constrained, self.failed_loads())
            future.set_result(None)
        else:
            future.set_result(self._result([], []))
        return future

    def failed_loads(self) -> set[int]:
        """The blocks that could not be loaded for the step that has been put together."""
        connector = self.scheduler.connector
        failed: set[int] = connector.failed() if connector is not None else set()
        self.failures += bool(failed)
        return failed

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        from vllm.v1.outputs import KVConnectorOutput

        output, names, samples, constrained, failed = self.waiting
        drafts, masks, at = output.scheduled_spec_decode_tokens, {}, 0
        if grammar_output is not None:
            ids, bitmask = grammar_output.structured_output_request_ids, grammar_output.grammar_bitmask
            block = 1 + self.scheduler.num_spec_tokens
            has_blocks = len(bitmask) == block * len(ids)  # true since 0.33, with any number of drafts
            for name in ids:
                count = 1 + len(drafts.get(name, ()))
                masks[name] = bitmask[at : at + count]
                at += block if has_blocks else count
        self.unmasked[id(output)] = constrained - masks.keys()
        sampled = [
            self._sample(name, masks.get(name), drafts.get(name, ())) if does else []
            for name, does in zip(names, samples, strict=True)
        ]
        count = self.scheduler.num_spec_tokens
        self.proposed = (names, [[self._guess(name) for _ in range(count)] for name in names])
        result = self._result(names, sampled)
        if failed:
            result.kv_connector_output = KVConnectorOutput(invalid_block_ids=failed)
        if not non_block:
            return result
        future: Future[Any] = Future()
        future.set_result(result)
        if self.early and grammar_output is not None and not count:
            self._arrive_early(names, sampled)
        return future

    def _arrive_early(self, names: list[str], sampled: list[list[int]]) -> None:
        """Let the tokens of a step be there when the next step is put together (`look_ahead`)."""
        output = async_output(names, sampled, lambda: self.random.random() < 0.7)
        self.scheduler._batch._sent = SimpleNamespace(results=SimpleNamespace(async_output=output))

    def _sample(self, name: str, masks: Any, drafts: Any) -> list[int]:
        said: list[int] = []
        for position, draft in enumerate([*drafts, -1]):
            allowed = list(range(len(TOKENS)))
            if masks is not None:
                bits = np.unpackbits(np.asarray(masks[position]).view(np.uint8), bitorder="little")
                allowed = np.flatnonzero(bits[: len(TOKENS)]).tolist()
                assert allowed, f"{name}: nothing is allowed"
            token = self.random.choice(allowed)
            if draft in allowed and self.random.random() < 0.8:
                token = draft
            elif EOS in allowed and self.random.random() < 0.3:
                token = EOS
            if masks is not None and self.wrong and self.random.random() < 0.3 and len(allowed) < len(TOKENS):
                token = self.random.choice(sorted(set(range(len(TOKENS))) - set(allowed)))
                self.spoilt.add(name)
            said.append(token)
            if token != draft:
                break
        return said

    def _guess(self, name: str) -> int:
        if self.random.random() < 0.3:
            return self.random.randrange(len(TOKENS))
        return self.random.choice([EOS, *(TOKENS.index(word) for word in WORDS)])

    def take_draft_token_ids(self) -> Any:
        from vllm.v1.outputs import DraftTokenIds

        return DraftTokenIds(self.proposed[0], [list(drafts) for drafts in self.proposed[1]])

    @staticmethod
    def _result(names: list[str], sampled: list[list[int]]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        index = {name: i for i, name in enumerate(names)}
        return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=sampled)


class Requests(RuleBasedStateMachine):
    config: ClassVar[Any]
    patch: ClassVar[pytest.MonkeyPatch]
    are_late: ClassVar[bool] = False
    """whether steps of grammars are late (`slow_steps`)"""
    late = 0
    failures = 0

    @initialize(blocks=st.sampled_from([8, 12, 20, 100]), priority=st.booleans(), batches=st.sampled_from([1, 8]))
    def begin(self, blocks: int, priority: bool, batches: int) -> None:
        import torch
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        from dotllm.vllm_plugin.speed import batch_accept, pending_grammars

        config = self.config
        config.cache_config.num_gpu_blocks = blocks
        config.scheduler_config.policy = "priority" if priority else "fcfs"
        self.patch.setattr(pending_grammars, "wait", self.while_it_waits)
        self.patch.setattr(batch_accept, "MIN_BATCH", batches)
        self.threads = LateThreads(self.patch, blocks + batches) if self.are_late else None
        manager = StructuredOutputManager(config)
        manager.backend = a_backend(
            compiler=SimpleNamespace(metrics=Metrics()),
            vocabulary=VOCABULARY,
        )
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.scheduler = config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=manager,
            block_size=BLOCK,
        )
        self.longest = min(self.scheduler.max_model_len, (blocks - 1) * BLOCK)
        self.scheduler.max_model_len = self.longest
        self.worker = Worker(self.scheduler)
        update = self.scheduler.update_from_output
        self.scheduler.update_from_output = lambda output, result: self.updated(update, output, result)
        core = self.core = object.__new__(EngineCore)
        core.scheduler, core.vllm_config, core.model_executor = self.scheduler, config, self.worker
        core.async_scheduling = bool(config.scheduler_config.async_scheduling)
        stages = config.parallel_config.pipeline_parallel_size
        if stages > 1:  # as on the V2 runner, where a request's steps are ``stages`` apart
            self.scheduler.use_v2_model_runner = True
            self.worker.early = False
        if self.scheduler.connector is not None:
            self.scheduler.connector.random = Random(blocks)
        core.batch_queue_size = stages + core.async_scheduling
        core.batch_queue = deque() if core.batch_queue_size > 1 else None
        core.is_pooling_model = core.is_mm_encoder_only = core.log_stats = False
        core.check_for_draft_tokens = self.scheduler.num_spec_tokens > 0
        core.is_ec_consumer, core._weight_version = True, None
        core.aborts_queue = queue.SimpleQueue()
        core._process_aborts_queue = self.abort_while_the_model_runs
        self.priority = priority
        self.made = 0
        self.about: dict[str, Any] = {}
        self.compiles: dict[str, list[weakref.ref[Ticket]]] = {}
        self.held: list[weakref.ref[Any]] = []
        self.answers: dict[str, list[int]] = {}
        self.ended: dict[str, tuple[str, Any]] = {}
        self.aborted: set[str] = set()
        self.failed: set[str] = set()
        self.abort_next: str | None = None
        self.resolve_next: str | None = None

    # ---- what happens

    @rule(
        language=st.sampled_from([*LANGUAGES, None]),
        n=st.sampled_from([1, 1, 1, 2, 3]),
        prompt=st.sampled_from([1, 5, 16, 30, 60, 90]),
        same_prompt=st.booleans(),
        compiled=st.booleans(),
        max_tokens=st.sampled_from([1, 2, 5, 20, 60]),
        stops=st.sampled_from([(), (), (ord("a"),), (EOS - 1, ord("1")), (ord(")"),)]),
        urgency=st.integers(0, 2),
    )
    def comes(
        self,
        language: str | None,
        n: int,
        prompt: int,
        same_prompt: bool,
        compiled: bool,
        max_tokens: int,
        stops: tuple[int, ...],
        urgency: int,
    ) -> None:
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.request import Request

        init_none_hash(sha256)
        self.made += 1
        start = 0 if same_prompt else self.made * 100
        for child in range(n):
            name = f"{self.made}-{child}"
            structured = StructuredOutputsParams(regex="a") if language else None
            sampling = SamplingParams(max_tokens=max_tokens, structured_outputs=structured, stop_token_ids=list(stops))
            sampling.update_from_generation_config({}, EOS)
            if structured is not None:
                structured._backend = "dotllm"
            request = Request(
                request_id=name,
                prompt_token_ids=list(range(start, start + min(prompt, self.longest - 4))),
                sampling_params=sampling,
                pooling_params=None,
                block_hasher=get_request_block_hasher(BLOCK, sha256),
                priority=urgency if self.priority else 0,
            )
            if language is not None:
                request.structured_output_request.grammar = self.ticket(language, stops, compiled)
            self.about[name] = (language, set(stops), max_tokens)
            self.answers[name] = []
            self.scheduler.add_request(request)

    def ticket(self, language: str, stops: tuple[int, ...], compiled: bool) -> Ticket:
        from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

        def make(index: Any) -> RequestGrammar:
            found = index.renewed() if self.are_late else index  # (an index that knows no steps; they share a lock)
            grammar = RequestGrammar(found.guide(), stops, VOCABULARY)
            self.held.append(weakref.ref(grammar))
            return grammar

        ticket = Ticket(make)
        self.held.append(weakref.ref(ticket))
        if compiled:
            ticket.resolve(LANGUAGES[language][0])  # type: ignore[arg-type]
        else:
            self.compiles.setdefault(language, []).append(weakref.ref(ticket))
        return ticket

    @precondition(lambda self: self.compiles)
    @rule(data=st.data(), how=st.sampled_from(["ok", "ok", "ok", *ENDS, "cancelled"]))
    def a_compile_ends(self, data: Any, how: str) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.compiles))), how)

    def end(self, language: str, how: str) -> None:
        """End the compile for all its tickets, which belong to one job."""
        for reference in self.compiles.pop(language, ()):
            ticket = reference()
            if ticket is None:
                continue
            if how != "ok":
                self.failed.update(name for name in self.scheduler.requests if self.waits_for(name, ticket))
            if how == "ok":
                ticket.resolve(LANGUAGES[language][0])  # type: ignore[arg-type]
            elif how == "cancelled":
                ticket.cancel()
            else:
                ticket.fail(ENDS[how]())

    def waits_for(self, name: str, ticket: Ticket) -> bool:
        structured = self.scheduler.requests[name].structured_output_request
        grammar = structured and structured._grammar
        return grammar is ticket or getattr(grammar, "future", None) is ticket

    @rule(seed=st.integers(0, 1 << 16), wrong=st.sampled_from([False] * 7 + [True]), steps=st.integers(1, 6))
    def steps(self, seed: int, wrong: bool, steps: int) -> None:
        self.worker.random, self.worker.wrong = Random(seed), wrong
        for _ in range(steps):
            self.step()

    @precondition(lambda self: self.scheduler.requests)
    @rule(data=st.data(), now=st.booleans())
    def is_aborted(self, data: Any, now: bool) -> None:
        self.abort_next = data.draw(st.sampled_from(sorted(self.scheduler.requests)))
        if now:
            self.abort_while_the_model_runs()

    @precondition(lambda self: self.compiles)
    @rule(data=st.data())
    def compile_ends_while_the_scheduler_waits(self, data: Any) -> None:
        self.resolve_next = data.draw(st.sampled_from(sorted(self.compiles)))

    @precondition(lambda self: self.scheduler.connector is None)  # (vLLM does not support it)
    @rule()
    def all_are_preempted(self) -> None:
        self.scheduler.reset_prefix_cache(reset_running_requests=True)

    @rule()
    def rows_are_collected(self) -> None:
        LANGUAGES["regex"][0].space.collect()

    # ---- the loop

    def while_it_waits(self, futures: Any, timeout: float) -> None:
        """Replaces ``wait`` of `pending_grammars`."""
        if self.resolve_next is not None:
            self.end(self.resolve_next, "ok")
            self.resolve_next = None

    def abort_while_the_model_runs(self) -> None:
        from vllm.v1.request import RequestStatus

        name, self.abort_next = self.abort_next, None
        if name is not None and name in self.scheduler.requests:
            self.aborted.add(name)
            self.scheduler.finish_requests([name], RequestStatus.FINISHED_ABORTED)

    def step(self) -> None:
        if self.threads is not None:
            self.threads.go_on()
        if self.core.batch_queue is not None:
            outputs, executed = self.core.step_with_batch_queue()
        else:
            outputs, executed = self.core.step()
        self.core.post_step(executed)
        for client in (outputs or {}).values():
            for one in client.outputs:
                self.answers[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    self.ended[one.request_id] = (str(one.finish_reason), one.stop_reason)

    def updated(self, update: Any, output: Any, result: Any) -> Any:
        unmasked = self.worker.unmasked.pop(id(output), set())
        before = {name: r.num_output_tokens for name, r in self.scheduler.requests.items() if name in unmasked}
        requests = dict(self.scheduler.requests)
        outputs = update(output, result)
        for name, count in before.items():
            if not self.is_free(requests[name]):
                assert requests[name].num_output_tokens == count, f"{name}: a token counts that had no mask"
        return outputs

    @staticmethod
    def is_free(request: Any) -> bool:
        return request.structured_output_request is None

    # ---- what must hold in the end

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        self.worker.random, self.worker.wrong = Random(1), False
        for language in list(self.compiles):
            self.end(language, "ok")
        left = 600
        while self.scheduler.has_requests() or self.core.batch_queue:
            assert left, f"forgotten: {sorted(self.scheduler.requests)}"
            left -= 1
            self.step()
        scheduler = self.scheduler
        assert not (scheduler._pending.requests or scheduler.requests or scheduler.running or scheduler.waiting)
        pool = scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1, "blocks are lost"
        for name in self.about:
            self.check(name)
        self.worker.waiting = None
        type(self).failures += self.worker.failures
        if self.threads is not None:
            type(self).late += self.threads.late
            self.threads.go_on(1.0)
            assert not scheduler._batch.held() and not (scheduler._batch._slow and scheduler._batch._slow.steps)
        if any(reference() is not None for reference in self.held):
            gc.collect()
            assert not [one for reference in self.held if (one := reference()) is not None], "it is still held"

    def check(self, name: str) -> None:
        language, stops, max_tokens = self.about[name]
        tokens = self.answers[name]
        if name not in self.ended:
            assert name in self.aborted, f"{name} has no end"
            reason, stop_reason = "abort", None
        else:
            reason, stop_reason = self.ended[name]
        assert len(tokens) <= max_tokens
        if reason == "error":
            may_fail = name in self.failed or name in self.worker.spoilt or leaves_no_token(language, stops, tokens)
            assert language is not None and may_fail, f"{name} ({language}): {stop_reason} after {tokens}"
            assert str(stop_reason).startswith("\0dotllm "), f"{name}: no reason is said"
            return
        if language is None or name in self.aborted:
            return
        index, is_valid = LANGUAGES[language]
        guide = index.guide()
        stopped = reason == "stop" and stop_reason is not None and tokens[-1] in stops
        text = tokens[:-1] if stopped or (reason == "stop" and tokens[-1] == EOS) else tokens
        assert all(map(guide.advance, text)), f"{name} ({language}): {tokens} is not allowed"
        if reason == "stop":
            assert is_valid(b"".join(TOKENS[token] or b"" for token in text).decode()), f"{name}: {tokens}"
        else:
            assert reason == "length", reason


@pytest.fixture(scope="module")
def make_config(demo_model: Path) -> Callable[[bool, bool], Any]:
    def make(asynchronous: bool, drafts: bool) -> Any:
        from dotllm.cli import vllm_metadata
        from dotllm.vllm_plugin import register

        vllm_metadata.patch_version()
        register()
        from vllm.engine.arg_utils import EngineArgs

        ngram = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 2}
        config = EngineArgs(
            model=str(demo_model), max_model_len=512, max_num_seqs=6, max_num_batched_tokens=64,
            enable_prefix_caching=True, block_size=BLOCK, speculative_config=ngram if drafts else None,
        ).create_engine_config()  # fmt: skip
        config.scheduler_config.async_scheduling = asynchronous  # (which vLLM turns off on CPUs)
        return config

    return make


@pytest.mark.parametrize(
    ("drafts", "late", "stages", "loads"),
    [
        (False, False, 1, False),
        (True, False, 1, False),
        (False, True, 1, False),
        (False, False, 2, False),
        (True, False, 2, False),
        (False, False, 1, True),
        (True, False, 1, True),
        (False, False, 2, True),
    ],
    ids=[
        *("one token", "drafts", "late", "stages", "stages and drafts", "loads", "loads and drafts"),
        "stages and loads",
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_requests(
    make_config: Callable[[bool, bool], Any],
    monkeypatch: pytest.MonkeyPatch,
    asynchronous: bool,
    drafts: bool,
    late: bool,
    stages: int,
    loads: bool,
) -> None:
    from vllm.config import KVTransferConfig

    if drafts and stages > 1 and not asynchronous:
        pytest.skip("vLLM's loop asks for the drafts of a step before it has read the results of that step")
    if drafts and loads and asynchronous:
        pytest.skip("plain vLLM forgets requests, constrained or not")
    monkeypatch.setenv("DOTLLM_COALESCENCE", "off")
    looks: list[bool] = []
    look_ahead = Running.look_ahead

    def counted(self: Running, *asked: Any) -> None:
        look_ahead(self, *asked)
        looks.append(self._looking is not None)

    monkeypatch.setattr(Running, "look_ahead", counted)
    monkeypatch.setattr(Running, "is_worth_a_look", True)  # (also while few masks are new)
    taken: list[bool] = []
    take = Running.take

    def noted(self: Running, *asked: Any) -> Any:
        taken.append(bool(self))
        return take(self, *asked)

    monkeypatch.setattr(Running, "take", noted)
    config = make_config(asynchronous, drafts)
    config.parallel_config.pipeline_parallel_size = stages
    config.scheduler_config.disable_hybrid_kv_cache_manager = loads
    if loads:
        config.kv_transfer_config = KVTransferConfig(
            kv_connector="FailingLoads", kv_connector_module_path="tests.vllm_plugin.failing_loads",
            kv_role="kv_both", kv_load_failure_policy="recompute",
        )  # fmt: skip
    members = {"config": config, "patch": monkeypatch, "are_late": late}
    machine: Any = type("Machine", (Requests,), members)
    logging.disable(logging.CRITICAL)  # each failure is logged, as it should be
    gc.collect()
    gc.freeze()  # collections after each sequence can skip the objects that exist now
    try:
        run_state_machine_as_test(machine, settings=sequences(125, steps=25))  # type: ignore[no-untyped-call]
        assert bool(machine.late) == late
        assert bool(machine.failures) == loads
        assert any(looks) == (asynchronous and not drafts and stages == 1)
        assert any(taken) or drafts or late
    finally:
        logging.disable(logging.NOTSET)  # (assigning to the manager would keep the levels that loggers have cached)
