"""`kernel`: how every Numba function of dotllm is declared, so that none compiles while a request waits.

Kernels have explicit signatures and are compiled when their module is imported; the machine code is cached. Numba's
own cache is keyed by the path and the time stamp of a function's file, but our kernels inline functions and freeze
constants of other files, so a cache entry could outlive a change next door. Here the cache directory carries a hash
of every source that can end up in a kernel (the files of its folder and all they import, this file, the versions of
dotllm, Numba and Python): a new version finds an empty directory, never a stale one. The path of a checkout is no
part of the key, so two checkouts of the same sources share their machine code. The directory lies in the user's
cache directory (DOTLLM_CACHE_DIR), since an installation may be read-only. The wheel of a platform brings machine
code with it, which is copied there (`shipped_kernels`).
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import hashlib
import os
import platform
import re
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import numba
from llvmlite.binding import add_symbol
from numba.core.caching import _CacheLocator
from numba.core.cgutils import get_or_insert_function, if_unlikely
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import make_concrete_template
from numba.extending import lower_builtin

from dotllm._version import __version__
from dotllm.system import shipped_kernels
from dotllm.system.cache_directory import user_cache_directory

# Types of the arguments of kernels: an int; one- and two-dimensional arrays.
I, I1, I2 = numba.int64, numba.int32[::1], numba.int32[:, ::1]  # noqa: E741
U1, B1 = numba.uint8[::1], numba.boolean[::1]

_PACKAGE = Path(__file__).parent
# Numba's cache directory is a setting of the process: two threads that import kernels must not see each other's, or
# machine code ends up in the directory the program was started in.
_setting = threading.RLock()
SECONDS = {
    "allocate": 1,
    "automata": 4,
    "automata/dfa/kernels": 3,
    "automata/nfa_passes": 3,
    "automata/machine": 9,
    "automata/machine/plans": 4,
    "grammar": 2,
    "index": 4,
    "index/storage": 2,
    "index/unique": 1,
    "languages/json_schema/strings": 4,
    "vocabulary": 3,
}
"""The folders that hold kernels, each with the seconds that one core takes to compile them."""
LOCK_PATIENCE_S = 120.0
"""Seconds to wait for another process that compiles a kernel (the slowest takes some 10 s of a core); well below the
600 s that vLLM gives its engine to start."""
LOCK_NOTICE_S = 10.0
LOCK_POLL_S = 0.02
_waited_in_vain: set[str] = set()
_IMPORT = re.compile(r"^from (dotllm[\w.]*) import (\([^)]*\)|.*)$|^import (dotllm[\w.]*)", re.MULTILINE)


def _imported(source: str) -> Iterator[Path]:
    """The files of dotllm whose names ``source`` imports at its top: only these can give a kernel anything."""
    for package, names, module in _IMPORT.findall(source):
        folder = _PACKAGE.joinpath(*(package or module).split(".")[1:])
        itself = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for name in re.findall(r"\w+", names) or [""]:
            found = [path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.is_file()]
            yield found[0] if found else itself


@cache
def kernel_sources(folder: str) -> tuple[Path, ...]:
    """Every file of dotllm that can end up in the machine code of a kernel in ``folder``, sorted."""
    found = {Path(__file__)}
    new = {path for path in (_PACKAGE / folder).glob("*.py") if "from dotllm.jit import" in path.read_text()}
    while new:
        found |= new
        new = {path for known in new for path in _imported(known.read_text()) if path.is_file()} - found
    return tuple(sorted(found))


def _sources_hash(folder: str) -> str:
    """Hash of everything that can end up in the machine code of a kernel in ``folder``."""
    python = ".".join(platform.python_version_tuple()[:2])  # Numba's keys have the byte code itself
    digest = hashlib.sha256(f"{__version__} {numba.__version__} {python} {platform.machine()}".encode())
    for path in kernel_sources(folder):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class BySourceHash(_CacheLocator):  # type: ignore[misc]  # Numba has no types
    """Where Numba keeps the machine code of a kernel: in the directory of its sources' hash, wherever these lie."""

    def __init__(self, line: int) -> None:
        self._line = line
        self._path = str(numba.config.CACHE_DIR)

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> BySourceHash:
        """Numba's constructor of locators."""
        return cls(py_func.__code__.co_firstlineno)

    def get_cache_path(self) -> str:
        """The directory that `kernel` has chosen."""
        return self._path

    def get_source_stamp(self) -> str:
        """Constant: the directory's name says which sources these are."""
        return ""

    def get_disambiguator(self) -> str:
        """Tells functions of one name in one file apart."""
        return str(self._line)


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
    directory = user_cache_directory() / "kernels" / f"{folder.replace('/', '-')}-{_sources_hash(folder)}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(directory)
    except OSError:
        directory = _private_temporary_directory() / directory.name
        directory.mkdir(exist_ok=True)
    if not any(directory.iterdir()) and not shipped_kernels.has(directory.name):
        _progress.tell(folder, directory.parent)
    return str(directory)


