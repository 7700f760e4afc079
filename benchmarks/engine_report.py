"""Tables of `benchmarks.engine` on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import scaling

Results = dict[str, Any]


def _triple(figures: dict[str, float]) -> str:
    return "/".join(f"{figures[p]:.3g}" for p in ("p50", "p90", "p99"))


def show(results: Results) -> None:
    """Print what a reader compares at a glance; the JSON file holds the rest."""
    console = Console(width=150)
    names = list(results["engines"])
    for name, about in results["engines"].items():
        console.print(f"{name} {about['version']}: {about['settings']}; ready after {about['ready_cpu_s']} s CPU")
    console.print(_by_spec(results, names))
    console.print(_overall(results))
    for key, table in (("growth", _growth), ("threads", _threads), ("agreement", _agreement)):
        if key in results:
            console.print(table(results[key]))
    for fault in results["faults"]:
        console.print(f"[red]{fault}")
    if results["targets"]:
        table = Table("target", "measured", "met", title="Targets")
        for target in results["targets"]:
            table.add_row(target["name"], target["measured"], "[green]yes" if target["met"] else "[red]NO")
        console.print(table)


def _by_spec(results: Results, names: list[str]) -> Table:
    title = "CPU time; compile + first mask in ms (first sight | again), masks and advance in µs as p50/p90/p99"
    table = Table("spec", "engine", "compile + 1st mask", "cold", "cold max", "warm", "advance", title=title)
    for row in sorted(results["specs"], key=lambda r: (r["kind"], r["spec"], names.index(r["engine"]))):
        if "refused" in row:
            table.add_row(row["spec"], row["engine"], f"refused: {row['refused'][:60]}")
            continue
        compile_ms = f"{row['first_ms']:.2f} | {row['compile_first_mask_ms']:.2f}"
        figures = (_triple(row["cold"]), f"{row['cold']['max']:.3g}", _triple(row["warm"]), _triple(row["advance"]))
        table.add_row(row["spec"], row["engine"], compile_ms, *figures)
    return table


def _overall(results: Results) -> Table:
    title = "All specs together; batch: µs per row in calls of 64 sequences, warm (ids: without copying the bits)"
    table = Table("group", "engine", "compile + 1st p50 ms", "cold mean", "cold", "warm mean", "warm", title=title)
    for column in ("batch ids", "batch bits", "batch advance"):
        table.add_column(column)
    for group, engines in results["overall"].items():
        for name, row in engines.items():
            figures = [f"{row['compile_first_mask_ms_p50']:.3f}"]
            for what in ("cold", "warm"):
                figures += [f"{row[what]['mean']:.3g}", _triple(row[what])]
            batch = results["batch_us_per_row"].get(name, {}) if group == "typical" else {}
            figures += [_triple(batch[k]) if k in batch else "" for k in ("fill_ids", "fill", "advance")]
            table.add_row(group, name, *figures)
    return table


def _growth(rows: list[Results]) -> Table:
    table = Table(
        "spec", "engine", "mean mask µs by quarter", "memory MiB", "sizes at the end", title="One long output"
    )
    for row in rows:
        quarters = " ".join(f"{q['mean']:.3g}" for q in row["quarters"])
        memory = " ".join(f"{(x - row['rss_bytes'][0]) / 2**20:+.1f}" for x in row["rss_bytes"][1:])
        table.add_row(row["spec"], row["engine"], quarters, memory, str(row["sizes"][-1]))
    return table


def _threads(found: Results) -> Table:
    title = "64 guides' cold masks, wall time: best | median of rounds; two copies: two processes do them all"
    table = Table("engine", "rounds", *scaling.KINDS, "2 threads over 1", "two copies over one", title=title)
    for name, row in found.items():
        best, median = row["best"], row["median"]
        cells = [f"{best[kind]:.1f} | {median[kind]:.1f} ms" for kind in scaling.KINDS]
        cells += [f"{best[what]:.2f} | {median[what]:.2f} ×" for what in ("speed_up", "machine")]
        table.add_row(name, f"{row['rounds']} ({row['left_out']} left out)", *cells)
    return table


def _agreement(found: Results) -> Table:
    table = Table("masks", "count", title="Agreement of the engines' masks (compact JSON)")
    for what in ("equal", "explained"):
        for key, count in found[what].items():
            table.add_row(f"{what}: {key}", str(count))
    pairs: dict[str, int] = {}
    for row in found["unexplained"]:
        key = f"{row['engines'][0]} / {row['engines'][1]}: {row['spec']}"
        pairs[key] = pairs.get(key, 0) + 1
    for key, count in pairs.items():
        table.add_row(f"[red]unexplained: {key}", str(count))
    for engine, spec, text in found["rejected_samples"]:
        table.add_row(f"[red]{engine} rejects a sample of {spec!r} after …{text[-40:]!r}", "1")
    return table
