"""`kernel` declares every Numba function of dotllm, so that none compiles while a request waits.

Kernels have explicit signatures and are compiled when their module is imported; the machine code is cached. Numba's
own cache is keyed by the path and the time stamp of a function's file, but dotllm's kernels inline functions and freeze
constants of other files, so a cache entry could outlive a change in another file. Here the name of the cache directory
has a hash of every source that can end up in a kernel (the files of its folder and all that they import, this file, the
versions of dotllm, Numba and Python): a new version finds an empty directory, never stale machine code. The path of a
checkout is not part of the key, so two checkouts of the same sources share their machine code. The directory is in the
user's cache directory (DOTLLM_CACHE_DIR), because an installation may be read-only. If the cache itself is read-only,
as in an image that runs as another user, or its disk is full, its machine code is used, and missing code goes to a
temporary directory; if that cannot be written either, each process compiles what is missing for itself. A platform
wheel brings machine code, which is copied into the cache (`shipped_kernels`).
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import hashlib
import os
import platform
import re
import signal
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from types import FrameType
from typing import IO, Any

import numba
from llvmlite.binding import add_symbol, parse_bitcode
from numba.core.caching import Cache, IndexDataCacheFile, _CacheLocator
from numba.core.cgutils import get_or_insert_function, if_unlikely
from numba.core.codegen import JITCodeLibrary
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.types.functions import BaseFunction
from numba.core.typing.templates import make_concrete_template
from numba.extending import lower_builtin

from dotllm import shipped_kernels
from dotllm._version import __version__
from dotllm.system import user_cache_directory

# Types of the arguments of kernels: an int; one- and two-dimensional arrays.
I, I1, I2 = numba.int64, numba.int32[::1], numba.int32[:, ::1]  # noqa: E741
U1, B1 = numba.uint8[::1], numba.boolean[::1]

_PACKAGE = Path(__file__).parent
# Numba's cache directory is a setting of the process. Two threads that import kernels must not see each other's
# setting, or machine code ends up in the directory in which the program was started.
_setting = threading.RLock()
SECONDS = {
    "allocate": 1,
    "automata": 7,
    "automata/dfa": 3,
    "automata/machine": 13,
    "grammar": 2,
    "index": 6,
    "index/unique": 1,
    "languages/json_schema/strings": 4,
    "vocabulary": 3,
}
"""The folders with kernels, each with the seconds that one core takes to compile its kernels."""
PACE_PRIOR_S = 5.0
LOCK_PATIENCE_S = 120.0
"""Seconds to wait for another process that compiles a kernel (the slowest kernel takes some 10 s of a core); well below
the 600 s that vLLM gives its engine to start."""
LOCK_NOTICE_S = 10.0
LOCK_POLL_S = 0.02
_waited_in_vain: set[str] = set()
_full: set[str] = set()
"""The directories in which machine code could not be kept although their modes allow it."""
_is_alone = False
"""Whether this process holds the lock of a directory (`_alone`); only the thread that holds `_setting` uses this."""
_IMPORT = re.compile(r"^from (dotllm[\w.]*) import (\([^)]*\)|.*)$|^import (dotllm[\w.]*)", re.MULTILINE)


@cache
def _imported(source: Path) -> frozenset[Path]:
    """The files of dotllm from which ``source`` imports names at its top: only these can be part of a kernel."""
    imported = set()
    for package, names, module in _IMPORT.findall(source.read_text(encoding="utf-8")):
        folder = _PACKAGE.joinpath(*(package or module).split(".")[1:])
        itself = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
        for name in re.findall(r"\w+", names) or [""]:
            candidates = (folder / f"{name}.py", folder / name / "__init__.py", itself)
            imported.add(next(path for path in candidates if path is itself or path.is_file()))
    return frozenset(path for path in imported if path.is_file())


@cache
def kernel_sources(folder: str) -> tuple[Path, ...]:
    """Every file of dotllm that can end up in the machine code of a kernel in ``folder``, sorted."""
    result = {Path(__file__)}
    new = {
        path
        for path in (_PACKAGE / folder).glob("*.py")
        if "from dotllm.jit import" in path.read_text(encoding="utf-8")
    }
    while new:
        result |= new
        new = {path for known in new for path in _imported(known)} - result
    return tuple(sorted(result))


def _sources_hash(folder: str) -> str:
    """Hash of everything that can end up in the machine code of a kernel in ``folder``."""
    python = ".".join(platform.python_version_tuple()[:2])  # Numba's keys contain the byte code itself
    digest = hashlib.sha256(f"{__version__} {numba.__version__} {python} {platform.machine()}".encode())
    for path in kernel_sources(folder):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


class BySourceHash(_CacheLocator):  # type: ignore[misc]  # Numba has no types
    """Makes Numba keep the machine code of a kernel in the directory of its sources' hash, wherever the sources are."""

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
        """A constant: the directory's name already identifies the sources."""
        return ""

    def get_disambiguator(self) -> str:
        """The line, which tells apart functions of the same name in one file."""
        return str(self._line)


