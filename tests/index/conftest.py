"""Vocabularies shared by the tests of indexes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from dotllm import Vocabulary

TEKKEN = Path(__file__).resolve().parents[3] / "shared/data/tokenizers/tekken/tokenizer.json.gz"


@pytest.fixture(scope="session")
def bytes_vocabulary() -> Vocabulary:
    """Every byte, some words, one special token and two end tokens."""
    words = [b'{"', b'":', b'",', b"true", b"false", b"null", b"hello", b"lo", b" wor", b"ld", b"12", b"\xc3", b"\xa9"]
    tokens: list[bytes | None] = [bytes([i]) for i in range(256)] + list(words)
    n = len(tokens)
    return Vocabulary.from_bytes(
        [*tokens, None, None, None], eos_token_ids=[n, n + 1], special_tokens={"<tool>": n + 2}
    )


@pytest.fixture(scope="session")
def tekken() -> Vocabulary:
    """The 131,072 tokens that are measured with."""
    if not TEKKEN.exists():
        pytest.skip("the tekken tokenizer is not beside this checkout")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(gzip.decompress(TEKKEN.read_bytes()).decode())
    return Vocabulary.from_tokenizer(tokenizer, eos_token_ids=[2])
