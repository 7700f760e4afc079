"""The measurements on one target: throughput, compared with an unconstrained twin, and time to first token.

A *twin* run repeats the prompts without constraints. Each of its requests produces exactly as many tokens as the
constrained request did, so the ratio of the two is the cost of the constraint alone.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dotllm.bench import workloads
from dotllm.bench.client import BenchRequest, BenchTarget, Sample, closed_loop
from dotllm.bench.metrics import summarise, tpot_ms
from dotllm.bench.workloads import Constraint

Point = dict[str, Any]
WORDS = ("time", "year", "people", "way", "day", "thing", "life", "world", "school", "state", "group", "country")


@dataclass(frozen=True)
class Plan:
    """What to measure on every target."""

    workloads: Sequence[str] = ("closed", "bounded", "free", "tools")
    concurrency: Sequence[int] = (1, 32)
    rounds: int = 1
    per_slot: int = 4
    """Requests for each slot of concurrency in a run (at least ten in all)."""
    pairs: int = 0
    """Short pairs for each point (`run_pairs`), in place of one long run and its twin."""
    max_tokens: int = 256
    ttft_schemas: int = 20
    """Never-seen schemas in the time-to-first-token measurement; 0 leaves it out."""
    fresh: bool = False
    """Whether each request has a constraint that the server has never seen; only for workloads that take a salt."""
    file_schemas: int = 100
    """Schemas taken from a workload that is a file."""
    seed: int = 0

    def steps(self) -> int:
        """Number of requests that will be sent, for a progress bar."""
        runs = sum(2 * self.requests(c) for c in self.concurrency) * self.rounds * len(self.workloads)
        known = () if self.fresh else self.workloads
        warm = sum(len(workloads.load(name, count=self.file_schemas)) for name in known)
        return runs + warm + max(self.concurrency) + 4 * self.ttft_schemas

    def requests(self, concurrency: int) -> int:
        """Number of constrained requests in a run, which measures one point."""
        return concurrency * self.pairs if self.pairs else max(10, concurrency * self.per_slot)


class Measurement:
    """Carries out a plan on one target."""

    def __init__(self, plan: Plan, target: BenchTarget, done: Callable[[], None] = lambda: None) -> None:
        self.plan = plan
        self.target = target
        self.done = done
        self.random = random.Random(plan.seed)

    def _prompt(self) -> str:
        """A prompt that differs for every request, so that no prefix cache helps; ASCII, so that no token is cut."""
        return " ".join(self.random.choice(WORDS) for _ in range(40))

    async def run(self) -> list[Point]:
        """All points. If a point cannot be measured, its ``skipped`` says why."""
        most = max(self.plan.concurrency)
        warm = [BenchRequest(prompt=self._prompt(), tokens=16) for _ in range(most)]
        await closed_loop(self.target, warm, most, self.done)
        points: list[Point] = []
        for name in self.plan.workloads:
            points += await self._workload(name)
        if self.plan.ttft_schemas:
            points.append(await self._ttft())
        return points

    async def _workload(self, name: str) -> list[Point]:
        if self.plan.fresh and name not in workloads.SALTED:
            raise ValueError(f"workload {name!r}: only {', '.join(workloads.SALTED)} can be made anew for each request")
        constraints, refused = workloads.load(name, count=self.plan.file_schemas), list[str]()
        if not self.plan.fresh:
            constraints, refused = await self._warm(constraints)
        if not constraints:
            return [{"phase": "throughput", "workload": name, "skipped": refused[0] if refused else "empty"}]
        points = []
        for round_number in range(self.plan.rounds):
            for concurrency in self.plan.concurrency:
                measure = self._short_pairs if self.plan.pairs else self._run_and_twin
                point = await measure(self._draw(name, constraints), concurrency)
                about = {"phase": "throughput", "workload": name, "round": round_number, "concurrency": concurrency}
                if self.plan.fresh:
                    about["fresh"] = True
                points.append(about | {"schemas": len(constraints), "refused": refused} | point)
        return points

    def _draw(self, name: str, constraints: Sequence[Constraint]) -> Callable[[int], list[Constraint]]:
        """A function that gives the next ``count`` constraints: known constraints in rotation, or new ones."""
        if self.plan.fresh:
            salted = (c for _ in itertools.count() for c in workloads.load(name, f"{self.random.randrange(16**8):08x}"))
            return lambda count: list(itertools.islice(salted, count))
        rotating = itertools.count()  # so that runs of one request at a time do not always use the same constraint

        def known(count: int) -> list[Constraint]:
            first = next(rotating)
            return [constraints[(first + i) % len(constraints)] for i in range(count)]

        return known

    async def _warm(self, constraints: list[Constraint]) -> tuple[list[Constraint], list[str]]:
        """Let the server compile each constraint once. Returns the constraints that it accepts, and its refusals."""
        requests = [BenchRequest(c, self._prompt(), self.plan.max_tokens) for c in constraints]
        samples, _ = await closed_loop(self.target, requests, 8, self.done)
        answered = list(zip(constraints, samples, strict=True))
        refused = [f"{c.name}: {s.error}" for c, s in answered if s.error is not None]
        return [c for c, s in answered if s.error is None], refused

    def _requests(self, constraints: Sequence[Constraint]) -> list[BenchRequest]:
        return [BenchRequest(constraint, self._prompt(), self.plan.max_tokens) for constraint in constraints]

    async def _short_pairs(self, draw: Callable[[int], list[Constraint]], concurrency: int) -> Point:
        def burst() -> list[BenchRequest]:
            return self._requests(draw(concurrency))

        return await run_pairs(self.target, burst, self._prompt, self.plan.pairs, self.done)

    async def _run_and_twin(self, draw: Callable[[int], list[Constraint]], concurrency: int) -> Point:
        requests = self._requests(draw(self.plan.requests(concurrency)))
        samples, wall = await closed_loop(self.target, requests, concurrency, self.done)
        good = [sample for sample in samples if sample.error is None and sample.tokens > 0]
        twins = [BenchRequest(prompt=s.request.prompt, tokens=s.tokens) for s in good]
        twin_samples, twin_wall = await closed_loop(self.target, twins, concurrency, self.done)
        figures, twin = summarise(samples, wall), summarise(twin_samples, twin_wall)
        ratio = figures["tpot_ms"] / twin["tpot_ms"] if figures["tpot_ms"] and twin["tpot_ms"] else None
        return figures | {"tpot_ratio": round(ratio, 4) if ratio else None, "twin": twin}

    async def _ttft(self) -> Point:
        """Send one request at a time, for one token each: a never-seen schema, the same again, no constraint."""
        fresh = self._fresh(self.plan.ttft_schemas)
        times: dict[str, list[float]] = {"new": [], "cached": [], "none": []}
        refused: list[str] = []
        for constraint in fresh:
            for kind, wanted in (("none", None), ("new", constraint), ("cached", constraint), ("none", None)):
                sample = await self._one(wanted)
                if sample.first is not None and sample.error is None:
                    times[kind].append(sample.first * 1e3)
                elif wanted is not None:
                    refused.append(f"{constraint.name}: {sample.error}")
        middle = {kind: round(statistics.median(values), 3) for kind, values in times.items() if values}
        worst = {kind: round(max(values), 3) for kind, values in times.items() if values}
        counts = {kind: len(values) for kind, values in times.items()}
        return {"phase": "ttft", "ttft_ms_p50": middle, "ttft_ms_max": worst, "counts": counts, "refused": refused}

    async def _one(self, constraint: Constraint | None) -> Sample:
        request = BenchRequest(constraint, self._prompt(), max_tokens=1, tokens=None if constraint else 1)
        sample = await self.target.send(request)
        self.done()
        return sample

    def _fresh(self, count: int) -> list[Constraint]:
        """Schemas that no server has seen: salted sets, and schemas of files that the throughput runs did not use."""
        constraints: list[Constraint] = []
        while len(constraints) < count:
            salt = f"{self.random.randrange(16**8):08x}"
            for name in self.plan.workloads:
                if name in workloads.SETS:
                    constraints += workloads.load(name, salt)
                elif name not in ("regex", "choice"):
                    constraints += workloads.load(name, count=4, seed=self.random.randrange(2**30))
            if not constraints:
                constraints += workloads.load("closed", salt)
        return constraints[:count]


# Short pairs: a burst of simultaneous requests, followed immediately by its unconstrained twin, again and again.
#
# On a shared machine the pace drifts by 10 to 30 % within seconds. Between a long run and its long twin, this drift
# looks like the cost of the constraint. In a short pair both halves run at the same pace, and the median over many
# pairs ignores disturbed pairs. Every other pair begins with the twin, so that a pace that only rises or only falls
# favours neither half; such a twin has the lengths of the pair before.


class Burst(NamedTuple):
    """Requests that were sent simultaneously: their samples, and the seconds until the last one ended."""

    samples: list[Sample]
    wall: float

    @property
    def lengths(self) -> list[int]:
        """Tokens of each answer."""
        return [sample.tokens for sample in self.samples if sample.error is None and sample.tokens]


class Pair(NamedTuple):
    """A constrained burst and its twin."""

    constrained: Burst
    twin: Burst

    def ratio(self) -> float | None:
        """The ratio of their times per output token; None if nothing was decoded."""
        times = [tpot_ms([s for s in burst.samples if s.error is None]) for burst in self]
        return times[0] / times[1] if times[0] and times[1] else None


async def send(target: BenchTarget, requests: Sequence[BenchRequest], done: Callable[[], None] = lambda: None) -> Burst:
    """Send all of ``requests`` simultaneously."""
    return Burst(*await closed_loop(target, requests, len(requests), done))


def twin_of(lengths: Sequence[int], prompt: Callable[[], str]) -> list[BenchRequest]:
    """Requests without constraints, one for each of ``lengths`` (in tokens)."""
    return [BenchRequest(prompt=prompt(), tokens=tokens) for tokens in lengths]


async def run_pairs(
    target: BenchTarget,
    burst: Callable[[], Sequence[BenchRequest]],
    prompt: Callable[[], str],
    count: int,
    done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Figures of ``count`` pairs, as `metrics.summarise` gives them; ``tpot_ratio`` is the median of the pairs.

    ``burst`` makes the requests of a constrained burst, ``prompt`` the prompt of one request of a twin.
    ``duration_ratio`` compares whole bursts of equal lengths, from the first request sent to the last token.
    """

    pairs: list[Pair] = []
    for number in range(count):
        if number % 2 and (lengths := pairs[-1].constrained.lengths):
            twin = await send(target, twin_of(lengths, prompt), done)
            pairs.append(Pair(await send(target, burst(), done), twin))
        else:
            constrained = await send(target, burst(), done)
            pairs.append(Pair(constrained, await send(target, twin_of(constrained.lengths, prompt), done)))
    return figures(pairs)


def figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    """See `run_pairs`."""
    constrained, twin = (
        summarise([s for pair in pairs for s in pair[side].samples], sum(pair[side].wall for pair in pairs))
        for side in (0, 1)
    )
    ratios = [ratio for pair in pairs if (ratio := pair.ratio()) is not None]
    durations = [p.constrained.wall / p.twin.wall for p in pairs[::2] if p.twin.samples]
    return constrained | {
        "twin": twin,
        "pairs": len(pairs),
        "tpot_ratio": round(statistics.median(ratios), 4) if ratios else None,
        "tpot_ratio_quartiles": [round(q, 3) for q in statistics.quantiles(ratios)[::2]] if len(ratios) > 1 else None,
        "duration_ratio": round(statistics.median(durations), 4) if durations else None,
    }
