"""vLLM's own asynchronous scheduler, our kernels, and a model runner's state: an engine without a GPU.

`Runner` plays the V2 model runner: it keeps the same counts as vLLM's kernels, runs the tokens that it is told to run,
and samples at random under our masks, through vLLM's own ``sample`` with our hook in it. With ``drafter`` it
speculates: drafts stay in its own state, as on the device, and sampling verifies them. The criterion is what it has
run: at every position of a request, the model must have seen the token that the answer has there, whatever was in
flight in between.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.stand_ins import a_backend
from dotllm import Index
from dotllm.device_masks.sender import RowSender
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar
from dotllm.vllm_plugin.extra import runners
from dotllm.vllm_plugin.extra.forced_tokens import ForcedSpelling

WORDS = [b"number", b"_of", b"_items", b'":', b'{"', b'"}', b'","', b"shipping", b"_address", b"true", b"false", b"is_"]
TOKENS: list[bytes | None] = [bytes([i]) for i in range(256)] + WORDS + [None]
EOS = len(TOKENS) - 1
BLOCK = 16
STATES = 16

SCHEMA = {
    "type": "object",
    "properties": {
        "number_of_items": {"type": "integer", "minimum": 0, "maximum": 999},
        "shipping_address": {"type": "string", "maxLength": 5, "pattern": "^[a-c]*$"},
        "is_gift": {"type": "boolean"},
    },
    "required": ["number_of_items", "shipping_address", "is_gift"],
    "additionalProperties": False,
}
ANSWER = re.compile(r'\{"number_of_items":[0-9]+,"shipping_address":"[a-c]{0,5}","is_gift":(true|false)\}')


def spelt(tokens: Sequence[int]) -> str:
    """The text of ``tokens``."""
    return b"".join(TOKENS[token] or b"" for token in tokens).decode()


class Staged:
    """vLLM's ``StagedWriteTensor``: writes take effect with ``apply``."""

    def __init__(self, *size: int) -> None:
        self.gpu = torch.zeros(size, dtype=torch.int32)
        self.writes: list[tuple[int, int, list[int]]] = []

    def stage_write(self, row: int, start: int, values: list[int]) -> None:
        self.writes.append((row, start, list(values)))

    def stage_write_elem(self, row: int, value: int) -> None:
        self.writes.append((row, -1, [value]))

    def apply(self) -> None:
        for row, start, values in self.writes:
            if start < 0:
                self.gpu[row] = values[0]
            else:
                self.gpu[row, start : start + len(values)] = torch.tensor(values, dtype=torch.int32)
        self.writes.clear()


class States:
    """The used part of vLLM's ``RequestState``."""

    def __init__(self) -> None:
        self.req_id_to_index: dict[str, int] = {}
        self.free = list(range(STATES))
        self.all_token_ids = Staged(STATES, 512)
        self.total_len, self.num_computed_tokens = Staged(STATES), Staged(STATES)
        prefill = np.zeros(STATES, np.int32)
        self.prefill_len = SimpleNamespace(np=prefill, gpu=torch.from_numpy(prefill))
        self.applied = 0

    def apply_staged_writes(self) -> None:
        self.applied += 1
        for tensor in (self.all_token_ids, self.total_len, self.num_computed_tokens):
            tensor.apply()


