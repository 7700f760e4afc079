"""A stand-in for the engine: an index is a text; the specification's text says which size and which faults it has.

The text of a specification is a JSON object:
{"bytes": nbytes, "sleep": s, "refuse": reason, "exceed": budget, "fail": text, "id": …}.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from dotllm.compilation.compiled import Engine
from dotllm.compilation.specification import Specification
from dotllm.errors import BudgetExceededError, Pointer, UnsupportedError


class FakeVocabulary:
    fingerprint = "f" * 64

    def __init__(self) -> None:
        self.shared_nbytes = 0


class FakeGuide:
    def __init__(self, index: FakeIndex) -> None:
        self.index = index


class FakeIndex:
    def __init__(self, text: str, nbytes: int) -> None:
        self.text = text
        self.nbytes = nbytes

    @property
    def generations(self) -> list[FakeIndex]:
        return [self]

    remembered_bytes = result_bytes = 0

    def newest(self) -> FakeIndex:
        return self

    def guide(self) -> FakeGuide:
        return FakeGuide(self)

    def to_bytes(self) -> bytes:
        return json.dumps({"text": self.text, "nbytes": self.nbytes}).ljust(self.nbytes).encode()


def load(content: bytes, vocabulary: Any) -> FakeIndex:
    data = json.loads(content.split(b"dotllmEN")[0])
    return FakeIndex(data["text"], data["nbytes"])


class Compiler:
    """Counts compiles, and delays or refuses them on request."""

    def __init__(self) -> None:
        self.compiled: list[str] = []
        self.lock = threading.Lock()
        self.gate: threading.Event | None = None

    def __call__(self, specification: Specification, vocabulary: Any) -> FakeIndex:
        with self.lock:
            self.compiled.append(specification.text)
        request = json.loads(specification.text)
        if self.gate is not None and request.get("gated"):
            self.gate.wait(10)
        time.sleep(request.get("sleep", 0))
        if "refuse" in request:
            raise UnsupportedError(request["refuse"], location=Pointer("/a"), keyword="not")
        if "exceed" in request:
            raise BudgetExceededError(request["exceed"], keyword="memory")
        if "fail" in request:
            raise RuntimeError(request["fail"])
        if "memory" in request and len(self.compiled) == 1:
            raise MemoryError(request["memory"])
        return FakeIndex(specification.text, request.get("bytes", 100))


def engine(compile_: Any, collect: Any = lambda vocabulary: 0) -> Engine:
    return Engine(
        compile_, load, lambda vocabulary: vocabulary.shared_nbytes, lambda vocabulary: 1 << 40, collect,
        lambda index: index.nbytes,
    )  # fmt: skip


def spec(**request: Any) -> Specification:
    return Specification.create("json_schema", json.dumps(request))
