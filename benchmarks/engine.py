"""Engines side by side in one process: compile, masks, steps, growth, threads, agreement (``make bench-engine``).

Every round sets up all engines anew, in random order, and takes the specs in random order; for each spec, the engines
take turns in random order. Single calls are measured in CPU time of this process on one core; only the thread
comparison (`benchmarks.scaling`) is in wall time, unpinned. A mask is *cold* on the first walk of a sample after
compiling, and *warm* when the same sample is walked again on the same compiled spec (as for a schema that a server
knows).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import adapters, clock, engine_report, scaling, specs, targets, tokens
from benchmarks.adapters.base import Compiled, Engine, Options, Refused, Spec
from benchmarks.agreement import Comparison
from benchmarks.histogram import Histogram
from benchmarks.walk import NotAllowed, Times, run_batch, walk

RESULTS = Path(__file__).parent / "results" / "engine.json"
COMPILE_BUDGET_S = 2.0
"""CPU seconds after which a spec is not compiled again in a round"""
BATCH = 64

Results = dict[str, Any]


class Run:
    """Samples of all rounds, by (engine, spec)."""

    def __init__(self, names: Sequence[str], vocabulary: tokens.Tokens, seed: int) -> None:
        self.names = list(names)
        self.tokens = vocabulary
        self.random = random.Random(seed)
        self.first: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.repeated: dict[tuple[str, str], list[int]] = defaultdict(list)
        self.cold: dict[tuple[str, str], Times] = defaultdict(Times)
        self.warm: dict[tuple[str, str], Times] = defaultdict(Times)
        self.batch: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        self.refused: dict[tuple[str, str], str] = {}
        self.faults: list[str] = []
        self.about: dict[str, Any] = {}

    def setup(self, options: Options, names: Sequence[str] = ()) -> list[Engine]:
        """Set up all engines (or those named), in random order. Each compiles a spec, so start-up is not timed."""
        engines = []
        for name in self.random.sample(names or self.names, len(names or self.names)):
            start = time.process_time()
            engine = adapters.load(name, self.tokens, options)
            engine.compile(Spec("warm-up", "regex", "[a-z]+")).matcher().fill()
            ready = round(time.process_time() - start, 3)
            self.about[name] = {"version": engine.version, "settings": engine.settings, "ready_cpu_s": ready}
            engines.append(engine)
        return engines

    def _compile(self, engine: Engine, spec: Spec, repeats: int) -> Compiled | None:
        """Time compile + first mask: the first of a round, then repeats. Return the last compiled spec, if any."""
        key = (engine.name, spec.name)
        spent = 0
        compiled: Compiled | None = None
        for repeat in range(repeats):
            start = clock.cpu_ns()
            try:
                compiled = engine.compile(spec)
            except Refused as error:
                self.refused[key] = str(error)
                return None
            compiled.matcher().fill()
            took = clock.cpu_ns() - start
            (self.repeated if repeat else self.first)[key].append(took)
            spent += took
            if spent > COMPILE_BUDGET_S * 1e9:
                break
        return compiled

    def round(self, all_specs: Sequence[Spec], repeats: int) -> None:
        """Compile and walk everything once on fresh engines, then run the batches."""
        engines = self.setup(Options())
        work: dict[str, list[tuple[Compiled, list[int]]]] = defaultdict(list)
        for spec in self.random.sample(all_specs, len(all_specs)):
            ids = [self.tokens.encode(text) for text in spec.texts]
            for engine in self.random.sample(engines, len(engines)):
                key = (engine.name, spec.name)
                with clock.quiet():
                    compiled = self._compile(engine, spec, repeats)
                if compiled is None:
                    continue
                try:
                    with clock.quiet():
                        walk(compiled.matcher(), ids[0], self.tokens.eos, self.cold[key])
                        for text in ids:
                            walk(compiled.matcher(), text, self.tokens.eos, Times())
                            walk(compiled.matcher(), text, self.tokens.eos, self.warm[key])
                except NotAllowed as error:
                    self.faults.append(f"{engine.name} rejects a sample of {spec.name!r} at {error}")
                    continue
                if wrong := self.cold[key].wrong_masks + self.warm[key].wrong_masks:
                    self.faults.append(f"{engine.name} forbids the next token of {spec.name!r} in {wrong} masks")
                if "hard" not in spec.tags:
                    work[engine.name] += [(compiled, text) for text in ids]
        for engine in self.random.sample(engines, len(engines)):
            for _ in range(2):  # the first pass finds the states of this batch that the single walks did not pass
                with clock.quiet():
                    times = run_batch(engine, work[engine.name], BATCH, steps=150)
            if times.wrong_masks:
                self.faults.append(f"{engine.name} forbids the next token in {times.wrong_masks} rows of batches")
            for what in ("fill", "fill_ids", "advance"):
                self.batch[engine.name][what] += getattr(times, what)

    def growth(self, length: int) -> list[Results]:
        """Masks, states and memory along one output of ``length`` tokens, by quarters."""
        found = []
        for engine in self.setup(Options()):
            for spec, ids in specs.long_texts(self.tokens, length):
                try:
                    compiled = engine.compile(spec)
                except Refused:
                    continue
                matcher, quarters, rss = compiled.matcher(), [], [clock.rss_bytes()]
                sizes = [compiled.growth()]
                for i in range(4):
                    times = Times()
                    part = ids[i * length // 4 : (i + 1) * length // 4]
                    try:
                        with clock.quiet():
                            _walk_part(matcher, part, times)
                    except (NotAllowed, ValueError, RuntimeError) as error:  # refused a token, or ran out of a budget
                        place = i * length // 4 + len(times.fill)
                        self.faults.append(f"{engine.name} stops in a long {spec.name!r} at token {place}: {error}")
                        break
                    quarters.append(Histogram(times.fill).summary_us())
                    rss.append(clock.rss_bytes())
                    sizes.append(compiled.growth())
                row = {"engine": engine.name, "spec": spec.name, "tokens": length, "quarters": quarters}
                found.append(row | {"rss_bytes": rss, "sizes": sizes})
        return found


def _walk_part(matcher: Any, ids: Sequence[int], times: Times) -> None:
    for position, token in enumerate(ids):
        times.fill.append(clock.timed(matcher.fill))
        if not matcher.advance(token):
            raise NotAllowed(position, token)


def collect(run: Run, all_specs: Sequence[Spec]) -> Results:
    """The figures of all samples."""
    rows = []
    for spec in all_specs:
        for name in run.names:
            key = (name, spec.name)
            row: Results = {"spec": spec.name, "kind": spec.kind, "tags": list(spec.tags), "engine": name}
            if key in run.refused:
                rows.append(row | {"refused": run.refused[key]})
                continue
            row["first_ms"] = round(statistics.median(run.first[key]) / 1e6, 4)
            row["compile_first_mask_ms"] = round(statistics.median(run.repeated[key] or run.first[key]) / 1e6, 4)
            for what, times in (("cold", run.cold[key]), ("warm", run.warm[key])):
                row[what] = Histogram(times.fill).summary_us()
            row["advance"] = Histogram(run.warm[key].advance).summary_us()
            rows.append(row)
    batch = {
        name: {what: _per_row_us(samples) for what, samples in kinds.items() if samples}
        for name, kinds in run.batch.items()
    }
    return {"specs": rows, "overall": overall(run, all_specs), "batch_us_per_row": batch, "faults": run.faults}


def _per_row_us(samples: list[float]) -> dict[str, float]:
    """Percentiles in microseconds; exact, because a row of a batch takes only tens of nanoseconds."""
    ordered = sorted(samples)
    at = {f"p{p}": ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))] for p in (50, 90, 99)}
    figures = at | {"mean": statistics.fmean(ordered), "max": ordered[-1]}
    return {name: round(value / 1e3, 4) for name, value in figures.items()}


def overall(run: Run, all_specs: Sequence[Spec]) -> Results:
    """Figures over the specs that every engine took: typical ones, and those of context-free grammars."""
    common = [s for s in all_specs if not any((name, s.name) in run.refused for name in run.names)]
    groups = {"typical": [s for s in common if "hard" not in s.tags], "cfg": [s for s in common if "cfg" in s.tags]}
    found: Results = {}
    for group, members in groups.items():
        found[group] = {}
        for name in run.names:
            keys = [(name, s.name) for s in members]
            compile_ms = [statistics.median(run.repeated[key] or run.first[key]) / 1e6 for key in keys]
            first_ms = [statistics.median(run.first[key]) / 1e6 for key in keys]
            found[group][name] = {
                "compile_first_mask_ms_p50": round(statistics.median(compile_ms), 4),
                "first_ms_p50": round(statistics.median(first_ms), 4),
                "cold": Histogram(x for key in keys for x in run.cold[key].fill).summary_us(),
                "warm": Histogram(x for key in keys for x in run.warm[key].fill).summary_us(),
                "advance": Histogram(x for key in keys for x in run.warm[key].advance).summary_us(),
            }
    return found


def agreement(run: Run) -> Results:
    """Compare the masks of all engines that can write compact JSON."""
    compact = [name for name in run.names if name not in adapters.NO_COMPACT_JSON]
    comparison = Comparison(run.setup(Options(compact=True), compact), run.tokens)
    for spec in specs.read(compact=True):
        comparison.spec(spec)
    found = comparison.found
    return {
        "equal": {" = ".join(pair): count for pair, count in found.equal.items()},
        "explained": {f"{a} / {b}: {why}": count for (a, b, why), count in found.explained.items()},
        "unexplained": [vars(difference) for difference in found.unexplained],
        "rejected_samples": found.rejected_samples,
    }


def main() -> int:
    """Command line. Exit status 1 if dotllm misses a target."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engines", default="dotllm,llguidance,xgrammar,glrmask")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=10, help="compilations of a spec in a round")
    parser.add_argument("--specs", help="only the specs whose names hold this text")
    parser.add_argument("--quick", action="store_true", help="one round, few repeats, only what all compile quickly")
    parser.add_argument("--only", default="single,growth,threads,agreement", help="parts to run, comma-separated")
    parser.add_argument("--core", type=int, default=0, help="core to pin to; -1: none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    all_specs = [s for s in specs.read() if not options.specs or options.specs in s.name]
    parts = options.only.split(",")
    if options.quick:
        options.rounds, options.repeats = 1, 6
        all_specs = [s for s in all_specs if "slow" not in s.tags]
        parts = [part for part in parts if part != "agreement"]
    cores = os.sched_getaffinity(0)
    clock.pin(None if options.core < 0 else sorted(cores)[options.core % len(cores)])
    run = Run(options.engines.split(","), tokens.load(), options.seed)
    results: Results = {}
    for i in range(options.rounds):
        print(f"round {i + 1} of {options.rounds}", flush=True)
        run.round(all_specs, options.repeats)
    results |= collect(run, all_specs)
    if "growth" in parts:
        print("one long output", flush=True)
        results["growth"] = run.growth(5_000 if options.quick else 20_000)
    if "agreement" in parts:
        print("agreement", flush=True)
        results["agreement"] = agreement(run)
    if "threads" in parts:
        print("threads", flush=True)
        os.sched_setaffinity(0, cores)
        results["threads"] = scaling.measure(run.names, run.tokens, options.seed)
    results["engines"] = run.about
    results["targets"] = [vars(t) for t in targets.engine(results)] if "dotllm" in run.names else []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1, ensure_ascii=False))
    engine_report.show(results)
    print(f"written: {options.out}")
    return int(any(not target["met"] for target in results["targets"]))


if __name__ == "__main__":
    raise SystemExit(main())
