"""Heavy compiles in processes: named errors, processes that are really killed, a compiler that survives its workers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fake_engine
import pytest
from fake_engine import spec

from dotllm.cancellation import Cancelled
from dotllm.compilation import manager as manager_module
from dotllm.compilation import process, wire
from dotllm.compilation.errors import (
    CompilationError,
    CompileMemory,
    CompileTimeout,
    NoProcess,
    ProcessDied,
    QueueFull,
    Unavailable,
)
from dotllm.compilation.jobs import JobState
from dotllm.compilation.process import PIPE_BYTES, ProcessCompiler
from dotllm.errors import (
    BudgetExceededError,
    InvalidSpecError,
    LineColumn,
    Location,
    Offset,
    Pointer,
    SpecError,
    UnsupportedError,
)
from dotllm.languages.json_schema.algebra.algebra import Loop

NEVER = threading.Event()


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(wire, "pack_vocabulary", lambda vocabulary: b"")
    made: list[ProcessCompiler] = []

    def make(**arguments: Any) -> ProcessCompiler:
        command = [sys.executable, str(Path(__file__).parent / "fake_worker.py")]
        defaults = {"processes": 1, "timeout": 5.0, "memory": 200 << 20, "load": fake_engine.load, "command": command}
        made.append(ProcessCompiler(fake_engine.FakeVocabulary(), **{**defaults, **arguments}))
        return made[-1]

    yield make
    for compiler in made:
        compiler.close()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_compiles_and_keeps_its_process(make: Any) -> None:
    compiler = make()
    for number in range(3):
        assert (
            compiler.compile(spec(id=number, say="noise on stdout"), NEVER).text
            == spec(id=number, say="noise on stdout").text
        )
    assert len(compiler._all) == 1


def test_refusals_keep_their_names(make: Any) -> None:
    compiler = make()
    with pytest.raises(UnsupportedError, match="no such thing") as caught:
        compiler.compile(spec(refuse="no such thing"), NEVER)
    assert (caught.value.pointer, caught.value.keyword) == ("/a", "not")
    with pytest.raises(CompilationError, match="RuntimeError: boom"):
        compiler.compile(spec(fail="boom"), NEVER)
    assert compiler.compile(spec(id=1), NEVER) and len(compiler._all) == 1, "the process is as good as new"


@pytest.mark.parametrize(
    "location",
    [
        None,
        Offset(3),
        Pointer("/a", Offset(3)),
        Pointer("/a", LineColumn(1, 2, Pointer("/b"))),
        LineColumn(1, 2, Offset(3)),
    ],
)
def test_a_refusal_is_told_as_data(location: Location | None) -> None:
    error = UnsupportedError("refused", location=location, keyword="not")
    told = wire.unpack_error(json.loads(json.dumps(wire.pack_error(error, 0))))
    assert isinstance(told, UnsupportedError)
    assert (str(told), told.location, told.keyword) == (str(error), location, "not")


@pytest.mark.parametrize("kind", [Loop, InvalidSpecError, UnsupportedError, BudgetExceededError, CompileTimeout])
def test_a_refusal_of_any_kind_stays_one(kind: type[SpecError]) -> None:
    """A subclass unknown to the other side was reported as a failure of ours: HTTP 500 for a bad schema."""
    told = wire.unpack_error(json.loads(json.dumps(wire.pack_error(kind("refused", keyword="$ref"), 0))))
    assert isinstance(told, SpecError) and isinstance(told, kind.__mro__[1] if kind is Loop else kind)
    assert (str(told), told.code) == ("refused", kind.default_code)


def test_time_limit_kills(make: Any) -> None:
    compiler = make(timeout=0.3)
    compiler.compile(spec(id=1), NEVER)
    (pid,) = [worker.process.pid for worker in compiler._all]
    start = time.monotonic()
    with pytest.raises(CompileTimeout) as caught:
        compiler.compile(spec(sleep=30), NEVER)
    assert isinstance(caught.value, BudgetExceededError) and time.monotonic() - start < 10
    assert not alive(pid)
    assert compiler.compile(spec(id=2), NEVER), "and a new one starts"


@pytest.mark.parametrize("size", [1_000, 300_000])
def test_a_process_that_does_not_read_is_given_up_in_time(make: Any, size: int) -> None:
    """A stopped or swapped-out process. A specification larger than the pipe was written without a time limit."""
    compiler = make(timeout=5)  # (enough also for the last compile here, on a busy machine)
    compiler.compile(spec(id=1), NEVER)
    (pid,) = [worker.process.pid for worker in compiler._all]
    os.kill(pid, signal.SIGSTOP)
    start = time.monotonic()
    with pytest.raises(CompileTimeout):
        compiler.compile(spec(id=2, fill="x" * size), NEVER)
    assert time.monotonic() - start < 60
    assert not alive(pid)
    large = spec(id=3, fill="x" * 3_000_000)
    assert compiler.compile(large, NEVER).text == large.text, "and a new one takes it, in parts"


def test_memory_limit(make: Any) -> None:
    compiler = make(memory=100 << 20)
    assert compiler.compile(spec(eat=50), NEVER)
    with pytest.raises(CompileMemory):
        compiler.compile(spec(eat=300), NEVER)
    assert compiler.compile(spec(id=2), NEVER)


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSEGV"])
def test_death_of_two_workers_is_an_error_of_one_compile(make: Any, how: str) -> None:
    compiler = make()
    with pytest.raises(
        ProcessDied,
        match=f"status {-getattr(signal, how)}, as the one before it did: the specification was tried twice, and the request may be sent again",
    ):
        compiler.compile(spec(die=how), NEVER)
    assert compiler.compile(spec(id=2), NEVER)


@pytest.mark.parametrize("again", [False, True])
def test_a_death_says_what_to_do(again: bool) -> None:
    """One that was killed while it started did not."""
    text = str(ProcessDied(-9, again=again))
    assert "status -9" in text and "the request may be sent again" in text and "lower --dotllm-compile-memory" in text


def test_death_of_two_workers_is_not_remembered(make: Any, make_manager: Any) -> None:
    manager = make_manager(offload=make(), subprocess_threshold_bytes=0)
    manager.start_processes()
    for _ in range(2):
        with pytest.raises(ProcessDied, match="as the one before it did"):
            manager.compile(spec(die="SIGKILL"), 20)
    assert manager.metrics.value("dotllm_index_lookups", "failure") == 0


def test_killed_from_outside_while_idle_and_while_busy(make: Any) -> None:
    compiler = make()
    compiler.compile(spec(id=1), NEVER)
    (worker,) = compiler._all
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert compiler.compile(spec(id=2), NEVER), "an idle process that died is not used"
    (worker,) = compiler._all
    threading.Timer(0.2, worker.process.kill).start()
    assert compiler.compile(spec(sleep=1), NEVER), "one that died while it compiled is replaced, and compiles again"
    assert worker not in compiler._all


def test_cancelled_compile_is_killed(make: Any) -> None:
    compiler = make()
    compiler.compile(spec(id=1), NEVER)
    (pid,) = [worker.process.pid for worker in compiler._all]
    cancelled = threading.Event()
    threading.Timer(0.2, cancelled.set).start()
    start = time.monotonic()
    with pytest.raises(Cancelled):
        compiler.compile(spec(sleep=30), cancelled)
    assert time.monotonic() - start < 10 and not alive(pid)


def test_one_at_a_time_per_process_and_waiting_can_be_cancelled(make: Any) -> None:
    compiler = make()
    thread = threading.Thread(target=lambda: compiler.compile(spec(sleep=1.0), NEVER))
    thread.start()
    time.sleep(0.6)
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        compiler.compile(spec(id=1), cancelled)
    thread.join()


def test_closing_ends_a_process_that_compiles(make: Any) -> None:
    compiler = make()
    compiler.compile(spec(id=1), NEVER)
    (pid,) = [worker.process.pid for worker in compiler._all]
    ended: list[BaseException] = []

    def compile_() -> None:
        try:
            compiler.compile(spec(sleep=60), NEVER)
        except CompilationError as error:
            ended.append(error)

    busy = threading.Thread(target=compile_)
    busy.start()
    until(lambda: not compiler._idle)
    compiler.close()
    busy.join(4)
    assert ended and not alive(pid)


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("then", ["compiler.compile(fake_engine.spec(sleep=60), threading.Event())", "input()"])
def test_worker_ends_with_its_parent(tmp_path: Path, then: str, signum: int) -> None:
    """The server ends while its compile process is busy or idle: no process and no file is left."""
    script = f"""
