"""dotllm's metrics as a Prometheus collector, for the process that answers /metrics; `metrics` says why this way.

``register()`` is called by the vLLM plugin in API servers. prometheus_client is imported here only: the engine does
not need it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from dotllm.compilation.metrics import COUNTERS, GAUGES, HISTOGRAMS, merge, shared_directory


class Collector:
    """Merges what all processes have published in ``directory``. Every metric is exposed. One without labels is 0
    before its first event, so that dashboards and alerts can be written before traffic arrives."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def _snapshots(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.directory.glob("*.json")):
            try:
                found.append(json.loads(path.read_text()))
            except (OSError, ValueError):
                continue  # being replaced or removed at this moment; the next scrape has it
        return found

    def collect(self) -> Iterator[Any]:
        """Called by prometheus_client at each scrape."""
        merged = merge(self._snapshots())
        families: list[tuple[Any, Mapping[str, tuple[Any, ...]], str]] = [
            (CounterMetricFamily, COUNTERS, "counters"),
            (GaugeMetricFamily, GAUGES, "gauges"),
        ]
        for family_class, described, section in families:
            for name, (help_text, label_names, *_) in described.items():
                values = {labels: value for (n, labels), value in merged[section].items() if n == name}
                family = family_class(name, help_text, labels=label_names)
                for labels, value in sorted(values.items()) or ([((), 0.0)] if not label_names else []):
                    family.add_metric(labels, value)
                yield family
        for name, (help_text, label_names, buckets) in HISTOGRAMS.items():
            family = HistogramMetricFamily(name, help_text, labels=label_names)
            for (n, labels), counts in sorted(merged["histograms"].items()):
                if n == name:
                    family.add_metric(labels, _cumulative(buckets, counts), sum_value=counts[-1])
            yield family

    def describe(self) -> list[Any]:
        """No names to check for duplicates: registering must not scrape."""
        return []


def _cumulative(buckets: tuple[float, ...], counts: list[float]) -> list[tuple[str, float]]:
    """Prometheus wants "at most le" counts; we keep one count per bucket."""
    total = 0.0
    rows = []
    for bound, count in zip((*(str(b) for b in buckets), "+Inf"), counts[:-1], strict=True):
        total += count
        rows.append((bound, total))
    return rows


def register(registry: Any) -> Collector:
    """Add our metrics to ``registry`` (a prometheus_client CollectorRegistry), once; returns the collector."""
    for known in list(getattr(registry, "_collector_to_names", ())):
        if isinstance(known, Collector):
            return known
    collector = Collector(shared_directory())
    registry.register(collector)
    return collector
