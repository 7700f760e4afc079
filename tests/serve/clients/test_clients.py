"""The client libraries themselves, pinned, against one server with a trained model.

    make test-clients                              # installs them into .cache/clients-* first
    make test-clients PYTEST="-k langchain"
    make test-clients SERVER=played                # a random walk under the masks answers instantly (`played`)
    make test-clients SERVER="played --tool-call-parser qwen3_xml --reasoning-parser deepseek_r1"
    make test-clients SERVER=http://localhost:8000 # a running server that calls its model "demo"

Each client is a script in ``scripts``; docs/clients.md shows its lines between ``begin`` and ``end``. The script checks
what the library makes of the answers. The tests judge what went over the wire: no server errors, and neither free text
nor invented keys where a constraint was asked for.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dotllm.demo import trained
from dotllm.demo.process_group import end_group
from dotllm.demo.server import Server, free_port
from tests import client_bodies
from tests.conftest import ROOT
from tests.serve.clients.recorder import Exchange, Recorder
from tests.serve.conftest import MODEL

pytestmark = [pytest.mark.serve, pytest.mark.timeout(1800)]
SCRIPTS = Path(__file__).with_name("scripts")
CACHE = ROOT / ".cache"
PYTHON, NODE, PROGRAMS = CACHE / "clients-python", CACHE / "clients-node", CACHE / "clients-programs"
SERVER, *FLAGS = os.environ.get("SERVER", "").split() or [""]
"""Who answers: "trained", "played" with further flags of vLLM's, or the URL of a server. If empty, nothing runs: else
`make test` would run everything that `make test-clients` has installed."""
PATIENCE_S = 900
QUIET = {
    "OPENAI_API_KEY": "-",
    "ANTHROPIC_API_KEY": "-",
    "AGNO_TELEMETRY": "false",
    "AI_SDK_LOG_WARNINGS": "false",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DO_NOT_TRACK": "1",
    "HAYSTACK_TELEMETRY_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
"""Keeps clients from talking to anyone but the server."""


class Client(NamedTuple):
    """A client, and what its script must have sent for its success to mean something."""

    script: str
    sends: str
    """Some of "format", "tool" (forced) and "stream". The answers to these must have come to their end."""
    installed: str = "main"
    """For Python, the folder in `PYTHON`, named like its list in requirements/."""

    @property
    def is_program(self) -> bool:
        """A program's prompt is longer than the trained model's context, so a played engine answers it."""
        return self.script.endswith(".sh")

    def command(self) -> list[str]:
        """The command that runs its script."""
        python = str(PYTHON / self.installed / "bin" / "python")
        return {".py": [python], ".mjs": ["node"], ".sh": ["bash"]}[Path(self.script).suffix] + [self.script]

    def why_not(self) -> str:
        """Why it cannot run here; "" if it can."""
        if not SERVER:
            return "no clients without SERVER"
        folder = {".py": PYTHON / self.installed, ".mjs": NODE, ".sh": PROGRAMS}[Path(self.script).suffix]
        if not folder.exists():
            return f"no clients in {folder.relative_to(ROOT)}"
        return "" if self.script.endswith(".py") or shutil.which("node") else "Node.js is not here"


CLIENTS = [
    Client("openai_python.py", "format tool stream"),
    Client("openai_node.mjs", "format tool stream"),
    Client("openai_agents_python.py", "format tool stream"),
    Client("anthropic_python.py", "format tool stream"),
    Client("ai_sdk.mjs", "format tool stream"),
    Client("pydantic_ai_python.py", "format tool stream"),
    Client("langchain_python.py", "format tool stream"),
    Client("langchain_js.mjs", "format tool stream"),
    Client("llama_index_python.py", "format tool stream", "llama-index"),
    Client("instructor_python.py", "format tool stream", "instructor"),
    Client("litellm_python.py", "format tool stream"),
    Client("dspy_python.py", "format"),
    Client("outlines_python.py", "format stream"),
    Client("guidance_python.py", "format stream"),
    Client("magentic_python.py", "tool stream"),
    Client("haystack_python.py", "format tool stream"),
    Client("agno_python.py", "format tool stream"),
    Client("google_adk_python.py", "format"),
    Client("smolagents_python.py", "format tool stream"),
    Client("autogen_python.py", "format tool stream"),
    Client("semantic_kernel_python.py", "format tool stream", "instructor"),
    Client("codex.sh", "format stream"),
    Client("claude_code.sh", "stream"),
    Client("opencode.sh", "stream"),
]


@pytest.fixture(scope="module")
def trained_url(trained_server: Server) -> str:
    return trained_server.url


@pytest.fixture(scope="module")
def played_url() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "tests.serve.clients.played", str(trained.make(MODEL)), str(port), *FLAGS]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        while not _listens(port):
            assert process.poll() is None
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        end_group(process)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.script)
def test_a_client(client: Client, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    if reason := client.why_not():
        pytest.skip(reason)
    server = "played" if SERVER == "trained" and client.is_program else SERVER
    with Recorder(server if server.startswith("http") else request.getfixturevalue(f"{server}_url")) as recorder:
        for file in (SCRIPTS / client.script, *SCRIPTS.glob("weather.*")):
            code = file.read_text().replace("http://localhost:8000", recorder.url).replace("Qwen/Qwen3-8B", "demo")
            (tmp_path / file.name).write_text(code)
        (tmp_path / "node_modules").symlink_to(NODE / "node_modules")
        path = os.pathsep.join((str(PROGRAMS / "node_modules" / ".bin"), os.environ["PATH"]))
        done = subprocess.run(
            client.command(), cwd=tmp_path, env={"PATH": path, "HOME": str(tmp_path), **QUIET}, text=True,
            stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S,
        )  # fmt: skip
    sent = {kind for exchange in recorder.exchanges for kind in judged(exchange)}
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert sent >= {*client.sends.split()}, sent


def judged(exchange: Exchange) -> set[str]:
    """The kinds of `Client.sends` that the request is, if its answer is complete. Fails if the answer is wrong."""
    assert exchange.status < 500, exchange
    answer = exchange.answer() if exchange.status == 200 else None
    if answer is None or exchange.path == client_bodies.COUNTS_TOKENS:
        return set()
    wanted = client_bodies.asked(exchange.body)
    verdict = client_bodies.judge(exchange.path, exchange.body, answer)
    assert verdict.valid and not verdict.invented, (exchange.body, verdict.what)
    kinds = {"format": wanted.form is not None, "tool": wanted.is_forced, "stream": bool(exchange.body.get("stream"))}
    return {kind for kind, holds in kinds.items() if holds and verdict.finished}
