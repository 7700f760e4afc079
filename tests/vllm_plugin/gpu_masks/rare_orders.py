"""Random requests in random trouble: with and without reasoning, they are aborted, preempted, refused, cut and late.

vLLM's own loop and scheduler run, with the model runner of `played_engine` and a KV cache that remembers its origin:
each of its places holds a number that stands for all tokens up to there. So a token shows if it was drawn after a wrong
prefix: from another request's block, or from a block whose tokens never counted.
"""

from __future__ import annotations

import logging
import queue
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partialmethod
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import quick_kernels
import torch
from played_engine import BLOCK, EOS, STATES, TOKENS, Engine, Runner

from dotllm import Index
from dotllm.device_masks import sender
from dotllm.device_masks.sender import RowSender
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling
from dotllm.vllm_plugin.speed import batch_accept, look_ahead, pending_grammars, worker_hooks
from tests.vllm_plugin.early_results import async_output
from tests.vllm_plugin.late_steps import LateThreads

PENALTY = {"presence_penalty": 0.5}
WORDS = -(-len(TOKENS) // 32)


def chain(before: int, token: int) -> int:
    """The KV cache's entry for ``token``, after the entry ``before`` for the earlier tokens."""
    return hash((before, token))


class OneToken:
    """A reasoning parser: any token of a set ends the reasoning."""

    ends: frozenset[int] = frozenset()

    def __init__(self, **_: Any) -> None:
        pass

    @classmethod
    def length(cls, tokens: list[int]) -> int | None:
        """The length of the reasoning in ``tokens``, including its end; None if it does not end."""
        return next((i + 1 for i, token in enumerate(tokens) if token in cls.ends), None)

    def is_reasoning_end(self, token_ids: list[int]) -> bool:
        return self.length(list(token_ids)) is not None

    def is_reasoning_end_streaming(self, token_ids: Any, delta: Any) -> bool:
        return not self.ends.isdisjoint(delta)


class TwoTokens(OneToken):
    """Two consecutive tokens of the set end the reasoning."""

    @classmethod
    def length(cls, tokens: list[int]) -> int | None:
        pairs = pairwise(tokens)
        return next((i + 2 for i, (a, b) in enumerate(pairs) if a in cls.ends and b in cls.ends), None)

    def is_reasoning_end_streaming(self, token_ids: Any, delta: Any) -> bool:
        last = list(token_ids)[-len(list(delta)) - 1 :]
        return self.length(last) is not None


class PlayedRunner(Runner):
    """The runner of `played_engine`, with a KV cache, the counts for penalties, and vLLM's bitmasks."""

    def __init__(self, seed: int, blocks: int, most_drafts: int = 0) -> None:
        super().__init__(seed)
        from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

        runner, self.most_drafts = self, most_drafts

        class Worker(StructuredOutputsWorker):  # type: ignore[misc]
            def __init__(self) -> None:
                self.mask_stride = 1 + runner.most_drafts

            apply_grammar_bitmask = partialmethod(worker_hooks.v2, original=apply_bitmask)

        self.structured_outputs_worker = Worker()
        self.is_there: Callable[[str], bool] = lambda name: True
        self.kv = [0] * (blocks * BLOCK)
        self.blocks_of: dict[str, list[int]] = {}
        self.parameters: dict[str, Any] = {}
        self.prompt: dict[str, int] = {}
        self.drawn: dict[str, dict[int, tuple[int, int, frozenset[int] | None]]] = {}
        """by request and position: the token, the KV entry that it was drawn after, and the tokens that were allowed"""
        self.states.last_sampled_tokens = self.last_sampled.view(-1, 1)
        self.counts_of = torch.zeros((STATES, len(TOKENS)), dtype=torch.int32)
        self.played_sampler = SimpleNamespace(penalties_state=SimpleNamespace(output_bin_counts=self.counts_of))

    def forget(self, output: Any) -> None:
        super().forget(output)
        for name in (*output.finished_req_ids, *(output.preempted_req_ids or ())):
            self.blocks_of.pop(name, None)

    def execute(self, output: Any) -> None:
        for new in output.scheduled_new_reqs:
            self.blocks_of[new.req_id] = list(new.block_ids[0])
            self.parameters[new.req_id], self.prompt[new.req_id] = new.sampling_params, len(new.prompt_token_ids)
        cached = output.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if blocks is not None:
                self.blocks_of[name] += blocks[0]
        super().execute(output)
        for new in output.scheduled_new_reqs:
            counts = self.counts_of[self.states.req_id_to_index[new.req_id]]
            counts.zero_()
            for token in new.prefill_token_ids[self.prompt[new.req_id] :]:
                counts[token] += 1

    def _run(self, name: str, count: int, drafts: int = 0) -> int:
        first = int(self.states.num_computed_tokens.gpu[self.states.req_id_to_index[name]])
        last = super()._run(name, count, drafts)
        for position in range(first, first + count):
            before = self.kv[self._place(name, position - 1)] if position else 0
            self.kv[self._place(name, position)] = chain(before, self.seen[name][position])
        return last

    def _place(self, name: str, position: int) -> int:
        return self.blocks_of[name][position // BLOCK] * BLOCK + position % BLOCK

    def sample(self, grammar_output: Any) -> list[list[int]]:
        self._check_counts()
        allowed: list[Any] = []
        compute = self.model.compute_logits

        def compute_logits(hidden: Any) -> Any:
            logits = compute(hidden)
            allowed.append(logits)
            return logits

        self.model = SimpleNamespace(compute_logits=compute_logits)
        lengths = [int(self.states.num_computed_tokens.gpu[self.states.req_id_to_index[name]]) for name in self.names]
        results = super().sample(grammar_output)
        self.model = SimpleNamespace(compute_logits=compute)
        (logits,) = allowed
        row = 0
        for name, computed, count, drafts, tokens in zip(
            self.names, lengths, self.counts, self.draft_counts, results, strict=True
        ):
            for j, token in enumerate(tokens):
                if self.is_there(name):  # (else the step was under way when the request ended)
                    position = computed + count - drafts + j
                    free = np.isfinite(logits[row + j].numpy())
                    out_of = None if free.all() else frozenset(np.nonzero(free)[0].tolist())
                    behind = self.kv[self._place(name, position - 1)]
                    self.drawn.setdefault(name, {})[position] = (token, behind, out_of)
                self.counts_of[self.states.req_id_to_index[name], token] += 1
            row += 1 + drafts
        return results

    def _check_counts(self) -> None:
        states = self.states
        for name in self.names:
            if self.parameters[name].presence_penalty:
                state = states.req_id_to_index[name]
                tokens = states.all_token_ids.gpu[state, self.prompt[name] : int(states.total_len.gpu[state])].tolist()
                counted = {t: c for t, c in enumerate(self.counts_of[state].tolist()) if c}
                assert counted == Counter(tokens), f"{name}: penalties count {counted}, not {tokens}"


def apply_bitmask(self: Any, logits: Any, input_batch: Any, grammar_req_ids: list[str], grammar_bitmask: Any) -> None:
    """vLLM's ``StructuredOutputsWorker.apply_grammar_bitmask``."""
    starts, row = input_batch.cu_num_logits.tolist(), 0
    for name in grammar_req_ids:
        place = input_batch.req_ids.index(name)
        for at in range(starts[place], starts[place + 1]):
            quick_kernels.mask_row(logits[at].numpy(), grammar_bitmask[row])
            row += 1


class Sometimes:
    """Decides by chance which text pays off; replaces `jump_forward.rule.Rule`."""

    def __init__(self, draw: np.random.Generator) -> None:
        self._draw = draw

    def may_pay(self, running: int, *, prompt_comes: bool) -> bool:
        return True

    def __call__(self, found: Sequence[Any], running: int, *, prompt_comes: bool) -> Sequence[Any]:
        return [one for one in found if self._draw.random() < 0.7]


class Trouble:
    """One engine, its requests, and the events; ``seed`` determines all of it."""

    def __init__(
        self,
        vllm_config: Any,
        index: Index,
        monkeypatch: Any,
        seed: int,
        *,
        others: list[Index] | None = None,
        late: bool = False,
    ) -> None:
        """``late``: steps of grammars are late (`slow_steps`)."""
        draw, self.early = np.random.default_rng(seed), np.random.default_rng(seed)
        self.draw = draw
        self.seed, self.monkeypatch = seed, monkeypatch
        self.indexes = [index, *(others or [])]
        if late:  # (indexes that know no steps)
            self.indexes = [each.renewed() for each in self.indexes]
        self.threads = LateThreads(monkeypatch, seed) if late else None
        quick_kernels.use(monkeypatch)
        monkeypatch.setattr(pending_grammars, "COMPILE_WAIT_S", 0.0)
        monkeypatch.setattr(batch_accept, "MIN_BATCH", 1 if seed % 2 else batch_accept.MIN_BATCH)
        monkeypatch.setattr(sender, "TABLE_SLOTS", self._table_slots(index))
        self.reasoner = self._reasoner()
        monkeypatch.setenv("DOTLLM_END_IN_REASONING", "allow")
        blocks = int(draw.choice([10, 12, 14, 16, 24, 200]))
        self.priority = bool(draw.random() < 0.2)
        monkeypatch.setattr(vllm_config.scheduler_config, "policy", "priority" if self.priority else "fcfs")
        self.forced = bool(draw.random() < 0.5) and vllm_config.speculative_config is None
        monkeypatch.setenv("DOTLLM_COALESCENCE", "canonical" if self.forced else "off")
        self.engine = Engine(vllm_config, index, seed=seed, blocks=blocks, reasoner=self.reasoner)
        self.scheduler = self.engine.scheduler
        if draw.random() < 0.3:  # (some forced text does not pay off, and is generated)
            self.scheduler._forced.pays = Sometimes(draw)
        self.engine.runner = PlayedRunner(seed, blocks, self.scheduler.num_spec_tokens)
        self.engine.runner.drafter = self._guess
        self.engine.runner.is_there = lambda name: name in self.scheduler.requests
        self.backend = self.scheduler.structured_output_manager.backend
        self.backend.step_masks = RowSender(index.space)
        if draw.random() < 0.3:
            self.scheduler.max_model_len = int(draw.integers(40, 120))
        self.scheduler.max_model_len = min(self.scheduler.max_model_len, (blocks - 1) * BLOCK)  # as vLLM ensures
        self.aborts = float(draw.choice([0.0, 0.01, 0.05]))
        self.resets = float(draw.choice([0.0, 0.0, 0.02, 0.1]))
        self.squeezes = float(draw.choice([0.0, 0.05, 0.2]))
        self.collects = float(draw.choice([0.0, 0.1]))
        self.pending: dict[str, tuple[Future[Any], int, Any]] = {}
        self.aborted: set[str] = set()
        self.refused: set[str] = set()
        self.kinds: dict[str, Any] = {}
        self.errors: list[str] = []
        self.entered = 0

    def _table_slots(self, index: Index) -> int:
        if self.draw.random() < 0.9:
            return sender.TABLE_SLOTS
        return index.space.row_count + int(self.draw.integers(0, 20))

    def _reasoner(self) -> Any:
        if self.draw.random() < 0.1:
            return None
        base = OneToken if self.draw.random() < 0.6 else TwoTokens
        count = int(self.draw.choice([16, 60] if base is OneToken else [80, 130]))
        return type("Reasoner", (base,), {"ends": frozenset(range(128, 128 + count)) - {EOS}})

    # ---- requests

    def add(self, name: str) -> None:
        """Add a random request."""
        draw, engine = self.draw, self.engine
        parameters: dict[str, Any] = {"max_tokens": int(draw.choice([1, 2, 3, 5, 9, 20, 60, 150]))}
        stops: tuple[int, ...] = ()
        which = draw.random()
        if which < 0.15:
            parameters["structured_outputs"] = None
        if draw.random() < 0.15:
            stops = tuple(sorted(int(t) for t in draw.choice(np.arange(32, 200), size=2, replace=False)))
            parameters["stop_token_ids"] = list(stops)
        if draw.random() < 0.2:
            parameters.update(PENALTY)
        if draw.random() < 0.1:
            parameters["ignore_eos"] = True
        ends = self.reasoner.ends if self.reasoner else ()
        first, length = 0, int(draw.choice([4, 9, 17, 17, 33, 33, 50, 70, 90]))
        if draw.random() < 0.15 and ends:
            first = min(ends) - length + 3  # the prompt ends the reasoning
        elif draw.random() < 0.3:
            first = int(draw.integers(0, 20))
        first = max(0, first)
        if first + length > (max(ends) if ends else 250):
            first = 0
        length = min(length, self.scheduler.max_model_len - 4)
        which_index = self.indexes[int(draw.integers(0, len(self.indexes)))]
        forced = self.forced and not PENALTY.items() <= parameters.items()  # (see `coalesced.may_be`)

        def grammar() -> RequestGrammar:
            return RequestGrammar(
                which_index.guide(), stops, which_index.vocabulary, spelling_of=ForcedSpelling.of if forced else None
            )

        pending: Any = grammar()
        if parameters.get("structured_outputs", True) is not None and draw.random() < 0.3:
            pending = Future()
            pending.set_running_or_notify_cancel()
            outcome: Any = RuntimeError("refused") if draw.random() < 0.3 else grammar
            self.pending[name] = (pending, engine.steps + int(draw.integers(0, 60)), outcome)
        request = engine.add(name, length, pending, first=first, **parameters)
        if self.priority:
            request.priority = int(draw.integers(0, 3))
        structured = request.structured_output_request
        answers = structured is not None and self.reasoner is not None and bool(draw.random() < 0.1)
        if answers:
            structured.reasoning_ended = True  # as for a raw completion
        prompt = list(request.prompt_token_ids)
        reasons = (
            structured is not None
            and self.reasoner is not None
            and not answers
            and self.reasoner.length(prompt) is None
        )
        self.kinds[name] = (structured is not None, reasons, grammar)

    # ---- the loop

    def run(self, count: int) -> None:
        """Run ``count`` requests until all have ended."""
        from vllm.v1.engine.core import EngineCore

        engine, draw = self.engine, self.draw
        core: Any = object.__new__(EngineCore)
        core.scheduler, core.vllm_config = engine.scheduler, engine.scheduler.vllm_config
        core.batch_queue, core.batch_queue_size, core.model_executor = deque(), 2, self
        core.is_pooling_model = core.is_mm_encoder_only = False
        core.check_for_draft_tokens = self.scheduler.num_spec_tokens > 0
        core.is_ec_consumer, core.log_stats, core._weight_version = True, False, None
        core.aborts_queue = queue.SimpleQueue()
        core._process_aborts_queue = self._abort_some  # while the model runs
        self.core = core
        added, idle = 0, 0
        with self._logged():
            while added < count or self.scheduler.has_requests() or core.batch_queue:
                engine.steps += 1
                if self.threads is not None:
                    self.threads.go_on()
                assert engine.steps < 4000 and idle < 300, f"stuck: {list(self.scheduler.requests)}"
                while added < count and (draw.random() < 0.3 or not self.scheduler.has_requests()):
                    self.add(f"r{added}")
                    added += 1
                self._happens()
                before = self._progress()
                outputs, _ = core.step_with_batch_queue()
                self._receive(outputs or {})
                self._check_books()
                idle = idle + 1 if self._progress() == before and not self.pending else 0
        self.scheduler.schedule()  # tells the runner which requests ended last

    def _progress(self) -> Any:
        return len(self.scheduler.requests), sum(map(len, self.engine.answers.values())), self.engine.runner.samplings

    def _happens(self) -> None:
        draw, scheduler = self.draw, self.scheduler
        for name, (future, step, outcome) in list(self.pending.items()):
            if self.engine.steps < step and not (not scheduler.running and draw.random() < 0.1):
                continue
            del self.pending[name]
            if future.cancelled() or future.done():
                continue
            if isinstance(outcome, Exception):
                self.refused.add(name)
                future.set_exception(outcome)
            else:
                future.set_result(outcome())
        self._abort_some()
        if self.resets and draw.random() < self.resets:
            scheduler.reset_prefix_cache(reset_running_requests=True)
        if self.squeezes and draw.random() < self.squeezes:
            self._squeeze()
        if self.collects and draw.random() < self.collects:
            self.backend.step_masks.space.collect()

    def _squeeze(self) -> None:
        """Make the next step find the cache full, so that it preempts the latest request."""
        manager = self.scheduler.kv_cache_manager
        allocate, refusals = manager.allocate_slots, [None] * int(self.draw.integers(1, 3))

        def allocate_slots(request: Any, *args: Any, **kwargs: Any) -> Any:
            if refusals and len(self.scheduler.running) > 1 and request.status.name == "RUNNING":
                return refusals.pop()
            vars(manager).pop("allocate_slots", None)
            return allocate(request, *args, **kwargs)

        if "allocate_slots" not in vars(manager):
            manager.allocate_slots = allocate_slots

    def _abort_some(self) -> None:
        from vllm.v1.request import RequestStatus

        if self.aborts:
            names = [name for name in self.scheduler.requests if self.draw.random() < self.aborts]
            if names:
                self.aborted.update(names)
                self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)

    def execute_model(self, output: Any, non_block: bool = True) -> Future[Any]:
        """As vLLM's executor."""
        runner = self.engine.runner
        self.engine.preemptions += len(output.preempted_req_ids or ())
        runner.forget(output)
        future: Future[Any] = Future()
        if output.total_num_scheduled_tokens:
            runner.execute(output)
            future.set_result(None)
        else:
            future.set_result(result_of([], []))
        return future

    def sample_tokens(self, grammar_output: Any, non_block: bool = True) -> Future[Any]:
        """As vLLM's executor."""
        found: Future[Any] = look_ahead._sample_tokens(self, grammar_output, non_block, original=Trouble._sample)
        return found

    def _sample(self, grammar_output: Any, non_block: bool) -> Future[Any]:
        runner = self.engine.runner
        future: Future[Any] = Future()
        names = list(runner.names)
        sampled = runner.sample(grammar_output)
        future.set_result(result_of(names, sampled))
        if not self.scheduler.num_spec_tokens:
            future.async_output = async_output(names, sampled, lambda: bool(self.early.random() < 0.7))  # type: ignore[attr-defined]
        return future

    def take_draft_token_ids(self) -> Any:
        """As vLLM's executor."""
        from vllm.v1.outputs import DraftTokenIds

        return DraftTokenIds(*self.engine.runner.proposed)

    def _guess(self, name: str, length: int) -> list[int]:
        """Drafts that the grammar allows and drafts that it forbids, also ends of the reasoning and of the text."""
        draw, count = self.draw, self.scheduler.num_spec_tokens
        drafts = [int(token) for token in draw.integers(0, len(TOKENS), count)]
        if not count or name not in self.engine.requests:
            return drafts
        if self.reasoner and draw.random() < 0.3:
            drafts[int(draw.integers(0, count))] = int(draw.choice(sorted(self.reasoner.ends)))
        constrained, _, grammar = self.kinds[name]
        guide = grammar().guide if constrained else None
        states, prompt = self.engine.runner.states, self.engine.requests[name].num_prompt_tokens
        state = states.req_id_to_index[name]
        said = states.all_token_ids.gpu[state, prompt:length].tolist()
        if guide is not None and self.reasoner and self.kinds[name][1]:
            end = self.reasoner.length([*said, *drafts])
            if end is None:
                return drafts
            said, ahead = said[end:], max(0, end - len(said))
        else:
            ahead = 0
        if guide is None or not all(map(guide.advance, said)):
            return drafts
        for i in range(ahead, count):
            if draw.random() < 0.9:
                allowed = list(guide.allowed_tokens())
                ends = EOS in allowed and draw.random() < 0.5
                drafts[i] = EOS if ends else int(draw.choice(allowed))
            if not guide.advance(drafts[i]):
                break
        return drafts

    def _receive(self, outputs: dict[int, Any]) -> None:
        engine = self.engine
        for of_client in outputs.values():
            for one in of_client.outputs:
                engine.answers[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    engine.reasons[one.request_id] = str(one.finish_reason)

    def _check_books(self) -> None:
        flying: Counter[str] = Counter()
        for _, output, *_ in self.core.batch_queue:
            flying.update(dict.fromkeys(output.num_scheduled_tokens, 1))
        for name, request in self.scheduler.requests.items():
            assert request.num_output_placeholders >= 0, name
            assert 0 <= request.num_computed_tokens <= request.num_tokens + request.num_output_placeholders, name
            assert request.num_in_flight_tokens >= 0, name
            if not flying[name]:
                assert request.num_output_placeholders == 0, (name, "placeholders without a step")
                assert request.num_in_flight_tokens == 0, (name, "in flight without a step")

    # ---- what must hold

    def check(self) -> None:
        """Check everything, after all requests have ended."""
        unexpected = [error for error in self.errors if "leave no token with which to continue" not in error]
        assert not unexpected, unexpected[0]
        self._check_empty()
        for name in self.engine.requests:
            try:
                self._check_one(name)
            except AssertionError as error:
                raise AssertionError(f"seed {self.seed}, {name}: {error}") from error

    def _check_empty(self) -> None:
        scheduler = self.scheduler
        left = {
            "pending grammars": scheduler._pending.requests, "requests": scheduler.requests, "running": scheduler.running,
        }  # fmt: skip
        assert not any(left.values()), {name: what for name, what in left.items() if what}
        pool = scheduler.kv_cache_manager.block_pool
        assert pool.get_num_free_blocks() == pool.num_gpu_blocks - 1, "blocks are lost"

    def _check_one(self, name: str) -> None:
        engine = self.engine
        request, drawn = engine.requests[name], engine.runner.drawn.get(name, {})
        tokens, start = list(request.all_token_ids), request.num_prompt_tokens
        answer = tokens[start:]
        assert answer == engine.answers[name], "what was sent is not what stands there"
        reason = engine.reasons.get(name)
        assert reason is not None or name in self.aborted, "it has no end"
        assert len(answer) <= request.max_tokens, "too long"
        behind = 0
        constrained, reasons, grammar = self.kinds[name]
        end = len(answer)
        if not constrained:
            end = len(answer)
        elif not reasons:
            end = 0
        else:
            found = self.reasoner.length(answer)
            end = len(answer) if found is None else found
        guide = grammar() if constrained else None
        before: set[int] | None = None
        for position, token in enumerate(tokens):
            if position < start:
                behind = chain(behind, token)
                continue
            sampled = drawn.get(position)
            free = position - start < end
            expected = None if free or guide is None else mask_of(guide)
            if guide is not None and guide.failed:
                break
            if expected == {token} and (sampled is None or sampled != (token, behind, expected)):
                self.entered += 1  # (a token that a step in flight drew in its place does not count)
            else:
                assert sampled is not None, f"token {position - start} was never drawn"
                was, seen, out_of = sampled
                assert was == token, f"token {position - start} is {token}, {was} was drawn"
                assert seen == behind, f"token {position - start} was drawn behind something else"
                assert out_of == expected, (
                    f"token {position - start} of {end} was drawn out of {describe(out_of)}, not {describe(expected)}"
                )
            if position == len(tokens) - 1 and not free and guide.guide.can_finish:
                before = set(guide.stops)
            if not free and guide is not None:
                assert guide.accept_tokens(name, [token]), f"token {position - start} is not allowed"
            behind = chain(behind, token)
        if name in self.aborted and reason is None:
            return
        if reason == "stop" and constrained and len(answer) > end:
            stopped = request.stop_reason is not None and before is not None and answer[-1] in before
            assert guide.is_terminated() or stopped, f"it has stopped and is not complete: {answer[end:]}"
        if reason == "error":
            failing = guide is not None and (mask_of(guide) is None or guide.failed)  # (e.g. no token is left)
            assert name in self.refused or failing, f"an error: {answer} {request.stop_reason}"

    def _logged(self) -> Any:
        return Watch(self.errors)


def mask_of(grammar: RequestGrammar) -> frozenset[int] | None:
    """The tokens that ``grammar`` allows; None if it allows all."""
    if grammar.is_terminated():
        return None
    bitmask = torch.zeros((1, WORDS), dtype=torch.int32)
    grammar.fill_bitmask(bitmask, 0)
    bits = np.unpackbits(bitmask.numpy().view(np.uint8), bitorder="little")[: len(TOKENS)]
    return None if bits.all() else frozenset(np.nonzero(bits)[0].tolist())


def describe(tokens: frozenset[int] | None) -> Any:
    """Some of the tokens, for messages."""
    return "all" if tokens is None else sorted(tokens)[:8]


def result_of(names: list[str], sampled: list[list[int]]) -> Any:
    """vLLM's ``ModelRunnerOutput``."""
    from vllm.v1.outputs import ModelRunnerOutput

    index = {name: i for i, name in enumerate(names)}
    return ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=sampled)


class Watch(logging.Handler):
    """Collects what we log as errors."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.append(self.format(record))

    def __enter__(self) -> None:
        logging.getLogger("dotllm").addHandler(self)

    def __exit__(self, *_: Any) -> None:
        logging.getLogger("dotllm").removeHandler(self)
