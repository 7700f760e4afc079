"""The examples without a server run, and none is longer than a screen."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dotllm.compilation.metrics import DIRECTORY_VARIABLE, Collector, Metrics
from tests.serve.zygote import RUN

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ALL = sorted(EXAMPLES.glob("*.py"))
WITH_SERVER = [path for path in ALL if "OPENAI_BASE_URL" in path.read_text()]
STARTS_VLLM = [EXAMPLES / "offline_llm.py"]
IN_PROCESS = [path for path in ALL if path not in (*WITH_SERVER, *STARTS_VLLM)]
OPTIONAL = ("instructor", "langchain_openai", "outlines")
"""Packages that only one example needs. The example runs if its package is installed (by ``make test-clients``)."""

pytest.importorskip("transformers")


def skip_unless_installed(path: Path) -> None:
    for package in OPTIONAL:
        if f"import {package}\n" in path.read_text() or f"from {package} import" in path.read_text():
            pytest.importorskip(package)


@pytest.mark.parametrize("path", IN_PROCESS, ids=lambda path: path.name)
def test_runs(
    path: Path, demo_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_unless_installed(path)
    monkeypatch.setenv("TOKENIZER", str(demo_model))
    takes_model = path.name in ("transformers_generate.py", "outlines_backend.py")
    monkeypatch.setattr(sys, "argv", [str(path), *([str(demo_model)] if takes_model else [])])
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize(
    "path", sorted(path for path in EXAMPLES.iterdir() if path.is_file()), ids=lambda path: path.name
)
def test_fits_a_screen(path: Path) -> None:
    assert path.read_text().count("\n") <= 60
    assert path.suffix != ".py" or path.read_text().startswith('"""')
    assert sys.modules.get(path.stem) is None or path.stem == "loop"  # an example shadows no module


def test_a_workflow_checks_schemas(tmp_path: Path) -> None:
    """The workflow's commands work: they run, and refuse what is wrong."""
    yaml = pytest.importorskip("yaml")
    (tmp_path / "schemas").mkdir()
    schema = tmp_path / "schemas" / "one.json"
    job = yaml.safe_load((EXAMPLES / "check_schemas.yml").read_text())["jobs"]["check"]
    checks = [step["run"] for step in job["steps"] if step.get("run", "").startswith("dotllm")]
    schema.write_text('{"type": "string"}')
    assert run(checks[0], tmp_path) == 0
    schema.write_text('{"type": "string", "minLenght": 1}')
    assert [run(check, tmp_path) for check in checks] == [1, 0]
    assert json.loads((tmp_path / "verdicts.jsonl").read_text())["warnings"]


@pytest.mark.parametrize(("code", "status"), [("unknown_reference", 1), ("", None)])
def test_a_preview_is_read(
    code: str, status: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    metrics, registry = Metrics(), prometheus_client.CollectorRegistry()
    for outcome in ("enforced", "enforced", "refused" if code else "unconstrained"):
        metrics.add("dotllm_preview_requests", outcome, code if outcome == "refused" else "")
    metrics.publish()
    registry.register(Collector(tmp_path))
    server, thread = prometheus_client.start_http_server(0, "127.0.0.1", registry)
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.server_port}/v1")
    try:
        runpy.run_path(str(EXAMPLES / "preview.py"), run_name="__main__")
    except SystemExit as ended:
        assert ended.code == status
    else:
        assert status is None
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    said = capsys.readouterr().out
    assert "2 enforced" in said and ("1 of 3 would be refused" in said) is bool(code)


def test_a_store_is_filled_ahead(demo_model: Path, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "one.json").write_text('{"enum": [1, 2]}')
    script = EXAMPLES / "precompile_store.sh"
    assert run(f"{script} {demo_model} schemas file://{tmp_path}/store", tmp_path) == 0
    assert [*(tmp_path / "store").rglob("*")]


def run(command: str, folder: Path) -> int:
    """The status of a shell command in which ``dotllm`` is this interpreter's, or a fork of pytest-xdist's processes'
    zygote: importing the engine takes two seconds, up to five times."""
    zygote = "tests.serve.zygote fork -m " if RUN in os.environ else ""
    function = f'dotllm() {{ {sys.executable} -m {zygote}dotllm "$@"; }}; export -f dotllm'
    path = os.pathsep.join([str(EXAMPLES.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(["bash", "-c", f"{function}; {command}"], cwd=folder, env=environment).returncode
