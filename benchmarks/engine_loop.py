"""What the engine core's loop costs with and without us: vLLM's own loop and asynchronous scheduler, on a CPU, without
a model.

    python -m benchmarks.engine_loop [--requests 1] [--steps 2000] [--workload closed] [--fresh] [--profile free]

Three engines take turns of a few steps, so that other load on the machine affects all of them alike:

 * vllm: without our scheduler, unconstrained requests;
 * free: with everything of ours, as in a server, unconstrained requests;
 * constrained: the same with constraints; each step's masks are rows of the table on the device (`gpu_masks`).

The executor is a stand-in, `Device`, whose time does not count. Its answers were drawn beforehand from the masks of
constrained requests; free requests get the same ones, so that lengths are equal. Everything else that
``EngineCore.step_with_batch_queue`` does in a step counts. Finished requests are replaced between steps, as in a closed
loop of clients. Making the new ones does not count, but the next step's work on them does.
The report has microseconds per step: medians, and means without the slowest hundredth (outliers of the machine), in
wall time and in CPU time of the loop's thread, which other programs on the machine disturb less.
After the timed steps, it also counts the function calls in a step, which do not depend on the machine's load.
With ``--fresh``, each constrained request has an index that has found nothing yet, as for a new schema.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import queue
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from itertools import chain, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks import tokens
from benchmarks.stand_ins import a_backend
from dotllm import Index, Vocabulary
from dotllm.bench import workloads
from dotllm.compilation.metrics import Metrics
from dotllm.vllm_plugin.enforce.request_grammar import RequestGrammar

PROMPT = 40
BLOCK = 16
WARM_STEPS = 300
TURN = 20  # steps of an engine before the next engine's turn
ANSWERS = 512  # number of different answers
Answer = tuple[Index, list[int]]
KINDS = ("vllm", "free", "constrained")


def clocks() -> Any:
    """Wall time and this thread's CPU time, in seconds."""
    return np.array((time.perf_counter(), time.thread_time()))


class Device:
    """The part of vLLM's executor that the loop calls."""

    max_concurrent_batches = 2

    def __init__(self) -> None:
        self.answers: dict[str, Iterator[int]] = {}
        self.seconds = np.zeros(2)

    def execute_model(self, output: Any, non_block: bool) -> Any:
        """Launch a step. (Only a step without tokens has results already.)"""
        from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT

        self.names = list(output.num_scheduled_tokens)
        if self.names:
            return None
        result: Future[Any] = Future()
        result.set_result(EMPTY_MODEL_RUNNER_OUTPUT)
        return result

    def sample_tokens(self, grammar_output: Any, non_block: bool) -> Any:
        """The results of the step, which are made when they are asked for, as executors do."""
        return SimpleNamespace(result=partial(self._results, self.names))

    def _results(self, names: list[str]) -> Any:
        from vllm.v1.outputs import ModelRunnerOutput

        began = clocks()
        output = ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[next(self.answers[name])] for name in names],
        )
        self.seconds += clocks() - began
        return output