def _private_temporary_directory() -> Path:
    """A temporary directory into which no other user can have put machine code."""
    shared = Path(tempfile.gettempdir()) / f"dotllm-{os.getuid()}"
    with suppress(FileExistsError):
        shared.mkdir(mode=0o700)
    about = shared.lstat()
    if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022:
        return shared
    return Path(tempfile.mkdtemp(prefix="dotllm-"))


def _directory_name(folder: str) -> str:
    return f"{folder.replace('/', '-')}-{_sources_hash(folder)}"


@cache
def _cache_directory(folder: str) -> str:
    """The user's directory for the machine code of this version, which may be read-only or missing. If it is empty,
    shows once that kernels are compiled into it."""
    directory = user_cache_directory() / "kernels" / _directory_name(folder)
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
    if _is_writable(str(directory)):
        _tell_if_empty(folder, directory)
    return str(directory)


def _is_writable(directory: str) -> bool:
    return directory not in _full and _allows_writing(directory)


@cache
def _allows_writing(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.W_OK)


@cache
def _temporary_directory(folder: str) -> str:
    """The directory for machine code that is missing in a read-only `_cache_directory`."""
    directory = _private_temporary_directory() / _directory_name(folder)
    directory.mkdir(exist_ok=True)
    _tell_if_empty(folder, directory)
    return str(directory)


@cache
def _say_what_is_read_only(kept_in: Path) -> None:
    _say(
        f"{user_cache_directory() / 'kernels'} cannot be written, and lacks machine code for this version and CPU; "
        f"what it lacks is compiled into {kept_in}"
    )


@cache
def _say_what_is_full(directory: Path, reason: str) -> None:
    _say(f"machine code cannot be kept in {directory}: {reason}; the next start will compile it again")


def is_kept() -> bool:
    """Whether all machine code that this process has compiled is in the user's cache directory."""
    return not _full and not _temporary_directory.cache_info().currsize


def _tell_if_empty(folder: str, directory: Path) -> None:
    if not _files(str(directory)) and not shipped_kernels.has(directory.name):
        _progress.tell(folder, directory.parent)


class _Progress:
    """Shows the progress of compiling kernels, with the total and the time left: on a terminal in one line that it
    rewrites, elsewhere in a line for each group."""

    def __init__(self) -> None:
        self._left: list[str] = []
        self._total = self._seconds = 0
        self._began = 0.0
        self._is_open = False
        """Whether the cursor is at the end of the line."""

    def tell(self, folder: str, kept_in: Path) -> None:
        """Show that the kernels of ``folder`` are being compiled; the machine code will be in ``kept_in``."""
        if not self._total:
            self._left = missing_groups(kept_in)
            self._total, self._seconds = len(self._left), sum(SECONDS[name] for name in self._left)
            self._began = time.monotonic()
            atexit.register(self.end)
        left = self._seconds_left()
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

    def _seconds_left(self) -> int:
        """Seconds for the groups that are left, at the pace so far: other programs may be using most of the CPU.

        The first groups are small, so the pace includes another `PACE_PRIOR_S` seconds at the expected pace.
        """
        left = sum(SECONDS[name] for name in self._left)
        taken, expected = time.monotonic() - self._began, self._seconds - left
        return round(left * max(1.0, (taken + PACE_PRIOR_S) / (expected + PACE_PRIOR_S)))

    def end(self) -> None:
        """Remove the line on the terminal, after all imports."""
        if self._is_open:
            self._is_open = False
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def missing_groups(kept_in: Path | None = None) -> list[str]:
    """The groups of `SECONDS` that have no machine code yet, neither in the user's cache directory nor in
    ``kept_in``."""
    directories = {user_cache_directory() / "kernels", kept_in or user_cache_directory() / "kernels"}
    return [name for name in SECONDS if not any(_is_filled(directory, name) for directory in directories)]


def _is_filled(kept_in: Path, folder: str) -> bool:
    directory = str(kept_in / _directory_name(folder))
    return shipped_kernels.has(os.path.basename(directory)) or bool(_files(directory))