import sys, threading
sys.path.insert(0, {str(Path(__file__).parent)!r})
import fake_engine
from dotllm.compilation import wire
from dotllm.compilation.process import PIPE_BYTES, ProcessCompiler
wire.pack_vocabulary = lambda vocabulary: b""
command = [sys.executable, {str(Path(__file__).parent / "fake_worker.py")!r}]
compiler = ProcessCompiler(fake_engine.FakeVocabulary(), processes=1, timeout=60, memory=1 << 28, load=fake_engine.load,
                           command=command)
compiler.compile(fake_engine.spec(id=1), threading.Event())
print(next(iter(compiler._all)).process.pid, flush=True)
{then}
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-c", script], stdin=pipe, stdout=pipe, text=True, env=environment)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert alive(pid)
    assert not list(tmp_path.iterdir()), "files that an end could leave behind, or somebody could delete"
    parent.send_signal(signum)
    parent.wait()
    until(lambda: not alive(pid))
    assert not list(tmp_path.iterdir())


def test_first_large_one_does_not_wait_for_the_process(
    make: Any, make_manager: Any, compiler: fake_engine.Compiler
) -> None:
    offload = make()
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000)
    manager.submit(spec(id=1)).result(60)
    assert not offload._all, "no process before one is needed"
    manager.submit(spec(id=2, text="x" * 2000)).result(60)
    assert len(compiler.compiled) == 2, "compiled here while the process starts"
    deadline = time.monotonic() + 20
    while not offload.ready:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    manager.submit(spec(id=3, text="x" * 2000)).result(60)
    assert len(compiler.compiled) == 2 and len(offload._all) == 1


