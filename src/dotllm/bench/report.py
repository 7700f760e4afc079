"""A run as JSON, tables, plots (PNG files) and a self-contained HTML page.

The JSON file holds ``about`` (model, arguments, …) and ``points``, one for each measurement."""

from __future__ import annotations

import base64
import html
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
    part.write_text(
        json.dumps({"about": about, "points": list(points)}, indent=1, ensure_ascii=False), encoding="utf-8"
    )
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


PLOTS = (
    ("tpot_ratio", "TPOT over the unconstrained twin", "×"),
    ("output_tokens_per_s", "output tokens per second", "tokens/s"),
    ("requests_per_s", "requests per second", "1/s"),
)


def draw(points: Sequence[Point], folder: Path) -> list[Path]:
    """One PNG per figure of `PLOTS` (a panel per workload), one for time to first token. Returns the files written."""
    import matplotlib

    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    throughput = [p for p in points if p["phase"] == "throughput" and "skipped" not in p]
    ttft = [p for p in points if p["phase"] == "ttft"]
    written = []
    if throughput:
        written += [_panels(throughput, *plot, folder / f"{plot[0]}.png") for plot in PLOTS]
    if ttft:
        written.append(_ttft(ttft, folder / "ttft.png"))
    return written


def _panels(points: Sequence[Point], key: str, title: str, unit: str, path: Path) -> Path:
    from matplotlib import pyplot

    names = sorted({point["workload"] for point in points})
    variants = list(dict.fromkeys(point["variant"] for point in points))
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names) + 2, 4), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        for variant in variants:
            measured: dict[int, list[float]] = {}
            for point in points:
                if (point["workload"], point["variant"]) == (name, variant) and point[key] is not None:
                    measured.setdefault(point["concurrency"], []).append(point[key])
            pairs = sorted((concurrency, sum(v) / len(v)) for concurrency, v in measured.items())
            axis.plot([str(c) for c, _ in pairs], [v for _, v in pairs], marker="o", label=variant)
        if key == "tpot_ratio":
            axis.axhline(1, color="grey", linewidth=0.8)
        axis.set(title=Path(name).name, xlabel="requests at once", ylabel=unit)
        axis.set_ylim(bottom=0)
    axes[0][0].legend(fontsize="small")
    return _save(figure, title, path)


def _ttft(points: Sequence[Point], path: Path) -> Path:
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(2 + 1.6 * len(points), 4))
    for offset, (kind, label) in enumerate((("none", "no constraint"), ("cached", "seen"), ("new", "never seen"))):
        heights = [point["ttft_ms_p50"].get(kind, 0) for point in points]
        axis.bar([i + 0.27 * (offset - 1) for i in range(len(points))], heights, width=0.25, label=label)
    axis.set_xticks(range(len(points)), [point["variant"] for point in points], rotation=20, ha="right")
    axis.set_ylabel("ms, median")
    axis.legend(fontsize="small")
    return _save(figure, "time to first token", path)


def _save(figure: Any, title: str, path: Path) -> Path:
    from matplotlib import pyplot

    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path


def page(path: Path, about: dict[str, Any], tables: str, images: Sequence[Path]) -> None:
    """Write the HTML page; ``tables`` is the text that the terminal showed."""
    pictures = "".join(
        f'<img alt="{html.escape(image.stem)}" src="data:image/png;base64,'
        f'{base64.b64encode(image.read_bytes()).decode()}">'
        for image in images
    )
    facts = "".join(f"<tr><th>{html.escape(k)}<td>{html.escape(str(v))}" for k, v in about.items())
    path.write_text(
        '<!doctype html><meta charset="utf-8"><title>dotllm bench-structured</title>'
        "<style>body{font:14px sans-serif;margin:2em}img{max-width:100%}th{text-align:left;padding-right:1em}"
        "pre{font:11px monospace;overflow-x:auto}</style><h1>Structured output, measured</h1>"
        f"<table>{facts}</table>{pictures}<pre>{html.escape(tables)}</pre>\n",
        encoding="utf-8",
    )
