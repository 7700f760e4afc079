"""Servers and engines that start in seconds: forks of a process that has imported vLLM and our engine.

Importing both takes thirteen seconds of a core. Each of a server's three processes does it, so a start consists of
little else. Here one process does it for all pytest processes (a zygote, as Android calls it). `popen` runs a command
``python …`` in a fork of the zygote, with its own arguments, environment, session and output. The engine core and the
worker are further forks, as they are for vLLM's ``LLM`` on a GPU; vLLM's servers and CPU builds spawn them.

The first pytest process that needs the zygote starts it. The others find it by the name of its socket. It ends after
the last of them.

So these tests do not show how a server starts. The server of the documentation (`conftest.users_server`) starts in the
usual way and with compile processes, and with ``STARTS=real`` everything does.

pytest-xdist's processes import the same, and are forks, too: of a second zygote, in which vLLM is as it is for users.
It forks the first as soon as it has imported vLLM.

    python -m tests.serve.zygote      Import everything, which leaves machine code and byte code on disk.
    python -m tests.serve.zygote 3      Also listen on this file descriptor. A question is a line of JSON; see `Zygote`.
    python -m tests.serve.zygote 3 plain      The same without our engine: its forks are plain vLLM (`tests.twins`).
    python -m tests.serve.zygote 3 tests      The same without changes to vLLM.
    python -m tests.serve.zygote fork -c …      Run ``python -c …`` in a fork of it, on this process's standard streams.
    python -m tests.serve.zygote fork -m …      The same with ``python -m …``.
"""

from __future__ import annotations

import errno
import functools
import importlib
import json
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dotllm.cli import demo
from dotllm.demo import server
from dotllm.demo.process_group import end_group

ROOT = Path(__file__).parents[2]
REAL = os.environ.get("STARTS") == "real"
NO_COMPILE_PROCESSES = {"DOTLLM_COMPILE_PROCESSES": "0"}
"""By default each engine starts two, which load the kernels: six seconds of a core. They compile large specifications.
Few tests need that; those set their number."""
ONE_THREAD = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
"""A fork does not inherit OpenMP's threads, so the zygote has none."""
SMALL_CACHE = ("--kv-cache-memory-bytes", str(128 << 20))
"""A gigabyte, as in a demo, takes an engine 0.7 seconds of a core to fill with zeros. This holds a million tokens of the
random models. A server's own flag counts, because it comes later."""
WORKER_IN_CORE = ("--distributed-executor-backend", "vllm.v1.executor.uniproc_executor.UniProcExecutor")
"""As on one GPU. On a CPU, vLLM's worker is another process, with which the engine core talks twice a step: a quarter of
a step's time. (vLLM turns the name ``uni`` into ``mp`` there, but takes the class.)"""
RUN = "TESTS_RUN"
"""The variable that names the run of pytest-xdist's processes, and so the address of their zygote."""
PRELOADED = (
    "vllm.entrypoints.cli.main", "vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server",
    "vllm.utils.system_utils", "vllm.v1.engine.core", "vllm.v1.engine.utils", "vllm.v1.engine.coordinator",
    "vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama",
    "vllm.entrypoints.llm", "transformers.models.auto.tokenization_auto", "torch._dynamo.trace_rules",
    "vllm.model_executor.layers.quantization.online.base", "vllm.v1.core.sched.scheduler", "vllm.v1.engine.async_llm",
    "vllm.v1.attention.backends.cpu_attn", "vllm.entrypoints.anthropic.api_router",
    "vllm.entrypoints.openai.responses.serving", "vllm.distributed.elastic_ep.elastic_execute",
)  # fmt: skip


class Forked:
    """The part of `subprocess.Popen` that tests need."""

    def __init__(self, zygote: Zygote, pid: int, args: Sequence[str]) -> None:
        self._zygote, self.pid, self.args = zygote, pid, args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The status if the process has ended, as Popen returns it."""
        if self.returncode is None:
            self.returncode = self._zygote.ask(status_of=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process, and return its status."""
        started = time.monotonic()
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() - started > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return status


class Zygote:
    """The process that has imported vLLM and our engine. It forks others."""

    def __init__(self, *how: str) -> None:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID", os.getpid())
        if "tests" in how:  # (asked for by a process that xdist starts, or by a fork of it)
            run = os.environ.setdefault(RUN, str(os.getppid()))
        self._socket = _connect("-".join(("\0dotllm-zygote", str(run), *how)), how)
        self._lines = self._socket.makefile("r")
        self._lock = threading.Lock()

    def ask(self, **question: Any) -> Any:
        """Send a question, and return the answer."""
        with self._lock:
            self._socket.sendall(json.dumps(question).encode() + b"\n")
            answer = self._lines.readline()
        assert answer, "the zygote has died"
        return json.loads(answer)

    def fork(self, arguments: list[str], output: IO[Any], environment: Mapping[str, str]) -> Forked:
        """Start a process that runs ``python`` with ``arguments``, and leads a session."""
        environment = {**NO_COMPILE_PROCESSES, **environment, **ONE_THREAD}
        return self._fork(arguments, [os.devnull, *2 * [_path(output)]], environment, leads=True)

    def fork_here(self, arguments: list[str]) -> Forked:
        """Start a process that takes this one's place: the same streams (but the zygote's stderr), group and variables."""
        return self._fork(arguments, [_path(sys.stdin), _path(sys.stdout)], {**os.environ}, leads=False)

    def _fork(self, arguments: list[str], streams: list[str], environment: Mapping[str, str], *, leads: bool) -> Forked:
        question = {"arguments": arguments, "streams": streams, "environment": environment, "leads": leads}
        pid = self.ask(folder=os.getcwd(), **question)
        return Forked(self, pid, [sys.executable, *arguments])


