"""What a constraint costs, as README shows it: makes its picture and the rows of its table from the measured points.

    python -m tools.cost_picture             # writes docs/images/cost-*.svg and README's rows

A figure is the wall time of a burst divided by that of the same burst without a constraint. Hosts differ, so a cell of
the table is the range over all runs on vLLM 0.33, the worst included. README's sentence about the worst ratios comes
from the same points. ``tests/test_cost_picture.py`` fails if README or a picture differs from the points.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
FIRST_RUN = 54
"""The first run on vLLM 0.33 that measured wall time."""
ENGINES = ("dotllm", "xgrammar", "guidance")
CONCURRENCIES = (1, 32, 256)


class Row(NamedTuple):
    """A row of README's table."""

    model: str
    outputs: str
    speculation: str = ""
    is_new: bool = False


ROWS = {
    "8B, real schemas": Row("8B", "real"),
    "8B, tool calls": Row("8B", "tools"),
    "8B, enums, numbers, patterns": Row("8B", "closed"),
    "8B, a new schema in each request": Row("8B", "agents", is_new=True),
    "0.5B, real schemas": Row("0.5B", "real"),
    "0.5B, tool calls": Row("0.5B", "tools"),
    "0.5B, enums, numbers, patterns": Row("0.5B", "closed"),
    "0.5B, a new schema in each request": Row("0.5B", "agents", is_new=True),
    "135M, trained, real schemas": Row("SmolLM2-135M", "real"),
    "70B on four GPUs, real schemas": Row("70B", "real"),
}
WORST = "<!-- the worst of each size, written by tools/cost_picture.py -->"
PICTURE = "8B, tool calls"
PICTURE_RUN = "57"
"""The one run in which all three engines took turns on this set."""
TITLE = "tool calls, 8B model, vLLM 0.33, one run on an H200"
COLORS = {
    "light": {"text": "#1f2328", "line": "#d0d7de", "dotllm": "#0969da", "xgrammar": "#afb8c1", "guidance": "#d0d7de"},
    "dark": {"text": "#e6edf3", "line": "#30363d", "dotllm": "#58a6ff", "xgrammar": "#6e7681", "guidance": "#484f58"},
}


class Point(NamedTuple):
    """One measured ratio of wall times."""

    row: Row
    engine: str
    requests: int
    ratio: float
    run: str


def points() -> list[Point]:
    """All points of the runs that count: on vLLM 0.33, of committed code, without coalescence."""
    results = ROOT / "benchmarks" / "results"
    measured = [point for raw in json.loads((results / "h200.json").read_text())["points"] for point in _point(raw)]
    for raw in json.loads((results / "h100.json").read_text())["points"]:
        row = Row(raw["model"], raw["outputs"], is_new=raw["new"])
        for requests, ratio in zip(CONCURRENCIES, raw["wall_ratios"], strict=True):
            measured.append(Point(row, raw["engine"], requests, ratio, raw["run"]))
    return measured


def _point(raw: dict[str, Any]) -> list[Point]:
    number = re.fullmatch(r"\d+", str(raw["run"]))
    if "wall_ratio" not in raw or number is None or int(number[0]) < FIRST_RUN:
        return []
    if raw["coalescence"] != "off" or raw.get("walk"):
        return []
    row = Row(raw["model"], raw["outputs"], speculation_of(raw["flags"]), bool(raw["new"]))
    return [Point(row, raw["engine"], raw["concurrency"], raw["wall_ratio"], str(raw["run"]))]


def speculation_of(flags: str) -> str:
    """The method in a server's flags, "" for none."""
    method = re.search(r'--speculative-config .*"method": "(\w+)"', flags)
    return method[1] if method else ""


def cell(measured: list[Point], row: Row, engine: str) -> str:
    """The ranges of an engine at each of `CONCURRENCIES`; "-" if one was not measured."""
    parts = []
    for requests in CONCURRENCIES:
        ratios = sorted(
            point.ratio for point in measured if (point.row, point.engine, point.requests) == (row, engine, requests)
        )
        if not ratios:
            return "-"
        least, most = f"{ratios[0]:.2f}", f"{ratios[-1]:.2f}"
        parts.append(least if least == most else f"{least}–{most}")
    return " / ".join(parts)


def worst(measured: list[Point]) -> str:
    """README's sentence: the slowest point of dotllm for each size of model."""
    phrases = []
    for model in ("70B", "8B", "0.5B", "SmolLM2-135M"):
        point = max(
            (
                each
                for each in measured
                if each.engine == "dotllm" and each.row.model == model and each.row in ROWS.values()
            ),
            key=lambda each: each.ratio,
        )
        name = next(name for name, row in ROWS.items() if row == point.row).partition(", ")[2]
        phrases.append(f"{model} {point.ratio:.2f} ({name}, {point.requests} requests)")
    return f"The worst ratios of all runs: {'; '.join(phrases)}."


def with_rows(text: str, measured: list[Point]) -> str:
    """README's text with the measured rows of `ROWS`, and the sentence after `WORST` from the same points."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for name, row in ROWS.items():
            if line.startswith(f"| {name} |"):
                lines[number] = f"| {' | '.join((name, *(cell(measured, row, engine) for engine in ENGINES)))} |"
        if line == WORST:
            lines[number + 1] = worst(measured)
    return "\n".join(lines)


def picture(measured: list[Point], theme: str) -> str:
    """An SVG with a bar for each engine and number of requests: the time that the constraint adds, in percent."""
    color = COLORS[theme]
    ratios = {
        engine: [
            next(
                point.ratio
                for point in measured
                if (point.row, point.engine, point.requests, point.run)
                == (ROWS[PICTURE], engine, requests, PICTURE_RUN)
            )
            for requests in CONCURRENCIES
        ]
        for engine in ENGINES
    }
    scale = 150 / max(max(values) - 1 for values in ratios.values())
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 250" font-family="sans-serif" font-size="13"'
        f' fill="{color["text"]}" text-anchor="middle">',
        f'<text x="20" y="20" text-anchor="start">Time that a constraint adds: {TITLE}</text>',
        f'<path d="M20 210H620" stroke="{color["line"]}"/>',
    ]
    for group, requests in enumerate(CONCURRENCIES):
        left = 35 + 200 * group
        out.append(f'<text x="{left + 85}" y="228">{requests} request{"s" if requests > 1 else ""}</text>')
        for place, (engine, values) in enumerate(ratios.items()):
            extra = values[group] - 1
            height, x = max(extra * scale, 1), left + 60 * place
            out.append(
                f'<rect x="{x}" y="{210 - height:.1f}" width="50" height="{height:.1f}" fill="{color[engine]}"/>'
                f'<text x="{x + 25}" y="{204 - height:.1f}">{extra:+.0%}</text>'
            )
    for place, engine in enumerate(ratios):
        out.append(
            f'<rect x="{20 + 110 * place}" y="30" width="11" height="11" fill="{color[engine]}"/>'
            f'<text x="{36 + 110 * place}" y="40" text-anchor="start">{engine}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def files() -> dict[Path, str]:
    """What each file should hold."""
    measured = points()
    readme = ROOT / "README.md"
    pictures = {ROOT / "docs" / "images" / f"cost-{theme}.svg": picture(measured, theme) for theme in COLORS}
    return {readme: with_rows(readme.read_text(), measured), **pictures}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
