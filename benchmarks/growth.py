"""How time and memory grow with a specification: ``python -m benchmarks.growth``.

Measures each construct at 1, 2, 4 and 8 times its smallest size, each in a fresh process: CPU milliseconds of
compiling and the first mask, MiB that they add to the process, and the mean and slowest mask of a walk. The exponent
is that of the last doubling (1: linear); refusals are shown. The vocabulary is made up and small, so that costs that
grow with it do not interfere.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import clock
from benchmarks.isolation import Isolated, peak_rss_bytes
from dotllm import Index, SpecError
from tools.digest import vocabulary

Schema = dict[str, Any]
INTEGER = {"type": "integer"}


class Case(NamedTuple):
    """A construct. ``kind``: the constructor of Index; ``make``: the specification for a size; ``text``: the text to
    walk, "" for none; ``options``: those of the constructor."""

    name: str
    smallest: int
    kind: str
    make: Callable[[int], Any]
    text: Callable[[int], str] = lambda _: ""
    options: Schema | None = None


def _object(properties: Schema, **more: Any) -> Schema:
    return {"type": "object", "properties": properties, **more}


def _keys(n: int) -> Schema:
    return {f"p{i}": INTEGER for i in range(n)}


def _cases_of(n: int, *, is_needed: bool, keys: Schema) -> Schema:
    condition: Schema = {"required": ["k"]} if is_needed else {}
    cases = [
        {"if": {"properties": {"k": {"const": f"v{i}"}}, **condition}, "then": {"required": [f"p{i}"]}}
        for i in range(n)
    ]
    return _object({"k": {"type": "string"}, **keys}, required=["k"], allOf=cases)


def _chain(n: int) -> str:
    return "\n".join(["start: T0", *(f'T{i}: "a" T{i + 1}' for i in range(n)), f'T{n}: "b"'])


CASES = (
    Case(
        "optional properties", 1000, "json_schema", lambda n: _object(_keys(n)), lambda _: json.dumps(_keys_written(99))
    ),
    Case(
        "properties in any order", 100, "json_schema", lambda n: _object(_keys(n)),
        lambda n: json.dumps(dict(reversed(_keys_written(n).items())))[:1500], {"property_order": "any"},
    ),
    Case("if/then for each value", 64, "json_schema", lambda n: _cases_of(n, is_needed=True, keys={})),
    Case("if/then, keys declared", 32, "json_schema", lambda n: _cases_of(n, is_needed=False, keys=_keys(n))),
    Case(
        "patternProperties", 32, "json_schema",
        lambda n: _object({}, patternProperties={f"^k{i}_": {"type": "string", "maxLength": i} for i in range(n)}),
        lambda n: json.dumps({f"k{i}_": "" for i in range(20)}),
    ),
    Case(
        "patternProperties, properties", 32, "json_schema",
        lambda n: _object(
            {f"k{i}_x": {} for i in range(n)}, patternProperties={f"^k{i}_": {"maxLength": i} for i in range(n)}
        ),
    ),
    Case(
        "allOf of one property", 1000, "json_schema",
        lambda n: {"allOf": [_object({f"p{i}": INTEGER}) for i in range(n)]},
    ),
    Case(
        "allOf, the same property", 1000, "json_schema",
        lambda n: {"allOf": [_object({"p": {"type": "integer", "minimum": i}}) for i in range(n)]},
    ),
    Case(
        "oneOf with discriminator", 128, "json_schema",
        lambda n: {"oneOf": [_object({"t": {"const": f"v{i}"}, "x": INTEGER}, required=["t"]) for i in range(n)]},
    ),
    Case(
        "dependentRequired chain", 250, "json_schema",
        lambda n: _object(_keys(n), required=["p0"], dependentRequired={f"p{i}": [f"p{i + 1}"] for i in range(n - 1)}),
    ),
    Case(
        "dependentRequired, none needed", 250, "json_schema",
        lambda n: _object(_keys(n), dependentRequired={f"p{i}": [f"p{i + 1}"] for i in range(n - 1)}),
    ),
    Case("Lark terminal chain", 250, "grammar", _chain),
    Case(
        "Lark (w1|…|wn) & …", 125, "grammar",
        lambda n: "start: A\nA: ({}) & /[a-z0-9]+/".format("|".join(f'"w{i}"' for i in range(n))),
    ),
    Case(
        "Lark & of n", 125, "grammar",
        lambda n: "start: A\nA: {}".format(" & ".join(["/[a-z]+/", *(f"/.*{chr(97 + i % 26)}?.*/" for i in range(n))])),
    ),
    Case(
        "right recursion, optional tail", 250, "grammar",
        lambda _: 'start: l\nl: "x" | "x" "," l WS?\nWS: /[ ]+/', lambda n: "x" + ",x" * n,
    ),
    Case(
        "rules that end at one token, else", 125, "grammar",
        lambda _: 'start: s\ns: "i" s "e" s | "i" s | "x"', lambda n: "i" * n + "x" + "ex" * (n // 2),
    ),
    Case(
        "rules that end at one token, prefix", 250, "grammar",
        lambda _: 'start: e\ne: "-" e | "x"', lambda n: "-" * n + "x",
    ),
    Case("ambiguous, s: s s", 250, "grammar", lambda _: 'start: s\ns: s s | "x"', "x".__mul__),
    Case(
        "ambiguous, e: e + e", 250, "grammar",
        lambda _: 'start: e\ne: e "+" e | e "*" e | "x"', lambda n: "x" + "+x*x" * (n // 4),
    ),
    Case("recursion in a counted loop", 25, "grammar", lambda _: 'start: a\na: ("x" a?){1,4}', "x".__mul__),
    Case(
        "the same written out", 25, "grammar",
        lambda _: 'start: a\na: "x" a? ("x" a? ("x" a? ("x" a?)?)?)?', "x".__mul__,
    ),
)  # fmt: skip


def _keys_written(n: int) -> dict[str, int]:
    return {f"p{i}": i for i in range(n)}


def start() -> Callable[[tuple[str, int]], dict[str, Any]]:
    """Set the engine up in the child and return the function that measures one size of a case."""
    tokens = vocabulary()
    for kind, spec in (("json_schema", _object(_keys(1))), ("grammar", 'start: A\nA: "a" & /a/')):
        getattr(Index, f"from_{kind}")(spec, tokens)

    def measure(question: tuple[str, int]) -> dict[str, Any]:
        name, size = question
        case = next(case for case in CASES if case.name == name)
        spec, before = case.make(size), peak_rss_bytes()
        begin = clock.cpu_ns()
        row: dict[str, Any] = {"size": size}
        masks: list[float] = []
        try:
            index = getattr(Index, f"from_{case.kind}")(spec, tokens, **(case.options or {}))
            guide, mask = index.guide(), np.zeros((1, index.masks.shape[1]), np.int32)
            guide.write_mask(mask)
            row["ms"] = (clock.cpu_ns() - begin) / 1e6
            for byte in case.text(size).encode():
                begin = clock.cpu_ns()
                guide.write_mask(mask)
                guide.advance(byte)
                masks.append((clock.cpu_ns() - begin) / 1e6)
        except SpecError as error:
            row["refused"] = f"{error.keyword or error.code}: {error.message}"
        if masks:
            row |= {"mean": sum(masks) / len(masks), "max": max(masks)}
        return row | {"mib": (peak_rss_bytes() - before) / 2**20}

    return measure


def exponent(rows: list[dict[str, Any]], figure: str) -> str:
    """The power of the size with which a figure grew over the last doubling that was measured."""
    values = [row[figure] for row in rows if figure in row]
    return f"{math.log2(values[-1] / values[-2]):.1f}" if len(values) > 1 and min(values[-2:]) > 0 else "-"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--time-limit", type=float, default=120)
    options = parser.parse_args()
    print("| construct | sizes | ms | exponent | MiB | ms a step, mean | max | refused |", "|---" * 8 + "|", sep="\n")
    for case in [case for case in CASES if options.only in case.name]:
        rows: list[dict[str, Any]] = []
        for size in (case.smallest << power for power in range(4)):
            worker = Isolated(start, (), seconds=options.time_limit, memory_bytes=4 << 30)
            outcome = worker.ask((case.name, size))
            worker.stop()
            rows.append(outcome.value if outcome.kind == "done" else {"size": size, "refused": outcome.kind})
        columns = [
            " / ".join(format(row[figure], form) if figure in row else "-" for row in rows)
            for figure, form in (("size", "d"), ("ms", ".0f"), ("mib", ".0f"), ("mean", ".2f"), ("max", ".1f"))
        ]
        refused = next((f"{row['size']}: {row['refused'][:60]}" for row in rows if "refused" in row), "")
        name = case.name.replace("|", "\\|")
        print("", name, *columns[:2], exponent(rows, "ms"), *columns[2:], refused, "", sep=" | ", flush=True)


if __name__ == "__main__":
    main()
