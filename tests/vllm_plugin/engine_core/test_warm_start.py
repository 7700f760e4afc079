"""What is prepared before the first request, and where nothing needs it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("vllm")

from dotllm import jit, system
from dotllm.compilation import compiler
from dotllm.vllm_plugin.enforce import preparation, scheduler
from dotllm.vllm_plugin.speed import warm_start


def config(backend: str = "auto", runner: str = "generate", node: int = 0, *, tokenizer: bool = True) -> Any:
    return SimpleNamespace(
        structured_outputs_config=SimpleNamespace(backend=backend),
        model_config=SimpleNamespace(runner_type=runner, skip_tokenizer_init=not tokenizer, logits_processors=None),
        parallel_config=SimpleNamespace(node_rank_within_dp=node),
    )


@pytest.mark.parametrize(
    ("engine", "prepares"),
    [
        (config(), True),
        (config("xgrammar"), False),
        (config(runner="pooling"), False),  # an embedding model, a cross-encoder: 2 to 4 processes of 300 MB
        (config(node=1), False),  # --nnodes 2 --headless: only workers
        (config(tokenizer=False), False),
    ],
)
def test_where_an_engine_is_made_ready(engine: Any, prepares: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    run: list[str] = []
    made: list[Any] = []
    monkeypatch.setattr(system, "run_in_background", lambda function, name: run.append(name))
    monkeypatch.setattr(preparation, "loaded", None)  # (else later tests' engines wait for a thread that never runs)
    warm_start._init(object(), engine, original=lambda _, config: made.append(config))
    assert bool(run) == prepares and made == [engine]


@pytest.fixture
def _no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "loaded", None)
    monkeypatch.setattr(scheduler, "_parts", {})


class Base:
    """vLLM's scheduler."""

    def __init__(self, vllm_config: Any) -> None:
        self.vllm_config = vllm_config


class Made(scheduler.DotllmScheduler, Base):
    """The scheduler as an engine core makes it once its model is loaded."""


@pytest.mark.usefixtures("_no_thread")
def test_an_engine_core_is_ready_when_its_kernels_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they compiled, /health said 200 and requests hung. The start waits for the kernels and for nothing else."""
    compiled, prepares, ends = threading.Event(), threading.Event(), threading.Event()
    threads: list[threading.Thread] = []

    def run(work: Callable[[], None], name: str) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    def prepare_engine(_: object) -> None:
        prepares.set()
        ends.wait(60)

    monkeypatch.setattr(system, "run_in_background", run)
    monkeypatch.setattr(compiler, "prepare", lambda: compiled.wait(60))
    monkeypatch.setattr(warm_start, "prepare_engine", prepare_engine)
    engine = config()
    warm_start._init(object(), engine, original=lambda _, config: None)
    core = threading.Thread(target=Made, args=(engine,))
    core.start()
    core.join(0.3)
    assert core.is_alive() and not prepares.is_set()
    Made(config("xgrammar"))  # does not wait
    Made(config(runner="pooling"))
    compiled.set()
    core.join(60)
    assert not core.is_alive() and prepares.wait(60)
    ends.set()
    threads[0].join(60)


@pytest.mark.usefixtures("_no_thread")
def test_kernels_that_do_not_load_hold_no_start_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise OSError("no space left")

    monkeypatch.setattr(compiler, "prepare", fail)
    monkeypatch.setattr(jit, "missing_groups", lambda: ["index"])
    Made(config())
    assert "no space left" in caplog.text
    monkeypatch.setattr(system, "run_in_background", lambda work, name: work())
    warm_start._init(object(), config(), original=lambda _, config: None)
    Made(config())
    monkeypatch.setattr(system, "run_in_background", lambda work, name: None)  # a thread that never starts working
    monkeypatch.setattr(preparation, "LONGEST_WAIT_S", 0.05)
    warm_start._init(object(), config(), original=lambda _, config: None)
    Made(config())
    assert "not compiled after" in caplog.text


@pytest.mark.usefixtures("_no_thread")
@pytest.mark.parametrize("missing", [[], ["index"]])
def test_without_the_tier_speed_what_was_never_compiled_is(missing: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the first constrained request would compile it in the engine's loop."""
    loads: list[int] = []
    monkeypatch.setattr(compiler, "prepare", lambda: loads.append(1))
    monkeypatch.setattr(jit, "missing_groups", lambda: missing)
    Made(config())
    assert len(loads) == len(missing)