_progress = _Progress()


def imported() -> None:
    """End the display of progress. Call it after all imports of kernels."""
    _progress.end()


@contextmanager
def _alone(directory: str, is_compiled: Callable[[], bool]) -> Iterator[None]:
    """One process at a time compiles into ``directory``; the others wait until ``is_compiled``, or for their turn.

    A server has several processes, and each of them needs the kernels. If there are no locks, each process compiles
    them. So does a process that has waited `LOCK_PATIENCE_S`, because the lock's holder may be stopped. Inlined kernels
    are compiled under their caller's lock: with two locks, taken in any order, processes could wait for each other.
    """
    global _is_alone
    if _is_alone or is_compiled():
        yield
        return
    try:
        # Unbuffered: on a full disk, closing the file would fail, too. (It is closed below.)
        lock = open(Path(directory) / "lock", "a+b", buffering=0)  # noqa: SIM115
    except OSError:
        yield
        return
    with lock:
        with suppress(OSError):
            _wait_for(lock, is_compiled)
        _is_alone = True
        try:
            yield
        finally:  # closing the file would not suffice: a process forked meanwhile has it open, too
            _is_alone = False
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)


def _wait_for(lock: IO[bytes], is_compiled: Callable[[], bool]) -> None:
    """Take ``lock`` and write this process's id into it, or return without it in the cases that `_alone` names.

    A process that timed out once stops waiting, because there are a hundred kernels. Raises OSError if the file system
    has no locks.
    """
    began = time.monotonic()
    told = False
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            lock.truncate(0)
            lock.write(str(os.getpid()).encode())
            return
        waited = time.monotonic() - began
        if is_compiled() or lock.name in _waited_in_vain:
            return
        if waited >= LOCK_PATIENCE_S:
            _waited_in_vain.add(lock.name)
            _say(f"did not get the lock {lock.name} within {waited:.0f} s; compiling without it")
            return
        if waited >= LOCK_NOTICE_S and not told:
            told = True
            lock.seek(0)
            holder = lock.read().decode() or "unknown"
            _say(
                f"process {holder} holds the lock {lock.name} and compiles kernels, or is stopped; "
                f"waiting for it, {LOCK_PATIENCE_S:g} s at most"
            )
        time.sleep(LOCK_POLL_S)


def _say(line: str) -> None:
    print(f"dotllm: {line}", file=sys.stderr, flush=True)


def _is_compiled(directory: str, function: Callable[..., Any]) -> bool:
    """Whether ``directory`` has machine code of ``function``. (If it is for another CPU, or lacks a signature, the
    function is compiled without the lock. This costs only time, because Numba replaces whole files.)"""
    name = f"{function.__name__}-{function.__code__.co_firstlineno}"
    if name in _listed(directory):
        return True
    _listed.cache_clear()  # another process may have compiled it in the meantime
    return name in _listed(directory)


@cache
def _listed(directory: str) -> frozenset[str]:
    """The names and lines of the kernels that have an index file (`_index_files`) in ``directory``. It is listed once,
    because two hundred kernels are looked up."""
    return frozenset(file.split(".")[-3] for file in _files(directory) if file.endswith(".nbi"))


def _files(directory: str) -> list[str]:
    """The names of the files in ``directory``; none if it is missing, or another user's who lets nobody look."""
    try:
        return os.listdir(directory)
    except OSError:
        return []


def _index_files(function: Callable[..., Any]) -> str:
    """A pattern for the name of Numba's index file of ``function``, which Numba writes after the machine code."""
    return f"*.{function.__qualname__}-{function.__code__.co_firstlineno}.py*.nbi"


def _is_for_this_cpu(directory: str, function: Callable[..., Any]) -> bool:
    """Whether ``directory`` has machine code of ``function`` for this CPU. An image may be built on another CPU."""
    this_cpu = cpu_target.target_context.codegen().magic_tuple()
    try:
        return any(
            cpu == this_cpu
            for path in Path(directory).glob(_index_files(function))
            for _, cpu, _ in IndexDataCacheFile(directory, path.stem, "")._load_index()
        )
    except Exception:  # the index is damaged, or cannot be read
        return False


