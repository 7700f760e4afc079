"""What the project promises, as figures to be met: each function judges the data of a result file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A promise, what was measured, and whether the promise holds."""

    name: str
    measured: str
    met: bool


def at_most(name: str, value: float, limit: float, unit: str) -> Target:
    """``value`` must not exceed ``limit``."""
    return Target(name, f"{value:.4g} {unit} (limit {limit:.4g})", value <= limit)


def engine(results: Results) -> list[Target]:
    """`benchmarks.engine`: targets of the engine alone, and against the peers of the same run."""
    found = _batch(results) + _single(results)
    found += _growth(results) if "growth" in results else []
    if "threads" in results:
        found.append(_threads(results["threads"].get("dotllm")))
    if "agreement" in results:
        rows = [u for u in results["agreement"]["unexplained"] if "dotllm" in u["engines"]]
        found.append(Target("no unexplained difference in any mask", f"{len(rows)} places", not rows))
    ours = [fault for fault in results["faults"] if fault.startswith("dotllm")]
    refused = [row["spec"] for row in results["specs"] if row["engine"] == "dotllm" and "refused" in row]
    found.append(Target("every spec taken, every sample accepted", f"{ours + refused}", not ours and not refused))
    return found


def _batch(results: Results) -> list[Target]:
    batch = results["batch_us_per_row"]
    if "fill_ids" not in batch.get("dotllm", {}):
        return [Target("warm mask in the batch call", "not measured", False)]
    ours = batch["dotllm"]["fill_ids"]["p50"]
    found = [at_most("warm mask in the batch call, p50 a row", ours, 1.0, "µs")]
    for name, peer in batch.items():
        if name != "dotllm":
            ratio = peer["fill"]["p50"] / ours
            found.append(Target(f"warm mask at least 5 times below {name}", f"{ratio:.1f} × below", ratio >= 5))
    return found


def _single(results: Results) -> list[Target]:
    found = []
    for group, compile_limit in (("typical", 1.2), ("cfg", None)):
        figures = results["overall"][group]
        ours = figures["dotllm"]
        if compile_limit:
            name = f"compile + first mask, p50 of {group} specs"
            found.append(at_most(name, ours["compile_first_mask_ms_p50"], compile_limit, "ms"))
        if "llguidance" in figures:
            limit = figures["llguidance"]["cold"]["mean"]
            found.append(at_most(f"cold mask mean of {group} specs ≤ llguidance's", ours["cold"]["mean"], limit, "µs"))
    return found


def _threads(figures: Results | None) -> Target:
    """Judged by the median of the rounds, whatever the machine could give; the text says how much that was."""
    if figures is None:
        return Target("64 guides' cold masks scale on 2 threads", "no round without other processes", False)
    best, median = figures["best"], figures["median"]
    text = f"{median['speed_up']} × (limit 1.5); best rounds {best['speed_up']} ×; two copies of the work"
    text += f" reach {median['machine']} ×, best {best['machine']} ×"
    return Target("64 guides' cold masks scale on 2 threads", text, median["speed_up"] >= 1.5)


def _growth(results: Results) -> list[Target]:
    """No growth: from the second quarter of a long output to its end, sizes, memory and time per mask stay the same."""
    found = []
    for row in results["growth"]:
        if row["engine"] != "dotllm":
            continue
        grown = {k: row["sizes"][-1][k] - row["sizes"][2][k] for k in row["sizes"][-1]}
        rss = row["rss_bytes"][-1] - row["rss_bytes"][2]
        early, late = row["quarters"][1]["mean"], row["quarters"][3]["mean"]
        met = not any(v > 0 for v in grown.values()) and rss < 2**20 and late <= 1.25 * early + 0.2
        text = f"sizes +{grown}, memory {rss / 1024:+.0f} KiB, mean mask {early:.2f} → {late:.2f} µs in the second half"
        found.append(Target(f"no growth on {row['tokens']:,} tokens of {row['spec']}", text, met))
    return found
