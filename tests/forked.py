"""Work in a fork of this process: it may crash, hang or use up all memory, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import signal
import threading
from collections.abc import Callable
from typing import Any


def forked(work: Callable[[], Any], cpu_s: float, wall_s: float) -> Any:
    """The result of ``work`` in a fork of this process; None if the fork ends without an answer or takes too long."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 1))
        with open(os.devnull, "r+b") as null:
            for number in (0, 1, 2):
                os.dup2(null.fileno(), number)
        answer = pickle.dumps(work())
        with open(writer, "wb") as pipe:
            pipe.write(answer)
        os._exit(0)
    os.close(writer)
    late = threading.Timer(wall_s, os.killpg, (child, signal.SIGKILL))
    late.start()
    with open(reader, "rb") as pipe:
        data = pipe.read()
    late.cancel()
    os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):  # processes that the tests have started
        os.killpg(child, signal.SIGKILL)
    return pickle.loads(data) if data else None
