"""The examples that talk to a server, with a server."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from dotllm.demo.server import Server
from tests.examples.test_library import WITH_SERVER

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("path", WITH_SERVER, ids=lambda path: path.name)
def test_runs(
    path: Path, api_server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", f"{api_server.url}/v1")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
