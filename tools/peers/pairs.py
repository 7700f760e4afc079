"""Runs vLLM's own tests, each file in a fork: plain, or with our hooks. `tools/peer_tests.py --pairs` compares the two.

python pairs.py plain|ours RESULTS FILE …      in the folder of the sources; a line of JSON in RESULTS for each file

A fork has already imported vLLM, so a file takes seconds. If it crashes or hangs, its finished tests count, and the
running test counts as "died".
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

FILE_S, TEST_S = 300, 120
OPTIONS = (
    "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "--no-summary", "--disable-warnings",
    "--continue-on-collection-errors", f"--timeout={TEST_S}", "--timeout-method=signal",
)  # fmt: skip


class Outcomes:
    """A pytest plugin that writes each outcome to a pipe."""

    def __init__(self, pipe: Any) -> None:
        self._pipe = pipe

    def _say(self, *what: str) -> None:
        self._pipe.write(json.dumps(what) + "\n")
        self._pipe.flush()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(nodeid, "died", "")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            reason = str(report.longrepr)[-300:] if report.outcome != "passed" else ""
            self._say(report.nodeid, report.outcome if report.when != "teardown" else "passed", reason)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._say(report.nodeid, "not collected", str(report.longrepr)[-300:])


def run(file: str, is_ours: bool) -> dict[str, Any]:
    """The outcome of each test of ``file``, and the reason if the test did not pass."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(reader)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        if is_ours:
            from dotllm.vllm_plugin import registry

            registry.apply_required()
        with open(writer, "w") as pipe:
            pytest.main([*OPTIONS, file], plugins=[Outcomes(pipe)])
        os._exit(0)
    os.close(writer)
    late = threading.Timer(FILE_S, os.killpg, (child, signal.SIGKILL))
    late.start()
    outcomes: dict[str, str] = {}
    reasons: dict[str, str] = {}
    with open(reader) as pipe:
        for line in pipe:
            nodeid, outcome, reason = json.loads(line)
            if outcome == "died" or outcomes.get(nodeid, "died") in ("died", "passed"):
                outcomes[nodeid], reasons[nodeid] = outcome, reason
    os.waitpid(child, 0)
    late.cancel()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # processes that the tests have started
    return {"file": file, "outcomes": outcomes, "reasons": {name: why for name, why in reasons.items() if why}}


def main(how: str, results: str, *files: str) -> None:
    """See the module."""
    import torch  # noqa: F401
    import vllm.v1.engine.core  # noqa: F401

    import tests.conftest  # noqa: F401  (vLLM's)

    with Path(results).open("a") as output:
        for number, file in enumerate(files):
            found = run(file, how == "ours")
            output.write(json.dumps(found) + "\n")
            output.flush()
            print(f"{number + 1}/{len(files)} {how} {file}: {len(found['outcomes'])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
