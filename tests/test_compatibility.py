"""The table of tested versions is the one that the records produce, and contains each supported release."""

from __future__ import annotations

import re

import pytest

from dotllm.vllm_plugin.releases import SUPPORTED
from tools import compatibility


def test_the_page_has_the_table_of_the_records() -> None:
    page = compatibility.PAGE.read_text(encoding="utf-8")
    assert page == compatibility.page_with_table(page), "python -m tools.compatibility writes it anew"


@pytest.mark.parametrize("release", SUPPORTED)
def test_each_supported_release_has_been_tested(release: str) -> None:
    assert any(row["vllm"].startswith(f"{release}.") for row in compatibility.rows())


@pytest.mark.parametrize("record", compatibility.records(), ids=lambda record: f"{record['date']} {record['device']}")
def test_a_record_has_a_date_a_release_and_what_was_measured(record: compatibility.Record) -> None:
    assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", record["date"]) and record["how"] and record["device"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", record["vllm"])
    if "record" in record:
        measured = (compatibility.RECORDS.parent / record["record"]).read_text(encoding="utf-8")
        assert all(record[name] in measured for name in ("date", "vllm", "dotllm", "torch", "python"))
    else:
        assert "CPU" in record["device"], "a run on a GPU has a file"


def test_ci_is_read_from_its_workflow() -> None:
    whole, engine, newest = compatibility.of_ci()
    assert whole["vllm"].startswith(SUPPORTED[0]) and whole["python"] == "3.11"
    assert engine["python"] == "3.10, 3.11, 3.12, 3.13" and engine["vllm"] == "none"
    assert newest["vllm"].startswith(SUPPORTED[-1]) and newest["python"] == "3.11"


def test_a_record_of_this_environment() -> None:
    record = compatibility.here("something")
    assert set(record) == {*compatibility.COLUMNS} and record["numba"] and record["device"]
