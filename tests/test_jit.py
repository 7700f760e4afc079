"""Where machine code is kept: per version of the sources, in a writable place, never where others could have put it."""

from __future__ import annotations

import ctypes
import fcntl
import importlib
import inspect
import io
import operator
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TextIO

import numba as nb
import pytest
from numba.core.caching import IndexDataCacheFile
from numba.core.dispatcher import Dispatcher
from numba.core.registry import cpu_target

from dotllm import jit

KERNEL = """
import sys
from dotllm import allocate
from dotllm.jit import _cache_directory, is_kept
print(_cache_directory("allocate"), is_kept())
"""


def run(before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", before + KERNEL],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


LOOKS = """
from dotllm.jit import cpu_target
looks, depth, refresh = 0, 0, type(cpu_target.target_context).refresh

def counting(context):
    global looks, depth
    looks, depth = looks + (not depth), depth + 1  # the first look asks for itself
    refresh(context)
    depth -= 1

type(cpu_target.target_context).refresh = counting
"""
"""Counts how often Numba looks at its registries."""


class First(NamedTuple):
    """A cache, and the run that has left its machine code there."""

    cache: Path
    run: subprocess.CompletedProcess[str]


def run_and_count(cache: Path) -> subprocess.CompletedProcess[str]:
    """`run`, which also prints `LOOKS`."""
    code = f"{LOOKS}\n{KERNEL}\nprint(looks)"
    environment = {**os.environ, "DOTLLM_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> First:
    cache = tmp_path_factory.mktemp("compiled")
    return First(cache, run_and_count(cache))


@pytest.fixture
def cache(compiled: First, tmp_path: Path) -> Path:
    """A copy of it, which a test may change."""
    return Path(shutil.copytree(compiled.cache, tmp_path / "cache"))


def machine_code(cache: Path) -> Path:
    """The directory of the machine code in ``cache``."""
    (directory,) = {path.parent for path in cache.rglob("*.nbi")}
    return directory


@pytest.fixture(scope="module")
def second(compiled: First) -> subprocess.CompletedProcess[str]:
    """A run that loads what the first has compiled."""
    return run_and_count(compiled.cache)


def test_first_run_says_what_it_compiles_and_the_second_is_silent(
    compiled: First, second: subprocess.CompletedProcess[str]
) -> None:
    first, (folder, kept, _), (again, *_) = compiled.run, compiled.run.stdout.split(), second.stdout.split()
    total = len(jit.SECONDS)
    assert f"compiling {total} groups of kernels, about {sum(jit.SECONDS.values())} s" in first.stderr
    assert f"1/{total} (allocate)" in first.stderr
    assert "compiling" not in second.stderr and folder == again and kept == "True"
    assert Path(folder).is_relative_to(compiled.cache)


def test_damaged_machine_code_is_made_anew(cache: Path) -> None:
    """As after a power failure. Every process that used the file ended with Numba's error."""
    directory = machine_code(cache)
    index, data = (sorted(directory.glob(f"*.nb{letter}")) for letter in "ic")
    for file, left in ((index[0], 0), (data[1], 0), (index[2], 30), (data[3], 30)):
        file.write_bytes(file.read_bytes()[:left])
    again = run(DOTLLM_CACHE_DIR=str(cache)).stderr
    assert again.count("is damaged and will be recompiled") == 4, again
    assert not run(DOTLLM_CACHE_DIR=str(cache)).stderr


def test_a_directory_that_cannot_be_made_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = run(DOTLLM_CACHE_DIR=str(tmp_path / "file" / "cache"), TMPDIR=str(tmp_path))
    assert list((tmp_path / f"dotllm-{os.getuid()}").rglob("*.nbi")) and "cannot be written" in answer.stderr


def _heed_modes() -> None:
    """Give up root's CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH, with which it writes and reads whatever it likes."""
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability)  # PR_CAPBSET_DROP


def run_read_only(cache: Path, temporary: Path) -> subprocess.CompletedProcess[str]:
    """`run` with a read-only ``cache``."""
    modes = {path: path.stat().st_mode for path in (cache, *cache.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        return subprocess.run(
            [sys.executable, "-c", KERNEL],
            env={**os.environ, "DOTLLM_CACHE_DIR": str(cache), "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=_heed_modes,
        )
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_read_only_machine_code_is_used(cache: Path, tmp_path: Path) -> None:
    """As in an image with ``dotllm warmup``, run as another user. Every start recompiled everything."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    answer = run_read_only(cache, temporary)
    assert answer.stderr == "" and not list(temporary.rglob("*.nb?"))


FULL = """
import errno, os
from numba.core.caching import IndexDataCacheFile
save = IndexDataCacheFile._save_data

def full(file, name, data):
    if file._cache_path.startswith({full!r}):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    save(file, name, data)

IndexDataCacheFile._save_data = full
"""


def test_a_full_cache_is_replaced(tmp_path: Path) -> None:
    """Each import of a kernel failed, so each request to a server that had started was HTTP 500, even without a
    constraint."""
    cache, temporary = tmp_path / "cache", tmp_path / "temporary"
    temporary.mkdir()
    answer = run(FULL.format(full=str(cache)), DOTLLM_CACHE_DIR=str(cache), TMPDIR=str(temporary))
    assert answer.stdout.endswith("False\n"), "dotllm warmup fails"
    assert f"cannot be kept in {cache / 'kernels'}: No space left on device" in answer.stderr
    assert list(temporary.rglob("*.nbc")) and not list(cache.rglob("*.nbc"))


def test_where_nothing_can_be_written_kernels_are_compiled_all_the_same(tmp_path: Path) -> None:
    """As on a full disk that also holds the temporary files: no file may have a single byte."""
    cache = tmp_path / "cache"
    no_files = (
        "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    )
    answer = run(no_files, DOTLLM_CACHE_DIR=str(cache), TMPDIR=str(tmp_path))
    assert f"cannot be kept in {cache / 'kernels'}: File too large" in answer.stderr
    assert "damaged" not in answer.stderr and not list(tmp_path.rglob("*.nb?"))


@pytest.mark.parametrize("lack", ["some", "all"])
def test_what_read_only_machine_code_lacks_goes_to_a_temporary_directory(
    cache: Path, tmp_path: Path, lack: str
) -> None:
    """Code for another CPU, damaged, or missing: one line of log; the rest is read, and the next start is silent."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    directory = machine_code(cache)
    indexes, data = (sorted(directory.glob(f"*.nb{letter}")) for letter in "ic")
    if lack == "some":
        indexes[0].unlink()
        data[1].write_bytes(b"")
        file = IndexDataCacheFile(str(directory), indexes[2].stem, "")
        file._save_index({(types, "another", code): name for (types, _, code), name in file._load_index().items()})
    else:
        shutil.rmtree(directory)
    first, second = run_read_only(cache, temporary), run_read_only(cache, temporary)
    assert first.stderr.count("cannot be written") == 1 and str(cache / "kernels") in first.stderr
    made = list(temporary.rglob("*.nbi"))
    assert sorted(path.name for path in made) == [path.name for path in (indexes if lack == "all" else indexes[:3])]
    assert second.stderr == "", "what the first start has made is used"


@pytest.mark.parametrize("mode", [0o000, 0o311], ids=["may not be entered", "may not be listed"])
def test_a_home_that_is_another_users(tmp_path: Path, mode: int) -> None:
    """As in an image with HOME=/root that runs as another user: no kernel could be imported."""
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    for folder in (home, home / "kernels", home / "kernels" / jit._directory_name("allocate")):
        folder.mkdir()
    for folder in (*reversed([*home.rglob("*")]), home):
        folder.chmod(mode & ~0o222)
    program = f"{KERNEL}\nfrom dotllm import jit\nfrom dotllm.cli import doctor\n"
    program += "print(len(jit.missing_groups()), doctor._cache().help)"
    environment = {**os.environ, "DOTLLM_CACHE_DIR": str(home), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", program]
    try:
        answer = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=_heed_modes)
    finally:
        for folder in (home, home / "kernels"):
            folder.chmod(0o700)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.endswith(f"{len(jit.SECONDS)} set DOTLLM_CACHE_DIR to a writable directory\n")
    assert "cannot be written" in answer.stderr and list(temporary.rglob("*.nbi"))


INTERRUPTED = """
import signal, sys
from numba.core.codegen import CPUCodeLibrary
compiled = CPUCodeLibrary._object_compiled_hook.__func__
signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as in `dotllm.cli`

def interrupt(library, module, code):
    CPUCodeLibrary._object_compiled_hook = classmethod(compiled)
    signal.raise_signal({signum})
    compiled(library, module, code)

CPUCodeLibrary._object_compiled_hook = classmethod(interrupt)
"""


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_a_signal_ends_a_process_that_compiles(signum: signal.Signals, status: int, tmp_path: Path) -> None:
    """What its handler raised was lost in a callback of LLVM, and the process ended with Numba's error."""
    answer = subprocess.run(
        ["env", "--default-signal=INT", sys.executable, "-c", INTERRUPTED.format(signum=int(signum)) + KERNEL],
        env={**os.environ, "DOTLLM_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == status and not answer.stdout, answer.stderr
    assert "no compiled object" not in answer.stderr
    assert len(list(tmp_path.rglob("*.nbc"))) == 1, "what was compiled is kept"


OF_A_WHEEL = """
from pathlib import Path
from dotllm import shipped_kernels
shipped_kernels.FOLDER, shipped_kernels._runs_here = Path({folder!r}), lambda: True
"""


def test_a_wheels_machine_code_is_silent_where_the_cache_is_read_only(cache: Path, tmp_path: Path) -> None:
    """A container with a read-only root reported that kernels were compiled, although none was."""
    shipped, temporary = tmp_path / "machine_code", tmp_path / "temporary"
    temporary.mkdir()
    made = machine_code(cache)
    shipped.mkdir()
    made.rename(shipped / made.name)
    (tmp_path / "file").touch()
    answer = run(
        OF_A_WHEEL.format(folder=str(shipped)), DOTLLM_CACHE_DIR=str(tmp_path / "file" / "x"), TMPDIR=str(temporary)
    )
    assert answer.stderr == ""
    assert {path.name for path in temporary.rglob("*.nbi")} == {path.name for path in shipped.rglob("*.nbi")}


def test_a_shared_directory_is_used_only_if_it_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = jit._private_temporary_directory()
    assert ours.parent == tmp_path and ours.stat().st_mode & 0o077 == 0
    assert jit._private_temporary_directory() == ours
    ours.chmod(0o777)
    assert jit._private_temporary_directory() != ours, "others may have written into it"
    ours.rmdir()
    ours.symlink_to(tmp_path)
    assert jit._private_temporary_directory() != ours, "a link leads anywhere"


def test_threads_that_import_kernels_do_not_see_each_others_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    import threading
    from collections.abc import Callable

    seen: dict[str, list[str]] = {}

    def njit(name: str, **_: object) -> Callable[[object], object]:
        def declare(function: object) -> object:
            seen[name] = [jit.numba.config.CACHE_DIR]
            time.sleep(0.2)
            seen[name].append(jit.numba.config.CACHE_DIR)
            return function

        return declare

    def define(folder: str) -> None:
        scope: dict[str, object] = {}
        exec(compile("def f(): ...", str(Path(jit.__file__).parent / folder / "x.py"), "exec"), scope)
        jit.kernel(folder)(scope["f"])

    monkeypatch.setattr(jit.numba, "njit", njit)
    monkeypatch.setattr(jit, "_cache_directory", lambda folder: f"{tempfile.gettempdir()}/{folder}")
    monkeypatch.setattr(jit, "_is_writable", lambda directory: True)
    before = jit.numba.config.CACHE_DIR
    threads = [threading.Thread(target=define, args=(folder,)) for folder in ("index", "grammar")]
    for thread in threads:
        thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert seen == {folder: [f"{tempfile.gettempdir()}/{folder}"] * 2 for folder in ("index", "grammar")}
    assert before == jit.numba.config.CACHE_DIR


def test_what_is_inlined_is_loaded_where_a_caller_is_compiled() -> None:
    """Its machine code is part of its callers'. Loading it took a sixth of the time to start."""
    scope: dict[str, object] = {}
    file = str(Path(jit.__file__).parent / "index" / "x.py")
    exec(compile("def inner(x): return x + 1\ndef outer(x): return inner(x) * 2", file, "exec"), scope)
    inner = scope["inner"] = jit.inner_kernel(nb.int64(nb.int64), inlined=True)(scope["inner"])  # type: ignore[arg-type]
    assert "_dispatcher" not in vars(inner)
    outer = jit.kernel(nb.int64(nb.int64), cached=False)(scope["outer"])  # type: ignore[arg-type]
    assert "_dispatcher" in vars(inner) and outer(20) == 42


def test_where_kernels_are_compiled_nothing_inlined_is_loaded() -> None:
    import dotllm.api  # noqa: F401  # compiles what is not compiled yet

    code = (
        "import gc, dotllm.api\nfrom dotllm.jit import Inlined\n"
        "found = [one for one in gc.get_objects() if isinstance(one, Inlined)]\n"
        "assert len(found) > 20\nassert not [one.py_func for one in found if '_dispatcher' in vars(one)]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def held_lock(directory: Path, process: str) -> TextIO:
    """The lock of a directory, held as by another process that never ends (file locks belong to open files)."""
    lock = open(directory / "lock", "w")  # noqa: SIM115  # the caller closes it
    fcntl.flock(lock, fcntl.LOCK_EX)
    lock.write(process)
    lock.flush()
    return lock


def test_a_stopped_process_with_the_lock_holds_nobody_up_whose_kernels_are_compiled(cache: Path) -> None:
    """A waiting process says so (tests below); the time of a start depends on the machine."""
    with held_lock(machine_code(cache), "4711"):
        assert run(DOTLLM_CACHE_DIR=str(cache)).stderr == ""


def test_machine_code_is_linked_that_comes_from_the_cache(tmp_path: Path) -> None:
    """Its bitcode is read only then."""
    code = """
from pathlib import Path
import numba as nb
from dotllm import jit
scope = {"__name__": "__main__"}
file = str(Path(jit.__file__).parent / "index" / "x.py")
exec(compile("def inner(x): return x + 1\\ndef outer(x): return inner(x) * 2", file, "exec"), scope)
scope["inner"] = jit.kernel(nb.int64(nb.int64))(scope["inner"])
(entry,) = scope["inner"].overloads.values()
was_loaded = isinstance(entry.library, jit._Loaded) and entry.library._shared_module is None
assert scope["inner"](2) == 3
outer = jit.kernel(nb.int64(nb.int64), cached=False)(scope["outer"])
print(was_loaded, outer(20), entry.library._shared_module is not None)
"""
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "DOTLLM_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for _ in range(2)
    ]
    assert [words.split()[:2] for words in said] == [["False", "42"], ["True", "42"]]
    assert said[1].split()[2] == "True"


def test_kernels_that_are_loaded_see_no_registry_and_those_that_are_compiled_see_all(
    compiled: First, second: subprocess.CompletedProcess[str]
) -> None:
    """Numba looks at all registries of declarations before each kernel. That was a quarter of the time to load."""
    looks = [int(one.stdout.split()[2]) for one in (compiled.run, second)]
    assert looks[0] > 10 and looks[1] == 0, looks


def test_who_waits_for_a_lock_says_whose_it_is_and_in_the_end_compiles_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jit, "LOCK_NOTICE_S", 0.1)
    monkeypatch.setattr(jit, "LOCK_PATIENCE_S", 4.0)
    monkeypatch.setattr(jit, "_waited_in_vain", set())
    with held_lock(tmp_path, "4711"):
        with jit._alone(str(tmp_path), lambda: False):
            said = capsys.readouterr().err.splitlines()
        began = time.monotonic()
        with jit._alone(str(tmp_path), lambda: False):
            assert time.monotonic() - began < 3.5, "it does not wait for the next kernel, too"
    assert len(said) == 2 and "process 4711 holds the lock" in said[0] and str(tmp_path) in said[0]
    assert "compiling without it" in said[1]
    with jit._alone(str(tmp_path), lambda: False):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_who_waits_for_a_lock_goes_on_when_the_kernel_is_there(tmp_path: Path) -> None:
    answers = iter((False, False, True))
    with held_lock(tmp_path, ""), jit._alone(str(tmp_path), lambda: next(answers)):
        assert not [*answers]


FOLDERS = sorted({path.parent for path in jit._PACKAGE.rglob("*/*.py") if "from dotllm.jit import" in path.read_text()})


@pytest.mark.parametrize("folder", [path.relative_to(jit._PACKAGE).as_posix() for path in FOLDERS])
def test_a_changed_byte_of_any_source_of_a_kernel_changes_the_key(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = jit._sources_hash(folder)
    read_bytes = Path.read_bytes
    for source in jit.kernel_sources(folder):
        with monkeypatch.context() as patch:
            patch.setattr(Path, "read_bytes", lambda path, s=source: read_bytes(path) + b"#" * (path == s))
            assert jit._sources_hash(folder) != before, source
    monkeypatch.setattr(jit, "__version__", "another")
    assert jit._sources_hash(folder) != before, "a release may change flags alone"


def test_every_folder_with_kernels_has_its_time() -> None:
    groups = {path.relative_to(jit._PACKAGE).as_posix() for path in FOLDERS}
    assert {name for name in groups if not name.startswith("vllm_plugin")} == set(jit.SECONDS)


def modules_with_kernels(folder: Path) -> Iterator[ModuleType]:
    """The modules of a folder that declare kernels."""
    for path in folder.glob("*.py"):
        if "from dotllm.jit import" in path.read_text() and path.name != "__init__.py":
            name = path.relative_to(jit._PACKAGE).as_posix()[:-3].replace("/", ".")
            yield importlib.import_module(f"dotllm.{name}")


def test_a_kernel_that_is_given_a_new_array_counts_its_references() -> None:
    """Otherwise nothing frees the array. A walk of the trie that got its table so lost 32 KiB."""

    def holds_an_array(kernel: jit.Inner | jit.Inlined) -> bool:
        (compiled,) = kernel._dispatcher.overloads.values()
        result = compiled.signature.return_type
        return any(isinstance(part, nb.types.Array) for part in getattr(result, "types", (result,)))

    makers = 0
    for module in (module for folder in FOLDERS for module in modules_with_kernels(folder)):
        for kernel in (value for value in vars(module).values() if isinstance(value, jit.Inner | jit.Inlined)):
            function = kernel.py_func
            makers += holds_an_array(kernel)
            called = [function.__globals__.get(name) for name in function.__code__.co_names]
            given = [other for other in called if isinstance(other, jit.Inner | jit.Inlined) and holds_an_array(other)]
            assert not given or jit._makes_arrays(function), function
    assert makers > 20


def test_all_that_machine_code_was_made_from_is_in_its_key() -> None:
    """Checked by Numba's own account: the modules of all functions and constants that kernels name, even indirectly."""
    kernels, checked = (Dispatcher, jit.Inner, jit.Inlined), 0
    for folder in FOLDERS:
        sources = set(jit.kernel_sources(folder.relative_to(jit._PACKAGE).as_posix()))
        for module in modules_with_kernels(folder):
            for found in vars(module).values():
                if not isinstance(found, kernels):
                    continue
                names = inspect.getclosurevars(found.py_func).globals.values()
                used = {inspect.getfile(value.py_func) for value in names if isinstance(value, kernels)}
                used |= {
                    str(value.__file__) for value in names if inspect.ismodule(value) and "dotllm" in value.__name__
                }
                used |= {inspect.getfile(type(value)) for value in names if type(value).__module__.startswith("dotllm")}
                missing = {file for file in used if "dotllm" in file and Path(file) not in sources}
                assert not missing, f"{module.__name__}: {found.py_func.__name__}"
                checked += len(used)
    assert checked > 100, "there are hundreds of calls between kernels"


def test_checkouts_share_their_machine_code(cache: Path, tmp_path: Path) -> None:
    """The same sources at another path, with other time stamps, are not compiled again."""
    copy = tmp_path / "checkout" / "dotllm"
    shutil.copytree(jit._PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copyfile)
    before = sorted(cache.rglob("*.nb?"))
    answer = run(DOTLLM_CACHE_DIR=str(cache), PYTHONPATH=str(copy.parent))
    assert "compiling" not in answer.stderr
    assert sorted(cache.rglob("*.nb?")) == before and before


def test_a_kernel_without_a_wrapper_is_not_called_from_python() -> None:
    from dotllm.automata.machine.intern import mix

    with pytest.raises(TypeError, match="not callable"):
        mix(1, 2)


def test_progress_on_a_terminal_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(jit, "missing_groups", lambda _: ["grammar", "index"])
    progress = jit._Progress()
    progress.tell("grammar", tmp_path)
    progress.tell("index", tmp_path)
    progress.end()
    said = terminal.getvalue()
    assert "\n" not in said and said.endswith("\r\033[K")
    both = jit.SECONDS["grammar"] + jit.SECONDS["index"]
    assert f"1/2 (grammar), about {both} s left" in said
    assert f"2/2 (index), about {jit.SECONDS['index']} s left" in said


@pytest.mark.parametrize("taken, left", [(2, 6), (13, 6), (31, 12)])
def test_the_time_left_is_at_the_pace_so_far(
    taken: float, left: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(jit, "SECONDS", {"automata/machine": 13, "index": 6})
    monkeypatch.setattr(jit, "missing_groups", lambda _: list(jit.SECONDS))
    monkeypatch.setattr(jit.time, "monotonic", lambda: now)
    progress = jit._Progress()
    progress.tell("automata/machine", tmp_path)
    now += taken
    progress.tell("index", tmp_path)
    first, second = capsys.readouterr().err.splitlines()
    assert "about 19 s left" in first and f"about {left} s left" in second


def test_numba_is_as_it_was_for_other_packages() -> None:
    """Numba sometimes passes the types as a list, for example when it compiles ``prange``."""
    context = cpu_target.typing_context
    context.refresh()
    add = context.resolve_value_type(operator.add)
    assert type(add).get_call_type is jit._resolve
    asked = jit._resolve_once(add, context, [nb.int64, nb.int64], {})
    assert asked == jit._resolve_once(add, context, (nb.int64, nb.int64), {}) == nb.int64(nb.int64, nb.int64)
