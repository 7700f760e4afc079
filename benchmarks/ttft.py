"""Time to first token on a live CPU server: schemas never seen, seen before, and no constraint, in turns.

    python -m benchmarks.ttft SCHEMAS.jsonl.gz [--schemas 120] [--words 400]

Starts a server on the demo model (or --model). For every schema three requests with fresh prompts of one length, in
random order, one at a time: unconstrained, new schema, the same schema again. Prints medians and their ratios; the
server's own first compile (kernels, tables) is warmed away before.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from dotllm.demo import model as demo_model
from dotllm.demo.server import Server

NAME = "demo"


def first_token(server: Server, prompt: str, schema: Any) -> float | None:
    """Seconds to the first chunk of a stream; None if the schema is refused."""
    body: dict[str, Any] = {"model": NAME, "prompt": prompt, "max_tokens": 4, "stream": True}
    if schema is not None:
        body["structured_outputs"] = {"json": schema}
    request = urllib.request.Request(
        f"{server.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    start = time.perf_counter()
    found = None
    try:
        with urllib.request.urlopen(request, timeout=300) as response:
            for line in response:
                if found is None and line.startswith(b"data: {"):
                    found = time.perf_counter() - start
    except urllib.error.HTTPError:
        return None
    return found


def run(server: Server, schemas: list[Any], words: int, wanted: int) -> dict[str, list[float]]:
    """Times by kind, for the first ``wanted`` schemas that are not refused."""
    generator = random.Random(7)
    times: dict[str, list[float]] = {"unconstrained": [], "new": [], "cached": []}

    def prompt() -> str:
        return " ".join(f"{generator.getrandbits(16):x}" for _ in range(words))

    def twice(schema: Any) -> bool:
        new = first_token(server, prompt(), schema)
        if new is None:
            return False
        times["new"].append(new)
        cached = first_token(server, prompt(), schema)
        assert cached is not None
        times["cached"].append(cached)
        return True

    def free() -> None:
        found = first_token(server, prompt(), None)
        assert found is not None
        times["unconstrained"].append(found)

    for _ in range(8):
        free()
    first_token(server, prompt(), {"type": "object", "properties": {"warm": {"type": "string", "maxLength": 5}}})
    times["unconstrained"].clear()
    for schema in schemas:
        if len(times["new"]) >= wanted:
            break
        if generator.random() < 0.5:
            free()
            twice(schema)
        elif twice(schema):
            free()
    return times


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--schemas", dest="number", type=int, default=120)
    parser.add_argument("--words", type=int, default=400)
    parser.add_argument("--model", type=Path)
    arguments = parser.parse_args()
    with gzip.open(arguments.schemas, "rt") as file:
        schemas = [json.loads(line)["schema"] for line in file]
    random.Random(3).shuffle(schemas)
    with tempfile.TemporaryDirectory() as directory:
        model = arguments.model or demo_model.make(Path(directory, "model"))
        environment = {"DOTLLM_DISK_BYTES": "0"}
        flags = ("--max-model-len", "4096")
        with Server(model, Path(directory, "log"), name=NAME, flags=flags, environment=environment) as server:
            server.wait()
            times = run(server, schemas, arguments.words, arguments.number)
    base = statistics.median(times["unconstrained"])
    for kind, found in times.items():
        quarters = statistics.quantiles(found, n=4)
        print(
            f"{kind:<14} n={len(found):<4} p25 {quarters[0] * 1e3:7.1f}  p50 {quarters[1] * 1e3:7.1f}  "
            f"p75 {quarters[2] * 1e3:7.1f} ms   p50 / unconstrained {quarters[1] / base:.3f}"
        )


if __name__ == "__main__":
    main()
