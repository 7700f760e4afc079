"""Sums up MaskBench records: verdicts, times, memory, the wrong answers by name, and dotllm's targets."""

from __future__ import annotations

import statistics
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.histogram import Histogram
from benchmarks.targets import Target, at_most

Record = dict[str, Any]
Records = dict[str, Record]
ORDER = "keys are not in declared order"
VERDICTS = ("pass", "refused", "valid_rejected", "invalid_accepted", "timeout", "memory", "crash", "error")


def verdicts(record: Record) -> set[str]:
    """A schema's verdicts: one of `VERDICTS`, or both kinds of wrong answers."""
    return {wrong["problem"] for wrong in record["wrong"]} or {record["verdict"]}


def _percentiles(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    at = {f"p{p}": ordered[min(len(ordered) - 1, int(p / 100 * len(ordered)))] for p in (50, 90, 99)}
    return {k: round(v, 4) for k, v in (at | {"mean": statistics.fmean(ordered), "max": ordered[-1]}).items()}


def _masks(records: list[Record], what: str) -> dict[str, float]:
    whole = Histogram()
    for record in records:
        if what in record:
            whole.merge(Histogram.from_json(record[what]))
    return {"count": whole.count} | whole.summary_us()


def times(records: list[Record]) -> Record:
    """Compile, first mask, masks and steps over the records that got that far."""
    return {
        "schemas": sum("ttfm_ms" in r for r in records),
        "compile_ms": _percentiles([r["compile_ms"] for r in records if "ttfm_ms" in r]),
        "ttfm_ms": _percentiles([r["ttfm_ms"] for r in records if "ttfm_ms" in r]),
        "mask_us": _masks(records, "fill"),
        "advance_us": _masks(records, "advance"),
    }


def summarise(found: dict[str, Records], asked: int) -> Record:
    """The summary file's content. ``common`` covers the schemas that every engine finished."""
    finished = [{k for k, r in records.items() if "ttfm_ms" in r} for records in found.values()]
    shared = set.intersection(*finished) if finished else set()
    engines: Record = {}
    for name, records in found.items():
        counts = Counter(verdict for record in records.values() for verdict in verdicts(record))
        refused = Counter(_reason(record) for record in records.values() if record["verdict"] == "refused")
        engines[name] = {
            "schemas": len(records),
            "verdicts": {verdict: counts[verdict] for verdict in VERDICTS},
            "refused_by": dict(refused.most_common(25)),
            "own": times(list(records.values())),
            "common": times([record for key, record in records.items() if key in shared]),
            "peak_rss_mib": round(max((r.get("peak_rss", 0) for r in records.values()), default=0) / 2**20, 1),
            "slowest_first_mask": _largest(records, "ttfm_ms"),
            "slowest_mask": sorted(
                ((round(r["fill"]["maximum"] / 1e6, 2), k) for k, r in records.items() if "fill" in r), reverse=True
            )[:10],
        }
    summary: Record = {"asked": asked, "common": len(shared), "engines": engines, "wrong": _wrong(found)}
    summary["targets"] = [vars(target) for target in targets(summary)]
    return summary


def _reason(record: Record) -> str:
    return str(record.get("keyword") or record["reason"].split(":")[0][:60])


def _largest(records: Records, what: str) -> list[tuple[float, str]]:
    return sorted(((round(r[what], 2), k) for k, r in records.items() if what in r), reverse=True)[:10]


def _wrong(found: dict[str, Records]) -> Record:
    """For each engine, every answer that is neither right nor a refusal. An answer of dotllm has a reason if that is
    only the order of keys (the same engine accepts the document when keys may come in any order)."""
    lists: Record = {}
    freely = found.get("dotllm-any-order", {})
    for name, records in found.items():
        rows = []
        for key, record in sorted(records.items()):
            other = freely.get(key, {}) if name == "dotllm" else {}
            accepted = "ttfm_ms" in other and not other["wrong"]
            for wrong in record["wrong"]:
                ordered = accepted and wrong["problem"] == "valid_rejected"
                rows.append({"schema": key, **wrong, **({"reason": ORDER} if ordered else {})})
        rows += [
            {"schema": key, "problem": record["verdict"], "description": str(record.get("reason"))[:400]}
            for key, record in sorted(records.items())
            if record["verdict"] in ("timeout", "memory", "crash", "error")
        ]
        lists[name] = rows
    return lists


def targets(summary: Record) -> list[Target]:
    """Points 1 and 2 of the issue "JSON Schema, all of it, exactly". Verdicts are judged with keys in any order; in
    declared order, none may be wrong for another reason than the order. Times are judged with both."""
    found: list[Target] = []
    engines = summary["engines"]
    for name in ("dotllm-any-order", "dotllm"):
        if name in engines:
            found += _verdict_targets(name, engines[name], summary)
            found += _time_targets(name, engines[name], engines.get("llguidance"))
    return found


def _verdict_targets(name: str, ours: Record, summary: Record) -> list[Target]:
    counts, total = dict(ours["verdicts"]), max(1, ours["schemas"])
    found = []
    if name == "dotllm-any-order" or "dotllm-any-order" not in summary["engines"]:
        share = counts["pass"] / total
        found.append(Target(f"{name}: at least 99 % of the schemas pass", f"{share:.2%} of {total}", share >= 0.99))
    else:
        ordered = {row["schema"] for row in summary["wrong"][name] if row.get("reason") == ORDER}
        others = {row["schema"] for row in summary["wrong"][name] if row.get("reason") != ORDER}
        counts["valid_rejected"] = len(others)
        text = f"{(counts['pass'] + len(ordered - others)) / total:.2%} of {total}"
        found.append(Target(f"{name}: share that passes but for the order of keys", text, True))
    for verdict in ("invalid_accepted", "valid_rejected", "timeout", "memory", "crash", "error"):
        found.append(at_most(f"{name}: no schema {verdict.replace('_', ' ')}", counts[verdict], 0, "schemas"))
    return found


def _time_targets(name: str, ours: Record, peer: Record | None) -> list[Target]:
    found = []
    for p, limit in (("p50", 1.5), ("p99", 25), ("max", 1000)):
        found.append(at_most(f"{name}: time to first mask, {p}", ours["own"]["ttfm_ms"].get(p, 0), limit, "ms"))
    found.append(at_most(f"{name}: peak memory", ours["peak_rss_mib"], 1536, "MiB"))
    if peer:
        for p in ("mean", "p99.9"):
            what = f"{name}: mask time {p} ≤ llguidance's, on schemas all took"
            found.append(at_most(what, ours["common"]["mask_us"][p], peer["common"]["mask_us"][p], "µs"))
    return found


def _kind(row: Record) -> str:
    """The kind of a wrong answer: its problem, and the first line of its reason or description."""
    what = row.get("reason") or row["description"]
    return f"{row['problem']}: {what.splitlines()[0][:120] if what else ''}"


def show(summary: Record) -> None:
    """Tables on the terminal."""
    console = Console(width=150)
    table = Table("engine", *VERDICTS, "peak RSS MiB", title=f"{summary['asked']} schemas")
    for name, row in summary["engines"].items():
        table.add_row(name, *(str(row["verdicts"][v]) for v in VERDICTS), str(row["peak_rss_mib"]))
    console.print(table)
    title = f"CPU time; own: schemas the engine took, common: the {summary['common']} that all took"
    table = Table("engine", "set", "TTFM ms p50", "p99", "max", "masks", "mask µs mean", title=title)
    for column in ("p50", "p99", "p99.9", "max", "advance p50", "mean"):
        table.add_column(column)
    for name, row in summary["engines"].items():
        for which in ("own", "common"):
            part = row[which]
            ttfm, mask, step = part["ttfm_ms"], part["mask_us"], part["advance_us"]
            figures = [ttfm.get(p, 0) for p in ("p50", "p99", "max")] + [mask["count"]]
            figures += [mask[p] for p in ("mean", "p50", "p99", "p99.9", "max")] + [step["p50"], step["mean"]]
            table.add_row(name, which, *(f"{x:,}" if isinstance(x, int) else f"{x:.4g}" for x in figures))
    console.print(table)
    for name, rows in summary["wrong"].items():
        if name.startswith("dotllm"):
            kinds = Counter(_kind(row) for row in rows)
            for kind, count in kinds.most_common(20):
                example = next(row for row in rows if _kind(row) == kind)
                console.print(f"[red]{name}, {count} ×:[/] {kind}\n    such as {example}", soft_wrap=True, markup=True)
    if summary["targets"]:
        table = Table("target", "measured", "met")
        for target in summary["targets"]:
            table.add_row(target["name"], target["measured"], "[green]yes" if target["met"] else "[red]NO")
        console.print(table)