def test_the_very_large_wait_for_the_process(make: Any, make_manager: Any, compiler: fake_engine.Compiler) -> None:
    manager = make_manager(offload=make(), subprocess_threshold_bytes=1000)
    assert manager.submit(spec(id=1, text="x" * 20_000)).result(60) and not compiler.compiled


def test_manager_sends_large_specifications_there(make: Any, make_manager: Any, compiler: fake_engine.Compiler) -> None:
    offload = make()
    offload.compile(spec(id=0), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000)
    assert manager.submit(spec(id=1)).result(60)
    assert len(compiler.compiled) == 1
    assert manager.submit(spec(id=2, text="x" * 2000)).result(60)
    assert len(compiler.compiled) == 1, "not in this process"
    ticket = manager.submit(spec(id=3, text="x" * 2000, sleep=30))
    time.sleep(0.3)
    ticket.cancel()
    del ticket
    start = time.monotonic()
    assert manager.submit(spec(id=4, text="x" * 2000)).result(60)
    assert time.monotonic() - start < 15, "the cancelled compile did not keep the process"
    manager.close()


def test_somebody_comes_back_while_the_cancelled_compile_ends(make: Any, make_manager: Any) -> None:
    offload = make()
    offload.compile(spec(id=0), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=0)
    request = spec(id=1, sleep=0.5)
    first = manager.submit(request)
    time.sleep(0.2)
    first.cancel()
    job = next(iter(manager._table.jobs.values()))
    job.cancelled.set()  # as the supervisor would
    second = manager.submit(request)
    assert second.result(60).index.text == request.text


