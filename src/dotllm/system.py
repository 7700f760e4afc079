"""What a process asks of its machine: a cache directory, CPUs, memory committed late, whole files, background work."""

from __future__ import annotations

import _thread
import errno
import io
import logging
import math
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

logger = logging.getLogger(__name__)


def user_cache_directory() -> Path:
    """The directory for files that can always be made again: machine code, tables of vocabularies, indexes.

    ``$DOTLLM_CACHE_DIR``, else ``dotllm`` in the user's cache directory (XDG Base Directory Specification, by which a
    relative path is ignored). A user whom the system does not know, as in many containers, has no home: ``/`` stands
    for it, as in Docker.
    """
    chosen = os.environ.get("DOTLLM_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.path.expanduser("~")  # without a home, this is "~"
    of_all = os.environ.get("XDG_CACHE_HOME", "")
    return Path(of_all if os.path.isabs(of_all) else Path("/" if home == "~" else home, ".cache")) / "dotllm"


# The number of CPUs that this process may use: in a container usually fewer than the machine has.
#
# ``os.cpu_count`` counts the machine's CPUs. Affinity (``--cpuset-cpus``) or a quota of the control group (``--cpus``,
# Kubernetes' limits) gives a container fewer. A container that exceeds its quota is stopped for the rest of a tenth of
# a second. The threads that share the masks of a batch work for microseconds, so they must not outnumber the CPUs:
# eight threads on one CPU take 3.7 ms for the masks of 128 requests, one thread takes 1.2 ms.
#
# https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files


_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "MICROSECONDS PERIOD" or "max PERIOD"
_QUOTA_V1 = tuple(Path("/sys/fs/cgroup/cpu") / name for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))


@cache
def usable_cpus() -> int:
    """Number of CPUs that this process may use simultaneously, at least 1. A part of a CPU counts as one."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota()
    return max(1, count if quota is None else min(count, math.ceil(quota)))


def _quota() -> float | None:
    """The control group's quota in CPUs; None if there is no limit, or if it cannot be read."""
    try:
        if _QUOTA.exists():
            time, period = _QUOTA.read_text(encoding="utf-8").split()
        else:
            time, period = (path.read_text(encoding="utf-8").strip() for path in _QUOTA_V1)
        return int(time) / int(period) if int(time) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):  # ("max" raises ValueError)
        return None


# Lazily committed memory, for large arrays that are filled little by little, or only in part.
#
# NumPy asks for huge pages for arrays of 4 MiB and more. When the first byte of a huge page is written, the system
# moves other pages to make room, and clears the whole page: the first 17 MB of a large arena took up to 76 ms of a
# request's time. In ordinary pages they take 8 ms, and unwritten parts take no memory.
#
# Giving pages back takes 0.1 ms for each MiB. An engine's loop may drop the last reference to an arena of 200 MiB, and
# all its requests would wait for 20 ms. So a thread gives them back, in pieces: while the system takes a whole arena
# back, no other thread can map memory (as vLLM does in each step that runs prompts), and it waited for 22 to 60 ms.

_PIECE, _REST_S = 1 << 20, 0.0005  # bytes; a rest after each piece, for threads that wait


class _Pages(mmap.mmap):
    """Anonymous memory that a thread gives back after its last reference has gone."""

    def __del__(self) -> None:
        if not (sys.is_finalizing() or self.closed):  # (a thread that starts then may never run)
            with suppress(RuntimeError):  # there can be no more threads: this one gives them back
                # (``Thread.start`` would wait for the thread.)
                _thread.start_new_thread(self._give_back, ())

    def _give_back(self) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            with suppress(OSError):  # pages that are locked go back at once
                for start in range(0, len(self), _PIECE):
                    self.madvise(mmap.MADV_DONTNEED, start, min(_PIECE, len(self) - start))
                    time.sleep(_REST_S)
        self.close()


def reserved(shape: int | tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Zeros of ``shape``, in memory that the system commits page by page as it is written.

    Raises:
        MemoryError: the system has too little memory for the array, or a limit of the process forbids it.
        OSError: the system refuses the memory for another reason.
    """
    import numpy as np

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    try:
        memory = _Pages(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        if error.errno != errno.ENOMEM:
            raise
        raise MemoryError(f"no room for {size} bytes") from None
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, size // np.dtype(dtype).itemsize).reshape(shape)


def joined(parts: Sequence[bytes | NDArray[Any]]) -> bytes:
    """The bytes of ``parts``, one after another. Other Python threads run meanwhile.

    ``tobytes``, and ``bytes.join`` of anything but ``bytes``, hold the GIL until all is copied, up to 0.6 ms for each
    MB: an index of 60 MB stopped the engine's loop for 35 ms. NumPy copies without the GIL.
    """
    import numpy as np

    sources = [np.frombuffer(part, np.uint8) for part in parts]
    memory = io.BytesIO(bytes(sum(map(len, sources))))  # zeros that the system has not committed yet
    with memory.getbuffer() as buffer:
        np.concatenate(sources, out=np.frombuffer(buffer, np.uint8))
    return memory.getvalue()  # the memory itself, not a copy


# Runs work in a thread of a process that may still be forked: vLLM's ``LLM`` forks its engine core, which forks its
# workers.
#
# A forked process has one thread, and every lock is in the state that it had before the fork. If another thread held
# the lock of a module's import, or of a kernel's compilation, nothing releases this lock in the child, which waits for
# it forever. (Python warns of forking with threads in general, https://docs.python.org/3/library/os.html#os.fork.) So a
# fork waits while this module works. vLLM forks right after it has asked for the work, and that fork should not wait.
# So the work begins only after a moment without a fork. Servers spawn their processes instead, and a spawn never waits
# here.


SETTLED_S = 1.0
"""Seconds from the last fork, or from a request for work, until the work begins."""
LONGEST_WORK_S = 300.0
"""The most seconds that a fork waits; compiling all kernels on a new machine takes a third of that."""

_working = threading.RLock()  # held while work is being done, and while this process forks
_forked = 0.0  # when it last forked, by `time.monotonic`


def write_file(path: Path, data: bytes) -> None:
    """Replace the file at ``path``; readers never see half a file. Each writer completes a temporary file of its own
    first."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        temporary.write_bytes(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def run_in_background(work: Callable[[], None], name: str) -> None:
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
        logger.warning("dotllm: forking although a background thread is still at work after %g s", LONGEST_WORK_S)


def _after_fork_in_parent() -> None:
    global _forked
    _forked = time.monotonic()
    with suppress(RuntimeError):  # the lock was not acquired in time
        _working.release()


def _after_fork_in_child() -> None:
    global _working
    _working = threading.RLock()  # no thread works in the child


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
