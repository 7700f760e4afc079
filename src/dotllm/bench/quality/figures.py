"""Counts a run's answers, compares two runs case by case, and prints both as tables.

The interval of a difference comes from a paired bootstrap: cases, each with its two answers, are drawn with replacement
10,000 times (Efron and Tibshirani, *An Introduction to the Bootstrap*, 1993, chapter 13).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from dotllm.bench.quality.bfcl import NO_ANSWERS

Record = dict[str, Any]
DRAWS = 10_000


def counts(answers: Iterable[Record]) -> Record:
    """The counts of one arm's answers."""
    answers = list(answers)
    wrong = [a for a in answers if a["valid"] and not a["right"]]
    return {
        "cases": len(answers),
        "right": sum(a["right"] for a in answers),
        "parsed": sum(a["parsed"] for a in answers),
        "valid": sum(a["valid"] for a in answers),
        "valid_but_wrong": len(wrong),
        "classes": dict(Counter(a["fault"] for a in wrong).most_common()),
        "cut": sum(a["cut"] for a in answers),
        "refused": sum(a["refused"] for a in answers),
        "failed": sum(bool(a["fault"]) and not a["parsed"] and not a["refused"] for a in answers),
        "tokens": sum(a["tokens"] for a in answers),
        "seconds": round(sum(a["seconds"] for a in answers), 1),
    }


def summary(answers: Sequence[Record]) -> list[Record]:
    """A row for each arm and set, in the order in which they came, and one for each arm over all sets with calls.

    (If the right answer has no call, a model that never writes JSON is always right.)
    """
    arms = dict.fromkeys(a["arm"] for a in answers)
    sets = dict.fromkeys(a["set"] for a in answers)
    rows = []
    for arm in arms:
        for name in (*sets, "all"):
            chosen = [a for a in of_set(answers, name) if a["arm"] == arm]
            if chosen and (name != "all" or len(sets) > 1):
                rows.append({"arm": arm, "set": name, **counts(chosen)})
    return rows


def of_set(answers: Iterable[Record], name: str) -> list[Record]:
    """The answers of a set, or of ``all`` sets whose right answers have calls."""
    return [a for a in answers if a["set"] == name or (name == "all" and a["set"] not in NO_ANSWERS)]


def paired(these: Iterable[Record], those: Iterable[Record]) -> Record | None:
    """Compare the right answers of two runs over the cases that both have, with a 95 % interval of the difference. None
    if they have no case in common."""
    right = {(a["set"], a["case"]): a["right"] for a in those}
    pairs = [(a["right"], right[key]) for a in these if (key := (a["set"], a["case"])) in right]
    if not pairs:
        return None
    difference = np.array([int(mine) - int(theirs) for mine, theirs in pairs])
    draws = np.random.default_rng(0).integers(0, len(pairs), (DRAWS, len(pairs)), dtype=np.int32)
    low, high = np.percentile(difference[draws].sum(axis=1), [2.5, 97.5])
    return {
        "cases": len(pairs),
        "right": int(sum(mine for mine, _ in pairs)),
        "right_there": int(sum(theirs for _, theirs in pairs)),
        "won": int((difference > 0).sum()),
        "lost": int((difference < 0).sum()),
        "interval": [int(low), int(high)],
    }


def comparison(these: Sequence[Record], those: Sequence[Record]) -> list[Record]:
    """`paired` for each arm and set of two runs, and over all sets."""
    rows = []
    arms = [arm for arm in dict.fromkeys(a["arm"] for a in these) if any(a["arm"] == arm for a in those)]
    for arm in arms:
        mine, theirs = ([a for a in run if a["arm"] == arm] for run in (these, those))
        sets = dict.fromkeys(a["set"] for a in mine)
        for name in (*sets, "all") if len(sets) > 1 else sets:
            difference = paired(of_set(mine, name), theirs)
            if difference:
                rows.append({"arm": arm, "set": name, **difference})
    return rows


def table(rows: Sequence[Record], title: str = "") -> Table:
    """The rows of `summary` as a table."""
    shown = Table(title=title or None)
    columns = ("right", "of", "parsed", "valid", "valid, wrong", "cut", "refused", "failed", "tokens", "seconds")
    for column in ("arm", "set", *columns):
        shown.add_column(column, justify="left" if column in ("arm", "set") else "right")
    for row in rows:
        keys = ("right", "cases", "parsed", "valid", "valid_but_wrong", "cut", "refused", "failed", "tokens")
        shown.add_row(row["arm"], row["set"], *(f"{row[key]:,}" for key in keys), f"{row['seconds']:,.0f}")
    return shown


def comparison_table(rows: Sequence[Record], this: str, that: str) -> Table:
    """The rows of `comparison` as a table."""
    shown = Table(title=f"{this} against {that}")
    for column in ("arm", "set", "cases", "right", "right there", "won", "lost", "difference, 95 %"):
        shown.add_column(column, justify="left" if column in ("arm", "set") else "right")
    for row in rows:
        low, high = row["interval"]
        cells = (row["cases"], row["right"], row["right_there"], row["won"], row["lost"])
        shown.add_row(
            row["arm"], row["set"], *map(str, cells), f"{row['won'] - row['lost']:+d} ({low:+d} to {high:+d})"
        )
    return shown