@pytest.fixture
def lame(make: Any, tmp_path: Path) -> tuple[ProcessCompiler, Path]:
    """A compiler whose processes end immediately until the file ``mended`` exists, and the file to which each process
    writes a line."""
    log = tmp_path / "starts"
    script = tmp_path / "worker.py"
    worker = str(Path(__file__).parent / "fake_worker.py")
    script.write_text(
        f"import os, runpy, sys\nopen({str(log)!r}, 'a').write('x\\n')\n"
        f"if not os.path.exists({str(tmp_path / 'mended')!r}): sys.exit(3)\n"
        f"runpy.run_path({worker!r}, run_name='__main__')\n"
    )
    log.touch()
    return make(command=[sys.executable, str(script)]), log


def let_pass(compiler: ProcessCompiler, seconds: float) -> None:
    compiler._starts._open_until -= seconds


def test_a_process_that_cannot_start_is_tried_less_and_less_often(
    lame: tuple[ProcessCompiler, Path], caplog: pytest.LogCaptureFixture
) -> None:
    compiler, log = lame
    for number in range(12):
        with pytest.raises(CompilationError, match="status 3" if number < 3 else "does not start") as error:
            compiler.compile(spec(id=number), NEVER)
        assert isinstance(error.value, ProcessDied if number < 3 else Unavailable)
    assert len(log.read_text()) == 2 * 3
    for _ in range(50):  # nor in the background
        compiler.ensure_worker()
        assert not compiler.ready and not compiler._idle
    until(lambda: not compiler._starting)
    assert len(log.read_text()) == 2 * 3
    assert len([record for record in caplog.records if "fail to start" in record.message]) == 1

    let_pass(compiler, 3)
    with pytest.raises(CompilationError, match="status 3"):
        compiler.compile(spec(id=20), NEVER)
    let_pass(compiler, 3)  # the pause has doubled
    with pytest.raises(CompilationError, match="does not start"):
        compiler.compile(spec(id=21), NEVER)
    (log.parent / "mended").touch()
    let_pass(compiler, 3)
    assert compiler.compile(spec(id=22), NEVER)
    assert len(log.read_text()) == 2 * 5


def test_a_machine_that_starts_no_process_is_an_error_with_a_name(make: Any) -> None:
    compiler = make(command=["/there/is/no/such/program"])
    for _ in range(5):
        with pytest.raises(CompilationError, match="start"):
            compiler.compile(spec(id=1), NEVER)


def test_a_cancelled_start_says_nothing(lame: tuple[ProcessCompiler, Path]) -> None:
    compiler, log = lame
    for _ in range(3):
        with pytest.raises(CompilationError, match="status 3"):
            compiler.compile(spec(id=1), NEVER)
    let_pass(compiler, 3)
    cancelled = threading.Event()
    cancelled.set()
    (log.parent / "mended").touch()
    with pytest.raises(Cancelled):
        compiler.compile(spec(id=2), cancelled)
    assert compiler.compile(spec(id=3), NEVER), "the next one is tried at once"


def test_while_no_process_starts_threads_compile(
    lame: tuple[ProcessCompiler, Path], make_manager: Any, compiler: fake_engine.Compiler
) -> None:
    offload, log = lame
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000)
    for number in range(20):
        assert manager.submit(spec(id=number, text="x" * 2000)).result(60)
        until(lambda: not offload._starting)
    assert len(compiler.compiled) == 20 and len(log.read_text()) <= 2 * 4


