"""Specs that blow engines up, each in a fresh watched process: ``python -m benchmarks.blowups`` (issue 3, show 5).

A case passes if compiling it and its first mask, or refusing it by name, takes at most 250 ms of CPU, and the process
(with its vocabulary) never holds more than 512 MiB. The masks along a case's samples are measured, too.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks import adapters, clock, tokens
from benchmarks.adapters.base import Options, Refused, Spec
from benchmarks.histogram import Histogram
from benchmarks.isolation import Isolated, peak_rss_bytes
from benchmarks.make_specs import closed
from benchmarks.walk import NotAllowed, Times, walk

RESULTS = Path(__file__).parent / "results" / "blowups.json"
LIMIT_MS, LIMIT_MIB = 250.0, 512.0


def schema(name: str, spec: Any, *values: Any) -> Spec:
    """A JSON Schema case with instances."""
    return Spec(name, "json_schema", spec, tuple(json.dumps(value, ensure_ascii=False) for value in values))


def openapi(size: int) -> dict[str, Any]:
    """A document of at least ``size`` bytes in the style of an OpenAPI file: components that refer to each other."""
    rng = random.Random(1)
    definitions: dict[str, Any] = {}
    length = 0
    while length < size:
        name = f"Component{len(definitions)}"
        properties: dict[str, Any] = {
            f"field_{i}_{rng.randrange(1000)}": rng.choice(
                [
                    {
                        "type": "string",
                        "maxLength": rng.randrange(10, 300),
                        "description": "what this field means " * 3,
                    },
                    {"type": "integer", "minimum": 0, "maximum": rng.randrange(1, 10**6)},
                    {"type": "array", "items": {"type": "string", "format": "date-time"}},
                    {"enum": [f"value_{rng.randrange(10**5)}" for _ in range(8)]},
                    {"$ref": f"#/components/schemas/Component{rng.randrange(max(1, len(definitions)))}"},
                ]
            )
            for i in range(12)
        }
        definitions[name] = {"type": "object", "properties": properties, "required": list(properties)[:3]}
        length += len(json.dumps(definitions[name])) + len(name) + 4
    return {
        "components": {"schemas": definitions},
        "anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in list(definitions)[-20:]],
    }


def nested(depth: int) -> tuple[Any, Any]:
    """Objects nested ``depth`` deep, and an instance."""
    spec: Any = {"type": "integer"}
    value: Any = 1
    for i in reversed(range(depth)):
        spec, value = closed({f"level_{i}": spec}), {f"level_{i}": value}
    return spec, value


def chain(length: int) -> Any:
    """A chain of ``length`` references."""
    links: dict[str, Any] = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)}
    return {"$defs": {**links, f"d{length}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def cases() -> Iterator[Spec]:
    """All cases: first the issue's list, then those of the field's security advisories."""
    rng = random.Random(0)
    big_enum = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=10)) for _ in range(10_000)]
    eight = {"$defs": {"e": {"enum": big_enum}}, **closed({f"p{i}": {"$ref": "#/$defs/e"} for i in range(8)})}
    yield schema("enum of 10,000, referenced 8 times", eight, {f"p{i}": big_enum[i * 1000] for i in range(8)})
    optional = {f"property_{i}": {"type": "integer"} for i in range(200)}
    yield schema("200 optional properties, closed", closed(optional, []), dict.fromkeys(list(optional)[::3], 1))
    yield schema("200 optional properties, open", {"type": "object", "properties": optional}, {"property_7": 1, "x": 2})
    overlapping = [
        {"type": "object", "properties": {f"k{j}": {"type": t} for j, t in enumerate(_types(rng))}, "required": ["k0"]}
        for _ in range(100)
    ]
    yield schema("anyOf of 100 overlapping objects", {"anyOf": overlapping}, {"k0": 1, "zzz": None})
    deep, deep_value = nested(64)
    yield schema("64 deep", deep, deep_value)
    exactly = {"type": "array", "items": {"type": "integer"}, "minItems": 5000, "maxItems": 5000}
    yield schema("exactly 5,000 items", exactly, [i % 10 for i in range(5000)])
    lists: Any = {"type": "string", "maxLength": 100}
    for _ in range(3):
        lists = {"type": "array", "items": lists, "maxItems": 100}
    yield schema("bounded lists, nested 3 deep", lists, [[["a", "bb"]] * 3] * 10)
    yield schema("OpenAPI document of 1 MiB", openapi(2**20))

    yield Spec("nested bounded lists, regex", "regex", r"(([a-z]{1,200},){1,200};){1,200}", ("ab,c,;d,;" * 20,))
    yield Spec("(a|b)*a(a|b){20}", "regex", "(a|b)*a(a|b){20}", ("ab" * 30 + "a" + "b" * 20,))
    yield Spec("a{0,1000000}", "regex", "a{0,1000000}", ("a" * 500,))
    yield Spec("30,000 nested parentheses", "regex", "(" * 30_000 + "a" + ")" * 30_000)
    yield Spec("alternation of 20,000", "regex", "|".join(big_enum + [w[::-1] for w in big_enum]), (big_enum[5],))
    yield Spec("choice of 100,000", "choice", [f"{w}{i}" for w in big_enum for i in range(10)], (big_enum[5] + "7",))
    yield schema("reference chain of 10,000", chain(10_000), 7)
    yield schema("maxLength 2^31", {"type": "string", "maxLength": 2**31}, "abc")
    yield schema("multipleOf 99991, bounded", {"type": "integer", "multipleOf": 99_991, "minimum": 0}, 0)
    yield schema("allOf of 200 patterns", {"allOf": [{"pattern": f"a{{{i}}}"} for i in range(200)]}, "a" * 200)
    yield Spec("a ::= a", "grammar", {"lark": "start: start", "ebnf": "root ::= root"})
    rules = "\n".join(f'r{i}: "x{i}" r{i + 1} | "y"' for i in range(1000))
    ebnf = "\n".join(f'r{i} ::= "x{i}" r{i + 1} | "y"' for i in range(1000))
    last = {"lark": f'start: r0\n{rules}\nr1000: "z"', "ebnf": f'root ::= r0\n{ebnf}\nr1000 ::= "z"'}
    yield Spec("1,000 rules", "grammar", last, ("x0x1x2y",))
    literal = "ab" * 50_000
    yield Spec("literal of 100,000", "grammar", {"lark": f'start: "{literal}"', "ebnf": f'root ::= "{literal}"'})


def _types(rng: random.Random) -> list[str]:
    kinds = ["string", "integer", "boolean", "number", "null"]
    return ["integer", *(rng.choice(kinds) for _ in range(9))]


def start(name: str) -> Callable[[Spec], dict[str, Any]]:
    """Set the engine up in the child and return the function that measures one case."""
    vocabulary = tokens.load()
    engine = adapters.load(name, vocabulary, Options())
    engine.compile(Spec("warm-up", "json_schema", closed({"a": {"type": "string"}}))).matcher().fill()
    gc.collect()
    gc.freeze()  # as a server does when it has started
    before = peak_rss_bytes()

    def measure(spec: Spec) -> dict[str, Any]:
        begin, begin_wall = clock.cpu_ns(), clock.wall_ns()
        row: dict[str, Any] = {"case": spec.name, "engine": name}
        try:
            compiled = engine.compile(spec)
            compiled.matcher().fill()
        except Refused as error:
            row["refused"] = f"{error.keyword or 'refused'}: {error}"[:200]
        row["cpu_ms"] = (clock.cpu_ns() - begin) / 1e6
        row["wall_ms"] = (clock.wall_ns() - begin_wall) / 1e6
        if "refused" not in row:
            times = Times()
            try:
                for text in spec.texts:
                    walk(compiled.matcher(), vocabulary.encode(text), vocabulary.eos, times)
            except NotAllowed as error:
                times.wrong_masks += 1
                row["stopped"] = str(error)
            row |= {"masks": Histogram(times.fill).summary_us(), "wrong_masks": times.wrong_masks}
        row |= {"peak_mib": peak_rss_bytes() / 2**20, "before_mib": before / 2**20}
        return row

    return measure


def judge(row: dict[str, Any]) -> str:
    """Why a row fails, or an empty string."""
    faults = [kind for kind in ("timeout", "memory", "crash", "error") if row.get("outcome") == kind]
    if row.get("cpu_ms", 0) > LIMIT_MS:
        faults.append(f"> {LIMIT_MS:g} ms")
    if row.get("peak_mib", 0) > LIMIT_MIB:
        faults.append(f"> {LIMIT_MIB:g} MiB")
    if row.get("wrong_masks"):
        faults.append("sample rejected")
    return ", ".join(faults)


def show(rows: list[dict[str, Any]]) -> None:
    """A line per case and engine."""
    table = Table("case", "engine", "cpu ms", "wall ms", "peak MiB", "mask µs mean", "max", "verdict")
    for row in rows:
        masks = row.get("masks", {})
        figures = [f"{row[k]:.1f}" if k in row else "-" for k in ("cpu_ms", "wall_ms", "peak_mib")]
        figures += [f"{masks[k]:.4g}" if k in masks else "-" for k in ("mean", "max")]
        verdict = f"[red]{row['fault']}" if row["fault"] else "[green]ok"
        table.add_row(row["case"], row["engine"], *figures, f"{verdict} {row.get('refused', '')[:70]}")
    Console(width=170).print(table)


def main() -> int:
    """Command line. Exit status 1 if dotllm fails a case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engines", default="dotllm")
    parser.add_argument("--only", default="", help="cases whose names hold this text")
    parser.add_argument("--time-limit", type=float, default=60)
    parser.add_argument("--memory-limit", type=int, default=4096, help="MiB")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    tasks = [(s, name) for s in cases() if options.only in s.name for name in options.engines.split(",")]
    rows = []
    for spec, name in track(tasks, "blow-ups"):
        worker = Isolated(start, (name,), seconds=options.time_limit, memory_bytes=options.memory_limit << 20)
        outcome = worker.ask(spec)
        worker.stop()
        row = outcome.value if outcome.kind == "done" else {"case": spec.name, "engine": name, "why": outcome.value}
        row["outcome"] = outcome.kind
        row["fault"] = judge(row)
        rows.append(row)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False))
    show(rows)
    return int(any(row["fault"] for row in rows if row["engine"] == "dotllm"))


if __name__ == "__main__":
    raise SystemExit(main())
