"""/metrics as vLLM mounts it, in both modes: one API server, and several (``--api-server-count``)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("vllm")

from dotllm.compilation.metrics import DIRECTORY_VARIABLE, Metrics
from dotllm.vllm_plugin.api import metrics

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("servers", [1, 2])
def test_metrics_has_ours(servers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several API servers share files of prometheus_client. The one that answers makes a new registry for each scrape,
    without asking vLLM for one."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient
    from prometheus_client import CollectorRegistry

    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    if servers > 1:
        monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    else:
        monkeypatch.delenv("PROMETHEUS_MULTIPROC_DIR", raising=False)
        # A registry in which no server of another test in this process has registered our metrics.
        monkeypatch.setattr("vllm.v1.metrics.prometheus.REGISTRY", CollectorRegistry())
    metrics.HOOK.apply()
    from vllm.entrypoints.serve.instrumentator.metrics import attach_router

    counted = Metrics()
    counted.add("dotllm_index_lookups", "memory", amount=3)
    counted.publish()
    app = FastAPI()
    attach_router(app)
    text = TestClient(app).get("/metrics").text
    assert 'dotllm_index_lookups_total{level="memory"} 3.0' in text
    assert text.count("# TYPE dotllm_index_lookups_total") == 1
