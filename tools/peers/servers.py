"""What lets vLLM's tests start servers and engines on a CPU: as forks, without compiled graphs."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import io
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """Make what survives its parent below this process its child, for `end_children`."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children() -> None:
    """Kill all processes below this one."""
    import psutil

    children = psutil.Process().children(recursive=True)
    for child in children:
        child.kill()
    psutil.wait_procs(children, timeout=10)


def prepare() -> None:
    """Change vLLM and `subprocess` in this process and in its forks."""
    from huggingface_hub import HfApi
    from vllm.engine.arg_utils import EngineArgs

    for module in [module for name, module in sys.modules.items() if name.startswith("vllm.")]:
        if "get_mp_context" in vars(module):
            module.get_mp_context = partial(multiprocessing.get_context, "fork")  # type: ignore[attr-defined]
    configure, download = EngineArgs.create_engine_config, HfApi.snapshot_download

    def create_engine_config(self: Any, *given: Any, **named: Any) -> Any:
        self.enforce_eager = True  # compiling takes minutes
        return configure(self, *given, **named)

    def snapshot_download(self: Any, repo_id: str, *given: Any, **named: Any) -> Any:
        return str(Path(repo_id).resolve()) if Path(repo_id).is_dir() else download(self, repo_id, *given, **named)

    EngineArgs.create_engine_config = create_engine_config
    HfApi.snapshot_download = snapshot_download
    _fork_commands()


def _module_of(args: Any) -> tuple[str, list[str]] | None:
    """The module and the arguments of ``vllm …`` and of ``python -m vllm.…``."""
    match args:
        case ["vllm", *more]:
            return "vllm.entrypoints.cli.main", ["vllm", *more]
        case [sys.executable, "-m", str(module), *more] if module.startswith("vllm."):
            return module, [module, *more]
    return None


def _fork_commands() -> None:
    """vLLM's programs become forks, so that a start takes six seconds instead of forty."""
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]

    def _execute_child(
        self: Any, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, pass_fds: Any, cwd: Any, env: Any,
        startupinfo: Any, creationflags: Any, shell: Any, *more: Any,
    ) -> None:  # fmt: skip
        pipes, new_session = more[:6], more[11]
        if shell or (found := _module_of(args)) is None:
            given = (args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell)
            execute(self, *given, *more)
            return
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
            self._close_pipe_fds(*pipes)
            return
        status = 1
        try:
            if new_session:
                os.setsid()
            _become(*found, pipes, cwd, env, preexec_fn)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)

    subprocess.Popen._execute_child = _execute_child  # type: ignore[attr-defined]


def _become(
    module: str, arguments: list[str], pipes: tuple[int, ...], cwd: Any, env: dict[str, str] | None, preexec_fn: Any
) -> None:
    """Run the module in this fork. Descriptors stay open: objects that own them are still here."""
    gc.freeze()
    if pipes[1] != -1:
        os.close(pipes[1])  # but not the writing end of the input: a reader would wait for its end
    for number, pipe in ((0, pipes[0]), (1, pipes[3]), (2, pipes[5])):
        if pipe != -1:
            os.dup2(pipe, number)
    sys.stdout, sys.stderr = (io.TextIOWrapper(io.FileIO(number, "w", closefd=False)) for number in (1, 2))
    for name in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(name, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio._set_running_loop(None)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    os.chdir(cwd or os.curdir)
    if preexec_fn is not None:
        preexec_fn()
    sys.argv = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
