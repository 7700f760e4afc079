"""A server's process, which the demo, the benchmarks and the tests start, wait for and stop."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from dotllm.demo.process_group import end_group, last_lines

PROGRAM = ("-m", "dotllm")
# A small server: otherwise vLLM would take half of the machine's memory for its KV cache, and compile for minutes. A
# model of two layers needs neither.
CPU_FLAGS = ("--enforce-eager", "--max-num-seqs", "64")
CPU_ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}


class ServerDied(RuntimeError):
    """The server ended before it was ready; the message holds the end of its log."""


class Server:
    """One server process. Use as a context manager, or call `stop`."""

    def __init__(
        self,
        model: Path | str,
        log: Path,
        *,
        port: int | None = None,
        name: str = "demo",
        flags: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        on_cpu: bool = True,
    ) -> None:
        """Start serving ``model`` under ``name``. The server's output goes to ``log``. ``program``: Python's arguments
        before vLLM's; ``on_cpu``: with `CPU_FLAGS` and `CPU_ENVIRONMENT`."""
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.command = [
            *(sys.executable, *program, "serve", str(model), "--served-model-name", name),
            *("--host", "127.0.0.1", "--port", str(self.port), *(CPU_FLAGS if on_cpu else ()), *flags),
        ]
        self.environment = {**(CPU_ENVIRONMENT if on_cpu else {}), **(environment or {})}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            self.process = self._start(output, {**os.environ, **self.environment})

    def shown(self) -> str:
        """The command, as one would type it in a shell."""
        return shlex.join([*(f"{name}={value}" for name, value in self.environment.items()), *self.command])

    def _start(self, output: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # a signal to its group reaches the engine processes, but not this one
        )

    def wait(self, timeout: float = 600.0, progress: Callable[[float], None] = lambda seconds: None) -> None:
        """Wait until the server answers. ``progress`` is called a few times a second with the elapsed seconds.

        Raises:
            ServerDied: the server's process has ended.
            TimeoutError: ``timeout`` seconds have passed.
        """
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < timeout:
            if self.process.poll() is not None:
                raise ServerDied(f"the server ended with status {self.process.returncode}:\n{self.log_tail()}")
            if self.owns_port() and self.healthy():
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

    def owns_port(self) -> bool:
        """Whether the process or one of its children listens on the port; another program might answer there."""
        import psutil  # vLLM's

        try:
            process = psutil.Process(self.process.pid)
            return any(
                connection.status == psutil.CONN_LISTEN and connection.laddr.port == self.port
                for member in (process, *process.children(recursive=True))
                for connection in member.net_connections("tcp")
            )
        except psutil.Error:  # one of them has just ended
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
    """A TCP port on which nothing listens at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def next_free_port(first: int) -> int:
    """The first TCP port from ``first`` on that nothing listens on at the moment.

    Raises:
        OSError: there is no such port.
    """
    for port in range(first, 65536):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a closed port may linger
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port
    raise OSError(f"no port from {first} on is free")
