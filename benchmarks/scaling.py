"""Do a batch's cold masks take less time on two threads, compared with what the machine can give?

This is wall time, so it depends on what else runs, and two threads need not have two whole cores: the cores may be
hyper-threads of one, or belong to a virtual machine with busy neighbours. So measurements come in rounds of half a
second, in which everything that is compared takes its turn, in random order: each engine's masks on one thread, on two
threads, and on one thread both here and in a second process. These *copies* share nothing but the machine, so their
combined work is the most that two threads could do. Where the system reports it (Linux), rounds in which other
processes took part of the cores are left out, because they do not measure two threads. The best and the median of the
other rounds are reported, and the number left out.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks import adapters, clock, specs, tokens
from benchmarks.adapters.base import Batch, Engine, Options, Spec

BATCH, STEPS = 64, 24
ROUNDS = 60
BUDGET_S = 30.0
"""for an engine, mostly for compiling; it gets at least `FEWEST` rounds"""
FEWEST = 5
DISTURBED = 0.1
"""share of a core; a round in which others take more does not count"""
LIGHT = ("flat 10 fields", "recursive tree", "any JSON object", "e-mail", "arithmetic", "tool call")
"""specs that every engine compiles quickly: 64 copies of them make a batch"""
KINDS = ONE, TWO, COPIES = "1 thread", "2 threads", "two copies"

Results = dict[str, Any]


class Work:
    """The cold masks of 64 sequences, each on a freshly compiled spec."""

    def __init__(self, engine: Engine, vocabulary: tokens.Tokens) -> None:
        self._engine = engine
        light = [spec for spec in specs.read() if spec.name in LIGHT]
        self._specs = [light[i % len(light)] for i in range(BATCH)]
        ids = [vocabulary.encode(spec.texts[0]) for spec in self._specs]
        self._tokens = [[row[min(step, len(row) - 1)] for row in ids] for step in range(STEPS)]

    def prepare(self, threads: int) -> Batch:
        """Compile the specs; this is not measured."""
        return self._engine.batch([self._engine.compile(spec).matcher() for spec in self._specs], threads)

    def wall_ms(self, batch: Batch) -> float:
        """The time of all masks."""
        total = 0
        with clock.quiet():
            for step in self._tokens:
                start = clock.wall_ns()
                batch.fill()
                total += clock.wall_ns() - start
                batch.advance(step)
        return total / 1e6


def _copy(connection: Connection, names: Sequence[str]) -> None:
    """The second process: it prepares when it receives an engine's name, and runs at the next message."""
    vocabulary = tokens.load()
    works = {name: Work(_ready(name, vocabulary), vocabulary) for name in names}
    while (name := connection.recv()) is not None:
        batch = works[name].prepare(threads=1)
        connection.send(None)
        connection.recv()
        connection.send((works[name].wall_ms(batch), time.process_time()))


def _ready(name: str, vocabulary: tokens.Tokens) -> Engine:
    """An engine that has compiled something."""
    engine = adapters.load(name, vocabulary, Options())
    engine.compile(Spec("warm-up", "regex", "[a-z]+")).matcher().fill()
    return engine


def measure(names: Sequence[str], vocabulary: tokens.Tokens, seed: int = 0) -> Results:
    """Figures by engine (see `summary`)."""
    context = multiprocessing.get_context("spawn")
    connection, theirs = context.Pipe()
    process = context.Process(target=_copy, args=(theirs, names), daemon=True)
    process.start()
    works = {name: Work(_ready(name, vocabulary), vocabulary) for name in names}
    samples: dict[str, dict[str, list[float]]] = {name: {kind: [] for kind in KINDS} for name in names}
    spent, disturbed = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0)
    order, cpu = random.Random(seed), Cpu()
    for number in range(-1, 10 * ROUNDS):  # the first round does not count: threads start, tables are made
        for name in order.sample(list(names), len(names)):
            done = len(samples[name][ONE])
            if done == ROUNDS or (spent[name] > BUDGET_S and (done >= FEWEST or spent[name] > 2 * BUDGET_S)):
                continue
            start = time.perf_counter()
            cpu.by_others()
            round_ms = {kind: _once(works[name], kind, name, connection, cpu) for kind in order.sample(KINDS, 3)}
            took = time.perf_counter() - start
            spent[name] += took
            if number < 0:
                continue
            if cpu.by_others() > DISTURBED * took:
                disturbed[name] += 1
                continue
            for kind, wall_ms in round_ms.items():
                samples[name][kind].append(wall_ms)
    connection.send(None)
    process.join()
    return {name: summary(found) | {"left_out": disturbed[name]} for name, found in samples.items() if found[ONE]}


class Cpu:
    """CPU seconds of other processes on all cores."""

    def __init__(self) -> None:
        self.copy = 0.0
        """what the second process has used so far"""
        self._last = (0.0, 0.0)

    def by_others(self) -> float:
        """Seconds since the last call; 0 if the system reports none. Time that the hypervisor took counts, too."""
        try:
            user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
        except OSError:
            return 0.0
        used = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
        before, self._last = self._last, (used, time.process_time() + self.copy)
        return (self._last[0] - before[0]) - (self._last[1] - before[1])


def _once(work: Work, kind: str, name: str, connection: Connection, cpu: Cpu) -> float:
    if kind != COPIES:
        return work.wall_ms(work.prepare(threads=1 if kind == ONE else 2))
    connection.send(name)
    batch = work.prepare(threads=1)
    connection.recv()
    connection.send(None)
    here = work.wall_ms(batch)
    there, cpu.copy = connection.recv()
    return max(here, float(there))


def summary(samples: dict[str, list[float]]) -> Results:
    """Best and median milliseconds of each kind, and the speed of two threads and of two copies (which do twice the
    work) relative to one thread."""
    best = {kind: min(found) for kind, found in samples.items()}
    median = {kind: statistics.median(found) for kind, found in samples.items()}
    found: Results = {"rounds": len(samples[ONE])}
    for what, figures in (("best", best), ("median", median)):
        found[what] = {kind: round(figure, 3) for kind, figure in figures.items()} | {
            "speed_up": round(figures[ONE] / figures[TWO], 2),
            "machine": round(2 * figures[ONE] / figures[COPIES], 2),
        }
    return found
