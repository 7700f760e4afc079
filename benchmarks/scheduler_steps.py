"""What the engine core pays per step, speculation included: vLLM's own scheduler with our hooks, without a model.

    python -m benchmarks.scheduler_steps [--requests 1,32,256] [--workloads closed,free] [--asynchronous] [--profile]

Scheduling is synchronous with vLLM's n-gram proposer (at most three drafts), or asynchronous without drafts
(``--asynchronous``). The model and the device are stand-ins whose time does not count: each request gets a random token
of its mask (the end token only if it is drawn or nothing else is allowed), and drafts are verified against such tokens.
Finished requests are replaced immediately. The twin runs the same requests without constraints, each as long as its
constrained one, on its own scheduler. Both take turns, so that drift in the machine's speed affects both.

The report has microseconds per step for each call of vLLM's loop (means without the slowest and fastest tenth), their
sum, and its difference from the twin's.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import tokens
from benchmarks.stand_ins import a_backend
from dotllm import Index, Vocabulary
from dotllm.bench import workloads
from dotllm.demo import model

PROMPT, LONGEST = 40, 256
DRAFTS = 3
GRAPH_TOKENS = 512  # tokens of vLLM's largest graph, if there are graphs (`draft_limit`)
TURN = 50  # steps before the twin's turn
BLOCK = 16


def engine_config(directory: Path, asynchronous: bool) -> Any:
    """vLLM's configuration for a small model with tekken's vocabulary."""
    from dotllm.cli import vllm_metadata
    from dotllm.vllm_plugin import register

    vllm_metadata.patch_version()
    register()
    from vllm.engine.arg_utils import EngineArgs

    path = model.make_with_tokenizer(directory / "model", tokens.load().source.encode(), eos_token="</s>")
    ngram = {
        "method": "ngram", "num_speculative_tokens": DRAFTS, "prompt_lookup_min": 2, "prompt_lookup_max": 4,
    }  # fmt: skip
    config = EngineArgs(
        model=str(path), max_model_len=2048, max_num_seqs=256, max_num_batched_tokens=8192, block_size=BLOCK,
        enable_prefix_caching=False, async_scheduling=asynchronous, speculative_config=None if asynchronous else ngram,
    ).create_engine_config()  # fmt: skip
    config.scheduler_config.async_scheduling = asynchronous  # (which vLLM switches off for CPUs)
    config.compilation_config.max_cudagraph_capture_size = GRAPH_TOKENS
    return config


class Loop:
    """A scheduler, requests, and the loop around them."""

    def __init__(
        self, config: Any, indexes: Sequence[Index] | None, vocabulary: Vocabulary, lengths: list[int]
    ) -> None:
        """``indexes`` is None for the twin, whose request i has ``lengths[i]`` tokens; the other loop sets them."""
        import torch
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        from dotllm.compilation.metrics import Metrics

        blocks = 256 * 40
        config.cache_config.num_gpu_blocks = blocks
        self.config = config
        self.asynchronous = bool(config.scheduler_config.async_scheduling)
        self.manager = StructuredOutputManager(config)
        self.indexes, self.vocabulary, self.lengths = indexes, vocabulary, lengths
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        self.scheduler = config.scheduler_config.get_scheduler_cls()(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=self.manager,
            block_size=BLOCK,
        )
        if indexes is not None:
            self.manager.backend = _backend(indexes[0].space, Metrics())
        self.random = np.random.default_rng(0)
        self.names: dict[str, int] = {}
        self.texts: dict[str, Any] = {}
        self.made = 0
        self.allowed: dict[int, Any] = {}
        self.slots: dict[int, Any] = {}
        self.flight: list[tuple[Any, Any]] = []
        self.times: dict[str, list[float]] = {}
        self.drafted = self.proposed = self.steps = self.new = 0
        self.proposer = None if self.asynchronous else _proposer(config)
        self.profile: cProfile.Profile | None = None

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Times the block."""
        if self.profile is not None:
            self.profile.enable()
        start = time.perf_counter()
        yield
        took = time.perf_counter() - start
        if self.profile is not None:
            self.profile.disable()
        self.times.setdefault(what, []).append(took)

    def add(self) -> None:
        """Add a request."""
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams
        from vllm.v1.request import Request

        from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

        number = self.made
        self.made += 1
        self.new += 1
        name = f"chatcmpl-{number:032x}"
        prompt = np.random.default_rng(number).integers(1000, 100000, PROMPT).tolist()
        structured = None
        longest = LONGEST
        if self.indexes is None:
            longest = (self.lengths[number] if number < len(self.lengths) else 0) or LONGEST
        else:
            structured = StructuredOutputsParams(regex="a")
            structured._backend = "dotllm"
        sampling = SamplingParams(max_tokens=longest, structured_outputs=structured, seed=1)
        sampling.update_from_generation_config({}, self.vocabulary.eos_token_ids[0])
        request = Request(
            request_id=name, prompt_token_ids=prompt, sampling_params=sampling, pooling_params=None,
        )  # fmt: skip
        if self.indexes is not None:
            index = self.indexes[number % len(self.indexes)]
            request.structured_output_request.grammar = RequestGrammar(index.guide(), (), self.vocabulary)
        text = np.zeros(2048, np.int32)
        text[:PROMPT] = prompt
        self.texts[name] = text
        self.names[name] = number
        self.scheduler.add_request(request)

    def draw(self, slot: int | None) -> int:
        """A random token of the mask in ``slot``, or any token without a mask."""
        if slot is None or slot < 0:
            return int(self.random.integers(1000, 100000))
        allowed = self.slots[slot]
        return int(allowed[self.random.integers(len(allowed))])

    def masks(self, message: Any) -> list[int]:
        """The slots of the step's positions; stores the new masks that come with them."""
        for slot, row in zip(message.new_slots.tolist(), message.new_rows, strict=True):
            self.slots[slot] = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little"))
        return list(message.slots.tolist())

    def sample(self, scheduled: Any, grammar: Any) -> Any:
        """The model's output, vLLM's ``ModelRunnerOutput``."""
        from vllm.v1.outputs import ModelRunnerOutput

        names = list(scheduled.num_scheduled_tokens)
        drafts = scheduled.scheduled_spec_decode_tokens
        slots: dict[str, list[int]] = {}
        if grammar is not None:
            flat, at = self.masks(grammar.grammar_bitmask), 0
            for name, count in zip(
                grammar.structured_output_request_ids, grammar.grammar_bitmask.counts.tolist(), strict=True
            ):
                slots[name] = flat[at : at + count]
                at += count
        sampled: list[list[int]] = []
        for name in names:
            request = self.scheduler.requests.get(name)
            if request is None or request.is_prefill_chunk:  # it has ended, or its prompt is not finished
                sampled.append([])
                continue
            own = slots.get(name)
            said: list[int] = []
            for position, drafted in enumerate([*drafts.get(name, ()), -1]):
                said.append(self.draw(own[position] if own is not None else None))
                if said[-1] != drafted:
                    break
            sampled.append(said)
        self.drafted += sum(map(len, drafts.values()))
        return ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)}, sampled_token_ids=sampled
        )

    def propose(self, scheduled: Any, output: Any) -> Any:
        """The drafts of vLLM's n-gram proposer after ``output``."""
        from vllm.v1.outputs import DraftTokenIds

        texts, ends = np.zeros((len(output.req_ids), 2048), np.int32), np.zeros(len(output.req_ids), np.int32)
        for i, (name, said) in enumerate(zip(output.req_ids, output.sampled_token_ids, strict=True)):
            request = self.scheduler.requests.get(name)
            end = request.num_tokens if request is not None else PROMPT
            if request is not None and said:
                self.texts[name][end - len(said) : end] = said
            texts[i], ends[i] = self.texts[name], end
        assert self.proposer is not None
        with self.timed("proposals"):
            found = self.proposer.propose(scheduled.num_spec_tokens_to_schedule, output.sampled_token_ids, ends, texts)
        self.proposed += sum(map(bool, found))
        return DraftTokenIds(list(output.req_ids), found)

    def update(self, scheduled: Any, output: Any) -> None:
        before = {n: r for n in output.req_ids if (r := self.scheduler.requests.get(n)) is not None}
        with self.timed("update"):
            self.scheduler.update_from_output(scheduled, output)
        for name, request in before.items():
            if request.is_finished():
                number = self.names.pop(name)
                if self.indexes is not None:
                    self.lengths[number] = request.num_output_tokens
                self.add()

    def step(self) -> None:
        """One step of the loop."""
        self.steps += 1
        if self.asynchronous:
            self._step_asynchronously()
            return
        with self.timed("schedule"):
            scheduled = self.scheduler.schedule()
        with self.timed("masks"):
            grammar = self.scheduler.get_grammar_bitmask(scheduled)
        output = self.sample(scheduled, grammar)
        self.update(scheduled, output)
        found = self.propose(scheduled, output)
        with self.timed("drafts"):
            self.scheduler.update_draft_token_ids(found)

    def _step_asynchronously(self) -> None:
        """As ``EngineCore.step_with_batch_queue``, with two steps in flight."""
        with self.timed("schedule"):
            scheduled = self.scheduler.schedule()
        deferred = scheduled.pending_structured_output_tokens
        if not deferred:
            self._launch(scheduled)
            if len(self.flight) < 2:
                return
        self.update(*self.flight.pop(0))
        if deferred:
            self._launch(scheduled)

    def _launch(self, scheduled: Any) -> None:
        with self.timed("masks"):
            grammar = self.scheduler.get_grammar_bitmask(scheduled)
        self.flight.append((scheduled, self.sample(scheduled, grammar)))


