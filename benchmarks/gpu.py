"""What a constrained token costs on a GPU, over an unconstrained one, beside vLLM's own backends in the same engine.

    python -m benchmarks.gpu --model FOLDER [--engines dotllm,xgrammar,guidance] [--sets closed,free] -- [vLLM flags]

Weights are random unless the flags say otherwise, so a folder with a configuration and a tokenizer is enough. Points
are short pairs (`dotllm.bench.pairs`), or closed loops with ``--pairs 0``; each answer that ended by itself is judged
by jsonschema. They have the form of those in ``benchmarks/results/h200.json``; ``--add`` puts them there. The sets are
in ``benchmarks/data/gpu``: closed (enums, integers, booleans, patterns), bounded (and strings of 10 to 30 characters),
free (strings of any length, cut at 128 tokens), tools (function calls with long key names). With ``--fresh`` each
request has a schema that nobody has seen: one of `dotllm.bench.workloads` with other names.

With ``--reasoning 30 -- --reasoning-parser deepseek_r1`` each answer comes behind some 30 tokens of reasoning.

dotllm's own switches come from the environment and the flags, as in a server (``DOTLLM_COALESCENCE=canonical``).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu_engine import SharedEngine, teach_engine_core
from benchmarks.reasoning_model import END, ending_after, with_reasoning_tokens
from dotllm.bench import report
from dotllm.bench.plan import Measurement, Plan, Point
from dotllm.vllm_plugin import settings

teach_engine_core()

SETS = Path(__file__).with_name("data") / "gpu"
RESULTS = Path(__file__).with_name("results") / "h200.json"
LONGEST = {"free": 128}
"""Tokens at which answers are cut; 1,024 for the other sets, whose answers end by themselves."""

FLAGS = (
    *("--load-format", "dummy", "--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "256"),
    *("--no-enable-prefix-caching", "--gpu-memory-utilization", "0.5", "--seed", "0"),
    *("--structured-outputs-config.disable_any_whitespace", "true"),
)
GRAPHS = '{"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256]}'


def parse() -> argparse.Namespace:
    """The command line; vLLM's flags follow ``--``."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--engines", default="dotllm", help="dotllm, xgrammar, guidance, outlines; comma-separated")
    parser.add_argument("--sets", default="closed,free,bounded,tools")
    parser.add_argument("--concurrency", default="1,32,256")
    parser.add_argument("--pairs", default="24,12,10", help="short pairs a point, for each concurrency; 0: closed loop")
    parser.add_argument("--per-slot", type=int, default=2, help="requests for each slot of a closed loop")
    parser.add_argument("--fresh", action="store_true", help="a schema that nobody has seen for each request")
    parser.add_argument("--reasoning", type=int, default=0, help="tokens before an answer; with a --reasoning-parser")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured")
    parser.add_argument("--seconds", type=float, default=3600, help="no point is begun later than this")
    parser.add_argument("--name", default="0.5B", help="what the points call the model")
    parser.add_argument("--run", default="", help="what the points call this run")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"))
    parser.add_argument("--add", action="store_true", help=f"add the points to {RESULTS.name}")
    parser.add_argument("flags", nargs="*", help="vLLM's, after --")
    return parser.parse_args()


def plans(options: argparse.Namespace) -> Iterator[tuple[str, int, str, Plan]]:
    """(set, concurrency, engine, what to measure), the engines of a point one right after another."""
    levels = [int(text) for text in options.concurrency.split(",")]
    pairs = [int(text) for text in options.pairs.split(",")]
    for name in options.sets.split(","):
        for number, level in enumerate(levels):
            for engine in options.engines.split(","):
                plan = Plan(
                    workloads=[name if options.fresh else str(SETS / f"{name}.jsonl")],
                    fresh=options.fresh,
                    concurrency=[level],
                    per_slot=options.per_slot,
                    pairs=pairs[min(number, len(pairs) - 1)],
                    max_tokens=LONGEST.get(name, 1024),
                    ttft_schemas=0,
                    seed=number,
                )
                yield name, level, engine, plan


async def measure(options: argparse.Namespace) -> list[Point]:
    """What `dotllm.bench` measured, with set and engine; written as it comes."""
    target = SharedEngine(options.model, [*FLAGS, "--structured-outputs-config.backend", "dotllm", *options.flags])
    if options.reasoning:
        target.reasoning_end = END
        target.logit_bias = ending_after(options.reasoning, Path(options.model))
    found: list[Point] = []
    started = time.monotonic()
    try:
        for repetition in range(options.rounds):
            for name, level, engine, plan in plans(options):
                if time.monotonic() - started > options.seconds:
                    print(f"out of time before {name}, {level}, {engine}")
                    return found
                await target.use(engine)
                place = {"workload": name, "concurrency": level, "variant": engine, "round": repetition}
                found += [point | place for point in await Measurement(plan, target).run()]
                print(json.dumps(of(found[-1], options)), flush=True)
                report.write(options.out, vars(options) | {"out": str(options.out)}, [of(p, options) for p in found])
    finally:
        await target.close()
    return found


def of(found: Point, options: argparse.Namespace) -> Point:
    """A point of the results file."""
    about = {"model": options.name, "outputs": found["workload"], "concurrency": found["concurrency"]}
    about |= {"engine": found["variant"], "run": options.run, "repetition": found["round"]}
    if options.fresh:
        about["fresh"] = True
    if options.reasoning:
        about["reasoning"] = options.reasoning
    if "skipped" in found:
        return about | {"skipped": found["skipped"]}
    ours = found["variant"] == "dotllm"
    twin = found["twin"]
    return about | {
        "coalescence": settings.coalescence() if ours else "off",
        "tpot_ms": found["tpot_ms"],
        "tpot_unconstrained_ms": twin["tpot_ms"],
        **{key: found.get(key) for key in ("tpot_ratio", "tpot_ratio_quartiles", "duration_ratio", "pairs")},
        "output_tokens_per_s": found["output_tokens_per_s"],
        "unconstrained_tokens_per_s": twin["output_tokens_per_s"],
        "requests": found["requests"],
        "failed": found["errors"],
        "first_errors": found["first_errors"] + found["refused"][:3],
        "tokens": found["output_tokens"],
        "ttft_new_ms": None,
        "ttft_cached_ms": None,
        "valid_share": found["valid_share"],
        "checked": found["judged"],
        "faults": found["faults"][:3],
        "flags": " ".join(options.flags),
    }


def main() -> None:
    """Measure, write, show."""
    options = parse()
    if options.reasoning:
        options.model = str(with_reasoning_tokens(Path(options.model)))
    if not any("compilation" in flag for flag in options.flags):
        options.flags += ["--compilation-config", GRAPHS]
    found = asyncio.run(measure(options))
    report.show(found)
    if options.add:
        stored = json.loads(RESULTS.read_text())
        report.write(RESULTS, stored["about"], stored["points"] + [of(point, options) for point in found])


if __name__ == "__main__":
    main()
