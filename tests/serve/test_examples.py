"""The examples that talk to a server."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dotllm.demo.server import CPU_ENVIRONMENT, Server
from tests.examples.test_library import EXAMPLES, STARTS_VLLM, WITH_SERVER, skip_unless_installed
from tests.serve import zygote

pytestmark = pytest.mark.serve


@pytest.mark.parametrize("path", WITH_SERVER, ids=lambda path: path.name)
def test_runs(
    path: Path,
    api_server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    skip_unless_installed(path)
    monkeypatch.setenv("OPENAI_BASE_URL", f"{api_server.url}/v1")
    shorter = tmp_path / path.name  # a random model reasons until it may not go on
    shorter.write_text(re.sub(r"(max_completion_tokens=)[0-9]{4}\b", r"\g<1>200", path.read_text()))
    runpy.run_path(str(shorter), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("path", STARTS_VLLM, ids=lambda path: path.name)
def test_runs_an_engine(path: Path, demo_model: Path) -> None:
    command, environment = [sys.executable, path, demo_model], {**os.environ, **CPU_ENVIRONMENT}
    status, said = zygote.run(command, environment)
    assert status == 0 and said.count(" -> ") == 3, said


def test_zod_runs_on_node(api_server: Server, tmp_path: Path) -> None:
    modules = os.environ.get("DOTLLM_NODE_MODULES")
    if modules is None:
        pytest.skip("no packages of npm")
    (tmp_path / "node_modules").symlink_to(Path(modules).resolve())
    script = shutil.copy(EXAMPLES / "zod_client.mjs", tmp_path)
    environment = {**os.environ, "OPENAI_BASE_URL": f"{api_server.url}/v1", "OPENAI_API_KEY": "-"}
    done = subprocess.run(["node", script], env=environment, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "format: stop" in done.stdout and "tool: report" in done.stdout
