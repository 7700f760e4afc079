"""``dotllm bench-structured``: measures the cost of structured output, on a running server or on servers that it
starts.

    dotllm bench-structured --url http://localhost:8000          a server that is up (any OpenAI-compatible one)
    dotllm bench-structured --compare [--model PATH]             dotllm, xgrammar, guidance, outlines in turn
    dotllm bench-structured --ablate [--model PATH]              dotllm, also with each optimisation off in turn
    dotllm bench-structured --offline --model PATH               an engine in this process, no HTTP

Each constrained run is followed by its unconstrained twin (same prompts, same token counts); jsonschema or re judges
every finished answer. Without --model, the demo's model with random weights is made and served. vLLM flags after ``--``
go to every server that is started.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotllm.cli.subcommands import CommandParser, whole

if TYPE_CHECKING:
    from dotllm.bench.client import BenchTarget
    from dotllm.bench.plan import Plan, Point
    from dotllm.bench.servers import Variant

# Random weights would write white space until max_tokens wherever an engine allows it.
RANDOM_WEIGHTS_FLAGS = ("--structured-outputs-config.disable_any_whitespace", "true")
START_TIMEOUT_S = 900.0
MISSING = "dotllm bench-structured needs its extra: `pip install '.[bench]'` in a checkout of dotllm ({})"


def _numbers(text: str) -> list[int]:
    """The type of an argument that is a list of whole numbers."""
    return [whole(1, 4096)(number) for number in text.split(",")]


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line; the arguments after ``--`` are in ``server_flags``."""
    own, flags = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = CommandParser("bench-structured", __doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", help="measure the server at this address")
    where.add_argument("--compare", action="store_true", help="start and measure the engines one after another")
    where.add_argument("--ablate", action="store_true", help="measure dotllm, also with each optimisation off in turn")
    where.add_argument("--offline", action="store_true", help="measure an engine in this process")
    parser.add_argument("--model", help="model path or name (default: the demo model; with --url: the server's first)")
    parser.add_argument("--variants", default="", help="names of the variants to run, comma-separated (default: all)")
    parser.add_argument("--variants-file", type=Path, help="your own variants.json")
    parser.add_argument(
        "--workloads",
        default="closed,bounded,free,tools",
        help="comma-separated; also regex, choice, a JSONL file of schemas (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrency", type=_numbers, default="1,32", help="requests at once, comma-separated (default: 1,32)"
    )
    parser.add_argument("--rounds", type=int, default=1, help="how often each point is measured (default: 1)")
    parser.add_argument(
        "--per-slot", type=int, default=4, help="requests of a run, as a multiple of those at once (default: 4)"
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=0,
        help="short pairs of a run and its twin per point, for machines whose pace drifts (0: one long pair)",
    )
    parser.add_argument("--fresh", action="store_true", help="a new constraint for each request")
    parser.add_argument("--max-tokens", type=int, default=256, help="max_tokens of each answer (default: 256)")
    parser.add_argument("--schemas", type=int, default=100, help="schemas taken from a file (default: 100)")
    parser.add_argument(
        "--ttft", type=int, default=20, help="new schemas for time to first token; 0: none (default: 20)"
    )
    parser.add_argument("--endpoint", choices=("chat", "completions"), default="chat", help="API used (default: chat)")
    parser.add_argument("--key", default="none", help="API key")
    parser.add_argument("--out", type=Path, default=Path("bench-structured"), help="folder of the results")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    options = parser.parse_args(own)
    options.server_flags = flags
    return options


def main(argv: list[str]) -> int:
    """Status 0: everything was measured and every judged answer was valid; 1 otherwise; 2: bad arguments."""
    options = parse(argv)
    try:
        from dotllm.bench import report
    except ImportError as error:
        print(MISSING.format(error), file=sys.stderr)
        return 2
    from dotllm.bench.plan import Plan

    plan = Plan(
        workloads=options.workloads.split(","),
        concurrency=options.concurrency,
        rounds=options.rounds,
        per_slot=options.per_slot,
        pairs=options.pairs,
        fresh=options.fresh,
        max_tokens=options.max_tokens,
        ttft_schemas=options.ttft,
        file_schemas=options.schemas,
        seed=options.seed,
    )
    about: dict[str, Any] = {
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
        "machine": f"{platform.processor() or platform.machine()}, {platform.system()}",
        "arguments": " ".join(argv),
    }
    points: list[Point] = []
    try:
        for name, measured in _measurements(options, plan, about):
            points += [{"variant": name, **point} for point in measured]
            report.write(options.out / "results.json", about, points)
    except ValueError as error:
        print(f"dotllm bench-structured: {error}", file=sys.stderr)
        return 2
    _finish(options.out, about, points)
    failed = any(p.get("fault_count") or p.get("errors") or "skipped" in p for p in points)
    return int(failed)


def _measurements(options: argparse.Namespace, plan: Plan, about: dict[str, Any]) -> Iterator[tuple[str, list[Point]]]:
    """(variant, its points), each as soon as it is measured."""
    from dotllm.bench.client import HttpTarget, first_model
    from dotllm.bench.servers import FILE, read
    from dotllm.demo.model import make

    if options.url:
        model = options.model or asyncio.run(first_model(options.url, options.key))
        about["model"] = model
        yield options.url, _measure(options.url, plan, lambda: _http(HttpTarget, options, options.url, model))
        return
    random_weights = () if options.model else RANDOM_WEIGHTS_FLAGS
    model = options.model or str(make(options.out / "model"))
    about |= {"model": model, "server_flags": " ".join(options.server_flags)}
    if options.offline:
        from dotllm.bench.offline import EngineTarget

        async def engine() -> BenchTarget:
            return EngineTarget(model, [*random_weights, *options.server_flags])

        yield "offline", _measure("offline", plan, engine)
        return
    group = "engines" if options.compare else "ablations"
    names = [name for name in options.variants.split(",") if name]
    for variant in read(group, names, options.variants_file or FILE):
        flags = [*(random_weights if variant.compact else ()), *options.server_flags]
        yield variant.name, _serve_and_measure(variant, model, flags, options, plan)


async def _http(kind: Any, options: argparse.Namespace, url: str, model: str) -> BenchTarget:
    target: BenchTarget = kind(url, model, endpoint=options.endpoint, key=options.key)
    return target


def _serve_and_measure(
    variant: Variant, model: str, flags: Sequence[str], options: argparse.Namespace, plan: Plan
) -> list[Point]:
    from dotllm.bench.client import HttpTarget
    from dotllm.demo.server import ServerDied

    began = time.monotonic()
    with variant.start(model, options.out / f"{variant.name.replace(' ', '-')}.log", flags) as server:
        try:
            with _waiting(f"starting {variant.name}") as progress:
                server.wait(START_TIMEOUT_S, progress)
        except (ServerDied, TimeoutError) as error:
            return [{"phase": "not started", "skipped": str(error)[-600:]}]
        start_s = round(time.monotonic() - began, 2)
        points = _measure(variant.name, plan, lambda: _http(HttpTarget, options, server.url, model))
        return [*points, {"phase": "start", "start_s": start_s}]


@contextmanager
def _waiting(text: str) -> Iterator[Callable[[float], None]]:
    from rich.console import Console

    console = Console(stderr=True)
    with console.status(text) as status:
        yield lambda seconds: status.update(f"{text} … {seconds:.0f} s")


def _measure(name: str, plan: Plan, make_target: Any) -> list[Point]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from dotllm.bench.plan import Measurement

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())

    async def run(done: Callable[[], None]) -> list[Point]:
        target: BenchTarget = await make_target()
        try:
            return await Measurement(plan, target, done).run()
        finally:
            await target.close()

    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=plan.steps())
        points = asyncio.run(run(lambda: progress.advance(bar)))
        progress.update(bar, completed=plan.steps())
    return points


def _finish(folder: Path, about: dict[str, Any], points: Sequence[Point]) -> None:
    from rich.console import Console

    from dotllm.bench import report

    report.show(points)
    console = Console(width=170, record=True, file=io.StringIO())
    report.show(points, console)
    try:
        images = report.draw(points, folder)
    except ImportError as error:
        print(MISSING.format(error), file=sys.stderr)
        images = []
    report.page(folder / "report.html", about, console.export_text(), images)
    print(f"{folder / 'results.json'}, {folder / 'report.html'} and {len(images)} plots written")