class _Progress:
    """Says how far the compilation of kernels is, with the total and the time left: on a terminal in one line that is
    written anew, elsewhere in a line for each group."""

    def __init__(self) -> None:
        self._left: list[str] = []
        self._total = self._seconds = 0
        self._is_open = False
        """Whether the cursor is behind the line."""

    def tell(self, folder: str, kept_in: Path) -> None:
        """The kernels of ``folder`` are compiled now; the machine code will be in ``kept_in``."""
        if not self._total:
            self._left = missing_groups(kept_in)
            self._total, self._seconds = len(self._left), sum(SECONDS[name] for name in self._left)
            atexit.register(self.end)
        left = sum(SECONDS[name] for name in self._left)
        if folder in self._left:
            self._left.remove(folder)
        place = f"{self._total - len(self._left)}/{self._total} ({folder})"
        if sys.stderr.isatty():
            self._is_open = True
            line = f"dotllm: compiling kernels, once per machine: {place}, about {left} s left"
            print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
        else:
            _say(
                f"compiling {self._total} groups of kernels, about {self._seconds} s, once per machine: {place}, "
                f"about {left} s left; kept in {kept_in}"
            )

    def end(self) -> None:
        """All that was to be imported is: the line on the terminal goes."""
        if self._is_open:
            self._is_open = False
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def missing_groups(kept_in: Path | None = None) -> list[str]:
    """The groups of `SECONDS` that have no machine code yet in ``kept_in`` (the user's cache directory)."""
    directory = user_cache_directory() / "kernels" if kept_in is None else kept_in
    return [name for name in SECONDS if not _is_filled(directory, name)]


def _is_filled(kept_in: Path, folder: str) -> bool:
    directory = kept_in / f"{folder.replace('/', '-')}-{_sources_hash(folder)}"
    return shipped_kernels.has(directory.name) or (directory.is_dir() and any(directory.iterdir()))


_progress = _Progress()


def imported() -> None:
    """All kernels that were to be imported are."""
    _progress.end()


@contextmanager
def _alone(directory: str, is_compiled: Callable[[], bool]) -> Iterator[None]:
    """One process at a time compiles into ``directory``; the others wait until ``is_compiled``, or for their turn.

    A server has several processes, and each of them needs the kernels. Where there are no locks everybody compiles; so
    does whoever has waited `LOCK_PATIENCE_S`: the lock's holder may be a process that is stopped.
    """
    if is_compiled():
        yield
        return
    try:
        lock = open(Path(directory) / "lock", "a+")  # noqa: SIM115  # closed below
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):
            _wait_for(lock, is_compiled)
        try:
            yield
        finally:  # closing would not do: a process forked meanwhile has it open, too
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)


def _wait_for(lock: IO[str], is_compiled: Callable[[], bool]) -> None:
    """Take ``lock`` and write this process' id into it, or come back without it as `_alone` says.

    Who has waited in vain does not wait again: there are a hundred kernels. Raises OSError where there are no locks.
    """
    began = time.monotonic()
    told = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            return
        waited = time.monotonic() - began
        if is_compiled() or lock.name in _waited_in_vain:
            return
        if waited >= LOCK_PATIENCE_S:
            _waited_in_vain.add(lock.name)
            _say(f"waited {waited:.0f} s for the lock {lock.name} in vain; compiling without it")
            return
        if waited >= LOCK_NOTICE_S and not told:
            told = True
            lock.seek(0)
            _say(
                f"process {lock.read() or 'unknown'} holds the lock {lock.name} and compiles kernels, or is stopped; "
                f"waiting for it, {LOCK_PATIENCE_S:g} s at most"
            )
        time.sleep(LOCK_POLL_S)


def _say(line: str) -> None:
    print(f"dotllm: {line}", file=sys.stderr, flush=True)


def _is_compiled(directory: str, function: Callable[..., Any]) -> bool:
    """Whether ``directory`` has machine code of ``function``. (Of another CPU, or not of all signatures: it is compiled
    without the lock then, which costs time only, as Numba replaces its files whole.)"""
    return any(Path(directory).glob(_index_files(function)))


def _index_files(function: Callable[..., Any]) -> str:
    """Pattern of the names of Numba's index of ``function``, which its machine code is written before."""
    return f"*.{function.__qualname__}-{function.__code__.co_firstlineno}.py*.nbi"


