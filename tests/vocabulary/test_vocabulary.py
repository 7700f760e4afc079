"""``Vocabulary``: ids, special ids, padding, bytes."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dotllm.vocabulary import Vocabulary
from tests.vocabulary.test_readers import byte_level_bpe, joined

TOKENS = [b"a", None, b"ab", b"", b"\xff", b"a"]


def test_facts_of_a_small_vocabulary() -> None:
    vocabulary = Vocabulary.from_bytes(TOKENS, eos_token_ids=[1, 3, 1], special_tokens={"</s>": 1, "<pad>": 3}, size=40)
    assert (vocabulary.size, vocabulary.words) == (40, 2)
    assert vocabulary.eos_token_ids == (1, 3)
    assert vocabulary.special_tokens == {"</s>": 1, "<pad>": 3}
    assert [vocabulary.token_bytes(i) for i in range(6)] == [b"a", None, b"ab", None, b"\xff", b"a"]
    assert vocabulary.token_bytes(39) is None
    assert vocabulary.max_token_bytes == 2
    assert vocabulary.missing_bytes == frozenset(range(256)) - {0x61, 0x62, 0xFF}
    assert vocabulary.unspellable_bytes == frozenset(range(256)) - {0x61, 0xFF}
    assert vocabulary.token_data.dtype == np.uint8 and bytes(vocabulary.token_data) == b"aab\xffa"
    assert vocabulary.token_offset.dtype == np.int32 and vocabulary.token_offset.tolist()[:7] == [0, 1, 1, 3, 3, 4, 5]
    assert len(vocabulary.token_offset) == 41
    for outside in (-1, 40):
        with pytest.raises(IndexError):
            vocabulary.token_bytes(outside)


@pytest.mark.parametrize("wrong", ["b", 5, [98]], ids=repr)
def test_tokens_are_bytes(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"token 1 must be bytes or None, not {type(wrong).__name__}"):
        Vocabulary.from_bytes([b"a", wrong], eos_token_ids=[])


def test_a_text_is_spelled_as_its_bytes_are() -> None:
    vocabulary = Vocabulary.from_bytes([b"a", b"\xc3", b"\xa9", "é".encode()], eos_token_ids=[])
    assert vocabulary.encode("aé") == vocabulary.encode("aé".encode()) == [0, 3]


def test_eos_and_special_ids_are_never_reachable_as_text() -> None:
    vocabulary = Vocabulary.from_bytes([b"x", b"</s>", b"<pad>"], 1, {"<pad>": 2})
    assert vocabulary.trie.tokens.tolist() == [0]
    assert vocabulary.token_bytes(1) is None and vocabulary.token_bytes(2) is None


def test_only_size_widens_the_vocabulary() -> None:
    assert Vocabulary.from_bytes([b"x"], 7, size=9).size == 9
    assert Vocabulary.from_bytes([], []).size == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"eos_token_ids": 6},
        {"eos_token_ids": [1, 2_000_000_000]},
        {"eos_token_ids": [], "special_tokens": {"s": 6}},
        {"eos_token_ids": 9, "size": 9},
        {"eos_token_ids": -1},
        {"eos_token_ids": [], "special_tokens": {"s": 7}, "size": 6},
        {"eos_token_ids": [], "size": 3},
    ],
)
def test_ids_out_of_range_are_refused(arguments: dict) -> None:
    with pytest.raises(ValueError, match=r"outside the vocabulary|less than the 6 tokens"):
        Vocabulary.from_bytes(TOKENS, **arguments)


def test_fingerprint_is_of_the_content() -> None:
    made = Vocabulary.from_bytes(TOKENS, 1)
    assert made.fingerprint == Vocabulary.from_bytes(TOKENS, [1]).fingerprint
    others = [
        Vocabulary.from_bytes(TOKENS, 3),
        Vocabulary.from_bytes(TOKENS, 1, {"</s>": 1}),
        Vocabulary.from_bytes(TOKENS, 1, size=7),
        Vocabulary.from_bytes([b"aa", None, b"b", b"", b"\xff", b"a"], 1),
    ]
    assert len({made.fingerprint, *(other.fingerprint for other in others)}) == 5
    assert len(made.fingerprint) == 64 and int(made.fingerprint, 16)


def test_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="tokenizer"):
        pickle.dumps(Vocabulary.from_bytes(TOKENS, 1))


@given(st.lists(st.binary(max_size=4), max_size=20), st.binary(max_size=30))
def test_greedy_spelling_takes_the_longest_token(tokens: list[bytes], text: bytes) -> None:
    vocabulary = Vocabulary.from_bytes(tokens, eos_token_ids=[])
    expected: list[bytes] = []
    at = 0
    while at < len(text):
        fitting = [token for token in tokens if token and text.startswith(token, at)]
        if not fitting:
            with pytest.raises(ValueError, match=f"offset {at}"):
                vocabulary.encode(text)
            return
        expected.append(max(fitting, key=len))
        at += len(expected[-1])
    assert [vocabulary.token_bytes(i) for i in vocabulary.encode(text)] == expected


def test_a_tokenizer_wider_than_the_model(caplog: pytest.LogCaptureFixture) -> None:
    """Gemma 3's text-only models have 262,145 tokens and 262,144 rows."""
    tokenizer = byte_level_bpe()
    image, size = tokenizer.token_to_id("<|im_end|>"), tokenizer.get_vocab_size()
    with caplog.at_level(logging.WARNING):
        vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=0, further_eos_token_ids=[image], size=image)
    (record,) = caplog.records
    assert f"{size - image} tokens" in record.getMessage() and f"{image}: '<|im_end|>'" in record.getMessage()
    assert vocabulary.size == image and vocabulary.eos_token_ids == (0,)
    assert vocabulary.special_tokens == {"</s>": 0, "<|im_start|>": tokenizer.token_to_id("<|im_start|>")}
    whole = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=0)
    assert all(vocabulary.token_bytes(i) == whole.token_bytes(i) for i in range(image))
    # texts that the tokenizer spells with tokens that do not exist are spelled with others
    last = max(
        i for i in range(size) if len(whole.token_bytes(i) or b"") > 1 and (whole.token_bytes(i) or b"").isalpha()
    )
    text = whole.token_bytes(last) or b""
    narrow = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=0, size=last)
    assert whole.encode(text) == [last] and joined(narrow, narrow.encode(text)) == text
    with pytest.raises(ValueError, match="outside the vocabulary of size"):
        Vocabulary.from_tokenizer(tokenizer, eos_token_ids=image, size=image)
