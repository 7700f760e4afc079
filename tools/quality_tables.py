"""How many answers are right, as README and docs/answer-quality.md show it, out of measured runs.

    python -m tools.quality_tables             # writes the tables into both pages
    python -m tools.quality_tables RUN.json…   # first takes over these runs of `dotllm bench-quality`

``benchmarks/results/quality.json`` has a letter for each answer, so that runs can be compared case by case, and no
text. ``tests/test_quality_tables.py`` fails where a page differs from it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from dotllm.bench.quality import figures

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "quality.json"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "answer-quality.md"
BEGIN, END = "<!-- {}, written by tools/quality_tables.py -->", "<!-- end -->"
RIGHT = "R"
REFUSED = "refused"
ENGINES = ("dotllm", "xgrammar", "guidance")
Record = dict[str, Any]

# Rows: what they are called, arm and run.
ARMS = {
    "a JSON Schema": "json_schema",
    "a JSON Schema that the prompt shows": "prompted json_schema",
    "a forced call, `strict`": "strict tools",
    "a forced call without `strict`": "tools",
}
OPTIONS = {
    'objects open, as in "dotllm before"': ("before", "json_schema", "json_schema"),
    "keys in any order": ("any order", "json_schema", "json_schema"),
    "compact (`disable_any_whitespace`)": ("compact", "json_schema", "json_schema"),
    "`dotllm_finish`": ("finish", "json_schema", "json_schema"),
    "values from the question (`dotllm_source`)": ("sourced", "sourced json_schema", "json_schema"),
    "reasoning first, in a separate request": ("thoughts", "think", "json_schema"),
    "the schema in the prompt, too": ("dotllm", "prompted json_schema", "json_schema"),
    "values from the question, schema in the prompt": ("sourced", "sourced prompted json_schema", "json_schema"),
    "forced calls, values from the question": ("sourced", "sourced tools", "tools"),
    'forced calls, objects open, as in "dotllm before"': ("before", "strict tools", "strict tools"),
    "forced calls, compact": ("compact", "tools", "tools"),
    "forced calls, `dotllm_finish`": ("finish", "tools", "tools"),
}
"""Run and arm of an option, and the arm of the default that it is compared with."""
CLASSES = {
    "dotllm": ("dotllm", "json_schema"),
    "`dotllm_source`": ("sourced", "sourced json_schema"),
    "xgrammar": ("xgrammar", "json_schema"),
    "dotllm, forced calls": ("dotllm", "tools"),
}
"""Run and arm of a column of classes."""


def letter(answer: Record) -> str:
    """Right, wrong but valid, parsed but invalid, cut, refused, or else without anything that could be read."""
    if answer["right"]:
        return RIGHT
    if answer["parsed"]:
        return "w" if answer["valid"] else "i"
    return "c" if answer["cut"] else "x" if answer["refused"] else "u"


def take_over(results: Record, run: Record) -> None:
    """Put a run of `dotllm bench-quality` into ``results``, under the name that it has."""
    arms: Record = {}
    for answer in run["answers"]:
        of_set = arms.setdefault(answer["arm"], {}).setdefault(
            answer["set"], {"letters": "", "tokens": 0, "cut": 0, "kinds": {}}
        )
        cases = results["cases"].setdefault(answer["set"], [])
        place = len(of_set["letters"])
        if place == len(cases):
            cases.append(answer["case"])
        if cases[place] != answer["case"]:
            raise SystemExit(f"{run['about']['name']}: {answer['case']} stands where {cases[place]} does in other runs")
        of_set["letters"] += letter(answer)
        of_set["tokens"] += answer["tokens"]
        of_set["cut"] += answer["cut"]
        if answer["kind"]:
            of_set["kinds"][answer["kind"]] = of_set["kinds"].get(answer["kind"], 0) + 1
    results["runs"].setdefault(run["about"]["name"], {}).update(arms)


def answers(results: Record, run: str, arm: str) -> list[Record]:
    """As `figures.paired` wants them; of all sets where something is to be called."""
    sets = results["runs"][run][arm]
    listed = [
        {"set": name, "case": case, "right": mark == RIGHT, "letter": mark}
        for name, found in sets.items()
        for case, mark in zip(results["cases"][name], found["letters"], strict=True)
    ]
    return figures.of_set(listed, "all")


def total(results: Record, run: str, arm: str, key: str) -> int:
    """Tokens or cut answers of all sets where something is to be called."""
    return sum(found[key] for name, found in results["runs"][run][arm].items() if name not in figures.NO_ANSWERS)


def right(results: Record, run: str, arm: str) -> str:
    """How many are right, or that all were refused."""
    found = answers(results, run, arm)
    if all(answer["letter"] == "x" for answer in found):
        return REFUSED
    return str(sum(answer["right"] for answer in found))


def difference(results: Record, run: str, arm: str, run_there: str, arm_there: str) -> str:
    """Right answers more or less, with the interval."""
    found = figures.paired(answers(results, run, arm), answers(results, run_there, arm_there))
    assert found is not None
    low, high = found["interval"]
    return f"{found['won'] - found['lost']:+d} ({low:+d} to {high:+d})"


def rows(lines: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; the first line is its head."""
    head, *body = lines
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *body))


