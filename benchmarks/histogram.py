"""A histogram of durations in buckets 2 % wide: millions of samples in a few hundred counters, mergeable across runs.

Percentiles are exact to one bucket; count, sum and maximum are exact. Values below 10 ns count as 10 ns.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

_WIDTH = math.log(1.02)
_FLOOR_NS = 10


class Histogram:
    """Counts of durations in nanoseconds."""

    def __init__(self, samples: Iterable[int] = ()) -> None:
        self.buckets: Counter[int] = Counter()
        self.count = 0
        self.total = 0
        self.maximum = 0
        self.extend(samples)

    def extend(self, samples: Iterable[int]) -> None:
        """Add durations in nanoseconds."""
        for value in samples:
            self.buckets[int(math.log(max(value, _FLOOR_NS)) / _WIDTH)] += 1
            self.count += 1
            self.total += value
            self.maximum = max(self.maximum, value)

    def merge(self, other: Histogram) -> None:
        """Add all of another histogram's samples."""
        self.buckets.update(other.buckets)
        self.count += other.count
        self.total += other.total
        self.maximum = max(self.maximum, other.maximum)

    def percentile(self, share: float) -> float:
        """The duration (ns) below which ``share`` (0..1) of the samples lie, to 2 %; 0 without samples."""
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                return min(float(self.maximum), math.exp((bucket + 0.5) * _WIDTH))
        return 0.0

    @property
    def mean(self) -> float:
        """Exact mean in nanoseconds; 0 without samples."""
        return self.total / self.count if self.count else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON; `from_json` reads it back."""
        return {
            "count": self.count,
            "total": self.total,
            "maximum": self.maximum,
            "buckets": {str(k): v for k, v in sorted(self.buckets.items())},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Histogram:
        """The histogram that `to_json` wrote."""
        self = cls()
        self.buckets.update({int(k): v for k, v in data["buckets"].items()})
        self.count, self.total, self.maximum = data["count"], data["total"], data["maximum"]
        return self

    def summary_us(self) -> dict[str, float]:
        """The figures that tables show, in microseconds."""
        figures = {f"p{share}": self.percentile(share / 100) / 1e3 for share in (50, 90, 99, 99.9)}
        return {k: round(v, 3) for k, v in (figures | {"mean": self.mean / 1e3, "max": self.maximum / 1e3}).items()}
