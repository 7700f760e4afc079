"""Temporary directories that no killed process leaves for ever.

A process removes its directories when it ends, but not after a SIGKILL. So it holds a lock on each of them, which the
system releases when the process and its forks are gone, and a process that makes another directory first removes those
that nobody holds. Process ids would not do: they are reused, and containers that share a directory share no ids.

systemd's cleaner skips locked directories, too (https://systemd.io/TEMPORARY_DIRECTORIES/), so an idle server keeps its
directory, however old the files in it are.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

_held: list[int] = []  # descriptors, open as long as this process and its forks live


def make_directory(kind: str) -> Path:
    """A new directory ``dotllm-KIND-…``, which exists until this process ends. Removes abandoned ones of this kind."""
    prefix = f"dotllm-{kind}-"
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        _remove_abandoned(path)
    while True:
        directory = Path(tempfile.mkdtemp(prefix=prefix))
        if _hold(directory):
            break
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # a forked child leaves it to its parent
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory


def _open(directory: Path) -> int:
    return os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _hold(directory: Path) -> bool:
    """Lock a new directory. False if another process, which took it for abandoned, removes it."""
    try:
        _held.append(_open(directory))
        fcntl.flock(_held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError):
        return False
    except OSError:  # no locks here: nobody can get the lock that a removal needs
        return True
    return directory.exists()


def _remove_abandoned(path: Path) -> None:
    with suppress(OSError):
        descriptor = _open(path)
        try:
            if os.fstat(descriptor).st_uid == os.geteuid():
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)
