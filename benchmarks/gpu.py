"""What a constraint costs on a GPU, compared with the same requests without one, in dotllm and in vLLM's backends.

    python -m benchmarks.gpu --model FOLDER [--engines dotllm,xgrammar,guidance] [--sets real,tools] [-- vLLM's flags]

A *burst* is a number of concurrent requests. Its *twin* follows directly: other prompts without constraints, with as
many tokens for each request. ``wall_ratio`` is the burst's time from the first request sent to the last token, divided
by its twin's: how much longer the sender of the burst waits. ``tpot_ratio`` compares times per token, which hides
stragglers. Engines take turns at every point, in several *visits*, because a shared machine's speed drifts. The first
bursts of a set have schemas that the engine has never seen (``new``: a comment in them differs in each burst); those of
later bursts are known.

Weights are random unless the flags say otherwise, so a folder with a configuration and a tokenizer is enough. A set is
one of ``benchmarks/data/gpu`` or a file with one JSON Schema per line: closed (enums, integers, booleans, patterns),
bounded (also strings of 10 to 30 characters), free (strings of any length), tools (function calls with long key
names), real (schemas of MaskBench), bfcl (functions and questions of BFCL, for a trained model, whose chat template
makes the prompts; all schemas are known; needs bfcl-eval). jsonschema judges each answer that was not cut. With
``--reasoning 30 -- --reasoning-parser deepseek_r1``, each answer follows about 30 tokens of reasoning. No schema of a
set ``once:FILE`` comes twice, as from agents. Other switches come from the environment and the flags, as in a server
(``DOTLLM_COALESCENCE=canonical``, ``--speculative-config``).

Engines with different settings need separate processes. With ``--turns FILE --together N``, such processes share one
GPU: none begins before N are ready, and each burst with its twin holds the lock on FILE (waiters get it in order).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import functools
import json
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu_engine import SharedEngine, teach_engine_core
from benchmarks.reasoning_model import END, ending_after, with_reasoning_tokens
from dotllm.bench import workloads
from dotllm.bench.client import BenchRequest
from dotllm.bench.metrics import summarise
from dotllm.bench.plan import WORDS, Pair, send, twin_of
from dotllm.bench.workloads import Constraint
from dotllm.vllm_plugin import settings

teach_engine_core()

SETS = Path(__file__).with_name("data") / "gpu"
QUESTIONS, CASES = "bfcl", 48
"""A set whose schemas come with prompts, and its number of cases."""
LONGEST = {"free": 128, "real": 160, QUESTIONS: 256}
"""Tokens at which answers are cut; 1,024 for the other sets, whose answers end on their own."""
ONCE = "once:"
"""Prefix of a file whose schemas go to a backend only once each; answers are cut like those of ``real``."""
NEW_BURST, NEW_BURSTS = 32, 3
"""Requests of a burst with new schemas, and the number of these bursts."""

FLAGS = (
    *("--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "256"),
    *("--no-enable-prefix-caching", "--gpu-memory-utilization", "0.5", "--seed", "0"),
    *("--structured-outputs-config.disable_any_whitespace", "true"),
)
GRAPHS = '{"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256]}'

Point = dict[str, Any]


def parse() -> argparse.Namespace:
    """The command line; vLLM's flags follow ``--``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--engines", default="dotllm", help="dotllm, xgrammar, guidance, outlines; comma-separated")
    parser.add_argument("--sets", default="real,tools,closed,free")
    parser.add_argument("--concurrency", default="1,32,256")
    parser.add_argument("--pairs", default="3,3,2", help="bursts of a visit, for each concurrency")
    parser.add_argument("--visits", type=int, default=2, help="how often everything is measured")
    parser.add_argument("--seconds", type=float, default=3600, help="no point is begun later than this")
    parser.add_argument("--turns", type=Path, help="a file whose lock is held for each burst and its twin")
    parser.add_argument("--together", type=int, default=1, help="processes that take turns; none begins before all")
    parser.add_argument("--reasoning", type=int, default=0, help="tokens before an answer; with a --reasoning-parser")
    parser.add_argument("--name", default="0.5B", help="what the points call the model")
    parser.add_argument("--run", default="", help="what the points call this run")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="a list of points, written as they come")
    parser.add_argument("flags", nargs="*", help="vLLM's, after --")
    return parser.parse_args()


def steps(options: argparse.Namespace) -> Iterator[tuple[int, str, int, int, bool, str]]:
    """(visit, set, concurrency, bursts, whether their schemas are new, engine), in the order of measuring."""
    engines = options.engines.split(",")
    levels = [int(text) for text in options.concurrency.split(",")]
    bursts = [int(text) for text in options.pairs.split(",")]
    for visit in range(options.visits):
        turns = engines[visit % len(engines) :] + engines[: visit % len(engines)]
        for name in options.sets.split(","):
            points = [(level, bursts[min(i, len(bursts) - 1)], False) for i, level in enumerate(levels)]
            if visit == 0 and name != QUESTIONS and not name.startswith(ONCE):
                points.insert(0, (NEW_BURST, NEW_BURSTS, True))
            for level, count, new in points:
                for engine in turns:
                    yield visit, name, level, count, new, engine


