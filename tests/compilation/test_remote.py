"""Compiles on Ray: the adapter against a stand-in for Ray's functions, and against a local Ray if it is installed."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
import types
from typing import Any

import fake_engine
import pytest
from fake_engine import spec

from dotllm.cancellation import Cancelled
from dotllm.compilation import remote, wire
from dotllm.compilation.breaker import FAILURES
from dotllm.compilation.errors import CompileTimeout
from dotllm.compilation.process import ProcessCompiler
from dotllm.compilation.remote import RayCompiler
from dotllm.errors import UnsupportedError

NEVER = threading.Event()


class FakeRay(types.ModuleType):
    """Ray's nine functions that we use, with a thread for each task. Objects of an earlier ``cluster`` are lost."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.initialised: list[dict[str, Any]] = []
        self.cancelled: list[Any] = []
        self.tasks = 0
        self.error: Exception | None = None
        self.cluster = 1
        self.connected_to = 0

    def is_initialized(self) -> bool:
        return bool(self.initialised)

    def init(self, **arguments: Any) -> None:
        if self.error:
            raise self.error
        self.initialised.append(arguments)
        self.connected_to = self.cluster

    def shutdown(self) -> None:
        self.initialised.clear()

    def put(self, value: Any) -> Any:
        if self.connected_to != self.cluster:
            raise ConnectionError("the cluster is gone")
        return ("ref", value, self.cluster)

    def remote(self, **resources: Any) -> Any:
        assert set(resources) == {"num_cpus", "memory", "max_retries"}

        def wrap(function: Any) -> Any:
            return types.SimpleNamespace(remote=lambda *arguments: self._start(function, arguments))

        return wrap

    def _start(self, function: Any, arguments: Any) -> Any:
        self.tasks += 1
        if self.error:
            raise self.error
        if any(a[2] != self.cluster for a in arguments if isinstance(a, tuple) and a[:1] == ("ref",)):
            raise RuntimeError("ObjectLostError")
        values = [a[1] if isinstance(a, tuple) and a[:1] == ("ref",) else a for a in arguments]
        reference = types.SimpleNamespace(result=None, done=threading.Event())

        def work() -> None:
            reference.result = function(*values)
            reference.done.set()

        threading.Thread(target=work, daemon=True).start()
        return reference

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return (references, []) if references[0].done.wait(timeout) else ([], references)

    def get(self, reference: Any) -> Any:
        return reference.result

    def cancel(self, reference: Any, force: bool) -> None:
        assert force
        self.cancelled.append(reference)


class Fallback:
    """Counts what compiles in processes of this host."""

    compiled = 0

    def compile(self, specification: Any, cancelled: threading.Event) -> Any:
        self.compiled += 1
        return fake_engine.FakeIndex(specification.text, 1)


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(wire, "pack_vocabulary", lambda vocabulary: b"vocabulary")
    monkeypatch.setattr(remote, "_vocabulary", lambda data: fake_engine.FakeVocabulary())
    monkeypatch.setattr(remote, "compile_specification", fake_engine.Compiler())
    return fake


@pytest.fixture
def fallback(monkeypatch: pytest.MonkeyPatch) -> Fallback:
    counts = Fallback()
    monkeypatch.setattr(ProcessCompiler, "compile", lambda self, *arguments: counts.compile(*arguments))
    return counts


def make(url: str = "ray://head:10001", timeout: float = 5.0) -> RayCompiler:
    return RayCompiler(
        url, fake_engine.FakeVocabulary(), processes=1, timeout=timeout, memory=1 << 30, load=fake_engine.load
    )


def test_compiles_there_and_connects_once(ray: FakeRay, fallback: Fallback) -> None:
    compiler = make()
    for number in range(3):
        assert compiler.compile(spec(id=number), NEVER).text == spec(id=number).text
    assert [one["address"] for one in ray.initialised] == ["ray://head:10001"]
    assert ray.tasks == 3 and fallback.compiled == 0


