"""The intended differences: ``differences.json``, each with its reason."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

LIST = Path(__file__).with_name("differences.json")
ENTRIES: list[dict[str, Any]] = json.loads(LIST.read_text())
"""``case`` and ``what`` are regular expressions that match the beginning of a case's name and of its difference;
``kinds`` are kinds of twins, all by default."""


class Verdict(NamedTuple):
    """What the list says about the requests of a kind."""

    by_reason: dict[str, int]
    unlisted: list[Any]
    used: set[int]


def judge(kind: str, rows: Sequence[Any]) -> Verdict:
    """Judge rows with a name ``case`` and a difference ``what``."""
    reasons, unlisted, used = Counter[str](), [], set[int]()
    for row in rows:
        if row.what:
            number = reason_of(kind, row.case, row.what)
            if number is None:
                unlisted.append(row)
            else:
                used.add(number)
                reasons[ENTRIES[number]["reason"]] += 1
    return Verdict(dict(reasons), unlisted, used)


def reason_of(kind: str, case: str, what: str) -> int | None:
    """The index of the first entry that explains the difference."""
    for number, entry in enumerate(ENTRIES):
        if (
            kind in entry.get("kinds", [kind])
            and re.match(entry.get("case", ""), case)
            and re.match(entry["what"], what, re.DOTALL)
        ):
            return number
    return None


def stale(used: set[int]) -> list[str]:
    """The reasons that explained no difference."""
    return [entry["reason"] for number, entry in enumerate(ENTRIES) if number not in used]
