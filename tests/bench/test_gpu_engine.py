"""The engine that `benchmarks.gpu` measures, with a stand-in for vLLM's: what is sent for each backend."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu import Bursts, Turns
from benchmarks.gpu_engine import SharedEngine
from dotllm.bench.client import BenchRequest
from dotllm.bench.workloads import Constraint


class Engine:
    """Keeps the parameters that it receives; every answer is one token."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    async def generate(self, prompt: str, parameters: Any, name: str) -> AsyncIterator[Any]:
        self.sent.append(parameters)
        answer = SimpleNamespace(token_ids=[1], text="1", finish_reason="stop")
        yield SimpleNamespace(
            outputs=[answer], metrics=SimpleNamespace(queued_ts=1.0, first_token_ts=2.0, last_token_ts=2.0)
        )


@pytest.mark.parametrize("backend", ["dotllm", "xgrammar"])
@pytest.mark.parametrize("constraint", [None, Constraint("number", "json_schema", {"type": "integer"})])
def test_requests_are_sent_as_a_server_sends_them(backend: str, constraint: Constraint | None) -> None:
    """The engine core gives dotllm's verdict, so nothing is compiled before sending; the others are vLLM's."""
    target = SharedEngine.__new__(SharedEngine)
    target.engine, target.numbers, target.backend = Engine(), itertools.count(), backend
    sample = asyncio.run(target.send(BenchRequest(constraint, "a prompt", 16)))
    assert not sample.error and sample.text == "1"
    (parameters,) = target.engine.sent
    claimed = parameters.structured_outputs is not None and parameters.structured_outputs._backend is not None
    assert claimed == (constraint is not None and backend == "dotllm")


def test_no_schema_is_sent_twice_to_a_backend() -> None:
    target = SharedEngine.__new__(SharedEngine)
    bursts = Bursts(target, Turns(None, 1), "a-model")
    schemas = [Constraint(str(i), "json_schema", {"const": i}) for i in range(5)]
    assert [*bursts.unused("real", schemas, 2), *bursts.unused("real", schemas, 3)] == schemas
    target.backend = "xgrammar"
    assert bursts.unused("real", schemas, 4) == schemas[:4]
    with pytest.raises(SystemExit, match="5 schemas"):
        bursts.unused("real", schemas, 2)


def test_one_process_at_a_time_has_the_turn(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    asyncio.run(Turns(file, 1).ready())
    with Turns(file, 1).turn(), file.open("a") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with file.open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