def until(condition: Any, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_whether_a_process_is_idle(make: Any) -> None:
    compiler = make(processes=2)
    assert compiler.try_compile(spec(id=0), NEVER, 0) is None, "it does not wait for the process that starts"
    assert not compiler._idle
    until(lambda: compiler._idle)
    assert len(compiler._all) == 1
    assert compiler.try_compile(spec(id=1), NEVER, 0).text == spec(id=1).text
    busy = threading.Thread(target=compiler.try_compile, args=(spec(id=2, sleep=0.5), NEVER, 0))
    busy.start()
    until(lambda: not compiler._idle)
    compiler.ensure_worker()
    assert not compiler._idle, "but another one is started"
    until(lambda: compiler._idle)
    assert len(compiler._all) == 2
    busy.join()
    until(lambda: not compiler._starting)
    assert len(compiler._all) == 2, "and no third one"


@pytest.mark.parametrize("processes", [1, 2])
def test_who_comes_while_the_first_process_starts_waits_for_it(
    make: Any, monkeypatch: pytest.MonkeyPatch, processes: int
) -> None:
    started: list[Any] = []
    start = process._Worker.__init__
    monkeypatch.setattr(
        process._Worker, "__init__", lambda self, *arguments: (started.append(self), start(self, *arguments))[1]
    )
    compiler = make(processes=processes)
    for _ in range(2):
        compiler.ensure_worker()
        assert not compiler.ready and not compiler._idle
    assert compiler.compile(spec(id=1), NEVER).text == spec(id=1).text
    assert compiler.ready and compiler._idle
    until(lambda: not compiler._starting)
    assert len(started) == 1


def test_never_more_processes_than_allowed(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 0
    start = process._Worker.__init__

    def counted(self: Any, *arguments: Any) -> None:
        nonlocal most
        start(self, *arguments)
        most = max(most, len([worker for worker in compiler._all if worker.process.poll() is None]) + 1)

    monkeypatch.setattr(process._Worker, "__init__", counted)
    compiler = make(processes=2)
    threads = []
    for number in range(6):
        compiler.ensure_worker()
        threads.append(threading.Thread(target=compiler.compile, args=(spec(id=number, sleep=0.1), NEVER)))
        threads[-1].start()
    for thread in threads:
        thread.join(60)
        compiler.ensure_worker()
    until(lambda: not compiler._starting)
    assert most == 2 == len(compiler._all)


def test_waiting_for_the_first_process_can_be_cancelled(make: Any) -> None:
    compiler = make()
    compiler.ensure_worker()
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Cancelled):
        compiler.compile(spec(id=1), cancelled)
    until(lambda: compiler._idle)


def test_a_process_that_does_not_start(make: Any, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    escaped: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", escaped.append)
    compiler = make()
    monkeypatch.setattr(compiler, "_command", ("/no/such/program",))
    compiler.ensure_worker()
    until(lambda: not compiler._starting)
    monkeypatch.setattr(compiler, "_command", (sys.executable, "-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(process, "START_TIMEOUT_S", 0.2)
    compiler.ensure_worker()
    until(lambda: not compiler._starting)
    none, late = (record.message for record in caplog.records if "process failed" in record.message)
    assert none.count("does not start") == 1 and "not ready within" in late
    with pytest.raises(CompilationError, match="not ready within"):  # not the specification's fault
        compiler.compile(spec(id=1), NEVER)
    assert not compiler._all and not escaped


def test_a_full_disk_fails_only_the_starts_that_meet_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "pack_vocabulary", lambda vocabulary: b"all tokens")
    compiler = make()
    with monkeypatch.context() as full:
        full.setattr(tempfile, "TemporaryFile", lambda **_: open("/dev/full", "w+b"))  # noqa: SIM115
        with pytest.raises(NoProcess, match="No space left"):
            compiler.compile(spec(id=1), NEVER)
    assert compiler.compile(spec(id=2), NEVER)
    assert os.pread(compiler._file.fileno(), 100, 0) == b"all tokens"


def test_a_process_that_starts_while_all_ends(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = make()
    started: list[Any] = []
    start = process._Worker.__init__

    def slowly(self: Any, *arguments: Any) -> None:
        compiler.close()
        start(self, *arguments)
        started.append(self)

    monkeypatch.setattr(process._Worker, "__init__", slowly)
    compiler.ensure_worker()
    until(lambda: started and not compiler._starting)
    assert started[0].process.poll() is not None
    with pytest.raises(CompilationError, match="closed"):
        compiler.compile(spec(id=1), NEVER)


def test_a_burst_waits_for_processes(
    make: Any, make_manager: Any, compiler: fake_engine.Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads that compile would take the interpreter's lock from the event loop, and finish no sooner."""
    monkeypatch.setattr(manager_module, "OFFLOAD_PATIENCE_S", 5.0)  # (other work may keep the machine busy)
    offload = make(processes=2)
    manager = make_manager(offload=offload, compile_processes=2, compile_threads=1)
    manager.always_offload()
    until(lambda: offload._idle)
    tickets = [manager.submit(spec(id=number, sleep=0.02)) for number in range(12)]
    for ticket in tickets:
        ticket.result(60)
    assert not compiler.compiled
    assert len(manager._threads) >= 2, "a thread for each process"


def test_nobody_waits_for_processes_that_take_long(make: Any) -> None:
    compiler = make(timeout=60)
    compiler.compile(spec(id=0), NEVER)
    busy = threading.Thread(target=compiler.try_compile, args=(spec(id=1, sleep=6), NEVER, 0))
    busy.start()
    until(lambda: not compiler._idle)
    start = time.monotonic()
    assert compiler.try_compile(spec(id=2), NEVER, 2) is None
    assert 0.1 < time.monotonic() - start < 5, "it has only just begun"
    start = time.monotonic()
    assert compiler.try_compile(spec(id=3), NEVER, 2) is None
    assert time.monotonic() - start < 3.5, "far less than the first one takes"
    busy.join()
    assert compiler.try_compile(spec(id=4), NEVER, 0.2).text == spec(id=4).text


def test_a_burst_waits_as_long_as_compiles_begin(make: Any) -> None:
    """Each caller's patience ended a fixed time after its arrival, however fast the process worked."""
    compiler = make()
    compiler.compile(spec(id=0), NEVER)
    specifications = [spec(id=number, sleep=0.6) for number in range(6)]
    with ThreadPoolExecutor(6) as callers:
        found = list(callers.map(lambda one: compiler.try_compile(one, NEVER, 3), specifications))
    assert [index and index.text for index in found] == [one.text for one in specifications]


def test_who_is_not_waited_for_any_more_takes_no_process(make: Any) -> None:
    """If a store answers first, it cancels the compiles of a burst. Each killed a process when its turn came."""
    compiler = make()
    compiler.compile(spec(id=0), NEVER)
    (worker,) = compiler._all
    cancelled = threading.Event()
    with ThreadPoolExecutor(4) as callers:
        busy = callers.submit(compiler.try_compile, spec(id=1, sleep=3), NEVER, 30)
        until(lambda: not compiler._idle)
        others = [callers.submit(compiler.try_compile, spec(id=2, sleep=1), cancelled, 30) for _ in range(3)]
        time.sleep(0.1)  # far shorter than the first compile, even on a busy machine
        cancelled.set()
        for other in others:
            with pytest.raises(Cancelled):
                other.result(60)
        assert busy.result(60).text == spec(id=1, sleep=3).text
    with pytest.raises(Cancelled):
        compiler.compile(spec(id=3, sleep=1), cancelled)
    assert compiler.compile(spec(id=4), NEVER) and compiler._all == {worker}


def test_nobody_waits_for_ever_while_compiles_begin(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PATIENCE_FACTOR", 2)
    compiler = make()
    compiler.compile(spec(id=0), NEVER)
    with ThreadPoolExecutor(9) as callers:
        began = time.monotonic()
        found = list(callers.map(lambda n: compiler.try_compile(spec(id=n, sleep=0.8), NEVER, 0.8), range(9)))
    assert None in found and any(found) and time.monotonic() - began < 9 * 0.8, "all nine, one after another"


def test_a_process_goes_on_while_what_it_made_is_loaded(make: Any) -> None:
    may_load = threading.Event()

    def load(data: bytes, vocabulary: Any) -> Any:
        index = fake_engine.load(data, vocabulary)
        if index.text == spec(id=1).text:
            may_load.wait(10)
        return index

    compiler = make(load=load)
    with ThreadPoolExecutor(1) as caller:
        first = caller.submit(compiler.compile, spec(id=1), NEVER)
        assert compiler.compile(spec(id=2), NEVER) and not first.done()
        may_load.set()
        assert first.result(60).text == spec(id=1).text


def test_an_idle_process_that_dies_is_not_asked(make: Any) -> None:
    compiler = make()
    compiler.compile(spec(id=0), NEVER)
    (worker,) = compiler._all
    os.kill(worker.process.pid, signal.SIGKILL)
    worker.process.wait()
    assert compiler.try_compile(spec(id=1), NEVER, 0) is None
    assert not compiler._all


def test_a_manager_that_spares_the_loop(make: Any, make_manager: Any, compiler: fake_engine.Compiler) -> None:
    offload = make()
    manager = make_manager(offload=offload)
    assert not offload._idle
    manager.submit(spec(id=1)).result(60)
    assert len(compiler.compiled) == 1, "a small one in this process"
    manager.always_offload()
    manager.submit(spec(id=2)).result(60)
    assert len(compiler.compiled) == 2, "here while the process starts"
    until(lambda: offload._idle)
    manager.submit(spec(id=3)).result(60)
    with pytest.raises(UnsupportedError, match="no such thing"):
        manager.submit(spec(refuse="no such thing")).result(60)
    assert len(compiler.compiled) == 2 and len(offload._all) == 1
    slow = manager.submit(spec(id=4, sleep=1.0))
    until(lambda: not offload._idle)
    assert not offload._idle
    assert manager.submit(spec(id=5)).result(60) and not slow.done(), "nobody waits long for a process that is busy"
    assert len(compiler.compiled) == 3
    assert slow.result(60)


def test_reports_follow_their_jobs(make: Any, make_manager: Any) -> None:
    """They take the GIL, so they wait until the results have been handed on; none is lost."""
    manager = make_manager(offload=make())
    manager.always_offload()
    for number in range(5):
        manager.submit(spec(id=number)).result(60)
    until(lambda: manager.metrics.value("dotllm_compiles", "json_schema", "ok") == 5)
    manager._supervisor.stop()
    manager._supervisor.join()
    manager.submit(spec(id=5)).result(60)
    assert manager.metrics.value("dotllm_compiles", "json_schema", "ok") == 5
    manager.close()
    assert manager.metrics.value("dotllm_compiles", "json_schema", "ok") == 6
    assert manager.metrics.value("dotllm_wait_seconds", "compile") == 6


def test_an_index_larger_than_the_pipe(make: Any) -> None:
    size = 5 * PIPE_BYTES + 7
    compiler = make()
    for number in range(2):
        index = compiler.compile(spec(id=number, bytes=size), NEVER)
        assert index.nbytes == size and index.text == spec(id=number, bytes=size).text


def test_the_clock_of_an_offloaded_compile_starts_with_its_work(make: Any, make_manager: Any) -> None:
    offload = make(processes=1, timeout=4.0)
    offload.compile(spec(id="warm"), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000, compile_timeout=4.0)
    tickets = [manager.submit(spec(id=number, sleep=1.0, text="x" * 2000)) for number in range(7)]
    for ticket in tickets:
        assert ticket.result(60), "the last one waited longer than a compile may take"


def test_offloaded_compiles_wait_in_a_queue_and_hold_no_thread(make: Any, make_manager: Any) -> None:
    offload = make(processes=2)
    offload.compile(spec(id="warm"), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000, compile_threads=1)
    tickets = [manager.submit(spec(id=number, sleep=1.0, text="x" * 2000)) for number in range(40)]
    until(lambda: len(manager._offload_queue) >= 37)
    for number in range(20):
        start = time.monotonic()
        assert manager.submit(spec(id=f"small {number}")).result(60)
        assert time.monotonic() - start < 12, "the queue takes 20 s"
    assert len(manager._threads) <= 2, "no thread was started for those that wait"
    manager._publish(0.0)
    assert manager.metrics.value("dotllm_queue_depth") >= 30
    del tickets


def test_a_full_house_is_not_remembered(make: Any, make_manager: Any) -> None:
    offload = make(processes=1)
    offload.compile(spec(id="warm"), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000, queue_limit=1)
    running = manager.submit(spec(id=1, sleep=1.0, text="x" * 2000))
    until(lambda: any(job.state is JobState.OFFLOADED for job in manager._table.jobs.values()))
    waiting = manager.submit(spec(id=2, text="x" * 2000))
    until(lambda: len(manager._offload_queue) == 1)
    with pytest.raises(QueueFull, match="1 specifications are waiting"):
        manager.submit(spec(id=3, text="x" * 2000)).result(60)
    assert running.result(60) and waiting.result(60)
    assert manager.submit(spec(id=3, text="x" * 2000)).result(60), "nothing is remembered of it"


def test_what_nobody_waits_for_leaves_the_queue_of_offloaded_compiles(make: Any, make_manager: Any) -> None:
    offload = make(processes=1)
    offload.compile(spec(id="warm"), NEVER)
    manager = make_manager(offload=offload, subprocess_threshold_bytes=1000, queue_limit=1)
    running = manager.submit(spec(id=1, sleep=1.0, text="x" * 2000))
    until(lambda: any(job.state is JobState.OFFLOADED for job in manager._table.jobs.values()))
    unwanted = manager.submit(spec(id=2, text="x" * 2000))
    until(lambda: len(manager._offload_queue) == 1)
    unwanted.cancel()
    assert manager.submit(spec(id=3, text="x" * 2000)).result(60) and running.result(60)


def test_a_mapping_that_fails_for_want_of_memory_is_the_budget(make: Any) -> None:
    compiler = make(memory=100 << 20)
    with pytest.raises(CompileMemory, match=r"more than 100 MiB .*--dotllm-compile-memory"):
        compiler.compile(spec(map=300 << 20), NEVER)
    assert compiler.compile(spec(id=2), NEVER)


def test_a_process_that_keeps_too_much_is_replaced_before_that_hurts(make: Any) -> None:
    """100 MiB is the limit for one compile, not for all the compiles of a process together."""
    compiler = make(memory=100 << 20)
    processes = set()
    for number in range(12):
        assert compiler.compile(spec(id=number, keep=20 << 20), NEVER)
        processes |= {worker.process.pid for worker in compiler._all}
    assert 2 <= len(processes) <= 6
    assert sum(map(alive, processes)) <= 1


def test_all_processes_are_started_ahead(make: Any, make_manager: Any, compiler: fake_engine.Compiler) -> None:
    offload = make(processes=2)
    manager = make_manager(offload=offload)
    manager.always_offload()  # starts the first of them in the background
    manager.start_processes()
    assert len(offload._all) == len(offload._idle) == 2
    offload.start_all()
    assert len(offload._all) == 2


def test_processes_that_do_not_start_ahead_hold_nobody_up(
    lame: tuple[ProcessCompiler, Path], make_manager: Any, caplog: Any
) -> None:
    offload, log = lame
    manager = make_manager(offload=offload)
    manager.start_processes()
    assert len(log.read_text()) <= 2 * 3 and "process failed" in caplog.text
    assert manager.submit(spec(id=1)).result(60)
