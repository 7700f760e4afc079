"""Compiles in separate processes, which take no time from the engine's loop and can be killed.

A compiler's front end is Python code and holds the GIL. A schema of a megabyte takes a quarter of a second, in which
every switch of threads costs the engine up to ``sys.getswitchinterval()`` (figures: docs/decisions/compilation.md). A
process has its own GIL and a memory limit, and is killed when its time limit has passed or no request waits for it. It
starts in about a second and stays. An engine starts its processes while the model loads (`start_all`); other programs
start theirs when they meet their first large specification.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from dotllm.cancellation import Cancelled
from dotllm.compilation import wire
from dotllm.compilation.breaker import CircuitBreaker
from dotllm.compilation.compiler import load_index
from dotllm.compilation.errors import CompilationError, CompileTimeout, NoProcess, ProcessDied
from dotllm.compilation.specification import PACKAGE, Specification

logger = logging.getLogger(__name__)

POLL_S = 0.05  # A waiting caller checks this often (in seconds) whether its compile is still wanted.
PATIENCE_FACTOR = 4  # A caller of `ProcessCompiler.try_compile` waits this many times its patience in all.
NOBODY_WAITS = "no request waits for this specification any more"
START_TIMEOUT_S = 120.0
PIPE_BYTES = 1 << 20  # the most that Linux grants without privileges


class _Worker:
    """One process and the pipes to it."""

    def __init__(self, command: list[str], vocabulary: int) -> None:
        """``vocabulary``: the descriptor of its file, which the process gets under the same number."""
        environment = dict(os.environ)
        # The child must import this very package, installed or not.
        source = str(PACKAGE.parent)
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (source, environment.get("PYTHONPATH"))))
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, pass_fds=(vocabulary,))
        assert self.process.stdin is not None and self.process.stdout is not None
        self._stdin, self._stdout = self.process.stdin, self.process.stdout
        for end in (self._stdin, self._stdout):  # a process may be stopped in mid-transfer
            os.set_blocking(end.fileno(), False)
        with contextlib.suppress(OSError, AttributeError):  # an index that fits into the pipe takes one read
            fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stdout, selectors.EVENT_READ)
        self._unsent = memoryview(b"")
        self._buffer = bytearray()
        self.ready = False
        """Whether it has loaded what every compile needs."""
        self.ends = False
        """Whether it has said that it sends no further replies."""

    def send(self, request: dict[str, Any]) -> None:
        """Begin to send a request. `receive` sends the rest, if the pipe does not take all of it."""
        self._unsent = memoryview(json.dumps(request).encode() + b"\n")
        self._selector.register(self._stdin, selectors.EVENT_WRITE)
        self._send_more()

    def _send_more(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # `receive` sees the end of the output
            self._unsent = memoryview(b"")
        if not self._unsent:
            self._selector.unregister(self._stdin)

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """The next reply; None if none comes within ``timeout`` seconds. EOFError when the process has ended."""
        deadline = time.monotonic() + timeout
        while (reply := self._next()) is None:
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            for end, _ in ready:
                if end.fileobj is self._stdin:
                    self._send_more()
                    continue
                chunk = os.read(self._stdout.fileno(), PIPE_BYTES)
                if not chunk:
                    raise EOFError
                self._buffer += chunk
        return reply

    def _next(self) -> dict[str, Any] | None:
        """The next reply, if it is complete: a line of JSON, followed by the number of bytes that the line says."""
        end = self._buffer.find(b"\n") + 1
        if not end:
            return None
        reply: dict[str, Any] = json.loads(self._buffer[:end])
        self.ends = "last" in reply
        if "bytes" in reply:
            last = end + reply["bytes"]
            if len(self._buffer) < last:
                return None
            reply["index"] = bytes(memoryview(self._buffer)[end:last])
            end = last
        del self._buffer[:end]
        return reply

    def kill(self) -> int:
        """Kill the process; returns its exit status (negative: the signal)."""
        self.process.kill()
        self._selector.close()
        with contextlib.suppress(OSError):
            self._stdin.close()
        self._stdout.close()
        return self.process.wait()


class ProcessCompiler:
    """Compiles one specification at a time per process, in at most ``processes`` of them. Thread-safe."""

    level = "compile"
    """The name of its results in metrics and logs."""

    def __init__(
        self,
        vocabulary: Any,
        *,
        processes: int,
        timeout: float,
        memory: int,
        load: Callable[[bytes, Any], Any] = load_index,
        command: Sequence[str] = (sys.executable, "-m", "dotllm.compilation.worker"),
    ) -> None:
        self._vocabulary = vocabulary
        self._timeout = timeout
        self._memory = memory
        self._load = load
        self._command = tuple(command)
        self.at_once = self._processes = processes
        """Number of compiles that can run at a time; a further call of `compile` waits until one of them ends."""
        self._free = threading.BoundedSemaphore(processes)
        self._lock = threading.Lock()
        self._given_back = threading.Condition(self._lock)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._file: IO[bytes] | None = None
        self._closed = False
        self._starting = False
        self._starts = CircuitBreaker()
        self._last_began = 0.0  # when the last compile did

    @property
    def ready(self) -> bool:
        """Whether a process can compile, idle or not."""
        with self._lock:
            return any(worker.ready for worker in self._all)

    def ensure_worker(self) -> None:
        """Start a process in the background if none is idle and the limit allows one more."""
        with self._lock:
            if not self._idle and len(self._all) < self._processes:
                self._start_in_background()

    def _start_in_background(self) -> None:
        """With the lock held: start a process that will be idle, unless there is no room for it."""
        if self._starting or self._closed or not self._starts.would_probe(time.monotonic()):
            return
        if not self._free.acquire(blocking=False):
            return
        self._starting = True
        threading.Thread(target=self._start_ahead, name="dotllm-compile-process", daemon=True).start()

    def _start_ahead(self) -> None:
        """Start a process, with a permit of `_free`. All starts take a permit, so there are never too many
        processes."""
        try:
            self._give_back(self._start())
        except CompilationError as error:
            if not self._starts.is_open:  # (otherwise it has been logged)
                logger.warning("starting a compile process failed: %s", error)
        finally:
            with self._given_back:
                self._starting = False
                self._given_back.notify_all()
            self._free.release()

    def start_all(self) -> None:
        """Start the missing processes, one after another, and wait until they can compile. A failure is logged; the
        start is tried again when a process is needed."""
        while True:
            with self._given_back:
                self._given_back.wait_for(lambda: not self._starting)
                if self._closed or len(self._all) >= self._processes:
                    return
                if not self._starts.would_probe(time.monotonic()) or not self._free.acquire(blocking=False):
                    return
                self._starting = True
            self._start_ahead()

    def try_compile(self, specification: Specification, cancelled: threading.Event, patience_s: float) -> Any:
        """`compile` in a process that is idle or soon will be. None if all are busy with compiles that began more than
        ``patience_s`` seconds ago, or if none becomes free within `PATIENCE_FACTOR` times that. (Compiles on the
        callers' own threads would take the interpreter from the threads that talk to the processes.) Raises what
        `compile` raises."""  # noqa: DOC501
        self.ensure_worker()
        last = time.monotonic() + PATIENCE_FACTOR * patience_s

        def left() -> float:
            return max(0.0, min(self._last_began + patience_s, last) - time.monotonic())

        while not self._free.acquire(timeout=min(POLL_S, left())):
            if cancelled.is_set():
                raise Cancelled(NOBODY_WAITS)
            if not left():
                return None
        try:
            with self._given_back:
                self._given_back.wait_for(lambda: self._idle or not self._all, left())
                worker = self._idle_worker()
            reply = None if worker is None else self._compile_or_retry(worker, specification, cancelled)
        finally:
            self._free.release()
        return None if reply is None else self._load(reply, self._vocabulary)

    def compile(self, specification: Specification, cancelled: threading.Event) -> Any:
        """Compile in an idle process; wait for one if all are busy.

        Raises:
            SpecError: the specification is refused.
            CompileTimeout: the compile takes longer than the limit.
            CompileMemory: the compile needs more memory than the limit.
            Cancelled: ``cancelled`` was set while it waited or compiled.
            ProcessDied: the process died for another reason, and so did a second one.
            NoProcess: no process starts.
        """
        while not self._free.acquire(timeout=POLL_S):
            if cancelled.is_set():
                raise Cancelled(NOBODY_WAITS)
        try:
            reply = self._compile_or_retry(self._take(cancelled), specification, cancelled)
        finally:
            self._free.release()
        return self._load(reply, self._vocabulary)  # unpacked while the process compiles for the next caller

    def close(self) -> None:
        """Kill all processes; running compiles fail."""
        with self._lock:
            self._closed = True
            workers = list(self._all)
            self._all.clear()
            self._idle.clear()
            self._file = None  # closed once no process is being started with it
        for worker in workers:
            worker.process.kill()

    def _compile_or_retry(self, worker: _Worker, specification: Specification, cancelled: threading.Event) -> bytes:
        """`_compile`, and once more in another process if ``worker`` dies: that need not be the specification's fault.
        Raises what `compile` raises."""  # noqa: DOC501
        try:
            return self._compile(worker, specification, cancelled)
        except ProcessDied as death:
            if not self._closed:
                logger.warning("a compile process ended with status %s; retrying in another", death.status)
        worker = self._take(cancelled)
        try:
            return self._compile(worker, specification, cancelled)
        except ProcessDied as death:
            raise ProcessDied(death.status, again=True) from None

    def _compile(self, worker: _Worker, specification: Specification, cancelled: threading.Event) -> bytes:
        if cancelled.is_set():  # (once the compile has begun, only killing the process ends it)
            self._give_back(worker)
            raise Cancelled(NOBODY_WAITS)
        try:
            self._last_began = time.monotonic()
            worker.send({"specification": specification.to_json()})
            reply = self._wait(worker, self._timeout, cancelled)
        except BaseException:  # the process is gone or busy
            self._drop(worker)
            raise
        self._give_back(worker)
        if "error" in reply:
            raise wire.unpack_error(reply["error"])
        return bytes(reply["index"])

    def _wait(self, worker: _Worker, timeout: float, cancelled: threading.Event) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        while True:
            try:
                reply = worker.receive(POLL_S)
            except EOFError:
                status = worker.process.wait()
                raise ProcessDied(status) from None
            if reply is not None:
                return reply
            if cancelled.is_set():
                raise Cancelled(NOBODY_WAITS)
            if time.monotonic() >= deadline:
                raise CompileTimeout.beyond(timeout)

    def _take(self, cancelled: threading.Event) -> _Worker:
        """An idle process: one that exists already, is being started in the background, or is started here."""
        with self._given_back:
            while (idle := self._idle_worker()) is None and self._starting:
                self._given_back.wait(POLL_S)
                if cancelled.is_set():
                    raise Cancelled(NOBODY_WAITS)
        return self._start(cancelled) if idle is None else idle

    def _start(self, cancelled: threading.Event | None = None) -> _Worker:
        """Start a process, and wait until it is ready to compile. After failures, starts are tried less and less often
        (`breaker`): a start costs a second of a core, and there may be many specifications.

        Raises:
            Cancelled: ``cancelled`` was set while it waited.
            NoProcess: the process does not start, or the last one failed to start a short time ago.
            CompilationError: the process ended, or the compiler is closed.
        """
        if not self._starts.allow(time.monotonic()):
            raise NoProcess("the compile process does not start (see the log); it is tried again within a minute")
        try:
            worker = self._started(cancelled or threading.Event())
        except Cancelled:
            self._starts.unknown()
            raise
        except Exception as error:
            if self._starts.failure(time.monotonic()):
                logger.warning("compile processes fail to start (%s); retrying at growing intervals", error)
            if isinstance(error, CompilationError):
                raise
            raise NoProcess(f"the compile process does not start: {type(error).__name__}: {error}") from error
        except BaseException:
            self._starts.unknown()
            raise
        if self._starts.is_open:
            logger.info("compile processes start again")
        self._starts.success()
        return worker

    def _started(self, cancelled: threading.Event) -> _Worker:
        file = self._vocabulary_file().fileno()
        worker = _Worker([*self._command, str(file), str(self._memory), str(os.getpid())], file)
        with self._lock:
            self._all.add(worker)
        try:
            if self._closed:  # since `_vocabulary_file` checked: `close` did not see this process
                raise CompilationError("the compiler is closed")
            self._wait(worker, START_TIMEOUT_S, cancelled)
        except CompileTimeout:
            self._drop(worker)
            raise NoProcess(f"the compile process was not ready within {START_TIMEOUT_S:g} s; try later") from None
        except BaseException:
            self._drop(worker)
            raise
        worker.ready = True
        return worker

    def _idle_worker(self) -> _Worker | None:
        """With the lock held: an idle process, which no longer counts as idle."""
        while self._idle:
            worker = self._idle.pop()
            if worker.process.poll() is None:
                return worker
            self._all.discard(worker)  # it died while it was idle
            worker.kill()
        return None

    def _give_back(self, worker: _Worker) -> None:
        if worker.ends:
            self._drop(worker)
            return
        with self._lock:
            if not self._closed:
                self._idle.append(worker)
                self._given_back.notify()

    def _drop(self, worker: _Worker) -> None:
        with self._lock:
            self._all.discard(worker)
            self._given_back.notify_all()  # perhaps no process is left to wait for
        worker.kill()

    def _vocabulary_file(self) -> IO[bytes]:
        """The vocabulary in a file without a name, which disappears with this process, however the process ends."""
        with self._lock:
            if self._closed:
                raise CompilationError("the compiler is closed")
            if self._file is None:
                file = tempfile.TemporaryFile(prefix="dotllm-vocabulary-")  # noqa: SIM115  # kept open
                file.write(wire.pack_vocabulary(self._vocabulary))
                file.flush()
                self._file = file  # only when it is whole: the disk may be full
            return self._file
