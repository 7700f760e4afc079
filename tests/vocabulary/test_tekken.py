"""The real vocabulary of 131,072 tokens, against its tokenizer and the oracles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dotllm.charset import CharSet
from dotllm.vocabulary import Vocabulary
from dotllm.vocabulary.vocabulary import JSON_STRING_CHARS
from tests.vocabulary.oracles import trie_strings
from tests.vocabulary.test_charset_table import check
from tests.vocabulary.texts import SENTENCES


@pytest.fixture(scope="module")
def tokens(tekken: Vocabulary) -> list[bytes | None]:
    return [tekken.token_bytes(i) for i in range(tekken.size)]


def test_facts(tekken: Vocabulary) -> None:
    assert (tekken.size, tekken.words, tekken.eos_token_ids) == (131072, 4096, (2,))
    assert tekken.max_token_bytes == 76
    assert not tekken.missing_bytes and not tekken.unspellable_bytes
    assert tekken.special_tokens["</s>"] == 2 and sorted(tekken.special_tokens.values()) == list(range(1000))


def test_bytes_are_those_of_the_tokenizer(tekken_tokenizer: Any, tokens: list[bytes | None]) -> None:
    """Token by token with the library's decoder, if the bytes are text."""
    compared = 0
    for i in range(1000, 131072, 7):
        try:
            text = (tokens[i] or b"").decode()
        except UnicodeDecodeError:
            continue
        assert tekken_tokenizer.decode([i]) == text
        compared += 1
    assert compared > 17000


def test_trie(tekken: Vocabulary, tokens: list[bytes | None]) -> None:
    assert tekken.trie.tokens.tolist() == sorted(range(1000, 131072), key=lambda i: tokens[i] or b"")
    found = trie_strings(tekken.trie)
    assert all(tokens[i] == text for text, ids in found.items() for i in ids)
    assert sum(map(len, found.values())) == 131072 - 1000


@pytest.mark.parametrize("text", SENTENCES)
def test_spelling(tekken: Vocabulary, tekken_tokenizer: Any, text: str) -> None:
    ids = tekken.encode(text.encode())
    assert b"".join(tekken.token_bytes(i) or b"" for i in ids) == text.encode()
    if "</s>" not in text:
        assert ids == tekken_tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("charset", [JSON_STRING_CHARS, CharSet.of((0x61, 0x7A))], ids=["json", "a-z"])
def test_charset_tables(tekken: Vocabulary, tokens: list[bytes | None], charset: CharSet) -> None:
    check(tekken, tokens, charset, tekken.charset_table(charset))


def test_greedy_spelling_of_everything(tekken: Vocabulary) -> None:
    """Random bytes are spelled, whether they are text or not."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        text = rng.integers(0, 256, 40).astype(np.uint8).tobytes()
        assert b"".join(tekken.token_bytes(i) or b"" for i in tekken.encode(text)) == text
