"""Runs every schema of a MaskBench file through the front end and the machine, and compares verdicts on its instances.
Objects are open, as in the standard.

This is not a benchmark (``benchmarks/maskbench.py`` is): it has no vocabulary, masks or peers. It feeds documents as
bytes, takes about a minute and says what is wrong: which valid instance was rejected at which byte, what was refused
and why, and which schemas cost most in the front end.

    python tools/schema_verdicts.py [--order any] [--only NAME …] [--slowest 20] [FILE.jsonl.gz]
"""

from __future__ import annotations

import argparse
import collections
import gzip
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

from dotllm import Index, Vocabulary
from dotllm.errors import SpecError
from dotllm.languages.json_schema import json_schema_to_grammar

DEFAULT = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "maskbench-open.jsonl.gz"


class Outcome(NamedTuple):
    """One schema: ``refusal`` if there was one; ``rejected`` and ``accepted`` are the indices of wrong verdicts."""

    name: str
    milliseconds: float
    refusal: SpecError | None
    rejected: list[tuple[int, str]]
    accepted: list[int]

    @property
    def passes(self) -> bool:
        """Whether all verdicts are right. Refusing a schema that nothing satisfies is right, too."""
        return self.refusal is None and not self.rejected and not self.accepted


def judge(row: dict[str, Any], vocabulary: Vocabulary, options: dict[str, Any]) -> Outcome:
    """The verdicts on one line of the file."""
    begin = time.process_time()
    try:
        grammar = json_schema_to_grammar(row["schema"], **options)
        milliseconds = (time.process_time() - begin) * 1e3
        index = Index.from_grammar_object(grammar, vocabulary)
    except SpecError as error:
        unsatisfiable = "nothing satisfies" in error.message and not any(test["valid"] for test in row["tests"])
        return Outcome(row["name"], (time.process_time() - begin) * 1e3, None if unsatisfiable else error, [], [])
    rejected: list[tuple[int, str]] = []
    accepted: list[int] = []
    for number, test in enumerate(row["tests"]):
        text = json.dumps(test["data"], ensure_ascii=False)
        try:
            data = text.encode()
        except UnicodeEncodeError:
            continue  # a lone surrogate has no UTF-8
        at = read(index, data)
        if test["valid"] and at is not None:
            before, behind = data[max(0, at - 40) : at], data[at : at + 30]
            rejected.append((number, f"{before.decode(errors='replace')}⟂{behind.decode(errors='replace')}"))
        elif not test["valid"] and at is None:
            accepted.append(number)
    return Outcome(row["name"], milliseconds, None, rejected, accepted)


def read(index: Index, data: bytes) -> int | None:
    """None if ``data`` is a whole text; otherwise how many of its bytes can begin one."""
    guide_start = index.guide().config
    config = index.advance_bytes(guide_start, data)
    if config >= 0 and index.can_finish(config):
        return None
    low, high = 0, len(data)
    while low < high:
        middle = (low + high + 1) // 2
        if index.advance_bytes(guide_start, data[:middle]) >= 0:
            low = middle
        else:
            high = middle - 1
    return low


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=DEFAULT)
    parser.add_argument("--order", choices=("declared", "any"), default="declared")
    parser.add_argument("--only", nargs="*", default=[], help="names of schemas")
    parser.add_argument("--slowest", type=int, default=5, help="how many of the slowest to list")
    parser.add_argument("--list", type=int, default=10, help="how many of each kind of failure to list")
    arguments = parser.parse_args()
    with gzip.open(arguments.file, "rt") as file:
        rows = [json.loads(line) for line in file]
    if arguments.only:
        rows = [row for row in rows if row["name"] in arguments.only]
    vocabulary = Vocabulary.from_bytes([bytes([byte]) for byte in range(256)] + [None], eos_token_ids=256)
    outcomes = [judge(row, vocabulary, {"order": arguments.order, "additional_properties": "open"}) for row in rows]

    passed = sum(outcome.passes for outcome in outcomes)
    print(f"{passed} of {len(outcomes)} schemas pass ({100 * passed / len(outcomes):.2f} %)")
    for what, wrong in (("reject a valid instance", "rejected"), ("accept an invalid instance", "accepted")):
        found = [outcome for outcome in outcomes if getattr(outcome, wrong)]
        print(f"{len(found)} {what}")
        for outcome in found[: arguments.list]:
            print(f"    {outcome.name}: {getattr(outcome, wrong)}")
    reasons: dict[str, list[Outcome]] = collections.defaultdict(list)
    for outcome in outcomes:
        if outcome.refusal is not None:
            reasons[f"{type(outcome.refusal).__name__} {outcome.refusal.keyword}"].append(outcome)
    print(f"{sum(map(len, reasons.values()))} refused")
    for reason, found in sorted(reasons.items(), key=lambda item: -len(item[1])):
        print(f"  {len(found):4} {reason}")
        for outcome in found[: arguments.list]:
            print(f"         {outcome.name}: {outcome.refusal}")
    times = sorted(outcome.milliseconds for outcome in outcomes)
    p = {q: times[min(len(times) - 1, int(len(times) * q / 100))] for q in (50, 90, 99)}
    print(f"front end, ms of CPU: p50 {p[50]:.3f}, p90 {p[90]:.3f}, p99 {p[99]:.3f}, max {times[-1]:.1f}")
    for outcome in sorted(outcomes, key=lambda o: -o.milliseconds)[: arguments.slowest]:
        print(f"    {outcome.milliseconds:9.1f} ms {outcome.name}")
    return 0 if not any(outcome.accepted or outcome.rejected for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
