"""An inspector for a small vocabulary, and its server."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from dotllm import Vocabulary
from dotllm.inspector.inspector import Inspector
from dotllm.inspector.server import InspectorServer

WORDS = [
    b'{"',
    b'":',
    b'",',
    b": ",
    b'": "',
    b'"}',
    b"name",
    b"age",
    b"13",
    b"131",
    b"Bob",
    b"SELECT",
    b" FROM",
    b"sad",
    b"a\xc3",
]


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    tokens: list[bytes | None] = [bytes([byte]) for byte in range(256)] + list(WORDS)
    end = len(tokens)
    return Vocabulary.from_bytes([*tokens, None, None], eos_token_ids=end, special_tokens={"<tool>": end + 1})


@pytest.fixture(scope="session")
def inspector(vocabulary: Vocabulary) -> Inspector:
    return Inspector(vocabulary, "small")


@pytest.fixture
def server(inspector: Inspector) -> Iterator[InspectorServer]:
    with InspectorServer(inspector) as made:
        threading.Thread(target=made.serve_forever, daemon=True).start()
        yield made
        made.shutdown()
