"""Measures in short pairs: a burst of simultaneous requests, followed at once by its unconstrained twin, again and
again.

On a shared machine the pace drifts by 10 to 30 % within seconds. In a long run and its long twin this drift looks like
a difference between the two. In a short pair both halves run at the same pace, and the median over many pairs ignores
disturbed ones. Every other pair begins with the twin, so that a pace that only rises or only falls favours neither
half; such a twin has the lengths of the pair before.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dotllm.bench.client import BenchRequest, BenchTarget, Sample
from dotllm.bench.load import closed_loop
from dotllm.bench.metrics import summarise, tpot_ms


class Burst(NamedTuple):
    """Requests that were sent at once: their samples, and the seconds until the last ended."""

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
    """Send all of ``requests`` at once."""
    return Burst(*await closed_loop(target, requests, len(requests), done))


def twin_of(lengths: Sequence[int], prompt: Callable[[], str]) -> list[BenchRequest]:
    """Requests without constraints, one of each of ``lengths`` in tokens."""
    return [BenchRequest(prompt=prompt(), tokens=tokens) for tokens in lengths]


async def run(
    target: BenchTarget,
    burst: Callable[[], Sequence[BenchRequest]],
    prompt: Callable[[], str],
    count: int,
    done: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Figures of ``count`` pairs, as `metrics.summarise` gives them; ``tpot_ratio`` is the median of the pairs.

    ``burst`` makes the requests of a constrained burst, ``prompt`` the prompt of a request of a twin.
    ``duration_ratio`` compares whole bursts, from the first request sent to the last token, where lengths are the same.
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
    """See `run`."""
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
