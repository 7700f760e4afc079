"""Runs work in a thread of a process that may still be forked: vLLM's ``LLM`` forks its engine core, which forks its
workers.

A forked process has one thread, and every lock is in the state that it had before the fork. If another thread held the
lock of a module's import, or of a kernel's compilation, nothing releases this lock in the child, which waits for it
forever. (Python warns of forking with threads in general, https://docs.python.org/3/library/os.html#os.fork.) So a fork
waits while this module works. vLLM forks right after it has asked for the work, and this fork should not wait. So the
work begins only when there has been no fork for a moment. Servers spawn their processes instead, and a spawn never
waits here.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

logger = logging.getLogger(__name__)

SETTLED_S = 1.0
"""Seconds from the last fork, or from a request for work, until the work begins."""
LONGEST_WORK_S = 300.0
"""The most seconds that a fork waits; compiling all kernels on a new machine takes a third of that."""

_working = threading.RLock()  # held while work is being done, and while this process forks
_forked = 0.0  # when it last forked, by `time.monotonic`


def run(work: Callable[[], None], name: str) -> None:
    """Do ``work`` in a thread of this name, soon."""
    requested = time.monotonic()

    def wait_and_work() -> None:
        while True:
            with _working:
                left = max(requested, _forked) + SETTLED_S - time.monotonic()
                if left <= 0:
                    work()
                    return
            time.sleep(left)

    threading.Thread(target=wait_and_work, name=name, daemon=True).start()


def _before_fork() -> None:
    if not _working.acquire(timeout=LONGEST_WORK_S):
        logger.warning("dotllm: forking while a thread prepares something, since it takes so long")


def _after_fork_in_parent() -> None:
    global _forked
    _forked = time.monotonic()
    with suppress(RuntimeError):  # it was not acquired in time
        _working.release()


def _after_fork_in_child() -> None:
    global _working
    _working = threading.RLock()  # no thread works in the child


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
