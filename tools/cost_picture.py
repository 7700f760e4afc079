"""What a constraint costs, as README shows it: its picture and the rows of its table, out of the measured points.

    python -m tools.cost_picture             # writes docs/images/cost-*.svg and README's rows

A figure is the wall time of a burst over that of the same burst without a constraint.
``tests/test_cost_picture.py`` fails where README or a picture differs from the points.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RUN = "57"
"""All figures are of this one."""
ENGINES = ("dotllm", "xgrammar", "guidance")
SETS = {
    "8B, real schemas": ("8B", "real", ""),
    "8B, tool calls": ("8B", "tools", ""),
    "8B, enums, numbers, patterns": ("8B", "closed", ""),
    "8B, tool calls, EAGLE-3": ("8B", "tools", "eagle3"),
    "0.5B, real schemas": ("0.5B", "real", ""),
    "0.5B, tool calls": ("0.5B", "tools", ""),
}
"""A name in README: model, set of schemas, method of speculation."""
PICTURE = "8B, tool calls"
TITLE = "tool calls, 8B model, vLLM 0.33, H200"
CONCURRENCIES = (1, 32, 256)
COLORS = {
    "light": {"text": "#1f2328", "line": "#d0d7de", "dotllm": "#0969da", "xgrammar": "#afb8c1", "guidance": "#d0d7de"},
    "dark": {"text": "#e6edf3", "line": "#30363d", "dotllm": "#58a6ff", "xgrammar": "#6e7681", "guidance": "#484f58"},
}


def ratios(points: list[dict[str, Any]], set_name: str) -> dict[str, list[float]]:
    """Of each engine, one for each of `CONCURRENCIES`, for schemas seen before; [] where none was measured."""
    model, outputs, speculation = SETS[set_name]
    wanted = {"run": RUN, "model": model, "outputs": outputs, "new": False, "coalescence": "off"}
    found = {
        (point["engine"], point["concurrency"]): point["wall_ratio"]
        for point in points
        if wanted.items() <= point.items() and speculation == speculation_of(point["flags"])
    }
    return {
        engine: [found[engine, number] for number in CONCURRENCIES if (engine, number) in found] for engine in ENGINES
    }


def speculation_of(flags: str) -> str:
    """The method in a server's flags, "" for none."""
    method = re.search(r'--speculative-config .*"method": "(\w+)"', flags)
    return method[1] if method else ""


def row(points: list[dict[str, Any]], set_name: str) -> str:
    """A row of README's table."""
    cells = [" / ".join(f"{value:.2f}" for value in values) or "-" for values in ratios(points, set_name).values()]
    return f"| {' | '.join((set_name, *cells))} |"


def with_rows(text: str, points: list[dict[str, Any]]) -> str:
    """README's text with the rows of `SETS` as measured."""
    lines = text.split("\n")
    for number, line in enumerate(lines):
        for name in SETS:
            if line.startswith(f"| {name} |"):
                lines[number] = row(points, name)
    return "\n".join(lines)


def picture(points: list[dict[str, Any]], theme: str) -> str:
    """An SVG with a bar for each engine and number of requests: the time that the constraint adds, in percent."""
    color, measured = COLORS[theme], ratios(points, PICTURE)
    scale = 150 / max(max(values) - 1 for values in measured.values())
    out = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 250" font-family="sans-serif" font-size="13"'
        f' fill="{color["text"]}" text-anchor="middle">',
        f'<text x="20" y="20" text-anchor="start">Time that a constraint adds: {TITLE}</text>',
        f'<path d="M20 210H620" stroke="{color["line"]}"/>',
    ]
    for group, requests in enumerate(CONCURRENCIES):
        left = 35 + 200 * group
        out.append(f'<text x="{left + 85}" y="228">{requests} request{"s" if requests > 1 else ""}</text>')
        for place, (engine, values) in enumerate(measured.items()):
            extra = values[group] - 1
            height, x = max(extra * scale, 1), left + 60 * place
            out.append(
                f'<rect x="{x}" y="{210 - height:.1f}" width="50" height="{height:.1f}" fill="{color[engine]}"/>'
                f'<text x="{x + 25}" y="{204 - height:.1f}">{extra:+.0%}</text>'
            )
    for place, engine in enumerate(measured):
        out.append(
            f'<rect x="{20 + 110 * place}" y="30" width="11" height="11" fill="{color[engine]}"/>'
            f'<text x="{36 + 110 * place}" y="40" text-anchor="start">{engine}</text>'
        )
    return "\n".join([*out, "</svg>", ""])


def files() -> dict[Path, str]:
    """What each file should hold."""
    points = json.loads((ROOT / "benchmarks" / "results" / "h200.json").read_text())["points"]
    readme = ROOT / "README.md"
    pictures = {ROOT / "docs" / "images" / f"cost-{theme}.svg": picture(points, theme) for theme in COLORS}
    return {readme: with_rows(readme.read_text(), points), **pictures}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
