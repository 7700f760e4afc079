"""Starts and ends the servers to compare, as listed in variants.json or in a user's file of the same form.

``engines``: dotllm and vLLM's own backends. ``ablations``: dotllm as it is, with one optimisation off at a time, and
with coalescence, which is off by default. A server that does not start (because its version does not know an option,
say) is not skipped: the report has the last lines of its log.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dotllm.demo.process_group import end_group, last_lines
from dotllm.demo.server import CPU_ENVIRONMENT, CPU_FLAGS, ServerDied, free_port

FILE = Path(__file__).with_name("variants.json")
PROGRAMS = {"dotllm": ("-m", "dotllm"), "vllm": (str(Path(__file__).with_name("plain_vllm.py")),)}
START_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Variant:
    """One server: ``program`` is a key of `PROGRAMS`."""

    name: str
    program: str
    flags: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    compact: bool = True
    """Whether it starts with ``disable_any_whitespace``, which some of vLLM's backends refuse."""

    def command(self, model: str) -> list[str]:
        """The command line, without host and port."""
        return [sys.executable, *PROGRAMS[self.program], "serve", model, *self.flags]


def read(group: str, names: Sequence[str] = (), path: Path = FILE) -> list[Variant]:
    """The variants of a group, or only those with these names, in the names' order. ValueError for an unknown name."""
    groups = json.loads(path.read_text(encoding="utf-8"))
    if group not in groups:
        raise ValueError(f"{path}: no group {group!r}; it has {', '.join(groups)}")
    listed = {
        row["name"]: Variant(
            row["name"], row["program"], tuple(row["flags"]), row["environment"], row.get("compact", True)
        )
        for row in groups[group]
    }
    unknown = [name for name in names if name not in listed]
    if unknown:
        raise ValueError(f"unknown variant {unknown[0]!r}; {group} are {', '.join(listed)}")
    return [listed[name] for name in names or listed]


def has_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU, found without importing torch."""
    return Path("/dev/nvidia0").exists() or Path("/proc/driver/nvidia/gpus").exists()


class VariantServer:
    """A variant's server for ``model``, as a context manager: running on entry, ended on exit. Raises ServerDied."""

    def __init__(
        self,
        variant: Variant,
        model: str,
        log: Path,
        *,
        flags: Sequence[str],
        progress: Callable[[float], None],
    ) -> None:
        self.variant = variant
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
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
                start_new_session=True,  # its group includes the engine processes
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise
        return self

    def _wait(self) -> None:
        started = time.monotonic()
        while (elapsed := time.monotonic() - started) < START_TIMEOUT_S:
            if self.process.poll() is not None:
                raise ServerDied(
                    f"{self.variant.name}: ended with status {self.process.returncode}\n{last_lines(self.log, 8)}"
                )
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    self.start_seconds = elapsed
                    return
            except (OSError, urllib.error.URLError):
                self.progress(elapsed)
                time.sleep(0.25)
        raise ServerDied(f"{self.variant.name}: not up after {START_TIMEOUT_S:.0f} s\n{last_lines(self.log, 8)}")

    def stop(self) -> None:
        """End the server's whole process group."""
        end_group(self.process)

    def __exit__(self, *_: object) -> None:
        self.stop()
