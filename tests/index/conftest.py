"""Vocabularies shared by the tests of indexes."""

from __future__ import annotations

from pathlib import Path

import pytest

from dotllm import Vocabulary


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
    """The 131,072 tokens that measurements use, from mistral_common, which comes with vLLM."""
    package = pytest.importorskip("mistral_common", reason="the tekken tokenizer comes with mistral_common")
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tokenizer = Tekkenizer.from_file(Path(package.__file__).parent / "data" / "tekken_240911.json")
    return Vocabulary.from_tokenizer(tokenizer, eos_token_ids=[2])