def test_uses_the_connection_vllm_has(ray: FakeRay, fallback: Fallback) -> None:
    ray.init(address="by vLLM")
    make("ray://auto").compile(spec(id=1), NEVER)
    assert len(ray.initialised) == 1


def test_refusals_cross_with_their_names(ray: FakeRay, fallback: Fallback) -> None:
    with pytest.raises(UnsupportedError, match="not here") as caught:
        make().compile(spec(refuse="not here"), NEVER)
    assert caught.value.pointer == "/a" and fallback.compiled == 0


def test_time_limit_and_cancellation_cancel_the_task(ray: FakeRay, fallback: Fallback) -> None:
    with pytest.raises(CompileTimeout):
        make(timeout=0.2).compile(spec(sleep=2), NEVER)
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    with pytest.raises(Cancelled):
        make().compile(spec(sleep=2), cancelled)
    assert len(ray.cancelled) == 2 and fallback.compiled == 0


def test_a_dead_cluster_is_compiled_around(ray: FakeRay, fallback: Fallback) -> None:
    ray.error = ConnectionError("no head node")
    compiler = make()
    for number in range(10):
        assert compiler.compile(spec(id=number), NEVER)
    assert fallback.compiled == 10 and ray.tasks == 0
    assert compiler._breaker.is_open, f"asked {FAILURES} times, then no more"


@pytest.mark.parametrize("connected_by_vllm", [False, True])
def test_a_cluster_that_comes_back_is_used_again(
    ray: FakeRay, fallback: Fallback, monkeypatch: pytest.MonkeyPatch, connected_by_vllm: bool
) -> None:
    if connected_by_vllm:
        ray.init(address="by vLLM")
    compiler = make()
    assert compiler.compile(spec(id=1), NEVER) and fallback.compiled == 0
    ray.cluster = 2
    assert compiler.compile(spec(id=2), NEVER) and fallback.compiled == 1, "what it knew of us is lost"
    if connected_by_vllm:
        assert compiler.compile(spec(id=3), NEVER) and fallback.compiled == 2, "it is vLLM's to connect again"
        ray.init(address="by vLLM")
    before = fallback.compiled
    for number in range(4, 7):
        assert compiler.compile(spec(id=number), NEVER).text == spec(id=number).text
    assert fallback.compiled == before


def test_a_failed_task_does_not_end_the_connection(ray: FakeRay, fallback: Fallback) -> None:
    compiler = make()
    compiler.compile(spec(id=1), NEVER)
    ray.error = RuntimeError("WorkerCrashedError")
    compiler.compile(spec(id=2), NEVER)
    ray.error = None
    compiler.compile(spec(id=3), NEVER)
    assert fallback.compiled == 1 and len(ray.initialised) == 1


def test_another_version_there_is_not_used(ray: FakeRay, fallback: Fallback, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = make()
    monkeypatch.setattr(remote, "engine_fingerprint", iter(("another engine", "this engine")).__next__)
    assert compiler.compile(spec(id=1), NEVER).nbytes == 1 and fallback.compiled == 1


def test_without_ray_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError):
        make()


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed (pip install ray)")
def test_a_real_local_ray(fallback: Fallback) -> None:
    import ray as real

    from dotllm import Index, Vocabulary
    from dotllm.compilation import Specification

    vocabulary = Vocabulary.from_bytes([*(bytes([byte]) for byte in range(256)), None], eos_token_ids=256)
    real.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        compiler = RayCompiler(
            "ray://auto", vocabulary, processes=1, timeout=120, memory=1 << 28, load=Index.from_bytes
        )
        start = time.monotonic()
        guide = compiler.compile(Specification.create("regex", "[a-z]+"), NEVER).guide()
        assert guide.advance(ord("q")) and not guide.advance(ord("1"))
        first = time.monotonic() - start
        with pytest.raises(ValueError):
            compiler.compile(Specification.create("regex", "(a"), NEVER)
        assert fallback.compiled == 0, f"the task took {first:.1f} s"
    finally:
        real.shutdown()
