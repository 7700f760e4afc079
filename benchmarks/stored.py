"""Warmed indexes on disk: how large they are, and how long it takes to load one.

    python -m benchmarks.stored [--schemas 300]

For a random sample of MaskBench's schemas on the tekken vocabulary: compile, walk the schema's own valid test
documents through the index (which warms it), put it into a `DiskCache` as the server does, and load it ten times with
the server's code: find, verify the checksum, map, rebuild. Times are the wall and CPU time of the whole load; the file
is in the page cache, as on a machine whose replicas share a directory. The time of compiling the schema and walking
its documents is given, too. Exit status 1 if the median load takes longer than `TARGET_MS`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import statistics
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

from benchmarks import tokens
from dotllm import Vocabulary
from dotllm.compilation import CompilationOptions, Specification
from dotllm.compilation.compiler import ENGINE
from dotllm.compilation.disk import seal
from dotllm.compilation.metrics import Metrics
from dotllm.compilation.stored import StoredIndexes
from dotllm.errors import SpecError

RESULTS = Path(__file__).parent / "results" / "stored.json"
SCHEMAS = tokens.SHARED / "data" / "maskbench-open.jsonl.gz"
TARGET_MS = 5.0
LOADS = 10

Row = dict[str, Any]


def warm(index: Any, documents: list[list[int]]) -> None:
    """Find the masks of every step of every document."""
    for document in documents:
        guide = index.guide()
        for token in document:
            _ = guide.mask_row
            if not guide.advance(token):
                break
        else:
            _ = guide.mask_row


def measure(one: Row, vocabulary: Any, encode: Any, stored: StoredIndexes) -> Row | None:
    """The row of a schema; None if the schema is refused."""
    specification = Specification.from_value("json_schema", one["schema"])
    key = specification.key(b"benchmark")
    start = time.perf_counter()
    try:
        index = ENGINE.compile(specification, vocabulary)
    except SpecError:
        return None
    compiled = time.perf_counter() - start
    documents = [
        encode(json.dumps(test["data"], ensure_ascii=False)) for test in one.get("tests", ()) if test.get("valid")
    ]
    start = time.perf_counter()
    warm(index, documents)
    warmed = time.perf_counter() - start
    data = seal(index.to_bytes(), key)
    assert stored.disk.put(key, data) is not None
    walls, cpus = [], []
    for _ in range(LOADS):
        wall, cpu = time.perf_counter(), time.process_time()
        loaded = stored.from_disk(key)
        cpus.append(time.process_time() - cpu)
        walls.append(time.perf_counter() - wall)
        assert ENGINE.warmth(loaded) == ENGINE.warmth(index)
    return {
        "name": one["name"],
        "bytes": len(data),
        "deflated_bytes": len(zlib.compress(data, 1)),
        "states": ENGINE.warmth(index),
        "compile_ms": round(compiled * 1e3, 3),
        "warm_ms": round(warmed * 1e3, 3),
        "load_ms": round(statistics.median(walls) * 1e3, 3),
        "load_cpu_ms": round(statistics.median(cpus) * 1e3, 3),
    }


def summary(rows: list[Row]) -> dict[str, dict[str, float]]:
    """Percentiles of every column."""
    found = {}
    for column in ("load_ms", "load_cpu_ms", "bytes", "deflated_bytes", "compile_ms", "warm_ms"):
        values = sorted(row[column] for row in rows)
        found[column] = {
            f"p{percent}": values[min(len(values) - 1, len(values) * percent // 100)] for percent in (50, 90, 99)
        }
    return found


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", dest="number", type=int, default=300)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    with gzip.open(SCHEMAS, "rt") as file:
        schemas = [json.loads(line) for line in file]
    random.Random(3).shuffle(schemas)
    shared = tokens.load()
    vocabulary = Vocabulary.from_tokenizer(shared.encoder, eos_token_ids=shared.eos)
    vocabulary.prepare()
    with tempfile.TemporaryDirectory() as directory:
        options = CompilationOptions(cache_dir=directory)
        stored = StoredIndexes(vocabulary, ENGINE, options, Metrics(), None)
        rows = [row for one in schemas[: arguments.number] if (row := measure(one, vocabulary, shared.encode, stored))]
        stored.close()
    found = summary(rows)
    for column, figures in found.items():
        print(f"{column:<15}" + "  ".join(f"{name} {value:12,.3f}" for name, value in figures.items()))
    about = {"schemas": len(rows), "refused": arguments.number - len(rows), "target_ms": TARGET_MS}
    arguments.out.write_text(json.dumps({"about": about, "summary": found}, indent=1) + "\n")
    return int(found["load_ms"]["p50"] > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
