"""Fixtures: managers on a fake engine. Everything is off unless a test turns it on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # makes the helpers of these tests importable in their subprocesses, too

import fake_engine

from dotllm.compilation import CompilationManager, CompilationOptions
from dotllm.compilation.metrics import Metrics


@pytest.fixture
def compiler() -> fake_engine.Compiler:
    return fake_engine.Compiler()


@pytest.fixture
def make_manager(tmp_path: Path, compiler: fake_engine.Compiler) -> Iterator[Callable[..., CompilationManager]]:
    """make(option=…, store=…, offload=…, compiler=…): a manager, which is closed after the test."""
    made: list[CompilationManager] = []

    def make(**arguments: Any) -> CompilationManager:
        injected = {
            name: arguments.pop(name) for name in ("store", "offload") if not isinstance(arguments.get(name, ""), str)
        }
        engine = fake_engine.engine(arguments.pop("compiler", compiler))
        defaults: dict[str, Any] = {"disk_bytes": 0, "compile_processes": 0, "cache_dir": str(tmp_path / "cache")}
        options = CompilationOptions(**{**defaults, **arguments})
        vocabulary = fake_engine.FakeVocabulary()
        manager = CompilationManager(vocabulary, options, engine=engine, metrics=Metrics(), **injected)
        made.append(manager)
        return manager

    yield make
    for manager in made:
        manager.close(flush=0)