class Runner:
    """See the module."""

    def __init__(self, seed: int) -> None:
        from vllm.v1.worker.gpu.model_runner import GPUModelRunner
        from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

        self.vllm_sample = GPUModelRunner.sample
        self.states = self.req_states = States()
        self.device = torch.device("cpu")
        self.model = SimpleNamespace(compute_logits=lambda hidden: hidden)
        self.structured_outputs_worker = object.__new__(StructuredOutputsWorker)
        self.structured_outputs_worker.mask_stride = 1
        self.batch_sharder = self.rejection_sampler = self.speculator = None
        self.most_drafts = 0
        self.drafter: Callable[[str, int], list[int]] = lambda name, length: []
        """guesses the next ``most_drafts`` tokens of a request that has so many tokens"""
        self.drafts = torch.full((STATES, 8), 5, dtype=torch.int64)  # (at first, stale drafts of another request)
        self.proposed: tuple[list[str], list[list[int]]] = ([], [])
        self.drafts_kept = self.drafts_run = 0
        self.last_sampled = torch.zeros(STATES, dtype=torch.int64)
        self.samplings = 0
        self.generator = np.random.default_rng(seed)
        self.seen: dict[str, dict[int, int]] = {}  # by request and position: the token that the model has run

    def forget(self, output: Any) -> None:
        """Free the states of requests that have ended or been preempted."""
        for name in (*output.finished_req_ids, *(output.preempted_req_ids or ())):
            if name in self.states.req_id_to_index:
                self.states.free.append(self.states.req_id_to_index.pop(name))

    def execute(self, output: Any) -> None:
        states, applied = self.states, self.states.applied
        entered = getattr(output, "dotllm_entered", None)
        if entered:
            runners.stage_v2(states, entered)
        for new in output.scheduled_new_reqs:
            state = states.req_id_to_index.pop(new.req_id, None)
            state = states.free.pop() if state is None else state
            states.req_id_to_index[new.req_id] = state
            length = len(new.prefill_token_ids)
            states.prefill_len.np[state] = length
            states.total_len.stage_write_elem(state, length)
            states.all_token_ids.stage_write(state, 0, new.prefill_token_ids)
            states.num_computed_tokens.stage_write_elem(state, new.num_computed_tokens)
        if entered or output.scheduled_new_reqs:
            states.apply_staged_writes()
        assert states.applied <= applied + 1, "vLLM keeps two buffers: one write a step"
        for name, computed in zip(
            output.scheduled_cached_reqs.req_ids, output.scheduled_cached_reqs.num_computed_tokens, strict=True
        ):
            assert int(states.num_computed_tokens.gpu[states.req_id_to_index[name]]) <= computed
        self.names = list(output.num_scheduled_tokens)
        self.counts = [output.num_scheduled_tokens[name] for name in self.names]
        drafts = output.scheduled_spec_decode_tokens
        self.draft_counts = [len(drafts.get(name, ())) for name in self.names]
        self.last_run = [
            self._run(name, count, drafts)
            for name, count, drafts in zip(self.names, self.counts, self.draft_counts, strict=True)
        ]

    def _run(self, name: str, count: int, drafts: int = 0) -> int:
        """Run the next ``count`` tokens of a request: from its list up to prefill_len, then the last sampled one, then
        ``drafts`` drafts. Returns the last of them."""
        states = self.states
        state = states.req_id_to_index[name]
        first = int(states.num_computed_tokens.gpu[state])
        prefill = int(states.prefill_len.np[state])
        drafted = first + count - drafts
        for position in range(first, first + count):
            if position >= drafted:
                token = int(self.drafts[state, position - drafted])
            elif position < prefill:
                token = int(states.all_token_ids.gpu[state, position])
            else:
                assert position == drafted - 1
                token = int(self.last_sampled[state])
            self.seen.setdefault(name, {})[position] = token
        return token

    def sample(self, grammar_output: Any) -> list[list[int]]:
        states, n = self.states, len(self.names)
        idx = [states.req_id_to_index[name] for name in self.names]
        computed, total = states.num_computed_tokens.gpu, states.total_len.gpu
        lengths = [int(computed[state]) + count for state, count in zip(idx, self.counts, strict=True)]
        sizes = [1 + drafts for drafts in self.draft_counts]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        batch = SimpleNamespace(
            req_ids=self.names, idx_mapping=torch.tensor(idx), num_reqs=n, num_draft_tokens=sum(self.draft_counts),
            num_draft_tokens_per_req=np.array(self.draft_counts, np.int32),
            seq_lens=torch.tensor(lengths, dtype=torch.int32), input_ids=torch.tensor(self.last_run, dtype=torch.int32),
            logits_indices=torch.arange(sum(sizes)), cu_num_logits=torch.from_numpy(starts.astype(np.int32)),
            expanded_local_pos=torch.cat([torch.arange(size, dtype=torch.int32) for size in sizes]),
        )  # fmt: skip
        in_prompt = [
            length - drafts < int(states.prefill_len.np[state])
            for length, drafts, state in zip(lengths, self.draft_counts, idx, strict=True)
        ]
        self.samplings += 1

        def verify(logits: Any, _: Any, __: Any = None, invalid: Any = None) -> Any:
            noise = torch.from_numpy(self.generator.gumbel(size=logits.shape))
            out = torch.full((n, max(sizes)), -1, dtype=torch.int64)
            count = torch.zeros(n, dtype=torch.int32)
            for i, (state, first) in enumerate(zip(idx, starts, strict=False)):
                for j in range(0 if in_prompt[i] else sizes[i]):
                    row, draft = logits[first + j] + noise[first + j], int(self.drafts[state, j])
                    drafted = j + 1 < sizes[i]
                    if drafted and self.generator.random() < 0.8:
                        row[draft] += 20.0  # a model that usually agrees with the draft if it may
                    token = int(row.argmax())
                    out[i, j], count[i] = token, j + 1
                    if not drafted or token != draft or (invalid is not None and bool(invalid[first + j + 1])):
                        break
            rejected = (
                torch.tensor([0 if within else size for within, size in zip(in_prompt, sizes, strict=True)]) - count
            )
            return SimpleNamespace(sampled_token_ids=out, num_sampled=count, num_rejected=rejected.int())

        self.sampler = self.rejection_sampler = verify
        self.speculator = SimpleNamespace(draft_logits=None)
        output, count, rejected = self.vllm_sample(self, torch.zeros((sum(sizes), len(TOKENS))), batch, grammar_output)
        sampled = output.sampled_token_ids
        assert not any(int(count[i]) or int(rejected[i]) for i in range(n) if in_prompt[i])
        results = []
        for i, state in enumerate(idx):
            tokens = sampled[i, : int(count[i])].tolist()
            if tokens:
                self.last_sampled[state] = tokens[-1]
                end = int(total[state]) + len(tokens)
                states.all_token_ids.gpu[state, int(total[state]) : end] = torch.tensor(tokens)
                total[state] = end
                self.drafts_run += self.draft_counts[i]
                self.drafts_kept += len(tokens) - 1
            computed[state] += self.counts[i] - int(rejected[i])
            results.append(tokens)
        self._propose(idx)
        return results

    def _propose(self, idx: list[int]) -> None:
        for name, state in zip(self.names, idx, strict=True):
            guessed = self.drafter(name, int(self.states.total_len.gpu[state]))
            self.drafts[state, : len(guessed)] = torch.tensor(guessed, dtype=torch.int64)
        self.proposed = (list(self.names), self.drafts[idx, : self.most_drafts].tolist())