def _backend(space: Any, metrics: Any) -> Any:
    """An `EngineBackend` of this token space, without a compiler."""
    from types import SimpleNamespace

    from dotllm.device_masks.sender import RowSender

    compiler = SimpleNamespace(metrics=metrics)
    backend = a_backend(compiler=compiler)
    backend.step_masks = RowSender(space)
    return backend


def _proposer(config: Any) -> Any:
    from vllm.v1.spec_decode.ngram_proposer import NgramProposer

    return NgramProposer(config)


def trimmed(values: list[float]) -> float:
    """The mean without the lowest and the highest tenth."""
    cut = len(values) // 10
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def compare(loop: Loop, twin: Loop, requests: int, steps: int) -> dict[str, Any]:
    """Microseconds per step of both loops."""
    for one in (loop, twin):
        for _ in range(requests):
            one.add()
        if one is loop:
            for _ in range(LONGEST + 2 * TURN):  # ahead, so that the lengths of the twin's requests are known
                loop.step()
    for _ in range(TURN):
        twin.step()
    for one in (loop, twin):
        one.times, one.drafted, one.proposed, one.steps, one.new = {}, 0, 0, 0, 0
    gc.collect()
    gc.freeze()
    for _ in range(0, steps, TURN):
        for one in (loop, twin):
            for _ in range(TURN):
                one.step()
    us, free = ({what: round(trimmed(t) * 1e6, 1) for what, t in one.times.items()} for one in (loop, twin))
    return {
        "us": us,
        "twin_us": free,
        "sum": round(sum(us.values()), 1),
        "twin_sum": round(sum(free.values()), 1),
        "more": round(sum(us.values()) - sum(free.values()), 1),
        "proposals": round(loop.proposed / loop.steps, 1),
        "twin_proposals": round(twin.proposed / twin.steps, 1),
        "drafted": round(loop.drafted / loop.steps, 2),
        "new_requests": round(loop.new / loop.steps, 2),
        "twin_new_requests": round(twin.new / twin.steps, 2),
    }


class Lengths(list[int]):
    """Lengths of requests by number; unknown ones are 0."""

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, int):
            self.extend([0] * (at + 1 - len(self)))
        super().__setitem__(at, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", default="1,32,256")
    parser.add_argument("--workloads", default="closed,free")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    vocabulary = Vocabulary.from_bytes(tokens.load().tokens, eos_token_ids=[tokens.load().eos])
    with tempfile.TemporaryDirectory() as directory:
        config = engine_config(Path(directory), options.asynchronous)
        for workload in options.workloads.split(","):
            indexes = [
                Index.from_json_schema(c.value, vocabulary, any_whitespace=False) for c in workloads.load(workload)
            ]
            for requests in map(int, options.requests.split(",")):
                lengths = Lengths()
                loop, twin = (Loop(config, of, vocabulary, lengths) for of in (indexes, None))
                if options.profile:
                    loop.profile = cProfile.Profile()
                result = compare(loop, twin, requests, options.steps)
                if loop.profile is not None:
                    pstats.Stats(loop.profile).sort_stats("tottime").print_stats(25)
                print(json.dumps({"workload": workload, "requests": requests, **result}), flush=True)


if __name__ == "__main__":
    main()
