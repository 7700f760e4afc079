"""What the engine core's loop pays per step for requests that the GPU follows: the hooks alone, on a CPU, without a
model.

    python -m benchmarks.gpu_walk_steps [--requests 256] [--steps 600] [--canonical] [--profile]

The scheduler's hooks (`gpu.walk_scheduler`) run as in a server, step by step with one step in flight. In place of vLLM
and of the GPU there are stand-ins that cost next to nothing: requests are plain objects, and a "GPU" that always knows
its way draws the next token from the mask. Ended requests are replaced at once, as in a closed loop of clients.
Reported are microseconds: medians, and the mean of all of it per step; vLLM's own call for each request
(`accept_tokens`) is included. With ``--canonical`` forced text is entered into requests wherever it can
be (`pace` would decide by the clock).
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm import SamplingParams
from vllm.v1.request import RequestStatus

from benchmarks import tokens
from dotllm import Index, Vocabulary
from dotllm.bench import workloads
from dotllm.compilation.metrics import Metrics
from dotllm.index import Guide
from dotllm.vllm_plugin.engine_core.request_grammar import BitmaskView, RequestGrammar
from dotllm.vllm_plugin.gpu.walk import Walk
from dotllm.vllm_plugin.gpu.walk_scheduler import WalkScheduler
from dotllm.vllm_plugin.gpu_masks.rows import RowSender
from dotllm.vllm_plugin.jump_forward.forced_tokens import ForcedTokens

PROMPT = 40
WARM_STEPS = 300


class Request:
    """vLLM's ``Request``, as far as our hooks look at it."""

    use_structured_output = True
    is_prefill_chunk = resumable = False
    async_tokens_to_discard = num_output_placeholders = num_computed_tokens = 0
    status = RequestStatus.RUNNING
    sampling_params = SamplingParams()

    def __init__(self, name: str, grammar: Any, max_tokens: int) -> None:
        self.request_id = name
        self.max_tokens = max_tokens
        self.all_token_ids = [0] * PROMPT
        self.structured_output_request = SimpleNamespace(grammar=grammar)

    def is_finished(self) -> bool:
        """Ended requests are gone here."""
        return False

    @property
    def num_tokens(self) -> int:
        """Of the prompt and after it."""
        return len(self.all_token_ids)

    @property
    def num_output_tokens(self) -> int:
        """Of the answer, so far."""
        return len(self.all_token_ids) - PROMPT


class Base:
    """vLLM's scheduler, as far as our hooks call it."""

    def __init__(self) -> None:
        self.requests: dict[str, Any] = {}
        self.waiting: list[Any] = []
        self.max_num_running_reqs = 1 << 10

    @property
    def running(self) -> list[Any]:
        """All requests."""
        return list(self.requests.values())

    def _update_after_schedule(self, scheduled: Any) -> None:
        """vLLM counts here."""

    def update_from_output(self, scheduled: Any, output: Any) -> Any:
        """vLLM's own loop over the requests: only what it asks of a grammar."""
        for name in scheduled.num_scheduled_tokens:
            request = self.requests[name]
            drawn = output.sampled_token_ids[output.req_id_to_index[name]]
            if drawn:
                request.structured_output_request.grammar.accept_tokens(name, drawn)
                request.all_token_ids.extend(drawn)
                request.num_output_placeholders -= len(drawn)
        return None

    def _free_request(self, request: Any) -> None:
        del self.requests[request.request_id]


class Scheduler(WalkScheduler, Base):
    """Our hooks before it."""

    def __init__(self, walk: Walk, canonical: bool) -> None:
        super().__init__()
        self._walk = walk
        self._may_jump = canonical
        self._jumps.pays = lambda forced, scheduler: True  # type: ignore[method-assign]
        self._walk_of = SimpleNamespace(compiler=SimpleNamespace(metrics=Metrics()))

    def _walking(self) -> Any:
        return self._walk


class Draws:
    """What the GPU draws for each request."""

    def __init__(self, eos: int, forced: ForcedTokens | None = None) -> None:
        self.eos = eos
        self.forced = forced
        self.random = np.random.default_rng(0)
        self.guides: dict[str, Guide | None] = {}
        self.allowed: dict[tuple[int, int], Any] = {}

    def begin(self, name: str, guide: Guide | None) -> None:
        """A request; ``guide`` is its own here, None for a free one."""
        self.guides[name] = guide

    def end(self, name: str) -> None:
        """It has ended."""
        del self.guides[name]

    def draw(self, name: str) -> int:
        """A token that the mask allows: the end where it may come, else any."""
        guide = self.guides.get(name)
        if guide is None:  # free, or its end is on its way
            return int(self.random.integers(1000, 2000))
        spelt = self.forced.after(guide.index, guide.config) if self.forced is not None else ()
        if spelt:
            guide.advance(spelt[0])
            return spelt[0]
        row = guide.mask_row
        key = (row, int(guide.index.space.epoch))
        allowed = self.allowed.get(key)
        if allowed is None:
            bits = guide.index.masks[row].view(np.uint8)
            allowed = self.allowed[key] = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        token = self.eos if guide.can_finish else int(allowed[self.random.integers(len(allowed))])
        guide.advance(token)
        return token


