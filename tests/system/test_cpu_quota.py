"""The number of CPUs in a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dotllm import system


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    system.usable_cpus.cache_clear()
    yield
    system.usable_cpus.cache_clear()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000", 16),
        ("400000 100000", 4),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 16),
        ("", 16),
    ],
)
def test_a_quota_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(system, "_QUOTA", tmp_path / "cpu.max")
    (tmp_path / "cpu.max").write_text(text)
    assert system.usable_cpus() == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1", 16), ("250000", 3)])
def test_a_quota_of_the_first_version_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, quota: str, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    monkeypatch.setattr(system, "_QUOTA", tmp_path / "missing")
    monkeypatch.setattr(system, "_QUOTA_V1", (tmp_path / "quota", tmp_path / "period"))
    (tmp_path / "quota").write_text(quota + "\n")
    (tmp_path / "period").write_text("100000\n")
    assert system.usable_cpus() == expected


def test_affinity_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(system, "_QUOTA", tmp_path / "missing")
    monkeypatch.setattr(system, "_QUOTA_V1", (tmp_path / "a", tmp_path / "b"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {5, 7})
    assert system.usable_cpus() == 2
