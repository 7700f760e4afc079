"""Metrics are counted here, published in a file, and exposed by another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_engine import spec

from dotllm.compilation import metrics as metrics_module
from dotllm.compilation.metrics import (
    COUNTERS,
    DIRECTORY_VARIABLE,
    GAUGES,
    HISTOGRAMS,
    Metrics,
    merge,
    shared_directory,
)

prometheus_client = pytest.importorskip("prometheus_client")


def scrape(directory: Path) -> str:
    from dotllm.compilation.metrics import Collector

    registry = prometheus_client.CollectorRegistry()
    registry.register(Collector(directory))
    return prometheus_client.generate_latest(registry).decode()


def test_counts_from_several_processes_are_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    script = """
from dotllm.compilation.metrics import Metrics
m = Metrics()
m.add("dotllm_compiles", "regex", "ok", amount=3)
m.observe("dotllm_compile_seconds", "regex", value=0.0004)
m.set("dotllm_queue_depth", value=2)
m.publish()
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=os.environ)
    here = Metrics()
    here.add("dotllm_compiles", "regex", "ok")
    here.observe("dotllm_compile_seconds", "regex", value=2.0)
    here.set("dotllm_queue_depth", value=5)
    here.publish()
    text = scrape(tmp_path)
    assert 'dotllm_compiles_total{kind="regex",outcome="ok"} 4.0' in text
    assert "dotllm_queue_depth 7.0" in text
    assert 'dotllm_compile_seconds_bucket{kind="regex",le="0.0005"} 1.0' in text
    assert 'dotllm_compile_seconds_bucket{kind="regex",le="+Inf"} 2.0' in text
    assert 'dotllm_compile_seconds_count{kind="regex"} 2.0' in text
    assert 'dotllm_compile_seconds_sum{kind="regex"} 2.0004' in text


def test_gauges_of_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    processes = [Metrics() for _ in range(3)]
    for number, (one, available) in enumerate(zip(processes, (1.0, 0.0, 1.0), strict=True)):
        one.set("dotllm_store_available", "redis://one", value=available)
        one.set("dotllm_store_available", "redis://two", value=1.0)
        one.set("dotllm_cache_bytes", "disk", value=1000 + number)
        one.set("dotllm_cache_bytes", "memory", value=10)
        one.set("dotllm_cache_entries", "memory", value=3)
        one.publish()
    text = scrape(tmp_path)
    assert 'dotllm_store_available{store="redis://one"} 0.0' in text, "one process lacks it"
    assert 'dotllm_store_available{store="redis://two"} 1.0' in text
    assert 'dotllm_cache_bytes{level="disk"} 1002.0' in text, "there is one directory"
    assert 'dotllm_cache_bytes{level="memory"} 30.0' in text
    assert 'dotllm_cache_entries{level="memory"} 9.0' in text


def test_everything_is_described_and_unlabelled_ones_start_at_zero(tmp_path: Path) -> None:
    text = scrape(tmp_path)
    for name in [*COUNTERS, *GAUGES, *HISTOGRAMS]:
        assert f"# HELP {name}" in text
    assert "dotllm_queue_depth 0.0" in text and "dotllm_mask_rows_total 0.0" in text


def test_half_written_files_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "1.json").write_text('{"counters": [["dotllm_mask_rows", [], ')
    (tmp_path / "2.json").write_text(json.dumps({"counters": [["dotllm_mask_rows", [], 5]]}))
    assert "dotllm_mask_rows_total 5.0" in scrape(tmp_path)


def test_publish_needs_a_directory_and_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DIRECTORY_VARIABLE, raising=False)
    metrics = Metrics()
    metrics.add("dotllm_mask_rows")
    metrics.publish()
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path / "missing"))
    metrics.publish()  # raises nothing: metrics never do harm
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    metrics.publish()
    (file,) = tmp_path.iterdir()
    file.unlink()
    metrics.publish()
    assert not list(tmp_path.iterdir()), "nothing changed since"
    metrics.add("dotllm_mask_rows")
    metrics.publish()
    assert list(tmp_path.iterdir())


def test_shared_directory_is_made_once_and_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(DIRECTORY_VARIABLE, "")  # set, so that monkeypatch restores it afterwards
    directory = shared_directory()
    assert directory.is_dir() and shared_directory() == directory
    assert os.environ[DIRECTORY_VARIABLE] == str(directory)
    directory.rmdir()


def test_register_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dotllm.compilation.metrics import register

    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    registry = prometheus_client.CollectorRegistry()
    assert register(registry) is register(registry)
    assert prometheus_client.generate_latest(registry).decode().count("# HELP dotllm_queue_depth ") == 1


def test_threads_lose_no_count() -> None:
    metrics = Metrics()

    def work() -> None:
        for _ in range(2500):
            metrics.add("dotllm_mask_rows")
            metrics.observe("dotllm_mask_seconds", value=1e-5)
            metrics.step(1e-5, 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert metrics.value("dotllm_mask_rows") == 20_000 == metrics.value("dotllm_mask_seconds")


def test_steps_are_counted_when_values_are_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In each way to read them. If nobody reads, they take no more memory than a thousand steps."""
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    metrics = Metrics()
    for read in (lambda: metrics.value("dotllm_mask_rows"), metrics.snapshot, metrics.publish):
        metrics.step(1e-3, 2)
        assert len(metrics._steps) == 1
        read()
        assert not metrics._steps
    (file,) = tmp_path.glob("*.json")
    written = json.loads(file.read_text())
    assert written == metrics.snapshot() and ["dotllm_mask_rows", [], 6.0] in written["counters"]
    assert metrics.value("dotllm_mask_seconds") == 3
    for _ in range(5000):
        metrics.step(1e-3, 1)
        assert len(metrics._steps) < 1024
    assert metrics.value("dotllm_mask_rows") == 5006 and metrics.value("dotllm_mask_seconds") == 5003


def test_merge_of_nothing() -> None:
    assert merge([]) == {"counters": {}, "gauges": {}, "histograms": {}}


def test_every_name_the_code_uses_is_described(make_manager, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    manager = make_manager(disk_bytes=1 << 20)
    manager.submit(spec(id=1)).result(60)
    manager.submit(spec(refuse="x")).exception(5)
    manager.submit(spec(fail="x")).exception(5)
    manager.flush()
    manager.close()
    snapshot = manager.metrics.snapshot()
    described = {"counters": COUNTERS, "gauges": GAUGES, "histograms": HISTOGRAMS}
    for section, known in described.items():
        for name, labels, _ in snapshot[section]:
            assert len(labels) == len(known[name][1]), name
    names = {name for section in snapshot.values() for name, _, _ in section}
    assert {"dotllm_compiles", "dotllm_refused", "dotllm_compile_seconds", "dotllm_cache_bytes"} <= names
    assert metrics_module.DIRECTORY_VARIABLE == "DOTLLM_METRICS_DIR"
