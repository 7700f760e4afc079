"""A child that crashes, hangs, takes too much memory or raises costs one answer; the next question is answered."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import pytest

from benchmarks.isolation import Isolated


def behave(question: str) -> str:
    """What the child does with a question."""
    if question == "crash":
        os._exit(7)
    if question == "hang":
        time.sleep(60)
    if question == "swell":
        blocks = [bytearray(os.urandom(1) * (8 << 20)) for _ in range(60)]
        time.sleep(60)
        return str(len(blocks))
    if question == "raise":
        raise KeyError("named")
    return question.upper()


def start() -> Callable[[str], str]:
    """The factory."""
    return behave


@pytest.fixture
def worker() -> Iterator[Isolated]:
    """A child with tight limits."""
    isolated = Isolated(start, seconds=60, memory_bytes=200 << 20)
    yield isolated
    isolated.stop()


@pytest.mark.parametrize(
    ("question", "kind"), [("crash", "crash"), ("hang", "timeout"), ("swell", "memory"), ("raise", "error")]
)
def test_one_answer_is_lost(worker: Isolated, question: str, kind: str) -> None:
    """The outcome names what happened; the child is replaced where necessary."""
    if question == "hang":
        worker.seconds = 2
    outcome = worker.ask(question)
    assert outcome.kind == kind
    worker.seconds = 60
    if kind == "error":
        assert "KeyError" in outcome.value
    again = worker.ask("fine")
    assert (again.kind, again.value) == ("done", "FINE")