def readme_table(results: Record) -> str:
    """Right answers of each engine."""
    head = (f"right answers of {len(answers(results, 'free', 'free')):,}", "no constraint", *ENGINES)
    free = {"json_schema": right(results, "free", "free")}
    shown = [(name, arm) for name, arm in ARMS.items() if arm != "prompted json_schema"]
    return rows(
        [head, *((name, free.get(arm, ""), *(right(results, run, arm) for run in ENGINES)) for name, arm in shown)]
    )


def engines_table(results: Record) -> str:
    """Engines in each arm: right, cut, tokens, and what dotllm has more."""
    lines: list[Sequence[str]] = [
        ("", "engine", "right", *results["cases"], "valid, but wrong", "cut", "tokens", "dotllm has more")
    ]
    asked = [("no constraint", "free", "free"), ("no constraint, the schema in the prompt", "prompted", "prompted")]
    asked += [(name, run, arm) for name, arm in ARMS.items() for run in (*ENGINES, "before")]
    for name, run, arm in asked:
        found = results["runs"][run][arm]
        if right(results, run, arm) == REFUSED:
            lines.append((name, run, REFUSED, *[""] * (len(results["cases"]) + 4)))
            continue
        per_set = [str(found[s]["letters"].count(RIGHT)) if s in found else "" for s in results["cases"]]
        wrong = sum(answer["letter"] == "w" for answer in answers(results, run, arm))
        more = "" if run in ("dotllm", "free", "prompted") else difference(results, "dotllm", arm, run, arm)
        engine = {"free": "", "prompted": "", "before": "dotllm before"}.get(run, run)
        counts = (wrong, total(results, run, arm, "cut"), total(results, run, arm, "tokens"))
        lines.append((name, engine, right(results, run, arm), *per_set, *(f"{n:,}" for n in counts), more))
    return rows(lines)


def options_table(results: Record) -> str:
    """What an option does, against the default."""
    lines: list[Sequence[str]] = [("", "right", "against the default", "cut", "tokens")]
    for name in ("json_schema", "tools"):
        counts = (total(results, "dotllm", name, key) for key in ("cut", "tokens"))
        called = "the default" if name == "json_schema" else "the default, forced calls"
        lines.append((called, right(results, "dotllm", name), "", *(f"{n:,}" for n in counts)))
    for name, (run, arm, default) in OPTIONS.items():
        counts = (total(results, run, arm, key) for key in ("cut", "tokens"))
        against = difference(results, run, arm, "dotllm", default)
        lines.append((name, right(results, run, arm), against, *(f"{n:,}" for n in counts)))
    return rows(lines)


def classes_table(results: Record) -> str:
    """What is wrong with answers, by class."""
    columns: list[Counter[str]] = []
    for run, arm in CLASSES.values():
        found = results["runs"][run][arm]
        columns.append(sum((Counter(found[name]["kinds"]) for name in found), Counter()))
    ordered = sorted({*chain(*columns)}, key=lambda kind: (kind.startswith("cut"), -columns[0][kind], kind))
    lines = [(kind, *(f"{column[kind]:,}" for column in columns)) for kind in ordered]
    return rows([("class", *CLASSES), *lines, ("all", *(f"{column.total():,}" for column in columns))])


TABLES = {
    README: {"right answers": readme_table},
    PAGE: {"engines": engines_table, "options": options_table, "classes": classes_table},
}


def written(page: Path, results: Record) -> str:
    """The page with its tables."""
    text = page.read_text()
    for name, table in TABLES[page].items():
        begin = BEGIN.format(name)
        before, rest = text.split(begin)
        _, after = rest.split(END, 1)
        text = f"{before}{begin}\n{table(results)}\n{END}{after}"
    return text


def read() -> Record:
    """The measured answers."""
    results: Record = json.loads(RESULTS.read_text())
    return results


def main(paths: Sequence[str]) -> None:
    """See the module."""
    results = read() if RESULTS.exists() else {"about": {}, "cases": {}, "runs": {}}
    for path in paths:
        take_over(results, json.loads(Path(path).read_text()))
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    for page in TABLES:
        page.write_text(written(page, results))


if __name__ == "__main__":
    main(sys.argv[1:])
