"""Time to first token over HTTP: with new schemas, with known schemas, and without a constraint, in turns.

    python -m benchmarks.ttft [--schemas 120] [--words 400] [--bursts 5] [--together 32] [--url http://127.0.0.1:8000]

Starts a CPU server with the demo model (or --model), unless --url names a running one (whose model is called "demo").
For every schema of a random sample of MaskBench, it sends three requests with fresh prompts of one length, one at a
time: with the schema as a new one, with the schema again, and without a constraint (first or last, by chance). Then
come bursts: requests sent together, each with its own new schema, and as many without one; the median and the slowest
first token count. The server's own first compile (kernels, tables) happens before. The program prints medians and
their ratios, writes them to --out, and ends with status 1 if a new schema costs more than `TARGET` allows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import sys
import tempfile
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.tokens import SHARED
from dotllm.demo import model as demo_model
from dotllm.demo.server import Server

NAME = "demo"
RESULTS = Path(__file__).parent / "results" / "ttft.json"
SCHEMAS = SHARED / "data" / "maskbench-open.jsonl.gz"
TARGET = 1.05
KINDS = ("unconstrained", "new", "cached")

Row = dict[str, Any]


def first_token(url: str, prompt: str, schema: Any) -> float | None:
    """Seconds to the first chunk of a stream; None if the schema is refused."""
    body: dict[str, Any] = {"model": NAME, "prompt": prompt, "max_tokens": 4, "stream": True}
    if schema is not None:
        body["structured_outputs"] = {"json": schema}
    request = urllib.request.Request(
        f"{url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    start = time.perf_counter()
    found = None
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            for line in response:
                if found is None and line.startswith(b"data: {"):
                    found = time.perf_counter() - start
    except urllib.error.HTTPError as error:
        if error.code != 400:
            raise
        return None
    return found


def words_of(generator: random.Random, count: int) -> str:
    """A prompt of ``count`` random words, unlike any other."""
    return " ".join(f"{generator.getrandbits(16):04x}" for _ in range(count))


def bursts(url: str, schemas: list[Row], words: int, count: int, together: int) -> list[Row]:
    """Seconds to the median and the slowest first token of ``count`` bursts of each kind, and the refused requests.

    The bursts take their schemas from the end of ``schemas``.
    """
    generator = random.Random(8)

    def first_tokens(constraints: list[Any]) -> list[float]:
        prompts = [words_of(generator, words) for _ in constraints]
        with ThreadPoolExecutor(len(constraints)) as pool:
            times = pool.map(lambda prompt, schema: first_token(url, prompt, schema), prompts, constraints)
            return [time for time in times if time is not None]

    found: list[Row] = []
    for _ in range(count):
        free = first_tokens([None] * together)
        new = first_tokens([schemas.pop()["schema"] for _ in range(together)])
        times = {"unconstrained": free, "new": new}
        one = {kind: {"median": statistics.median(all_), "slowest": max(all_)} for kind, all_ in times.items()}
        found.append({**one, "refused": together - len(new)})
    return found


def run(url: str, schemas: list[Row], words: int, wanted: int) -> tuple[list[Row], int]:
    """A row of times for each of the first ``wanted`` schemas that are not refused, and the number of refused ones."""
    generator = random.Random(7)

    def ask(schema: Any) -> float | None:
        return first_token(url, words_of(generator, words), schema)

    for _ in range(8):
        ask(None)
    ask({"type": "object", "properties": {"warm": {"type": "string", "maxLength": 5}}})
    rows: list[Row] = []
    refused = 0
    for one in schemas:
        if len(rows) == wanted:
            break
        schema, free_first = one["schema"], generator.random() < 0.5
        free = ask(None) if free_first else None
        new = ask(schema)
        if new is None:
            refused += 1
            continue
        cached = ask(schema)
        times = {"unconstrained": free if free_first else ask(None), "new": new, "cached": cached}
        rows.append({"name": one["name"], "characters": len(json.dumps(schema)), **times})
    return rows, refused


def summary(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Quartiles in ms by kind; each median also divided by the unconstrained one."""
    base = statistics.median(row["unconstrained"] for row in rows)
    found = {}
    for kind in KINDS:
        p25, p50, p75 = statistics.quantiles([row[kind] for row in rows], n=4)
        ratios = [row[kind] / row["unconstrained"] for row in rows]
        found[kind] = {
            "p25_ms": round(p25 * 1e3, 2),
            "p50_ms": round(p50 * 1e3, 2),
            "p75_ms": round(p75 * 1e3, 2),
            "p50_over_unconstrained": round(p50 / base, 4),
            "median_of_ratios": round(statistics.median(ratios), 4),
        }
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SCHEMAS)
    parser.add_argument("--schemas", dest="number", type=int, default=120)
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument("--together", type=int, default=32, help="requests of a burst")
    parser.add_argument("--url", help="of a server that runs")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with gzip.open(arguments.data, "rt") as file:
        schemas = [json.loads(line) for line in file]
    random.Random(3).shuffle(schemas)
    if arguments.url:
        return report(arguments, arguments.url, schemas)
    with tempfile.TemporaryDirectory() as directory:
        model = arguments.model or demo_model.make(Path(directory, "model"))
        environment = {"DOTLLM_DISK_BYTES": "0"}
        flags = ("--max-model-len", "4096")
        with Server(model, Path(directory, "log"), name=NAME, flags=flags, environment=environment) as server:
            server.wait()
            return report(arguments, server.url, schemas)


def report(arguments: argparse.Namespace, url: str, schemas: list[Row]) -> int:
    """Measure, print, write; return the exit status."""
    rows, refused = run(url, schemas, arguments.words, arguments.number)
    together = bursts(url, schemas, arguments.words, arguments.bursts, arguments.together)
    found = summary(rows)
    for kind, figures in found.items():
        print(f"{kind:<14}" + "  ".join(f"{name} {value:8.3f}" for name, value in figures.items()))
    print(f"{len(rows)} schemas, {refused} more were refused")
    for which in ("median", "slowest") if together else ():
        ratio = statistics.median(row["new"][which] / row["unconstrained"][which] for row in together)
        print(f"{arguments.together} at once, {which} first token, new over unconstrained: median {ratio:.3f}")
    about = {
        "cpus": os.cpu_count(),
        "words": arguments.words,
        "schemas": len(rows),
        "refused": refused,
        "target": TARGET,
    }
    arguments.out.write_text(json.dumps({"about": about, "summary": found, "bursts": together}, indent=1) + "\n")
    return int(found["new"]["p50_over_unconstrained"] > TARGET)


if __name__ == "__main__":
    sys.exit(main())
