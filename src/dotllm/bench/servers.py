"""Starts the server of a variant, waits for it, and ends it and its engine processes."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from dotllm.bench.variants import Variant
from dotllm.demo.process_group import end_group, last_lines
from dotllm.demo.server import CPU_ENVIRONMENT, CPU_FLAGS, ServerDied, free_port


def has_gpu() -> bool:
    """Whether this machine shows an NVIDIA GPU (without importing torch)."""
    return Path("/dev/nvidia0").exists() or Path("/proc/driver/nvidia/gpus").exists()


class VariantServer:
    """A variant's server for ``model``, as a context manager: running on entry, ended on exit. Raises ServerDied."""

    def __init__(
        self,
        variant: Variant,
        model: str,
        log: Path,
        *,
        flags: Sequence[str] = (),
        timeout: float = 900.0,
        progress: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.variant = variant
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        self.timeout = timeout
        self.progress = progress
        cpu = not has_gpu()
        address = ("--host", "127.0.0.1", "--port", str(self.port))
        self.command = [*variant.command(model), *address, *(CPU_FLAGS if cpu else ()), *flags]
        self.environment = {**os.environ, **(CPU_ENVIRONMENT if cpu else {}), **variant.environment}
        self.start_seconds = 0.0

    def __enter__(self) -> VariantServer:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,  # its group holds the engine processes too
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self) -> None:
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < self.timeout:
            if self.process.poll() is not None:
                raise ServerDied(f"{self.variant.name}: ended with status {self.process.returncode}\n{self.tail()}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    self.start_seconds = elapsed
                    return
            except (OSError, urllib.error.URLError):
                self.progress(elapsed)
                time.sleep(0.25)
        raise ServerDied(f"{self.variant.name}: not up after {self.timeout:.0f} s\n{self.tail()}")

    def tail(self, lines: int = 8) -> str:
        """The last lines of the log."""
        return last_lines(self.log, lines)

    def stop(self) -> None:
        """End the server's whole process group."""
        end_group(self.process)

    def __exit__(self, *_: object) -> None:
        self.stop()
