"""Names of the last release work beside the new ones: flags, keys of the configuration file, variables, metrics."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from dotllm import renamed
from dotllm.cli import options
from dotllm.compilation.accounting import exposition
from dotllm.compilation.accounting.metrics import COUNTERS, DIRECTORY_VARIABLE, GAUGES, HISTOGRAMS, Metrics
from dotllm.compilation.options import CompilationOptions, variable_name
from dotllm.vllm_plugin import settings

VALUES = {"DOTLLM_DEFAULT_BACKEND": "vllm", "DOTLLM_STORE_WRITE_INTERVAL": "7", "DOTLLM_COMPILE_PROCESSES": "7"}
OF_THE_PLUGIN = {"DOTLLM_DEFAULT_BACKEND"}


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    """Nothing was warned of."""
    renamed.warn.cache_clear()
    yield
    renamed.warn.cache_clear()


@pytest.mark.parametrize("new", sorted(renamed.VARIABLES))
def test_old_flags_and_variables(new: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    old, value = renamed.VARIABLES[new], VALUES.get(new, "7MiB")
    assert renamed.flag_of(new) in {option.flag for option in options.OPTIONS}
    environment: dict[str, str] = {}
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert options.export([f"{renamed.flag_of(old)}={value}"], environment) == []
    assert environment == {new: value}
    assert [record.getMessage().split()[0] for record in caplog.records] == [renamed.flag_of(old)], "once"

    assert renamed.read({old: value}, new) == (value, old)
    assert renamed.read({old: "other", new: value}, new) == (value, new), "the new name wins"
    if new in OF_THE_PLUGIN:
        monkeypatch.setenv(old, "0")
        assert not settings.takes_auto()
        return
    (field,) = (field.name for field in fields(CompilationOptions) if variable_name(field.name) == new)
    assert getattr(CompilationOptions.from_environment({old: value}), field) in (7, 7 << 20)
    with pytest.raises(ValueError, match=old):
        CompilationOptions.from_environment({old: "much"})


def test_old_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    metrics = Metrics()
    metrics.add("dotllm_index_lookups", "memory", amount=3)
    metrics.add("dotllm_cache_entries_ignored", "disk")
    metrics.set("dotllm_pinned_index_bytes", value=5)
    metrics.set("dotllm_requests_waiting", value=2)
    metrics.observe("dotllm_request_stall_seconds", "prompt", value=0.5)
    metrics.publish()
    registry = CollectorRegistry()
    exposition.register(registry)
    text = generate_latest(registry).decode()
    assert renamed.METRICS.keys() <= {*COUNTERS, *GAUGES, *HISTOGRAMS}
    for new, old in renamed.METRICS.items():
        shown = [
            re.findall(rf"^{name}((?:_total|_bucket|_sum|_count)?(?:{{.*}})? .*)$", text, re.MULTILINE)
            for name in (new, old)
        ]
        assert shown[0] == shown[1] != []
    assert 'dotllm_requests_total{level="memory"} 3.0' in text and "dotllm_held_bytes 5.0" in text
    assert 'dotllm_held_seconds_sum{where="prompt"} 0.5' in text