def _compiled(function: Callable[..., Any], signature: tuple[Any, ...], **flags: Any) -> Any:
    """Numba's dispatcher of ``function`` for the given signature(s), compiled now or found in a cache."""
    folder = Path(function.__code__.co_filename).parent.relative_to(_PACKAGE).as_posix()
    declare = numba.njit(*signature, nogil=True, **flags)
    directory = _cache_directory(folder)
    if _is_writable(directory):
        return _declared_in(directory, function, declare)
    if _is_for_this_cpu(directory, function):
        with suppress(Exception):  # machine code is damaged
            return _declared_in(directory, function, declare)
    try:
        directory = _temporary_directory(folder)
    except OSError:
        return _declared_in(directory, function, declare)
    if not _is_compiled(directory, function) and not shipped_kernels.has(Path(directory).name):
        _say_what_is_read_only(Path(directory).parent)
    return _declared_in(directory, function, declare)


def _declared_in(directory: str, function: Callable[..., Any], declare: Callable[..., Any]) -> Any:
    """``declare(function)`` with ``directory`` as Numba's cache."""
    is_compiled = partial(_is_compiled, directory, function)
    with _setting, _alone(directory, is_compiled), _uninterrupted():
        if not is_compiled():
            with suppress(OSError):  # it is compiled instead
                shipped_kernels.adopt(Path(directory), _index_files(function))
        before = numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES
        numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = directory, f"{__name__}.BySourceHash"
        collecting = gc.isenabled()
        gc.disable()  # a compiler makes few reference cycles, and searching for them takes a tenth of the time
        resolve, BaseFunction.get_call_type = BaseFunction.get_call_type, _resolve_once
        load, Cache.load_overload = Cache.load_overload, _load_overload
        save, Cache.save_overload = Cache.save_overload, _save_overload
        try:
            return _declared(directory, function, declare)
        finally:
            BaseFunction.get_call_type, Cache.load_overload, Cache.save_overload = resolve, load, save
            if collecting:
                gc.enable()
            numba.config.CACHE_DIR, numba.config.CACHE_LOCATOR_CLASSES = before


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """In the main thread, SIGINT and SIGTERM take effect after the block.

    While a kernel compiles, their handlers would run in Python code that LLVM calls, where what they raise is lost.
    Numba then lacks the machine code, and ends with an error about that.
    """
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
    came: list[int] = []
    try:
        for signum in (signal.SIGINT, signal.SIGTERM):
            handler = signal.getsignal(signum)
            if callable(handler) and threading.current_thread() is threading.main_thread():
                handlers[signum] = handler
                signal.signal(signum, lambda number, _: came.append(number))
        yield
    finally:
        for number, kept in handlers.items():
            signal.signal(number, kept)
        with ExitStack() as all_of_them:  # also if one of them raises
            for number in reversed(came):
                all_of_them.callback(handlers[number], number, None)


def _declared(directory: str, function: Callable[..., Any], declare: Callable[..., Any]) -> Any:
    """``declare(function)``; if the cached machine code is damaged, it is deleted, and the function compiled again."""
    try:
        return declare(function)
    except Exception as error:
        damaged = list(Path(directory).glob(_index_files(function).removesuffix("nbi") + "*"))
        if not damaged or not _is_writable(directory):
            raise
        _say(f"the machine code of {function.__qualname__} in {directory} is damaged and will be recompiled: {error!r}")
    for file in damaged:
        file.unlink(missing_ok=True)
    return declare(function)


def _load_overload(cached: Cache, signature: Any, context: Any) -> Any:
    """Replaces Numba's method while a kernel of dotllm is loaded, and takes a third of its time. It does not look at
    all registries of declarations before each kernel, which only a compile needs (and does itself), and it loads
    machine code as `_Loaded`."""
    rtsys.initialize(context)
    codegen = context.codegen()
    before, codegen._library_class = codegen._library_class, _Loaded
    try:
        return cached._load_overload(signature, context)
    finally:
        codegen._library_class = before


_save = Cache.save_overload


def _save_overload(cached: Cache, signature: Any, compiled: Any) -> None:
    """Replaces Numba's method while a kernel of dotllm is compiled: machine code that cannot be kept is used all the
    same."""
    try:
        _save(cached, signature, compiled)
    except OSError as error:
        _full.add(cached.cache_path)
        _say_what_is_full(Path(cached.cache_path).parent, error.strerror or repr(error))