def _path(stream: IO[Any]) -> str:
    return f"/proc/{os.getpid()}/fd/{stream.fileno()}"


def _connect(address: str, how: tuple[str, ...]) -> socket.socket:
    """Connect to the zygote at ``address``; start it if there is none."""
    while True:
        started = _start(address, how)
        connection = socket.socket(socket.AF_UNIX)
        with suppress(ConnectionError):
            connection.connect(address)
            if connection.recv(1):
                return connection
        connection.close()  # another process is about to start the zygote, or it has just ended
        assert started is None, f"the zygote ends with status {started.wait()}"
        time.sleep(0.01)


def _start(address: str, how: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    """Start a zygote that listens at ``address``. Returns None if another process listens there."""
    if not how and RUN in os.environ and Zygote("tests").ask(servers_at=address):
        return None
    path = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return None
        listener.listen()
        return subprocess.Popen(
            [sys.executable, "-m", "tests.serve.zygote", str(listener.fileno()), *how],
            stdin=subprocess.DEVNULL,
            env={**os.environ, **server.CPU_ENVIRONMENT, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path)},
            pass_fds=[listener.fileno()],
            # Only the tests get Ctrl-C: they stop their servers before the zygote.
            start_new_session="tests" not in how,
        )


@functools.cache
def _zygote(*how: str) -> Zygote:
    return Zygote(*how)


