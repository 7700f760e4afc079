"""What a compile costs the engine's loop: on a thread, on a thread with a shorter switch interval, in a process.

The engine core's loop is Python on one thread; a compile thread competes with it for the GIL. The loop here does what
a scheduler does in a step (some Python, then a wait of a millisecond without the GIL) and measures how much longer its
steps become while compiles run.

    python -m benchmarks.experiments.compile_and_gil TOKENIZER_DIRECTORY SCHEMAS.jsonl.gz

Prints a table, on which the decision in docs/decisions/compilation.md rests.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dotllm import Vocabulary
from dotllm.compilation.compiler import compile_specification
from dotllm.compilation.process import ProcessCompiler
from dotllm.compilation.specification import Specification

STEP_WORK = 3000  # iterations of plain Python: about a fifth of a millisecond
STEP_WAIT = 0.001


def step(work: int = STEP_WORK, wait: float = STEP_WAIT) -> None:
    """One step of an engine's loop. work: iterations of plain Python; wait: seconds."""
    total = 0
    for number in range(work):
        total += number
    time.sleep(wait)


def measure(seconds: float) -> np.ndarray[Any, Any]:
    """Durations of steps, in ms."""
    found = []
    end = time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        step()
        found.append(time.perf_counter() - start)
    return np.array(found) * 1e3


@contextmanager
def beside(work: Callable[[], None], threads: int) -> Iterator[list[int]]:
    """Repeat ``work`` on threads; yields a counter of how often it was done."""
    stop = threading.Event()
    done = [0]

    def loop() -> None:
        while not stop.is_set():
            work()
            done[0] += 1

    running = [threading.Thread(target=loop, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    yield done
    stop.set()
    for thread in running:
        thread.join()


def openapi(size: int) -> str:
    """A schema of about ``size`` characters: many definitions that refer to each other."""
    definitions: dict[str, Any] = {}
    length = 0
    while length < size:
        number = len(definitions)
        definitions[f"Type{number}"] = body = {
            "type": "object",
            "description": "A part of a large interface. " * 3,
            "properties": {
                "id": {"type": "string", "format": "uuid"},
                f"name{number}": {"type": "string", "maxLength": 80},
                "count": {"type": "integer", "minimum": 0, "maximum": 1000 + number},
                "kind": {"enum": [f"{number}-{letter}" for letter in "abcdefgh"]},
                "next": {"$ref": f"#/$defs/Type{max(0, number - 1)}"},
                "tags": {"type": "array", "items": {"type": "string", "pattern": f"^[a-z]{{1,{number % 9 + 2}}}$"}},
            },
            "required": ["id", "kind"],
        }
        length += len(json.dumps(body))
    last = len(definitions) - 1
    return json.dumps({"$ref": f"#/$defs/Type{last}", "$defs": definitions})


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--seconds", type=float, default=4.0)
    arguments = parser.parse_args()
    from tokenizers import Tokenizer

    tokenizer_json = gzip.decompress((arguments.tokenizer / "tokenizer.json.gz").read_bytes()).decode()
    vocabulary = Vocabulary.from_tokenizer(Tokenizer.from_str(tokenizer_json), eos_token_ids=2)
    with gzip.open(arguments.schemas, "rt") as file:
        typical = [json.dumps(json.loads(line)["schema"]) for _, line in zip(range(400), file, strict=False)]
    usable: list[Specification] = []
    costs = []
    for text in typical:
        specification = Specification.create("json_schema", text)
        start = time.perf_counter()
        try:
            compile_specification(specification, vocabulary)
        except ValueError:
            continue
        costs.append((time.perf_counter() - start) * 1e3)
        usable.append(specification)
    median, slow = np.median(costs), np.quantile(costs, 0.99)
    print(f"typical: {len(usable)} schemas, first compile p50 {median:.2f} ms, p99 {slow:.1f} ms")
    monsters = {}
    for size in (1 << 15, 1 << 17, 1 << 20):
        monsters[size] = Specification.create("json_schema", openapi(size))
        start = time.perf_counter()
        try:
            compile_specification(monsters[size], vocabulary)
            print(f"large schema of {size >> 10} KiB: {(time.perf_counter() - start) * 1e3:.0f} ms")
        except ValueError as error:
            print(f"large schema of {size >> 10} KiB: {(time.perf_counter() - start) * 1e3:.0f} ms: {error}")

    turn = iter(range(1 << 60))
    interval = sys.getswitchinterval()
    print(f"\n{'beside the loop':<44} {'p50':>7} {'p99':>7} {'max':>7} ms/step   compiles/s")

    def row(name: str, work: Callable[[], None] | None, threads: int = 1, switch: float = interval) -> None:
        sys.setswitchinterval(switch)
        try:
            if work is None:
                found, rate = measure(arguments.seconds), 0.0
            else:
                with beside(work, threads) as done:
                    found = measure(arguments.seconds)
                    rate = done[0] / arguments.seconds
        finally:
            sys.setswitchinterval(interval)
        p50, p99 = np.quantile(found, [0.5, 0.99])
        print(f"{name:<44} {p50:7.2f} {p99:7.2f} {found.max():7.2f}            {rate:8.1f}", flush=True)

    def small() -> None:
        compile_specification(usable[next(turn) % len(usable)], vocabulary)

    def large(size: int) -> Callable[[], None]:
        def work() -> None:
            with suppress(ValueError):
                compile_specification(monsters[size], vocabulary)

        return work

    row("nothing", None)
    for switch in (interval, 0.001, 0.0002):
        row(f"typical on a thread, interval {switch * 1e3:g} ms", small, 1, switch)
    row("typical on 2 threads", small, 2)
    for switch in (interval, 0.001, 0.0002):
        row(f"1 MiB on a thread, interval {switch * 1e3:g} ms", large(1 << 20), 1, switch)
    row("1 MiB on 2 threads", large(1 << 20), 2)
    compiler = ProcessCompiler(vocabulary, processes=1, timeout=60, memory=2 << 30)
    never = threading.Event()
    for name, specification in (("32 KiB", monsters[1 << 15]), ("1 MiB", monsters[1 << 20])):

        def far(specification: Specification = specification) -> None:
            with suppress(ValueError):
                compiler.compile(specification, never)

        start = time.perf_counter()
        far()
        print(f"{name} in a process: first {time.perf_counter() - start:.2f} s")
        row(f"{name} in a process", far)
    compiler.close()
    row("nothing", None)


if __name__ == "__main__":
    main()