class Bench:
    """Requests, a scheduler and a GPU that knows its way."""

    def __init__(self, workload: str, requests: int, max_tokens: int, canonical: bool) -> None:
        vocabulary = tokens.load()
        self.vocabulary = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
        self.eos = vocabulary.eos
        self.max_tokens = max_tokens
        self.indexes = [
            Index.from_json_schema(c.value, self.vocabulary, any_whitespace=False) for c in workloads.load(workload)
        ]
        space = self.indexes[0].space
        self.forced = ForcedTokens.shared() if canonical else None
        self.scheduler = Scheduler(Walk(space, RowSender(space), requests), canonical)
        self.draws = Draws(self.eos, self.forced)
        self.drawn: dict[str, int] = {}  # tokens, by request
        self.made = 0
        self.running: list[str] = []
        for _ in range(requests):
            self.add()
        self.flight: list[tuple[Any, Any]] = []
        self.times: dict[str, list[int]] = {}

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Times what is inside."""
        start = time.perf_counter_ns()
        yield
        self.times.setdefault(what, []).append(time.perf_counter_ns() - start)

    def add(self) -> None:
        index = self.indexes[self.made % len(self.indexes)]
        name = f"chatcmpl-{self.made:032x}"
        self.made += 1
        grammar = RequestGrammar(index.guide(), (), self.vocabulary, BitmaskView(), self.forced)
        self.scheduler.requests[name] = Request(name, grammar, self.max_tokens)
        self.draws.begin(name, index.guide())
        self.drawn[name] = 0
        self.running.append(name)

    def step(self) -> None:
        names = list(self.running)
        requests = self.scheduler.requests
        counts = {n: (r := requests[n]).num_tokens + r.num_output_placeholders - r.num_computed_tokens for n in names}
        scheduled = SimpleNamespace(
            num_scheduled_tokens=counts, total_num_scheduled_tokens=sum(counts.values()),
            has_structured_output_requests=True,
            pending_structured_output_tokens=True, scheduled_new_reqs=[],
            scheduled_cached_reqs=SimpleNamespace(resumed_req_ids=set()),
        )  # fmt: skip
        for name, count in counts.items():
            requests[name].num_computed_tokens += count
            requests[name].num_output_placeholders += 1
        with self.timed("before the step"):
            self.scheduler._update_after_schedule(scheduled)
            self.scheduler.get_grammar_bitmask(scheduled)
        for name in names:
            self.drawn[name] += 1
        output = SimpleNamespace(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[[self.draws.draw(name)] for name in names],
        )  # fmt: skip
        self.flight.append((scheduled, output))
        if len(self.flight) == 2:
            self.receive()

    def receive(self) -> None:
        scheduled, output = self.flight.pop(0)
        here = [n for n in output.req_ids if n in self.scheduler.requests]
        scheduled.num_scheduled_tokens = dict.fromkeys(here, 1)
        with self.timed("after it"):
            self.scheduler.update_from_output(scheduled, output)
        for name in here:
            tokens = output.sampled_token_ids[output.req_id_to_index[name]]
            if not tokens:  # known before
                continue
            in_flight = 1 if self.flight and name in self.flight[0][1].req_id_to_index else 0
            for token in tokens[1 + in_flight :]:  # entered
                self.draws.guides[name].advance(token)
                self.drawn[name] += 1
            token = tokens[0]
            if token == self.eos or self.drawn[name] > self.max_tokens:
                request = self.scheduler.requests[name]
                with self.timed("an end"):
                    self.scheduler._free_request(request)
                self.running.remove(name)
                self.draws.end(name)
                del self.drawn[name]
                self.add()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--workloads", default="closed,free,tools")
    parser.add_argument("--canonical", action="store_true")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    for workload in options.workloads.split(","):
        bench = Bench(workload, options.requests, options.max_tokens, options.canonical)
        for _ in range(WARM_STEPS):
            bench.step()
        bench.times, made = {}, bench.made
        profile = cProfile.Profile()
        if options.profile:
            profile.enable()
        for _ in range(options.steps):
            bench.step()
        if options.profile:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats("vllm_plugin", 30)
        print(
            json.dumps({
                "workload": workload,
                "requests": options.requests,
                "canonical": options.canonical,
                "us_median": {what: round(statistics.median(t) / 1e3, 1) for what, t in bench.times.items()},
                "us_mean_per_step": round(sum(map(sum, bench.times.values())) / options.steps / 1e3, 1),
                "new_requests_per_step": round((bench.made - made) / options.steps, 2),
                **bench.scheduler._walk.describe(),
            })
        )  # fmt: skip


if __name__ == "__main__":
    main()
