"""The demo's server and its port: the demo never talks to a foreign server there."""

from __future__ import annotations

import http.server
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from dotllm.cli import demo
from dotllm.demo.server import Server, ServerDied, free_port, next_free_port

pytest.importorskip("psutil")
LISTENS = "import http.server, sys; http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()"


class Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def stranger() -> Iterator[int]:
    """The port of a foreign server, in this process, that says it is healthy."""
    with http.server.HTTPServer(("127.0.0.1", 0), Healthy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


class Command(Server):
    """Another program in place of vLLM."""

    program: tuple[str, ...] = ()

    def _start(self, output: Any, environment: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", *self.program, str(self.port)]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)


def test_a_strangers_health_is_not_ours(stranger: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "program", ("import time; time.sleep(1); raise SystemExit('in use')",))
    with Command(tmp_path, tmp_path / "log", port=stranger) as server:
        assert server.healthy() and not server.owns_port()
        with pytest.raises(ServerDied, match="in use"):
            server.wait(30)


@pytest.mark.parametrize("in_a_child", [False, True])
def test_its_own_port_is_known(in_a_child: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {LISTENS!r}, sys.argv[1]])"
    monkeypatch.setattr(Command, "program", (child if in_a_child else LISTENS,))
    monkeypatch.setattr(Command, "healthy", lambda self: True)
    with Command(tmp_path, tmp_path / "log", port=free_port()) as server:
        server.wait(30)
        assert server.owns_port()


def test_the_next_port_is_free() -> None:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        first.listen()
        port = first.getsockname()[1]
        found = next_free_port(port)
        assert found > port
        with socket.socket() as second:
            second.bind(("0.0.0.0", found))
    assert next_free_port(port) == port


def test_a_port_that_was_asked_for_and_is_taken_is_refused(stranger: int, capsys: Any) -> None:
    assert demo.main(["--port", str(stranger)]) == 2
    said = capsys.readouterr().err
    assert f"port {stranger}" in said and f"--port {next_free_port(stranger)}" in said


def test_what_a_log_says_is_shown_without_where_from(tmp_path: Path) -> None:
    assert demo.step([]) == "importing vLLM" == demo.step(["Triton is installed, but doesn't include CPU backend."])
    lines = ["(EngineCore pid=12) INFO 11-28 06:50:48 [cpu.py:224] Loading weights took 1 s", "\treserved_cpus=[1]"]
    assert demo.step(lines) == "Loading weights took 1 s"
    log, kept = tmp_path / "log", tmp_path / "seconds"
    log.write_text("\n".join(lines))
    waiting = demo.Waiting("starting", log, kept, demo.step)
    waiting(12.0)
    waiting.end()
    assert "12 s" in demo.Waiting("starting", log, kept, demo.step).last


def test_no_question_is_asked_before_the_kernels_are_compiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first answer took 134 s on a busy machine, because it waited for the kernels."""
    (tmp_path / demo.KERNELS_LOG).write_text(
        "dotllm: compiling 12 groups of kernels: 5/12, about 23 s left; kept in x\n"
    )
    with subprocess.Popen(["sleep", "1"]) as warmup:
        demo.wait_for_kernels(cast("subprocess.Popen[bytes]", warmup), tmp_path)
        assert warmup.returncode == 0
    assert (tmp_path / "seconds-of-kernels").read_text().isdecimal()
    assert demo.step_of_kernels((tmp_path / demo.KERNELS_LOG).read_text().splitlines()) == (
        "compiling 12 groups of kernels: 5/12, about 23 s left"
    )


def test_the_command_that_is_shown_is_what_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Command, "program", ("pass",))
    with Command(tmp_path, tmp_path / "log", flags=("--override-generation-config", '{"temperature": 0}')) as server:
        words = server.shown()
    assert words.startswith("VLLM_CPU_KVCACHE_SPACE=1 ") and f"{sys.executable} -m dotllm serve {tmp_path}" in words
    assert """--override-generation-config '{"temperature": 0}'""" in words