def _compiled(function: Callable[..., Any], signature: tuple[Any, ...], **flags: Any) -> Any:
    """Numba's dispatcher of ``function`` with the signature(s) given, compiled now or found in the cache."""
    folder = Path(function.__code__.co_filename).parent.relative_to(_PACKAGE).as_posix()
    directory = _cache_directory(folder)
    is_compiled = partial(_is_compiled, directory, function)
    with _setting, _alone(directory, is_compiled):
        if not is_compiled():
            shipped_kernels.adopt(Path(directory), _index_files(function))
        before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
        numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = directory, f"{__name__}.BySourceHash"
        collecting = gc.isenabled()
        gc.disable()  # a compiler makes little garbage in cycles; looking for it takes a tenth of the time
        BaseFunction.get_call_type = _resolve_once
        try:
            return _declared(directory, function, numba.njit(*signature, nogil=True, **flags))
        finally:
            BaseFunction.get_call_type = _resolve
            if collecting:
                gc.enable()
            numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before


def _declared(directory: str, function: Callable[..., Any], declare: Callable[..., Any]) -> Any:
    """``declare(function)``, once more without the cached machine code where that is damaged."""
    try:
        return declare(function)
    except Exception as error:
        damaged = list(Path(directory).glob(_index_files(function).removesuffix("nbi") + "*"))
        if not damaged:
            raise
        _say(f"the machine code of {function.__qualname__} in {directory} is damaged, and made anew: {error!r}")
    for file in damaged:
        file.unlink(missing_ok=True)
    return declare(function)


_resolve = BaseFunction.get_call_type
_resolved: dict[Any, Any] = {}


def _resolve_once(function: BaseFunction, context: Any, arguments: Any, by_name: Any) -> Any:
    """What a call of ``function`` with such types means, which is looked up among all its meanings only once.

    Numba asks dozens of templates what an operator means, for each operation and again whenever a variable of a loop
    has been typed: a fifth of the time to compile. This takes Numba's place while a kernel of ours is compiled; other
    packages' functions are compiled as ever, but for those that another thread compiles at that moment.
    """
    key = function, context, tuple(arguments)
    signature = None if by_name else _resolved.get(key)
    if signature is None:
        signature = _resolve(function, context, arguments, by_name)
        if not by_name and function.get_impl_key(signature) is function.typing_key:  # else it may depend on the flags
            _resolved[key] = signature
    return signature


Decorator = Callable[[Callable[..., Any]], Any]


def kernel(*signature: Any, cached: bool = True) -> Decorator:
    """`numba.njit` with the signature(s) given, without the GIL, cached as the module says."""
    return lambda function: _compiled(function, signature, cache=cached, no_cfunc_wrapper=True)


def _makes_arrays(function: Callable[..., Any]) -> bool:
    """Whether a kernel needs Numba's reference counts: if not, it has none, though its arguments may be arrays."""
    return not {"np", "allocate", "copy", "carray"}.isdisjoint(function.__code__.co_names)


class Inner:
    """A compiled kernel that only kernels can call."""

    def __init__(self, dispatcher: Any, numba_type: Any) -> None:
        self.py_func = dispatcher.py_func
        self._dispatcher = dispatcher  # which has the machine code; the type refers to it weakly
        self._numba_type_ = numba_type


def inner_kernel(signature: Any, *, inlined: bool = False) -> Decorator:
    """`kernel` for what only other kernels call: it has no wrapper for Python, which takes a third of the time to
    compile a small one.

    LLVM compiles whatever a kernel holds once more with that kernel. So only what is ``inlined`` is in the machine code
    of others: small ones, and those with one caller. All else is compiled once and called by its address, which costs
    some nanoseconds; without this, most of the time to compile would go into the same functions, thirty times.
    """

    def compile_now(function: Callable[..., Any]) -> Any:
        flags = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": inlined}
        dispatcher = _compiled(function, (signature,), _nrt=_makes_arrays(function), **flags)
        if inlined:
            return Inner(dispatcher, numba.types.Dispatcher(dispatcher))
        symbol = f"{function.__module__}.{function.__qualname__}"
        (compiled,) = dispatcher.overloads.values()
        add_symbol(symbol, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

        def call(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
            """Lowers a call, to LLVM's declaration of a function that is found by ``symbol``."""
            convention = context.call_conv
            kind = convention.get_function_type(typed.return_type, typed.args)
            declared = get_or_insert_function(builder.module, kind, symbol)
            status, result = convention.call_function(builder, declared, typed.return_type, typed.args, arguments)
            with if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        lower_builtin(symbol, *compiled.signature.args)(call)
        return Inner(dispatcher, numba.types.Function(make_concrete_template(symbol, symbol, [compiled.signature])))

    return compile_now
