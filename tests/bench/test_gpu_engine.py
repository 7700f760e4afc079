"""The engine that `benchmarks.gpu` measures, without vLLM's: what is sent for each backend."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.gpu_engine import SharedEngine
from dotllm.bench.client import Request
from dotllm.bench.workloads import Constraint


class Engine:
    """Keeps the parameters that it is given; every answer is one token."""

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
    """The engine core gives dotllm's verdict, so nothing is compiled before sending; other backends are vLLM's."""
    target = SharedEngine.__new__(SharedEngine)
    target.engine, target.numbers, target.backend = Engine(), itertools.count(), backend
    sample = asyncio.run(target.send(Request(constraint, "a prompt", 16)))
    assert not sample.error and sample.text == "1"
    (parameters,) = target.engine.sent
    claimed = parameters.structured_outputs is not None and parameters.structured_outputs._backend is not None
    assert claimed == (constraint is not None and backend == "dotllm")