class _Loaded(JITCodeLibrary):  # type: ignore[misc]  # Numba has no types
    """Machine code from the cache. Its LLVM bitcode is read only if a kernel that is being compiled links it. The
    symbols of neither are listed, because the engine knows them."""

    _shared_module: Any
    _bitcode = b""

    @classmethod
    def _unserialize(cls, codegen: Any, state: tuple[str, str, tuple[bytes, bytes]]) -> _Loaded:
        name, _, (machine_code, bitcode) = state
        library = cls(codegen, name)
        library._bitcode = bitcode
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        return library

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None and self._bitcode:
            self._shared_module = parse_bitcode(self._bitcode)
        return super()._get_module_for_linking()

    def get_pointer_to_function(self, name: str) -> int:
        """As Numba's method: 0 if the library lacks the function."""
        return int(self._codegen._engine.get_function_address(name))


_resolve = BaseFunction.get_call_type
_resolved: dict[Any, Any] = {}


def _resolve_once(function: BaseFunction, context: Any, arguments: Any, by_name: Any) -> Any:
    """The overload of ``function`` for these types, searched for only once.

    Numba asks dozens of templates for the meaning of an operator, for each operation and again whenever a variable of a
    loop has been typed. This takes a fifth of the time to compile. So this function replaces Numba's while a kernel of
    dotllm is compiled. Functions of other packages are compiled as usual, except those that another thread compiles at
    that moment.
    """
    key = function, context, tuple(arguments)
    signature = None if by_name else _resolved.get(key)
    if signature is None:
        signature = _resolve(function, context, arguments, by_name)
        if not by_name and function.get_impl_key(signature) is function.typing_key:  # others may depend on the flags
            _resolved[key] = signature
    return signature


Decorator = Callable[[Callable[..., Any]], Any]


def kernel(*signature: Any, cached: bool = True) -> Decorator:
    """`numba.njit` with the given signature(s), without the GIL, cached as the module's docstring says."""
    return lambda function: _compiled(function, signature, cache=cached, no_cfunc_wrapper=True)


def _makes_arrays(function: Callable[..., Any]) -> bool:
    """Whether a kernel needs Numba's reference counts. A kernel without these names needs none, although its arguments
    may be arrays."""
    return not {"np", "allocate", "copy", "carray"}.isdisjoint(function.__code__.co_names)


class Inner:
    """A compiled kernel that only kernels can call."""

    def __init__(self, dispatcher: Any, numba_type: Any) -> None:
        self.py_func = dispatcher.py_func
        self._dispatcher = dispatcher  # this owns the machine code; the type refers to it weakly
        self._numba_type_ = numba_type


class Inlined:
    """A kernel whose machine code is part of its callers' machine code. It is compiled when a caller is compiled.

    If all callers are in the cache, it is not needed, and loading it would take a sixth of the time to start.
    """

    def __init__(self, function: Callable[..., Any], compile_now: Callable[[], Any]) -> None:
        self.py_func = function
        self._compile_now = compile_now

    @cached_property
    def _dispatcher(self) -> Any:
        return self._compile_now()

    @property
    def _numba_type_(self) -> Any:
        """The type for which Numba asks when it compiles a caller."""
        return numba.types.Dispatcher(self._dispatcher)


def inner_kernel(signature: Any, *, inlined: bool = False) -> Decorator:
    """`kernel` for functions that only other kernels call. It has no wrapper for Python: that would take a third of the
    time to compile a small kernel.

    With each kernel, LLVM compiles again everything that is inside it. So only ``inlined`` functions (small ones, and
    those with one caller) are in the machine code of other kernels. All others are compiled once and called by address,
    which costs some nanoseconds. Otherwise most of the time to compile would go into the same functions, thirty times.
    """

    def declare(function: Callable[..., Any]) -> Any:
        flags = {"cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "forceinline": inlined}
        compiled_now = partial(_compiled, function, (signature,), _nrt=_makes_arrays(function), **flags)
        if inlined:
            return Inlined(function, compiled_now)
        dispatcher = compiled_now()
        symbol = f"{function.__module__}.{function.__qualname__}"
        (compiled,) = dispatcher.overloads.values()
        add_symbol(symbol, compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))

        def call(context: Any, builder: Any, typed: Any, arguments: Any) -> Any:
            """Lower a call to LLVM's declaration of a function that is found by ``symbol``."""
            convention = context.call_conv
            kind = convention.get_function_type(typed.return_type, typed.args)
            declared = get_or_insert_function(builder.module, kind, symbol)
            status, result = convention.call_function(builder, declared, typed.return_type, typed.args, arguments)
            with if_unlikely(builder, status.is_error):
                convention.return_status_propagate(builder, status)
            return result

        lower_builtin(symbol, *compiled.signature.args)(call)
        return Inner(dispatcher, numba.types.Function(make_concrete_template(symbol, symbol, [compiled.signature])))

    return declare