class Engine:
    """vLLM's engine core without a model."""

    def __init__(self, kind: str, config: Any, scheduler_class: Any, answers: list[Answer], options: Any) -> None:
        import torch
        from vllm.v1.engine.core import EngineCore
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
        from vllm.v1.structured_output import StructuredOutputManager

        self.kind, self.answers, self.options = kind, answers, options
        manager = StructuredOutputManager(config)
        manager.backend = a_backend(
            compiler=SimpleNamespace(metrics=Metrics()),
        )
        spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=8, dtype=torch.float32)
        blocks = config.cache_config.num_gpu_blocks
        self.scheduler = scheduler_class(
            vllm_config=config,
            kv_cache_config=KVCacheConfig(blocks, [], [KVCacheGroupSpec(["layer"], spec)]),
            structured_output_manager=manager,
            block_size=BLOCK,
        )
        self.scheduler.use_v2_model_runner = True
        self.device = Device()
        self.core = object.__new__(EngineCore)
        vars(self.core).update(
            vllm_config=config, scheduler=self.scheduler, structured_output_manager=manager,
            model_executor=self.device, batch_queue=deque(maxlen=2), batch_queue_size=2, is_mm_encoder_only=False,
            is_pooling_model=False, aborts_queue=queue.Queue(), log_stats=False, check_for_draft_tokens=False,
            _weight_version=None,
        )  # fmt: skip
        self.made = self.live = 0
        self.times: list[Any] = []
        self.profile = cProfile.Profile()

    def add(self) -> None:
        """Add a new request."""
        from vllm.sampling_params import SamplingParams, StructuredOutputsParams
        from vllm.v1.request import Request

        index, answer = self.answers[self.made % len(self.answers)]
        name = f"chatcmpl-{self.made:032x}"
        constrained = self.kind == "constrained"
        if constrained and self.options.fresh:
            index = index.renewed()
        structured = StructuredOutputsParams(regex="a") if constrained else None
        if structured is not None:
            structured._backend = "dotllm"
        sampling = SamplingParams(max_tokens=self.options.max_tokens, structured_outputs=structured)
        sampling.update_from_generation_config({}, index.vocabulary.eos_token_ids[0])
        request = Request(name, [self.made % 1000] * PROMPT, sampling, None)
        if constrained:
            grammar = RequestGrammar(index.guide(), (), index.vocabulary)
            request.structured_output_request.grammar = grammar
        self.device.answers[name] = chain(answer, repeat(0))
        self.scheduler.add_request(request)
        self.made += 1
        self.live += 1

    def step(self, measure: bool, profile: bool = False) -> None:
        """One step of the loop."""
        while self.live < self.options.requests:
            self.add()
        self.device.seconds[:] = 0
        if profile:
            self.profile.enable()
        began = clocks()
        outputs, _ = self.core.step_with_batch_queue()
        took = clocks() - began - self.device.seconds
        self.profile.disable()
        if measure:
            self.times.append(took)
        for client in (outputs or {}).values():
            for output in client.outputs:
                if output.finish_reason is not None:
                    self.live -= 1

    def report(self) -> dict[str, Any]:
        """Microseconds and function calls per step."""
        times = np.sort(np.array(self.times), axis=0) * 1e6
        means = times[: len(times) * 99 // 100].mean(axis=0)
        (median, cpu_median), (mean, cpu_mean) = np.median(times, axis=0).round(1).tolist(), means.round(1).tolist()
        calls = pstats.Stats(self.profile).total_calls  # type: ignore[attr-defined]
        steps = TURN if self.kind != self.options.profile else len(self.times)
        return {
            "median": median, "mean": mean, "cpu_median": cpu_median, "cpu_mean": cpu_mean, "calls": calls // steps
        }  # fmt: skip


def an_answer(index: Index, eos: int, length: int, random: np.random.Generator) -> list[int]:
    """Random tokens that the masks allow, up to the end token; at most ``length``."""
    guide, answer = index.guide(), list[int]()
    while len(answer) < length and eos not in answer:
        allowed = np.flatnonzero(np.unpackbits(index.masks[guide.mask_row].view(np.uint8), bitorder="little"))
        token = eos if guide.can_finish else int(random.choice(allowed))
        guide.advance(token)
        answer.append(token)
    return answer


def configuration(requests: int) -> Any:
    """vLLM's configuration, with asynchronous scheduling."""
    from vllm.engine.arg_utils import EngineArgs

    from dotllm.demo import model

    with tempfile.TemporaryDirectory() as folder:
        arguments = EngineArgs(
            model=str(model.make(Path(folder) / "model")), max_model_len=512, max_num_seqs=max(16, requests),
            max_num_batched_tokens=64 * max(16, requests), enable_prefix_caching=False, block_size=BLOCK,
        )  # fmt: skip
        config = arguments.create_engine_config()
        config.model_config.skip_tokenizer_init = True  # this program makes the grammars
    config.scheduler_config.async_scheduling = True  # (which vLLM switches off for CPUs)
    config.cache_config.num_gpu_blocks = 32 * max(16, requests)
    return config


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--workload", default="closed")
    parser.add_argument("--fresh", action="store_true", help="an index for each request, which has found nothing yet")
    parser.add_argument("--profile", choices=KINDS)
    options = parser.parse_args()

    from vllm.v1.core.sched.async_scheduler import AsyncScheduler

    from dotllm.cli import vllm_metadata
    from dotllm.device_masks.sender import RowSender
    from dotllm.vllm_plugin import register

    vllm_metadata.patch_version()
    register()
    config = configuration(options.requests)
    vocabulary = tokens.load()
    ours = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
    indexes = [Index.from_json_schema(c.value, ours, any_whitespace=False) for c in workloads.load(options.workload)]
    random = np.random.default_rng(0)
    chosen = [indexes[number % len(indexes)] for number in range(ANSWERS)]
    answers = [(index, an_answer(index, vocabulary.eos, options.max_tokens, random)) for index in chosen]
    engines = [
        Engine(kind, config, AsyncScheduler if kind == "vllm" else config.scheduler_config.get_scheduler_cls(),
               answers, options)
        for kind in KINDS
    ]  # fmt: skip
    for engine in engines:
        engine.scheduler.structured_output_manager.backend.step_masks = RowSender(indexes[0].space)
        for _ in range(WARM_STEPS):
            engine.step(measure=False)
    gc.collect()
    gc.freeze()  # as vLLM's engine core does
    for _ in range(options.steps // TURN):
        for engine in engines:
            for _ in range(TURN):
                engine.step(measure=True, profile=engine.kind == options.profile)
    for engine in engines:
        for _ in range(TURN):
            engine.step(measure=False, profile=engine.kind != options.profile)
    if options.profile:
        for engine in engines:
            if engine.kind == options.profile:
                pstats.Stats(engine.profile).sort_stats("tottime").print_stats(45)
    print(
        json.dumps({
            "workload": options.workload,
            "requests": options.requests,
            "us_a_step": {engine.kind: engine.report() for engine in engines},
        })
    )  # fmt: skip


if __name__ == "__main__":
    main()
