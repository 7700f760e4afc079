"""Answers questions in a process that may be killed: a crash, endless loop or memory blow-up costs only one answer.

The child sets up once (``factory(*args)`` returns the function that answers) and then answers one question after
another over a pipe; the parent watches the clock and the child's resident memory, and starts a new child after a kill.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

POLL_S = 0.02
SETUP_LIMIT_S = 300.0

Factory = Callable[..., Callable[[Any], Any]]


@dataclass(frozen=True)
class Outcome:
    """``kind`` is done, error (an exception: ``value`` is its text), crash, timeout or memory."""

    kind: str
    value: Any = None


def peak_rss_bytes(pid: int | str = "self") -> int:
    """The most resident memory a process has had (VmHWM); 0 if it is gone."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _child(connection: Connection, factory: Factory, args: tuple[Any, ...], core: int | None) -> None:
    if core is not None:
        os.sched_setaffinity(0, {core})
    try:
        answer = factory(*args)
        connection.send(Outcome("done"))
        while True:
            question = connection.recv()
            try:
                connection.send(Outcome("done", answer(question)))
            except Exception as error:
                connection.send(Outcome("error", f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}"))
    except EOFError:
        return


class Isolated:
    """A child process and its limits. Not thread-safe; use one for each thread of the parent."""

    def __init__(
        self,
        factory: Factory,
        args: tuple[Any, ...] = (),
        *,
        seconds: float,
        memory_bytes: int,
        core: int | None = None,
    ) -> None:
        self._start_arguments = (factory, args, core)
        self.seconds = seconds
        self.memory_bytes = memory_bytes
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        self._process = context.Process(target=_child, args=(theirs, *self._start_arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._connection = ours
        ready = self._wait(ours, SETUP_LIMIT_S)
        if ready.kind != "done":
            self.stop()
            raise RuntimeError(f"worker did not start: {ready.kind} {ready.value or ''}")
        return ours

    def ask(self, question: Any) -> Outcome:
        """The child's answer, or what happened to the child. Starts a child if there is none."""
        connection = self._connection or self._start()
        connection.send(question)
        outcome = self._wait(connection, self.seconds)
        if outcome.kind in ("crash", "timeout", "memory"):
            self.stop()
        return outcome

    def _wait(self, connection: Connection, seconds: float) -> Outcome:
        assert self._process is not None and self._process.pid is not None
        deadline = time.monotonic() + seconds
        while True:
            try:
                if connection.poll(POLL_S):
                    outcome: Outcome = connection.recv()
                    return outcome
            except (EOFError, ConnectionResetError):
                self._process.join(5)
                return Outcome("crash", f"exit status {self._process.exitcode}")
            if not self._process.is_alive():
                return Outcome("crash", f"exit status {self._process.exitcode}")
            if _rss_bytes(self._process.pid) > self.memory_bytes:
                return Outcome("memory", f"more than {self.memory_bytes >> 20} MiB")
            if time.monotonic() > deadline:
                return Outcome("timeout", f"more than {seconds:g} s")

    def stop(self) -> None:
        """End the child; the next question starts another."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._connection is not None:
            self._connection.close()
        self._process = self._connection = None
