"""`kernel`: how every Numba function of dotllm is declared, so that none compiles while a request waits.

Kernels have explicit signatures and are compiled when their module is imported; the machine code is cached. Numba's
own cache is keyed by the file of a function, but our kernels inline functions of other files, so a cache entry could
outlive a change next door. Here the cache directory carries a hash of all sources that hold kernels, of Numba and of
Python: a new version finds an empty directory, never a stale one. It lies in the user's cache directory
(DOTLLM_CACHE_DIR), since an installation may be read-only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numba

from dotllm.cache_directory import user_cache_directory

_PACKAGE = Path(__file__).parent
# Numba's cache directory is a setting of the process: two threads that import kernels must not see each other's, or
# machine code ends up in the directory the program was started in.
_setting = threading.RLock()
# kernels of these folders inline each other
_ENGINE = ("automata", "automata/finish", "automata/machine", "index")


def _sources_hash(folder: str) -> str:
    """Hash of everything that can end up in the machine code of a kernel in ``folder``."""
    digest = hashlib.sha256(f"{numba.__version__} {platform.python_version()} {platform.machine()}".encode())
    for name in _ENGINE if folder in _ENGINE else (folder,):
        for path in sorted((_PACKAGE / name).glob("*.py")):
            source = path.read_bytes()
            if b"kernel" in source or path.name in ("layout.py", "kinds.py"):
                digest.update(path.name.encode() + source)
    return digest.hexdigest()[:16]


def _private_temporary_directory() -> Path:
    """A directory for temporary files that nobody else can have put machine code into."""
    shared = Path(tempfile.gettempdir()) / f"dotllm-{os.getuid()}"
    with suppress(FileExistsError):
        shared.mkdir(mode=0o700)
    about = shared.lstat()
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
        return shared
    return Path(tempfile.mkdtemp(prefix="dotllm-"))


@cache
def _cache_directory(folder: str) -> str:
    """A writable directory for the machine code of this version; says so, once, if it must first be filled."""
    directory = user_cache_directory() / "kernels" / _sources_hash(folder)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(directory)
    except OSError:
        directory = _private_temporary_directory() / directory.name
        directory.mkdir(exist_ok=True)
    if not any(directory.iterdir()):
        print(f"dotllm: compiling kernels ({folder}) for this machine, once; kept in {directory}", file=sys.stderr)
    return str(directory)


@contextmanager
def _alone(directory: str) -> Iterator[None]:
    """One process at a time compiles into ``directory``; the others wait, and find the result in the cache.

    A server has several processes, and each of them needs the kernels. Where there are no locks everybody compiles.
    """
    try:
        lock = open(Path(directory) / "lock", "w")  # noqa: SIM115  # closed below
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield
        finally:  # closing would not do: a process forked meanwhile has it open, too
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)


def kernel(*signature: Any, cached: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with the signature(s) given, without the GIL, cached as the module says."""

    def compile_now(function: Callable[..., Any]) -> Any:
        folder = Path(function.__code__.co_filename).parent.relative_to(_PACKAGE).as_posix()
        directory = _cache_directory(folder)
        with _setting, _alone(directory):
            before = numba.config.CACHE_DIR
            numba.config.CACHE_DIR = directory
            try:
                return numba.njit(*signature, nogil=True, cache=cached)(function)
            finally:
                numba.config.CACHE_DIR = before

    return compile_now
