"""Is a model right as often as it is sure? A picture and a paragraph in docs/inspector.md, of measured values.

    python -m tools.calibration_picture      # writes docs/images/calibration.svg and the paragraph

The values are those of ``benchmarks/results/calibration.json`` (`benchmarks.calibration`) whose probability is known,
in groups of the same size. The bar at a point is Wilson's interval of 95 %. ``tests/test_calibration_picture.py`` fails
where the page or the picture differs from the values.
"""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "calibration.json"
PAGE = ROOT / "docs" / "inspector.md"
BEGIN, END = "<!-- calibration, written by tools/calibration_picture.py -->", "<!-- end -->"
GROUPS = 8
STYLE = """<style>
text { fill: #1f2328 } path { stroke: #0969da; fill: none } circle { fill: #0969da } .axes { stroke: #d0d7de }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } path { stroke: #58a6ff } circle { fill: #58a6ff } .axes { stroke: #30363d }
}
</style>"""


class Value(NamedTuple):
    """A chosen member."""

    probability: float
    right: bool


class Group(NamedTuple):
    """Values of about the same probability."""

    values: list[Value]

    @property
    def sure(self) -> float:
        """The mean probability."""
        return sum(value.probability for value in self.values) / len(self.values)

    @property
    def right(self) -> float:
        """The share of the right ones."""
        return sum(value.right for value in self.values) / len(self.values)

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's, of `right`."""
        count, z = len(self.values), 1.96
        middle = (self.right + z * z / (2 * count)) / (1 + z * z / count)
        half = z * math.sqrt(self.right * (1 - self.right) / count + (z / (2 * count)) ** 2) / (1 + z * z / count)
        return middle - half, middle + half


def known(rows: list[dict[str, Any]]) -> list[Value]:
    """The values with a known probability, the least sure first."""
    return sorted(Value(row["probability"], row["right"]) for row in rows if row["probability"] is not None)


def groups(values: list[Value]) -> list[Group]:
    """`GROUPS` of them."""
    ends = [len(values) * i // GROUPS for i in range(GROUPS + 1)]
    return [Group(values[begin:end]) for begin, end in pairwise(ends)]


def error(parts: list[Group]) -> float:
    """The expected calibration error: how far sureness and rightness differ, on average over the values."""
    return sum(len(part.values) * abs(part.sure - part.right) for part in parts) / sum(len(p.values) for p in parts)


def paragraph(measured: dict[str, Any]) -> str:
    """What the page says."""
    rows = measured["rows"]
    values = known(rows)
    parts, every = groups(values), Group(values)
    served = sum(row["served"] is not None for row in rows)
    least, most = parts[0], parts[-1]
    return (
        f"![{_alt(parts)}](images/calibration.svg)\n\n"
        f"{measured['model']} was asked {measured['cases']} of {measured['of']} questions of BFCL for their "
        f"enumerations and booleans, at temperature 0 (`python -m benchmarks.calibration`). With "
        f"a server's 20 tokens per position, the probability of {served} of {len(rows)} values is known; with 256 "
        f"tokens, that of {len(values)}. The picture shows these {len(values)} values in eighths. The mean "
        f"probability of the chosen member is {every.sure:.0%}, and {every.right:.0%} are right: from "
        f"{least.sure:.0%} and {least.right:.0%} in the lowest eighth to {most.sure:.0%} and {most.right:.0%} in the "
        f"highest. The two differ by {error(parts):.2f} on average (expected calibration error)."
    )


def _alt(parts: list[Group]) -> str:
    return "Share of right values by their probability: " + ", ".join(
        f"{part.right:.0%} at {part.sure:.0%}" for part in parts
    )


def picture(parts: list[Group]) -> str:
    """An SVG: rightness against probability; a point on the diagonal is calibrated."""

    def x(value: float) -> float:
        return 60 + 300 * value

    def y(value: float) -> float:
        return 340 - 300 * value

    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 400 390" width="400" font-family="sans-serif"'
        ' font-size="13" text-anchor="middle">',
        STYLE,
        f'<text x="20" y="20" text-anchor="start">right, of {sum(len(part.values) for part in parts)} values</text>',
        '<path class="axes" d="M60 40V340H360M60 340L360 40"/>',
        '<text x="210" y="382">mean probability of the chosen member</text>',
    ]
    for tick in (0, 0.5, 1):
        lines.append(f'<text x="{x(tick):.0f}" y="360">{tick:.0%}</text>')
        lines.append(f'<text x="50" y="{y(tick) + 4:.0f}" text-anchor="end">{tick:.0%}</text>')
    for part in parts:
        low, high = part.interval
        lines.append(
            f'<path d="M{x(part.sure):.1f} {y(low):.1f}V{y(high):.1f}"/>'
            f'<circle cx="{x(part.sure):.1f}" cy="{y(part.right):.1f}" r="5"/>'
        )
    return "\n".join([*lines, "</svg>", ""])


def files() -> dict[Path, str]:
    """What each file should hold."""
    measured, page = json.loads(RESULTS.read_text()), PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = groups(known(measured["rows"]))
    drawn = {ROOT / "docs" / "images" / "calibration.svg": picture(parts)}
    return {PAGE: f"{before}{BEGIN}\n{paragraph(measured)}\n{END}{after}", **drawn}


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
