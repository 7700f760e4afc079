"""Would it pay to multiply only the allowed rows of the output matrix? Two measurements and an estimate.

    python -m benchmarks.experiments.selective [--schemas N] [--out FILE]

1. How many tokens does each step allow along valid instances of MaskBench's open schemas (canonical tokens, tekken)?
   A batch gains only if all of its rows have small sets, because one row with a large set needs the whole matrix. So
   batches are drawn from these steps, of any schemas and of one schema, and the unions of their sets are counted.
2. How long do the full product and the product of gathered rows take on this machine, for several shapes?
3. What would a GPU gain? Not measured: there, the product takes as long as reading the matrix (see `estimate`).

The verdict is in docs/decisions/selective-multiplication.md.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import tokens
from dotllm import Index, Vocabulary
from dotllm.errors import SpecError

SCHEMAS = tokens.SHARED / "data" / "maskbench-open.jsonl.gz"
OUT = Path(__file__).parent.parent / "results" / "selective.json"
SMALL = (1, 16, 256, 4096)
BATCHES = (1, 4, 32, 256)
DRAWS = 400
LONGEST = 400  # most tokens of an instance that are walked

# hidden size, concurrent requests; the vocabulary is tekken's
SHAPES = ((896, 1), (896, 32), (896, 256), (4096, 1), (4096, 32))
ALLOWED = (16, 256, 4096, 16384)

H200 = Path(__file__).parent.parent / "results" / "h200.json"  # unconstrained steps of these models, measured
HIDDEN = {"0.5B": 896, "8B": 4096}
BANDWIDTH = 4.8e12  # bytes a second
LAUNCHES_S = 15e-6  # gather, fill and scatter: three more kernels


class Walks:
    """The mask row of each step of valid instances, by schema."""

    def __init__(self, count: int, seed: int, compact: bool) -> None:
        vocabulary = tokens.load()
        engine = Vocabulary.from_bytes(vocabulary.tokens, eos_token_ids=[vocabulary.eos])
        with gzip.open(SCHEMAS, "rt") as file:
            rows = [json.loads(line) for line in file]
        self.steps: list[list[int]] = []
        self.space: Any = None
        self._sizes: dict[int, int] = {}
        separators = (",", ":") if compact else None
        for row in random.Random(seed).sample(rows, count):
            try:
                index = Index.from_json_schema(row["schema"], engine, any_whitespace=not compact)
            except SpecError:
                continue
            self.space = index.space
            found: list[int] = []
            for test in row["tests"]:
                if test["valid"]:
                    text = json.dumps(test["data"], ensure_ascii=False, separators=separators)
                    guide = index.guide()
                    for token in [*vocabulary.encode(text)[:LONGEST], vocabulary.eos]:
                        found.append(int(guide.mask_row))
                        if not guide.advance(token):
                            break
            if found:
                self.steps.append(found)

    def bits(self, row: int) -> Any:
        """The mask of a row, as bytes."""
        return self.space.rows[row].view(np.uint8)

    def size(self, row: int) -> int:
        """How many tokens a row allows."""
        if row not in self._sizes:
            self._sizes[row] = int(np.unpackbits(self.bits(row)).sum())
        return self._sizes[row]

    def shares(self) -> dict[str, float]:
        """By each number in `SMALL`: the share of steps that allow at most so many tokens."""
        sizes = np.array([self.size(row) for steps in self.steps for row in steps])
        return {str(most): round(float((sizes <= most).mean()), 4) for most in SMALL}

    def batches(self, one_schema: bool, seed: int = 0) -> dict[str, dict[str, float]]:
        """By batch size and number in `SMALL`: the share of batches whose union has at most so many tokens."""
        generator = random.Random(seed)
        every = [row for steps in self.steps for row in steps]
        found = {}
        for batch in BATCHES:
            unions = []
            for _ in range(DRAWS):
                chosen = set(generator.choices(generator.choice(self.steps) if one_schema else every, k=batch))
                if max(map(self.size, chosen)) > SMALL[-1]:
                    unions.append(self.space.words * 32)
                else:
                    unions.append(int(np.unpackbits(np.bitwise_or.reduce([self.bits(row) for row in chosen])).sum()))
            found[str(batch)] = {str(most): round(float(np.mean(np.array(unions) <= most)), 4) for most in SMALL}
        return found


def _best_ms(work: Callable[[], Any], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


def products(vocabulary: int, repeats: int) -> list[dict[str, Any]]:
    """Milliseconds of the full product and of that of gathered rows, on this machine (bfloat16, as in servers)."""
    import torch

    generator = torch.Generator().manual_seed(0)
    found = []
    weights: dict[int, Any] = {}
    for hidden, batch in SHAPES:
        if hidden not in weights:
            weights = {hidden: torch.randn(vocabulary, hidden, generator=generator).to(torch.bfloat16)}
        matrix = weights[hidden]
        states = torch.randn(batch, hidden, generator=generator).to(torch.bfloat16)

        def full(states: Any = states, matrix: Any = matrix) -> Any:
            return states @ matrix.T

        point: dict[str, Any] = {"hidden": hidden, "batch": batch, "full_ms": round(_best_ms(full, repeats), 3)}
        for allowed in ALLOWED:
            ids = torch.randperm(vocabulary, generator=generator)[:allowed].sort().values

            def selected(ids: Any = ids, states: Any = states, matrix: Any = matrix) -> Any:
                logits = torch.full((len(states), vocabulary), -torch.inf, dtype=torch.bfloat16)
                logits[:, ids] = states @ matrix[ids].T
                return logits

            point[f"selected_{allowed}_ms"] = round(_best_ms(selected, repeats), 3)
        found.append(point)
    return found


def estimate(shares: dict[str, dict[str, float]], vocabulary: int) -> list[dict[str, Any]]:
    """How much shorter a step on an H200 could be at most: if all sets are small, nothing of the matrix is read.

    At these batch sizes, the product takes as long as reading the matrix once (2 bytes per weight): 32 requests need
    64 operations per weight, and the GPU can do about 200 while it reads 2 bytes.
    """
    found = []
    points = json.loads(H200.read_text())["points"]
    for model, batch in itertools.product(HIDDEN, (1, 32)):
        steps = [p["tpot_unconstrained_ms"] for p in points if (p["model"], p["concurrency"]) == (model, batch)]
        step_ms = min(step for step in steps if step)
        head = 2 * HIDDEN[model] * vocabulary / BANDWIDTH
        saved = max(0.0, head - LAUNCHES_S) * shares[str(batch)][str(SMALL[-1])]
        found.append({
            "model": model, "batch": batch, "step_ms": step_ms, "head_ms": round(head * 1e3, 3),
            "head_share": round(head * 1e3 / step_ms, 4), "saved_share": round(saved * 1e3 / step_ms, 4),
        })  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemas", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    console = Console(width=130)
    result: dict[str, Any] = {"walks": {}}
    for style in ("compact", "spaced"):
        walks = Walks(options.schemas, options.seed, style == "compact")
        result["walks"][style] = {
            "schemas": len(walks.steps),
            "steps": sum(map(len, walks.steps)),
            "share_of_steps": walks.shares(),
            "share_of_batches_mixed": walks.batches(one_schema=False),
            "share_of_batches_one_schema": walks.batches(one_schema=True),
        }
        console.print(style, result["walks"][style])
    result["products"] = products(walks.space.words * 32, options.repeats)
    table = Table(*result["products"][0])
    for point in result["products"]:
        table.add_row(*map(str, point.values()))
    console.print(table)
    result["estimate_h200"] = estimate(
        result["walks"]["compact"]["share_of_batches_one_schema"], walks.space.words * 32
    )
    console.print(result["estimate_h200"])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