def popen(
    command: Sequence[object],
    output: IO[Any],
    environment: Mapping[str, str],
    *,
    forked: bool = True,
    how: tuple[str, ...] = (),
) -> Any:
    """A process that leads a group and runs ``command``, ``python …``, without input. It writes to ``output``.

    ``how``: "plain" for a fork without our engine.
    """
    python, *arguments = map(str, command)
    if REAL or not forked:
        return subprocess.Popen(
            ["env", "--default-signal=INT", python, *arguments],  # (in the background of a shell, tests ignore it)
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return _zygote(*how).fork(arguments, output, environment)


def run(
    command: Sequence[object],
    environment: Mapping[str, str],
    timeout_s: float = 3000,
    *,
    forked: bool = True,
    how: tuple[str, ...] = (),
) -> tuple[int, str]:
    """The status and the output of ``command``. Nothing that it started keeps running."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = popen(command, output, environment, forked=forked, how=how)
        try:
            status = process.wait(timeout_s)
        finally:
            end_group(process)
        output.seek(0)
        return status, output.read()


class Server(server.Server):
    """A server that starts in seconds."""

    def __init__(self, model: Path, log: Path, *, flags: tuple[str, ...] = (), **more: Any) -> None:
        ours = () if REAL else (*WORKER_IN_CORE, *demo.precision())
        super().__init__(model, log, flags=(*SMALL_CACHE, *ours, *flags), **more)

    def _start(self, output: IO[bytes], environment: Mapping[str, str]) -> Any:
        return popen(self.command, output, environment)


def main() -> None:
    """Import what is needed, then answer until nobody is connected. A fork becomes the process that was asked for."""
    descriptor, *how = sys.argv[1:] or [""]
    if descriptor == "fork":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # (also the zygote's; the fork gets Ctrl-C)
        first = next(number for number, argument in enumerate(how) if argument in ("-c", "-m"))
        process = _zygote("tests").fork_here(how[first:])
        while process.poll() is None:
            time.sleep(0.2)
        sys.exit(process.returncode)
    os.dup2(2, 1)  # whatever an import prints goes to stderr
    _import_vllm()
    listener = socket.socket(fileno=int(descriptor)) if descriptor else None
    if "tests" in how and listener and (other := _fork_for_servers(listener)):
        how, listener = [], other
    _preload(*how)
    if listener and (asked := _answer(listener)):
        _become(*asked)


_for_servers: list[socket.socket] = []
"""In the tests' zygote: the way to its fork that becomes the servers' zygote, until a test asks for that."""


def _fork_for_servers(listener: socket.socket) -> socket.socket | None:
    """Returns in a fork, once it must become the servers' zygote: the socket on which it listens. Returns None at once
    in the tests' zygote, whose ``listener`` the fork closes."""
    ours, its = socket.socketpair()
    if os.fork():
        its.close()
        _for_servers.append(ours)
        return None
    ours.close()
    listener.close()
    os.setsid()
    address = its.recv(200)
    if not address:  # the tests' zygote has ended
        os._exit(0)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    its.close()
    return listener


def _answer(listener: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Returns in a fork: the process that it must become, and its streams. Returns None in the zygote, at its end."""
    lines: dict[socket.socket, IO[str]] = {}
    while True:
        for ready in select.select([listener, *lines], [], [])[0]:
            if ready is listener:
                connection, _ = listener.accept()
                credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
                if struct.unpack("3i", credentials)[1] == os.getuid():  # abstract sockets have no file permissions
                    with suppress(ConnectionError):  # (the asker may have been killed: its next line is the end)
                        connection.sendall(b"!")
                    lines[connection] = connection.makefile("r")
                continue
            try:
                line = lines[ready].readline()
            except ConnectionError:  # killed with an answer unread
                line = ""
            if not line:
                lines.pop(ready).close()
                ready.close()
                if not lines:
                    return None
                continue
            question, answer = json.loads(line), None
            if "status_of" in question:
                pid, status = os.waitpid(question["status_of"], os.WNOHANG)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            elif "servers_at" in question:
                if answer := bool(_for_servers):
                    way = _for_servers.pop()
                    way.sendall(question["servers_at"].encode())
                    way.recv(1)  # the end: now it listens
                    way.close()
            else:
                modes = (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_WRONLY | os.O_APPEND)
                streams = [os.open(*one) for one in zip(question["streams"], modes, strict=False)]
                answer = os.fork()
                if answer == 0:
                    for opened in (*lines.values(), *lines, listener, *_for_servers):
                        opened.close()
                    return question, streams
                for stream in streams:
                    os.close(stream)
            with suppress(ConnectionError):
                ready.sendall(json.dumps(answer).encode() + b"\n")


def _import_vllm() -> None:
    """Import vLLM as the command line does."""
    from dotllm.cli import passthrough, vllm_metadata  # noqa: F401

    vllm_metadata.patch_version()
    for name in PRELOADED:
        with suppress(ModuleNotFoundError):  # (a module of another release; it is imported when needed)
            importlib.import_module(name)


def _preload(*how: str) -> None:
    """Import our engine unless ``how`` is plain; make vLLM fork its processes unless ``how`` is tests."""
    import gc
    import multiprocessing

    if "tests" not in how:
        _do_once()
    if "plain" not in how:
        from dotllm.compilation import compiler
        from dotllm.vllm_plugin import registry

        compiler.prepare()
        registry.hooks()  # (they are imported, not applied)
    for module in [module for name, module in sys.modules.items() if name.startswith("vllm.") and "tests" not in how]:
        if "get_mp_context" in vars(module):
            module.get_mp_context = functools.partial(multiprocessing.get_context, "fork")  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()  # a fork collects only its own garbage; with everything imported it would take seconds


def _do_once() -> None:
    """Do what each fork would otherwise do again.

    * Replace Triton's kernels: vLLM looks for them at every object of every module (0.9 s).
    * Look at a model's class: vLLM starts a process that imports everything (15 s), for each class that its cache on
      disk does not have. The demo's is put there for the tests' own processes.
    * Compile the kernel that proposes n-grams (8 s): the first engine that needs it keeps it on disk.

    And make an engine core and its worker wait for each other asleep. After each message vLLM's readers spin for a
    second, so the engine core takes as much of a core as the worker that it waits for. Here they spin only in their
    first second, in which they connect. The socket that wakes a reader keeps one notification and drops others, and a
    reader without its notification looks again after five seconds. Here it looks again after 20 ms.
    """
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.model_executor.models import registry
    from vllm.platforms import current_platform

    current_platform.register_triton_kernel_overrides()  # (before Numba is imported, see workarounds/cpu_kernels.py)
    type(current_platform).register_triton_kernel_overrides = classmethod(lambda cls: None)
    registry._run_in_subprocess = lambda look: look()
    registry.ModelRegistry.models["LlamaForCausalLM"].inspect_model_cls()
    from vllm.v1.spec_decode import ngram_proposer

    ngram_proposer.batch_propose_numba.enable_caching()
    shm_broadcast.SpinCondition.record_read = lambda self: None
    shm_broadcast.SHM_READER_RECHECK_INTERVAL_MS = 20


def _become(question: dict[str, Any], streams: list[int]) -> None:
    if question["leads"]:
        os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # (in the background of a shell, tests ignore it)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(question["folder"])
    os.environ.clear()
    os.environ.update(question["environment"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in path if folder and folder not in sys.path]
    if question["arguments"][0] == "-c":
        sys.argv = ["-c", *question["arguments"][2:]]
        sys.modules["__main__"] = types.ModuleType("__main__")  # without a file, which spawned processes would run
        exec(question["arguments"][1], vars(sys.modules["__main__"]))
    elif question["arguments"][0] == "-m":
        sys.argv = question["arguments"][1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = question["arguments"]
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
