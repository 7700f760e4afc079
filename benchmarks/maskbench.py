"""MaskBench's open half through every engine, each schema in a watched process (``make bench-maskbench``).

Data: ``maskbench-open.jsonl.gz`` (guidance-ai/jsonschemabench). Engines take turns schema by schema, so that other
load on the machine affects all alike. Results are written line by line, and a second run continues where the first
stopped, unless the engine's version, settings or (dotllm) sources have changed.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib
import importlib.metadata
import json
import os
import queue
import random
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks import maskbench_report, maskbench_worker
from benchmarks.adapters.base import Options
from benchmarks.isolation import Isolated, Outcome
from benchmarks.tokens import SHARED

DATA = SHARED / "data" / "maskbench-open.jsonl.gz"
RESULTS = Path(__file__).parent / "results"
SOURCES = Path(__file__).parent.parent / "src" / "dotllm"
SEED = 20261121

Record = dict[str, Any]


def read(path: Path, sample: int = 0, only: str = "") -> list[Record]:
    """The data set, or a fixed random sample of it; ``only`` keeps names that contain it."""
    with gzip.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    rows = [row for row in rows if only in row["name"]]
    return random.Random(SEED).sample(rows, sample) if 0 < sample < len(rows) else rows


def identity(engine: str) -> str:
    """What results depend on: the library's version, or for dotllm a hash of the engine's sources."""
    if not engine.startswith("dotllm"):
        return importlib.metadata.version(engine)
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*.py")):
        if not {"vllm_plugin", "cli", "bench", "demo"} & set(path.relative_to(SOURCES).parts):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Ledger:
    """One engine's results file: a header line, then a line per schema."""

    def __init__(self, path: Path, header: Record) -> None:
        self.path = path
        self.records: dict[str, Record] = {}
        self.lock = threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        if lines and json.loads(lines[0]) == header:
            self.records = {row["name"]: row for row in map(json.loads, lines[1:])}
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(header) + "\n")

    def add(self, record: Record) -> None:
        """Append one schema's record."""
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
            self.records[record["name"]] = record


def record_of(row: Record, outcome: Outcome) -> Record:
    """The record of an outcome, whether the schema was judged or not."""
    if outcome.kind == "done":
        record: Record = outcome.value
        return record
    return {"name": row["name"], "verdict": outcome.kind, "reason": outcome.value, "wrong": []}


def compile_kernels(engines: Iterable[str]) -> None:
    """Compile the kernels here, once per machine. A worker that compiled them at its start would have the peak memory
    of a compiler. (Machine code is kept on disk.)"""
    if any(engine.startswith("dotllm") for engine in engines):
        for module in ("dotllm.api", "dotllm.languages.json_schema.build"):
            importlib.import_module(module)


def run(rows: list[Record], ledgers: dict[str, Ledger], options: argparse.Namespace) -> None:
    """All (schema, engine) pairs not yet in the ledgers, on ``--jobs`` cores."""
    tasks: queue.SimpleQueue[tuple[Record, str]] = queue.SimpleQueue()
    todo = [(row, name) for row in rows for name in ledgers if row["name"] not in ledgers[name].records]
    for task in todo:
        tasks.put(task)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    cores = sorted(os.sched_getaffinity(0))
    failures: list[BaseException] = []

    with Progress(*columns) as progress:
        bar = progress.add_task("schemas × engines", total=len(todo))

        def work(core: int | None) -> None:
            workers = {
                name: Isolated(
                    maskbench_worker.start,
                    (name, Options()),
                    seconds=options.time_limit,
                    memory_bytes=options.memory_limit << 20,
                    core=core,
                )
                for name in ledgers
            }
            try:
                while not failures:
                    row, name = tasks.get_nowait()
                    ledgers[name].add(record_of(row, workers[name].ask(row)))
                    progress.advance(bar)
            except queue.Empty:
                pass
            except BaseException as error:
                failures.append(error)
            finally:
                for worker in workers.values():
                    worker.stop()

        threads = [
            threading.Thread(target=work, args=(cores[(options.core + i) % len(cores)] if options.core >= 0 else None,))
            for i in range(options.jobs)
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt as interrupt:
            failures.append(interrupt)
            for thread in threads:
                thread.join()
    if failures:
        raise failures[0]


def main() -> int:
    """Command line. Exit status 1 if dotllm misses a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engines", default="dotllm,dotllm-any-order,llguidance,xgrammar")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--sample", type=int, default=0, help="a fixed random sample of so many schemas; 0: all")
    parser.add_argument("--only", default="", help="schemas whose names hold this text")
    parser.add_argument("--jobs", type=int, default=1, help="workers, one core each")
    parser.add_argument("--core", type=int, default=0, help="first core to pin to; -1: none")
    parser.add_argument("--time-limit", type=float, default=60, help="seconds for a schema (set-up excluded)")
    parser.add_argument("--memory-limit", type=int, default=4096, help="MiB of resident memory of a worker")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--raw", type=Path, default=RESULTS / "raw", help="folder of the line-by-line results")
    parser.add_argument("--out", type=Path, default=RESULTS / "maskbench.json")
    options = parser.parse_args()
    rows = read(options.data, options.sample, options.only)
    names = options.engines.split(",")
    ledgers = {}
    for name in names:
        path = options.raw / f"maskbench-{name}.jsonl"
        if options.fresh:
            path.unlink(missing_ok=True)
        limits = {"time_limit": options.time_limit, "memory_limit": options.memory_limit}
        ledgers[name] = Ledger(path, {"engine": name, "identity": identity(name), **limits})
    compile_kernels(names)
    run(rows, ledgers, options)
    wanted = {row["name"] for row in rows}
    found = {name: {k: r for k, r in ledger.records.items() if k in wanted} for name, ledger in ledgers.items()}
    summary = maskbench_report.summarise(found, len(rows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(summary, indent=1, ensure_ascii=False))
    maskbench_report.show(summary)
    print(f"written: {options.out}; every record: {options.raw}")
    return int(any(not target["met"] for target in summary["targets"]))


if __name__ == "__main__":
    raise SystemExit(main())
