"""What hostile requests cost an engine's other requests: vLLM's own loop and asynchronous scheduler, without a model.

    python -m benchmarks.hostile [--requests 32] [--steps 1500] [--every 100] [--device-ms 5] [--kinds regex,dangling]

Ordinary requests, whose schemas are known, are replaced when they end. Every hundred steps (a second, if a step takes
10 ms) a hostile request arrives, with its own index that has found nothing yet. Its tokens have been drawn beforehand.
The executor is that of `engine_loop`, but each step takes the device some milliseconds, during which threads run.

The report has the milliseconds of the loop in a step, without the device's time: wall time, CPU time of the loop's
thread (which other programs disturb less), and this CPU time plus the time for which the thread waited for locks of
hostile indexes. It has them first without hostile requests, then with them.
"""

from __future__ import annotations

import argparse
import gc
import json
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks import tokens
from benchmarks.engine_loop import WARM_STEPS, Device, Engine, an_answer, configuration
from dotllm import Index, Vocabulary
from dotllm.bench import workloads

HOSTILE = {
    "regex": r"(?:[a-z]{1,99}[a-y]{1,99}[a-x]{1,99}[b-z]{1,99}){5}",
    "ambiguous": 'start: e\ne: e e e | e e | "a" | "b" | "ab" | "ba" |\n',
    "dangling": 'start: s\ns: "if " s | "if " s "else " s | "x"\n',
}
LONGEST = 150  # tokens of a hostile answer


class TimedLock:
    """The lock of an index. ``waited``: the seconds for which the engine's thread has waited for such locks."""

    waited = 0.0

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.release = lock.release

    def acquire(self) -> bool:
        if self.lock.acquire(blocking=False):
            return True
        began = time.perf_counter()
        self.lock.acquire()
        if threading.current_thread() is threading.main_thread():
            TimedLock.waited += time.perf_counter() - began
        return True

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def hostile(kind: str, vocabulary: Vocabulary) -> Index:
    """A new index of a hostile specification."""
    make = Index.from_regex if kind == "regex" else Index.from_grammar
    index = make(HOSTILE[kind], vocabulary)
    index.lock = TimedLock(index.lock)  # type: ignore[assignment]
    return index


def endless(kind: str, vocabulary: Vocabulary, eos: int, random: np.random.Generator) -> list[int]:
    """Tokens of an answer that does not end."""
    if kind == "dangling":
        return (vocabulary.encode(b"if ") * LONGEST)[:LONGEST]
    guide, answer = hostile(kind, vocabulary).guide(), list[int]()
    while len(answer) < LONGEST:
        allowed = np.flatnonzero(np.unpackbits(guide.index.masks[guide.mask_row].view(np.uint8), bitorder="little"))
        answer.append(int(random.choice(allowed[allowed != eos])))
        guide.advance(answer[-1])
    return answer


class SlowDevice(Device):
    """An executor whose steps take time. Tokens that are dropped are sampled again."""

    step_s = 0.0
    requests: Mapping[str, Any]
    """the scheduler's requests, by name"""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[str, list[int]] = {}
        """the tokens of hostile requests"""

    def sample_tokens(self, grammar_output: Any, non_block: bool) -> Any:
        """The results of the step."""
        before = np.array((time.perf_counter(), time.thread_time()))
        time.sleep(self.step_s)
        for name in self.drawn.keys() & self.names:
            if name in self.requests:
                self.answers[name] = iter(self.drawn[name][self.requests[name].num_output_tokens :])
        self.seconds += np.array((time.perf_counter(), time.thread_time())) - before
        return super().sample_tokens(grammar_output, non_block)


def percentiles(seconds: Any) -> dict[str, float]:
    """Percentiles in milliseconds."""
    found = np.percentile(np.array(seconds) * 1e3, [50, 99, 99.9, 100]).round(2).tolist()
    return dict(zip(("p50", "p99", "p99.9", "max"), found, strict=True))


def run(engine: Engine, steps: int, every: int, newcomers: Iterator[Any]) -> dict[str, Any]:
    """Run ``steps`` steps, with a newcomer every ``every`` steps."""
    engine.times.clear()
    came, waits = set[str](), list[float]()
    for number in range(steps):
        if number % every == every - 1:
            index, answer = next(newcomers)
            known, engine.answers = engine.answers, [(index, answer)]
            longest, engine.options.max_tokens = engine.options.max_tokens, len(answer)
            before = {*engine.scheduler.requests}
            engine.add()
            engine.answers, engine.options.max_tokens = known, longest
            (name,) = {*engine.scheduler.requests} - before
            came.add(name)
            engine.device.drawn[name] = answer
        engine.live = len(engine.scheduler.requests.keys() - came)
        TimedLock.waited = 0.0
        engine.step(measure=True)
        waits.append(TimedLock.waited)
    clock, thread = np.array(engine.times).T
    return {
        "steps": len(waits),
        "hostile requests": len(came),
        "of which are left": len(came & engine.scheduler.requests.keys()),
        "clock": percentiles(clock),
        "thread": percentiles(thread),
        "thread and locks": percentiles(thread + np.array(waits)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--every", type=int, default=100, help="steps from one hostile request to the next")
    parser.add_argument("--device-ms", type=float, default=5.0)
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--kinds", default=",".join(HOSTILE))
    options = parser.parse_args()
    options.fresh = False

    from dotllm.cli import vllm_metadata
    from dotllm.device_masks.sender import RowSender
    from dotllm.vllm_plugin import register

    vllm_metadata.patch_version()
    register()
    config = configuration(4 * options.requests)
    vocabulary = tokens.load()
    ours = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
    indexes = [Index.from_json_schema(c.value, ours, any_whitespace=False) for c in workloads.load("closed")]
    random = np.random.default_rng(0)
    chosen = [indexes[number % len(indexes)] for number in range(2 * options.requests)]
    answers = [(index, an_answer(index, vocabulary.eos, options.max_tokens, random)) for index in chosen]
    kinds = options.kinds.split(",")
    drawn = {kind: endless(kind, ours, vocabulary.eos, random) for kind in kinds}
    newcomers = ((hostile(kind, ours), drawn[kind]) for kind in cycle(kinds))
    engine = Engine("constrained", config, config.scheduler_config.get_scheduler_cls(), answers, options)
    engine.device = engine.core.model_executor = SlowDevice()
    engine.device.step_s, engine.device.requests = options.device_ms / 1e3, engine.scheduler.requests
    engine.scheduler.structured_output_manager.backend.step_masks = RowSender(indexes[0].space)
    for _ in range(WARM_STEPS):
        engine.step(measure=False)
    gc.collect()
    gc.freeze()  # as vLLM's engine core does
    alone = run(engine, options.steps // 2, options.steps, newcomers)
    found = run(engine, options.steps, options.every, newcomers)
    print(json.dumps({"alone": alone, "with hostile requests": found}, indent=1))


if __name__ == "__main__":
    main()
