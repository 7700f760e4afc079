"""README and docs show the measured numbers of right answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

from tools import quality_tables


@pytest.mark.parametrize("page", quality_tables.TABLES, ids=lambda page: page.name)
def test_tables_are_those_of_the_answers(page: Path) -> None:
    assert page.read_text() == quality_tables.written(page, quality_tables.read()), "python -m tools.quality_tables"


def test_every_run_has_every_case() -> None:
    results = quality_tables.read()
    assert sum(len(cases) for name, cases in results["cases"].items() if name != "irrelevance") >= 850 + 200
    for arms in results["runs"].values():
        for sets in arms.values():
            for name, found in sets.items():
                assert re.fullmatch("[Rwicxu]+", found["letters"]) and len(found["letters"]) == len(
                    results["cases"][name]
                )
                read = sum(count for kind, count in found["kinds"].items() if not kind.startswith("cut: "))
                assert read == found["letters"].count("w") + found["letters"].count("i")
                assert sum(found["kinds"].values()) - read == found["letters"].count("c")


def test_a_run_is_taken_over() -> None:
    def answer(case: str, **more: Any) -> dict[str, Any]:
        nothing = {
            "right": False,
            "parsed": False,
            "valid": False,
            "cut": False,
            "refused": False,
            "tokens": 2,
            "kind": "",
        }
        return {"case": case, "set": "s", "arm": "a", **nothing, **more}

    found = [
        answer("1", right=True, parsed=True, valid=True),
        answer("2", parsed=True, valid=True, kind="x"),
        answer("3", parsed=True),
        answer("4", cut=True),
        answer("5", refused=True),
        answer("6"),
    ]
    run = {"about": {"name": "n"}, "answers": found}
    results: dict[str, Any] = {"cases": {}, "runs": {}}
    quality_tables.take_over(results, run)
    assert results["runs"]["n"]["a"]["s"] == {"letters": "Rwicxu", "tokens": 12, "cut": 1, "kinds": {"x": 1}}
    assert quality_tables.right(results, "n", "a") == "1"
    run["answers"] = found[::-1]
    with pytest.raises(SystemExit, match="stands where"):
        quality_tables.take_over(results, run)