class Engine:
    """vLLM's loop with one step in flight."""

    def __init__(self, vllm_config: Any, index: Index, *, seed: int, blocks: int, reasoner: Any = None) -> None:
        from vllm.v1.core.sched.async_scheduler import AsyncScheduler
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        vllm_config.cache_config.num_gpu_blocks = blocks
        manager = StructuredOutputManager(vllm_config)
        manager.reasoner_cls, manager.tokenizer = reasoner, None
        metrics = SimpleNamespace(
            add=self.count,
            step=lambda seconds, rows: self.count("dotllm_mask_rows", amount=float(rows)),
            observe=lambda *_, **__: None,
        )
        manager.backend = a_backend(
            vocabulary=index.vocabulary,
            compiler=SimpleNamespace(metrics=metrics),
        )
        manager.backend.step_masks = RowSender(index.space)
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.scheduler = vllm_config.scheduler_config.get_scheduler_cls()(
            vllm_config=vllm_config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=manager,
            block_size=BLOCK,
        )
        assert isinstance(self.scheduler, AsyncScheduler)
        self.scheduler.use_v2_model_runner = True
        self.index = index
        self.runner = Runner(seed)
        self.requests: dict[str, Any] = {}
        self.answers: dict[str, list[int]] = {}
        self.reasons: dict[str, str] = {}
        self.metrics: dict[str, float] = {}
        self.steps = self.preemptions = 0

    def count(self, *name: str, amount: float = 1.0) -> None:
        self.metrics[".".join(name)] = self.metrics.get(".".join(name), 0.0) + amount

    def add(
        self, name: str, prompt: int, pending: Future[Any] | None = None, *, first: int = 0, **parameters: Any
    ) -> Any:
        """Add a request with a prompt of ``prompt`` tokens: first, first + 1, …"""
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams
        from vllm.utils.hashing import sha256
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.request import Request

        init_none_hash(sha256)
        structured = StructuredOutputsParams(regex="a")
        structured._backend = "dotllm"
        sampling = SamplingParams(**{"max_tokens": 200, "structured_outputs": structured, **parameters})
        sampling.update_from_generation_config({}, EOS)
        request = Request(
            request_id=name, prompt_token_ids=list(range(first, first + prompt)), sampling_params=sampling, pooling_params=None,
            block_hasher=get_request_block_hasher(BLOCK, sha256),
        )  # fmt: skip
        if request.structured_output_request is not None:
            request.structured_output_request.grammar = pending or self.grammar()
        self.requests[name] = request
        self.answers[name] = []
        self.scheduler.add_request(request)
        return request

    def grammar(self) -> RequestGrammar:
        return RequestGrammar(self.index.guide(), (), self.index.vocabulary, spelling_of=ForcedSpelling.of)

    def run(self, before: dict[int, Callable[[], Any]] | None = None) -> None:
        """Run until all requests have ended. ``before``: actions by the number of the step that they precede."""
        flight: list[tuple[Any, list[str], list[list[int]]]] = []
        while self.scheduler.has_unfinished_requests() or flight:
            self.steps += 1
            (before or {}).get(self.steps, lambda: None)()
            assert self.steps < 3000, "requests do not end"
            output = self.scheduler.schedule()
            self.preemptions += len(output.preempted_req_ids or ())
            self.runner.forget(output)
            if output.total_num_scheduled_tokens:
                self.runner.execute(output)
                names = list(self.runner.names)
                if output.pending_structured_output_tokens:
                    while flight:
                        self.receive(*flight.pop(0))
                sampled = self.runner.sample(self.scheduler.get_grammar_bitmask(output))
                flight.append((output, names, sampled))
                if len(flight) < 2:
                    continue
            if flight:
                self.receive(*flight.pop(0))

    def receive(self, output: Any, names: list[str], sampled: list[list[int]]) -> None:
        from vllm.v1.outputs import ModelRunnerOutput

        index = {name: i for i, name in enumerate(names)}
        result = ModelRunnerOutput(req_ids=names, req_id_to_index=index, sampled_token_ids=sampled)
        for outputs in self.scheduler.update_from_output(output, result).values():
            for one in outputs.outputs:
                self.answers[one.request_id] += one.new_token_ids
                if one.finish_reason is not None:
                    self.reasons[one.request_id] = str(one.finish_reason)

    def text(self, name: str) -> str:
        return spelt(self.answers[name])

    def check(self, name: str) -> None:
        """At each position, the model has run the token that the request has there."""
        request, seen = self.requests[name], self.runner.seen[name]
        assert list(request.output_token_ids) == self.answers[name]
        tokens = list(request.all_token_ids)
        for position in range(len(tokens) - 1):
            if position in seen or position >= request.num_prompt_tokens:  # (cached prompts do not run)
                assert seen.get(position) == tokens[position] or self.ends_forced(position, tokens, seen), position

    @staticmethod
    def ends_forced(position: int, tokens: list[int], seen: dict[int, int]) -> bool:
        """Whether the request has ended (max_tokens) within entered text, so that the last of it has not run."""
        return all(later not in seen or later < position for later in range(position, len(tokens)))
