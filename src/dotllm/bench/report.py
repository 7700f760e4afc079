"""A run as JSON and as tables. The file holds ``about`` (model, arguments, …) and ``points``, one a measurement."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Point = dict[str, Any]


def write(path: Path, about: dict[str, Any], points: Sequence[Point]) -> None:
    """Write atomically, so that an interrupted run leaves its last complete state."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"about": about, "points": list(points)}, indent=1, ensure_ascii=False))
    part.replace(path)


def _number(value: Any, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def throughput_table(points: Sequence[Point]) -> Table:
    """Constrained runs, each with its twin."""
    table = Table(title="Throughput. TPOT ×: over the unconstrained twin with the same prompts and token counts")
    columns = ("workload", "conc", "variant", "req/s", "tok/s", "twin tok/s", "TPOT ms", "p99", "twin", "TPOT ×")
    for column in (*columns, "ITL p50", "p99", "TTFT p50", "p99", "valid", "cut", "errors"):
        table.add_column(column, justify="left" if column in ("workload", "variant") else "right")
    order = sorted(points, key=lambda p: (p["workload"], p.get("concurrency", 0), p.get("round", 0)))
    for point in order:
        if "skipped" in point:
            table.add_row(point["workload"], "", point["variant"], f"[red]{point['skipped'][:60]}")
            continue
        twin = point["twin"]
        valid = "-" if point["valid_share"] is None else f"{point['valid_share']:.2%}"
        colour = "[red]" if point["fault_count"] else ""
        table.add_row(
            point["workload"],
            str(point["concurrency"]),
            point["variant"],
            _number(point["requests_per_s"]),
            _number(point["output_tokens_per_s"], 0),
            _number(twin["output_tokens_per_s"], 0),
            _number(point["tpot_ms"]),
            _number(point["tpot_request_ms"].get("p99")),
            _number(twin["tpot_ms"]),
            _number(point["tpot_ratio"]),
            _number(point["itl_ms"].get("p50")),
            _number(point["itl_ms"].get("p99")),
            _number(point["ttft_ms"].get("p50")),
            _number(point["ttft_ms"].get("p99")),
            f"{colour}{valid} of {point['judged']}",
            str(point["cut"]),
            str(point["errors"] + len(point["refused"])),
        )
    return table


def ttft_table(points: Sequence[Point]) -> Table:
    """Time to first token, one request at a time."""
    table = Table("variant", "no constraint", "seen schema", "never seen", "× none", "max", title="TTFT ms, median")
    for point in points:
        middle = point["ttft_ms_p50"]
        ratio = middle["new"] / middle["none"] if "new" in middle and "none" in middle else None
        figures = [_number(middle.get(kind)) for kind in ("none", "cached", "new")]
        table.add_row(point["variant"], *figures, _number(ratio, 3), _number(point["ttft_ms_max"].get("new")))
    return table


def show(points: Sequence[Point], console: Console | None = None) -> None:
    """Print all tables."""
    console = console or Console(width=170)
    for phase, table in (("throughput", throughput_table), ("ttft", ttft_table)):
        chosen = [point for point in points if point["phase"] == phase]
        if chosen:
            console.print(table(chosen))
    for point in points:
        if point["phase"] == "not started":
            console.print(f"[red]{point['variant']} did not start:[/] {point['skipped']}")
        for fault in point.get("faults", [])[:3]:
            console.print(f"[red]{point['variant']}: {fault}", soft_wrap=True)
