"""The histogram's percentiles agree with sorting, and merging equals adding."""

from __future__ import annotations

import random

import pytest

from benchmarks.histogram import Histogram


@pytest.mark.parametrize("share", [0.0, 0.5, 0.9, 0.99, 0.999, 1.0])
def test_percentiles_within_a_bucket(share: float) -> None:
    """Buckets are 2 % wide, so a percentile is at most 2 % off."""
    rng = random.Random(3)
    samples = sorted(int(rng.lognormvariate(8, 2)) + 20 for _ in range(10_000))
    exact = samples[max(0, int(-(-share * len(samples) // 1)) - 1)]
    assert Histogram(samples).percentile(share) == pytest.approx(exact, rel=0.021)


def test_merge_and_round_trip() -> None:
    """Two halves, merged, written and read back, equal the whole."""
    samples = [random.Random(5).randrange(10**7) for _ in range(1000)]
    left, right = Histogram(samples[:300]), Histogram(samples[300:])
    left.merge(Histogram.from_json(right.to_json()))
    assert left.to_json() == Histogram(samples).to_json()
    assert left.mean == sum(samples) / len(samples)
    assert left.summary_us()["max"] == max(samples) / 1e3


def test_empty() -> None:
    """Without samples there are neither figures nor errors."""
    assert Histogram().summary_us()["p50"] == 0
