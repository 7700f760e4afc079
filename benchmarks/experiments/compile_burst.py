"""What a burst of new specifications costs the engine's loop, by the number of processes that compile.

Many requests arrive together, each with a new schema (`dotllm.bench.workloads`). The loop here does what a scheduler
does in a step: some Python, then a wait without the GIL.

    python -m benchmarks.experiments.compile_burst [--processes 0,2,4] [--requests 32,256] [--patience 0.25]

Prints medians of some bursts: ms until half and until all of the requests have their index, ms that the loop lost to
other work meanwhile (beyond what as many steps take alone), and compiles on threads of the loop's process.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import count, islice
from typing import Any

from benchmarks import tokens
from benchmarks.experiments.compile_and_gil import step
from dotllm import Vocabulary
from dotllm.bench import workloads
from dotllm.compilation import manager as manager_module
from dotllm.compilation.compiler import ENGINE, compile_specification
from dotllm.compilation.options import CompilationOptions
from dotllm.compilation.specification import Specification

STEP_WORK = 20_000  # iterations of plain Python: about 0.7 ms, like a step of a small model
STEP_WAIT = 0.0005


def burst(
    manager: manager_module.CompilationManager, workload: str, requests: int, salt: str, alone: float
) -> tuple[float, ...]:
    """(ms to half, ms to all, ms lost) of one burst. alone: seconds of a step without other work."""
    constraints = (one for number in count() for one in workloads.load(workload, f"{salt} {number}"))
    specifications = [Specification.create(one.kind, json.dumps(one.value)) for one in islice(constraints, requests)]
    done: list[float] = []
    steps = 0
    start = time.perf_counter()
    tickets = [manager.submit(one, transform=lambda _: done.append(time.perf_counter())) for one in specifications]
    while len(done) < requests:
        step(STEP_WORK, STEP_WAIT)
        steps += 1
    lost = time.perf_counter() - start - steps * alone
    for ticket in tickets:  # (tickets had to be kept until now)
        ticket.result(0)
    return (done[requests // 2] - start) * 1e3, (done[-1] - start) * 1e3, lost * 1e3


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", default="0,2,4")
    parser.add_argument("--requests", default="32,256")
    parser.add_argument("--workload", default="bounded")
    parser.add_argument("--bursts", type=int, default=5)
    parser.add_argument(
        "--patience", type=float, default=manager_module.OFFLOAD_PATIENCE_S, help="seconds for a process"
    )
    options = parser.parse_args()
    manager_module.OFFLOAD_PATIENCE_S = options.patience
    known = tokens.load()
    vocabulary = Vocabulary.from_bytes(known.tokens, eos_token_ids=[known.eos])
    times = []
    for _ in range(300):
        start = time.perf_counter()
        step(STEP_WORK, STEP_WAIT)
        times.append(time.perf_counter() - start)
    alone = statistics.median(times)
    here = 0

    def compile_here(specification: Specification, vocabulary: Any) -> Any:
        nonlocal here
        here += 1
        return compile_specification(specification, vocabulary)

    print(f"a step takes {alone * 1e3:.2f} ms alone\n\nprocesses  requests  half    all     lost    here")
    for processes in map(int, options.processes.split(",")):
        settings = CompilationOptions(compile_processes=processes, disk_bytes=0)
        manager = manager_module.CompilationManager(vocabulary, settings, engine=ENGINE._replace(compile=compile_here))
        manager.always_offload()
        deadline = time.monotonic() + 20 * processes
        while processes and len(manager._offload._all) < processes and time.monotonic() < deadline:
            burst(manager, options.workload, 4 * processes, f"warm {time.monotonic()}", alone)
        time.sleep(3)
        for requests in map(int, options.requests.split(",")):
            here = 0
            found = [
                burst(manager, options.workload, requests, f"{processes} {requests} {i}", alone)
                for i in range(options.bursts)
            ]
            medians = [statistics.median(values) for values in zip(*found, strict=True)]
            medians.append(here / options.bursts)
            print(f"{processes:9d} {requests:9d}" + "".join(f"{value:8.1f}" for value in medians), flush=True)
        manager.close()


if __name__ == "__main__":
    main()
