"""``dotllm bench-quality``: measures whether a server's answers are right, with a constraint and without.

    dotllm bench-quality --url http://localhost:8000 --out dotllm.json      ask a server (any OpenAI-compatible one)
    dotllm bench-quality --compare dotllm.json xgrammar.json                two runs, case by case

Questions with known answers: sets of the Berkeley Function Calling Leaderboard (from the package bfcl-eval, with its
own judge) and extractions that are made by rule. Each is asked in several ways, at temperature 0.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dotllm.cli.subcommands import CommandParser, whole

if TYPE_CHECKING:
    from dotllm.bench.quality.cases import Case

SETS = "simple_python,live_simple,multiple,parallel,irrelevance,extractions"
ARMS = "free,prompted,json_schema,tools,strict tools"
MISSING = "dotllm bench-quality needs its extra: `pip install '.[bench]'` in a checkout of dotllm ({})"


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = CommandParser("bench-quality", __doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--url", help="ask the server at this address")
    what.add_argument("--compare", nargs=2, type=Path, metavar="RUN", help="compare two runs, case by case")
    parser.add_argument("--model", help="its name there (default: the server's first)")
    parser.add_argument("--key", default="none", help="API key")
    parser.add_argument("--sets", default=SETS, help=f"comma-separated (default: {SETS})")
    parser.add_argument("--arms", default=ARMS, help=f"see docs/benchmarks.md (default: {ARMS})")
    parser.add_argument("--cases", type=whole(1, 100_000), help="the first so many of each set (default: all)")
    parser.add_argument("--concurrency", type=whole(1, 1024), default=16, help="requests at once (default: 16)")
    parser.add_argument("--max-tokens", type=whole(1, 1 << 20), default=256, help="of an answer (default: 256)")
    parser.add_argument("--extra", type=json.loads, default={}, metavar="JSON", help="merged into every request")
    parser.add_argument(
        "--closed", action="store_true", help="every object of a schema says additionalProperties: false"
    )
    parser.add_argument(
        "--root",
        type=json.loads,
        default={},
        metavar="JSON",
        help="keywords that stand at the root of every answer's schema, too (x-guidance says how JSON is written)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the extractions (default: 0)")
    parser.add_argument("--name", default="", help="what the run calls the server")
    parser.add_argument("--out", type=Path, default=Path("bench-quality.json"), help="file of the run")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """Status 0: everything was asked and answered; 1: requests failed; 2: bad arguments."""
    options = parse(argv)
    try:
        from rich.console import Console

        from dotllm.bench.quality import asking, bfcl, figures
    except ImportError as error:
        print(MISSING.format(error), file=sys.stderr)
        return 2
    console = Console(width=150)
    if options.compare:
        these, those = (json.loads(path.read_text())["answers"] for path in options.compare)
        rows = figures.comparison(these, those)
        console.print(figures.comparison_table(rows, *(path.stem for path in options.compare)))
        return 0
    try:
        cases = read_cases(options)
        chosen = asking.chosen(options.arms.split(","))
    except (ValueError, bfcl.Missing) as error:
        print(f"dotllm bench-quality: {error}", file=sys.stderr)
        return 2
    about = {"when": time.strftime("%Y-%m-%d %H:%M:%S"), "arguments": " ".join(argv), "name": options.name}
    started = time.monotonic()
    answers = ask(options, cases, chosen)
    about["wall_seconds"] = f"{time.monotonic() - started:.0f}"
    rows = figures.summary(answers)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(answer, ensure_ascii=False) for answer in answers)
    head = json.dumps({"about": about, "summary": rows}, ensure_ascii=False, indent=1)
    options.out.write_text(f'{head[:-2]},\n "answers": [\n{lines}\n]}}\n', encoding="utf-8")
    console.print(figures.table(rows, options.name))
    print(f"{options.out} written")
    return int(any(row["failed"] for row in rows))


def read_cases(options: argparse.Namespace) -> list[Case]:
    """The cases of the requested sets.

    Raises:
        ValueError: a set is unknown.
    """
    from itertools import islice

    from dotllm.bench.quality import bfcl, cases, extractions

    chosen: list[Case] = []
    for name in options.sets.split(","):
        if name == extractions.SET:
            read = extractions.cases(seed=options.seed)
        elif name in bfcl.SETS:
            read = bfcl.cases(name)
        else:
            raise ValueError(f"no set is called {name!r}; there are: {SETS}")
        chosen += islice(read, options.cases)
    if options.root:
        chosen = [replace(case, root=options.root) for case in chosen]
    return [cases.closed(case) for case in chosen] if options.closed else chosen


def ask(options: argparse.Namespace, cases: list[Case], arms: dict[str, Any]) -> list[dict[str, Any]]:
    """All answers, under a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from dotllm.bench.client import first_model
    from dotllm.bench.quality.asking import Asker

    model = options.model or asyncio.run(first_model(options.url))
    asker = Asker(options.url, model, key=options.key, max_tokens=options.max_tokens, extra=options.extra)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as progress:
        total = sum(arm.fits(case) for arm in arms.values() for case in cases)
        bar = progress.add_task(options.name or options.url, total=total)
        answers = asyncio.run(asker.ask_all(cases, arms, options.concurrency, lambda: progress.advance(bar)))
    return [answer.record() for answer in answers]
