"""Computes the figures of a run from its samples.

TPOT is the decode time of all requests divided by the number of decoded tokens: throughput depends on this mean, not on
a mean of per-request means. ITL percentiles are over the gaps between chunks. A chunk holds several tokens if drafts
were accepted, so read ITL together with TPOT.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from dotllm.bench.client import Sample

Figures = dict[str, Any]


def percentiles(values: Iterable[float], scale: float = 1e3) -> dict[str, float]:
    """p50, p90, p99, mean and max, scaled (seconds → ms by default); empty without values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    figures = {f"p{p}": ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))] for p in (50, 90, 99)}
    figures |= {"mean": statistics.fmean(ordered), "max": ordered[-1]}
    return {name: round(value * scale, 3) for name, value in figures.items()}


def tpot_ms(samples: Sequence[Sample]) -> float | None:
    """Milliseconds per output token after the first; None if nothing was decoded."""
    tokens = sum(sample.tokens - 1 for sample in samples if sample.tokens > 1)
    return sum(sample.decode_seconds for sample in samples) / tokens * 1e3 if tokens else None


def summarise(samples: Sequence[Sample], wall: float) -> Figures:
    """Figures of one run of ``wall`` seconds."""
    good = [sample for sample in samples if sample.error is None]
    tokens = sum(sample.tokens for sample in good)
    tpot = tpot_ms(good)
    gaps = [later - sooner for s in good for sooner, later in zip(s.chunks, s.chunks[1:], strict=False)]
    errors = [sample.error for sample in samples if sample.error is not None]
    per_request = [s.decode_seconds / (s.tokens - 1) for s in good if s.tokens > 1]
    return {
        "requests": len(samples),
        "errors": len(errors),
        "first_errors": errors[:3],
        "wall_s": round(wall, 3),
        "requests_per_s": round(len(good) / wall, 3),
        "output_tokens": tokens,
        "output_tokens_per_s": round(tokens / wall, 1),
        "ttft_ms": percentiles(s.first for s in good if s.first is not None),
        "tpot_ms": round(tpot, 4) if tpot else None,
        "tpot_request_ms": percentiles(per_request),
        "itl_ms": percentiles(gaps),
        "chunks": sum(len(s.chunks) for s in good),
        **validity(good),
    }


def validity(samples: Sequence[Sample]) -> Figures:
    """The verdicts on constrained answers that were not cut off. ``cut`` answers reached max_tokens and are not
    judged."""
    judged = [s for s in samples if s.request.constraint is not None and s.finish_reason == "stop"]
    cut = sum(s.request.constraint is not None and s.finish_reason == "length" for s in samples)
    faults = []
    for sample in judged:
        constraint = sample.request.constraint
        fault = constraint.fault(sample.text) if constraint else None
        if fault:
            faults.append(
                {"constraint": constraint.name if constraint else "", "fault": fault, "text": sample.text[:300]}
            )
    share = 1 - len(faults) / len(judged) if judged else None
    return {"judged": len(judged), "cut": cut, "valid_share": share, "faults": faults[:10], "fault_count": len(faults)}
