"""Servers and engines that start in seconds: forks of a process that has imported vLLM and our engine.

To import both takes thirteen seconds of a core. Each of a server's three processes does it: nearly all of a start.
Here one process for each of pytest's has done it (a zygote, as Android calls it). A command ``python …`` that is run by
`popen` runs in a fork of it, with arguments, environment, session and output of its own. The engine core and the worker
are forks again, as those of vLLM's ``LLM`` are on a GPU; vLLM's servers and its CPU builds spawn them.

How a server is started is thus not what these tests see. The server with parsers (`conftest.api_server`) starts in the
usual way, and with ``STARTS=real`` everything does.

    python -m tests.serve.zygote      A question, a line of JSON, on stdin; its answer on stdout. See `Zygote`.
    python -m tests.serve.zygote plain      The same without our engine: its forks are plain vLLM's (`tests.twins`).
"""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from dotllm.demo import server
from dotllm.demo.process_group import end_group

ROOT = Path(__file__).parents[2]
REAL = os.environ.get("STARTS") == "real"
ONE_THREAD = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
"""OpenMP's threads do not come along into a fork, so there are none."""
PRELOADED = (
    "vllm.entrypoints.cli.main", "vllm.entrypoints.cli.serve", "vllm.entrypoints.openai.api_server",
    "vllm.utils.system_utils", "vllm.v1.engine.core", "vllm.v1.engine.utils", "vllm.v1.engine.coordinator",
    "vllm.v1.executor.multiproc_executor", "vllm.v1.worker.cpu_worker", "vllm.model_executor.models.llama",
    "vllm.entrypoints.llm", "transformers.models.auto.tokenization_auto", "torch._dynamo.trace_rules",
    "vllm.model_executor.layers.quantization.online.base",
)  # fmt: skip


class Forked:
    """What tests need of a `subprocess.Popen`."""

    def __init__(self, zygote: Zygote, pid: int, args: Sequence[str]) -> None:
        self._zygote, self.pid, self.args = zygote, pid, args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its status if it has ended, as Popen gives it."""
        if self.returncode is None:
            self.returncode = self._zygote.ask(status_of=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Its status when it has ended."""
        started = time.monotonic()
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() - started > timeout:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.02)
        return status


class Zygote:
    """A process that has imported vLLM and our engine, and its forks."""

    def __init__(self, *how: str) -> None:
        path = filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.serve.zygote", *how],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **server.CPU_ENVIRONMENT, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path)},
        )
        self._lock = threading.Lock()
        atexit.register(self._process.communicate)  # the end of its stdin is its own; servers have been stopped by now

    def ask(self, **question: Any) -> Any:
        """Its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def fork(self, arguments: list[str], output: IO[Any], environment: Mapping[str, str]) -> Forked:
        """A process that runs ``python`` with ``arguments``."""
        to = f"/proc/{os.getpid()}/fd/{output.fileno()}"
        pid = self.ask(arguments=arguments, output=to, folder=os.getcwd(), environment={**environment, **ONE_THREAD})
        return Forked(self, pid, [sys.executable, *arguments])


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
    """A process that leads a group and runs ``command``, ``python …``. It reads nothing; what it says is ``output``.

    ``how``: "plain" for a fork without our engine.
    """
    python, *arguments = map(str, command)
    if REAL or not forked:
        return subprocess.Popen(
            [python, *arguments],
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
    """The status of ``command``, and what it has said; nothing that it started runs on."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = popen(command, output, environment, forked=forked, how=how)
        try:
            status = process.wait(timeout_s)
        finally:
            end_group(process)
        output.seek(0)
        return status, output.read()


class Server(server.Server):
    """One that starts in seconds."""

    def _start(self, output: IO[bytes], environment: Mapping[str, str]) -> Any:
        return popen(self.command, output, environment)


def main() -> None:
    """Answer until stdin ends. In a fork, be what was asked for."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing but answers goes there, whatever an import prints
    _preload(is_plain="plain" in sys.argv[1:])
    for line in sys.stdin:
        question = json.loads(line)
        if "status_of" in question:
            pid, status = os.waitpid(question["status_of"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            output = os.open(question["output"], os.O_WRONLY | os.O_APPEND)
            answer = os.fork()
            if answer == 0:
                answers.close()
                return _become(question, output)
            os.close(output)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return None


def _preload(*, is_plain: bool) -> None:
    """Import our engine unless it ``is_plain``, then vLLM as the command line does; let vLLM fork its processes."""
    import gc
    import multiprocessing

    from dotllm.cli import passthrough, vllm_metadata  # noqa: F401

    if not is_plain:
        from dotllm.compilation import compiler

        compiler.prepare()
    vllm_metadata.patch_version()
    for name in PRELOADED:
        with suppress(ModuleNotFoundError):  # (of another release: it is imported when it is needed)
            importlib.import_module(name)
    for module in [module for name, module in sys.modules.items() if name.startswith("vllm.")]:
        if "get_mp_context" in vars(module):
            module.get_mp_context = functools.partial(multiprocessing.get_context, "fork")  # type: ignore[attr-defined]
    gc.collect()
    gc.freeze()  # a fork collects what is its own; with all that was imported it takes seconds


def _become(question: dict[str, Any], output: int) -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, there in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(opened, there)
    os.close(nothing)
    os.close(output)
    os.chdir(question["folder"])
    os.environ.clear()
    os.environ.update(question["environment"])
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in path if folder and folder not in sys.path]
    if question["arguments"][0] == "-m":
        sys.argv = question["arguments"][1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = question["arguments"]
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
