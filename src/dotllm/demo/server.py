"""A ``dotllm serve`` process on this machine's CPU: start it, wait for it, stop it (the demo and the tests do)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from dotllm.demo.process_group import end_group, last_lines

# A small server: vLLM would otherwise take half of the machine's memory for its KV cache, and compile for minutes what
# a model of two layers does not need.
CPU_FLAGS = ("--enforce-eager", "--max-num-seqs", "64")
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


class ServerDied(RuntimeError):
    """The server ended before it was ready; the message holds the end of its log."""


class Server:
    """One server process. Use as a context manager, or call `stop`."""

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        port: int | None = None,
        name: str = "demo",
        flags: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start serving ``model`` under ``name``. What the server prints goes to ``log``."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.command = [
            *(sys.executable, "-m", "dotllm", "serve", str(model), "--served-model-name", name),
            *("--host", "127.0.0.1", "--port", str(self.port), *CPU_FLAGS, *flags),
        ]
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.process = self._start(output, {**os.environ, **CPU_ENVIRONMENT, **(environment or {})})

    def _start(self, output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a signal to its group reaches the engine processes too, and not us
        )

    def wait(self, timeout: float = 600.0, progress: Callable[[float], None] = lambda seconds: None) -> None:
        """Wait until the server answers. ``progress`` is called a few times a second with the seconds so far.

        Raises:
            ServerDied: the server's process has ended.
            TimeoutError: ``timeout`` seconds have passed.
        """
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < timeout:
            if self.process.poll() is not None:
                raise ServerDied(f"the server ended with status {self.process.returncode}:\n{self.log_tail()}")
            if self.healthy():
                return
            progress(elapsed)
            time.sleep(0.25)
        raise TimeoutError(f"the server did not answer within {timeout:.0f} s:\n{self.log_tail()}")

    def healthy(self) -> bool:
        """Whether the server and its engine answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as response:
                return bool(response.status == 200)
        except (OSError, urllib.error.URLError):
            return False

    def log_tail(self, lines: int = 30) -> str:
        """The last lines of the log."""
        return last_lines(self.log, lines)

    def stop(self) -> None:
        """End the server and its engine processes."""
        end_group(self.process)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def free_port() -> int:
    """A TCP port nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