class Turns:
    """Lets one of the processes on a GPU measure at a time."""

    def __init__(self, file: Path | None, together: int) -> None:
        self.file, self.together = file, together

    async def ready(self) -> None:
        """Return when ``together`` processes have called this, or after three minutes (an engine may have failed)."""
        if self.file is None:
            return
        with self.file.open("a") as lines:
            lines.write("ready\n")
        for _ in range(180):
            if self.file.read_text().count("ready") >= self.together:
                return
            await asyncio.sleep(1)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock. (Nothing else runs in this process meanwhile, so blocking its event loop is fine.)"""
        if self.file is None:
            yield
            return
        with self.file.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


class Bursts:
    """Constrained bursts and their twins on one engine."""

    def __init__(self, target: SharedEngine, turns: Turns, model: str) -> None:
        self.target, self.turns, self.model = target, turns, model
        self.random = random.Random(0)
        self.begun = 0
        self.used: dict[tuple[str, str], int] = {}
        """How many schemas of a set a backend has been sent, by (backend, set); only for sets with `ONCE`."""
        self.warm: set[str] = set()
        """Backends that have answered all of `QUESTIONS`."""

    def prompt(self) -> str:
        """A random prompt; ASCII, so that no token is cut."""
        return " ".join(self.random.choice(WORDS) for _ in range(40))

    async def pairs(self, name: str, concurrency: int, count: int, new: bool) -> list[Pair]:
        """``count`` bursts of set ``name``, each with its twin after it. ``new``: no engine has seen their schemas."""
        if name == QUESTIONS:
            return await self.pairs_of_questions(concurrency, count)
        file, once = SETS / f"{name}.jsonl", name.startswith(ONCE)
        source = str(file) if file.exists() else name.removeprefix(ONCE)
        constraints = workloads.load(source, count=10_000 if once else 100)
        longest = LONGEST["real"] if once else LONGEST.get(Path(name).stem, 1024)
        found = []
        for _ in range(count):
            self.begun += 1  # so that single requests do not all have the same schema
            chosen = [constraints[(self.begun + i) % len(constraints)] for i in range(concurrency)]
            if new:
                chosen = [replace(one, value={**one.value, "$comment": f"{self.begun}"}) for one in chosen]
            if once:
                chosen = self.unused(name, constraints, concurrency)
            with self.turns.turn():
                burst = await send(self.target, [BenchRequest(one, self.prompt(), longest) for one in chosen])
                found.append(Pair(burst, await send(self.target, twin_of(burst.lengths, self.prompt))))
        return found

    async def pairs_of_questions(self, concurrency: int, count: int) -> list[Pair]:
        """`pairs` for `QUESTIONS`. A twin has other prompts of the same set."""
        asked, found = questions(self.model), []
        if self.target.backend not in self.warm:
            self.warm.add(self.target.backend)
            await send(self.target, asked)
        for _ in range(count):
            self.begun += 1
            burst = [asked[(self.begun + i) % len(asked)] for i in range(concurrency)]
            with self.turns.turn():
                constrained = await send(self.target, burst)
                twin = twin_of(constrained.lengths, lambda: self.random.choice(asked).prompt)
                found.append(Pair(constrained, await send(self.target, twin)))
        return found

    def unused(self, name: str, constraints: Sequence[Constraint], count: int) -> Sequence[Constraint]:
        """The next ``count`` schemas of a set that the current backend has not been sent."""
        key = self.target.backend, name
        start = self.used.get(key, 0)
        self.used[key] = start + count
        if start + count > len(constraints):
            raise SystemExit(f"set {name} has {len(constraints)} schemas, and more are asked for once")
        return constraints[start : start + count]


@functools.cache
def questions(model: str) -> list[BenchRequest]:
    """Questions of BFCL as the chat template of ``model`` writes them, each with the schema of its answer."""
    from transformers import AutoTokenizer

    from dotllm.bench.quality import bfcl
    from dotllm.bench.quality.asking import ARMS

    tokenizer = AutoTokenizer.from_pretrained(model)
    cases = [case for name in ("simple_python", "live_simple", "multiple") for case in bfcl.cases(name)]
    chosen, arm = random.Random(0).sample(cases, CASES), ARMS["json_schema"]
    prompts = [
        tokenizer.apply_chat_template(arm.messages(case), tokenize=False, add_generation_prompt=True) for case in chosen
    ]
    return [
        BenchRequest(Constraint(case.name, "json_schema", case.schema()), prompt, LONGEST[QUESTIONS])
        for case, prompt in zip(chosen, prompts, strict=True)
    ]


async def measure(options: argparse.Namespace) -> list[Point]:
    """All points; ``options.out`` always holds those measured so far."""
    target = SharedEngine(options.model, [*FLAGS, *options.flags])
    if options.reasoning:
        target.reasoning_end = END
        target.logit_bias = ending_after(options.reasoning, Path(options.model))
    bursts = Bursts(target, Turns(options.turns, options.together), options.model)
    found: list[Point] = []
    started = time.monotonic()
    try:
        await send(target, [BenchRequest(prompt=bursts.prompt(), tokens=16) for _ in range(256)])
        await bursts.turns.ready()
        for visit, name, level, count, new, engine in steps(options):
            if time.monotonic() - started > options.seconds:
                print(f"out of time before visit {visit}, {name}, {level}, {engine}")
                break
            await target.use(engine)
            about = {"model": options.name, "outputs": Path(name).stem, "concurrency": level, "engine": engine}
            about |= {
                "visit": visit,
                "new": new or name.startswith(ONCE),
                "run": options.run,
                "flags": " ".join(options.flags),
            }
            found.append(about | figures(await bursts.pairs(name, level, count, new), engine))
            print(json.dumps({key: found[-1][key] for key in SHOWN}), flush=True)
            options.out.write_text(json.dumps(found, indent=1) + "\n")
    finally:
        await target.close()
    return found


SHOWN = ("outputs", "concurrency", "engine", "visit", "new", "wall_ratio", "tpot_ratio", "speed_ratio", "valid_share")


def figures(pairs: Sequence[Pair], engine: str) -> Point:
    """Figures of one visit: ratios are medians over its pairs, except ``speed_ratio``, of tokens/s over all pairs."""
    walls = [pair.constrained.wall / pair.twin.wall for pair in pairs if pair.twin.samples]
    times = [ratio for pair in pairs if (ratio := pair.ratio()) is not None]
    constrained, twin = (
        summarise([s for pair in pairs for s in pair[side].samples], sum(pair[side].wall for pair in pairs))
        for side in (0, 1)
    )
    speed = twin["output_tokens_per_s"]
    slowest = [[max((s.first or 0.0 for s in burst.samples), default=0.0) for burst in pair] for pair in pairs]
    return {
        "coalescence": settings.value(settings.COALESCENCE) if engine == "dotllm" else "off",
        "wall_ratio": middle(walls),
        "wall_ratio_quartiles": quartiles(walls),
        "tpot_ratio": middle(times),
        "tpot_ratio_quartiles": quartiles(times),
        "speed_ratio": round(constrained["output_tokens_per_s"] / speed, 4) if speed else None,
        "slowest_first_token_ratio": middle([ours / twins for ours, twins in slowest if twins]),
        "walls_s": [round(pair.constrained.wall, 4) for pair in pairs],
        "tpot_ms": constrained["tpot_ms"],
        "tpot_unconstrained_ms": twin["tpot_ms"],
        "requests": constrained["requests"],
        "failed": constrained["errors"],
        "first_errors": constrained["first_errors"],
        "tokens": constrained["output_tokens"],
        "valid_share": constrained["valid_share"],
        "judged": constrained["judged"],
        "faults": constrained["faults"][:3],
    }


def middle(ratios: Sequence[float]) -> float | None:
    """The median; None without ratios."""
    return round(statistics.median(ratios), 4) if ratios else None


def quartiles(ratios: Sequence[float]) -> list[float] | None:
    """The first and the third quartile; None for fewer than two ratios."""
    return [round(q, 4) for q in statistics.quantiles(ratios, method="inclusive")[::2]] if len(ratios) > 1 else None


def show(points: Sequence[Point]) -> None:
    """Print a line for each set, concurrency and engine: medians over its visits."""
    groups: dict[tuple[Any, ...], list[Point]] = {}
    for point in points:
        key = point["model"], point["outputs"], point["concurrency"], point["new"], point["engine"]
        groups.setdefault(key, []).append(point)
    for key, visits in sorted(groups.items()):
        line = "  ".join(f"{key} {middle([v[key] for v in visits if v[key]])}" for key in ("wall_ratio", "tpot_ratio"))
        valid = min((v["valid_share"] for v in visits if v["valid_share"] is not None), default=None)
        print(*key, line, "valid", valid, "failed", sum(v["failed"] for v in visits))


def main() -> None:
    """Measure, write, show."""
    options = parse()
    if options.reasoning:
        options.model = str(with_reasoning_tokens(Path(options.model)))
    if not any("compilation" in flag for flag in options.flags):
        options.flags += ["--compilation-config", GRAPHS]
    show(asyncio.run(measure(options)))


if __name__ == "__main__":
    main()
