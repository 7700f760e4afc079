"""The bytes of every token; the oracle is the tokenizer's own decoding of the token between two others."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from dotllm import Index
from dotllm.vocabulary import Vocabulary
from dotllm.vocabulary.readers import as_decoded, read_tokenizer
from tests.vocabulary.test_readers import MAKERS, byte_fallback_bpe, ranks, refused

tokenizers = pytest.importorskip("tokenizers")
from tokenizers import AddedToken, Tokenizer  # noqa: E402


def with_odd_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Add tokens that are not special and that some tokenizers decode to something other than their names.

    They occur in Gemma 3 (spaces), DeepSeek-Coder (``ü``, huggingface/tokenizers#1424), Llama 2 with users' tokens.
    """
    names = ["▁▁▁▁", "ü", "Ġ", "Ċ\u0145", "<0x42>", "<0xE4>", "<tool>", " x▁y ", "    ", "é", "\t\t", "▁\ufffd"]
    for i, name in enumerate(names):
        tokenizer.add_tokens([AddedToken(name, special=False, normalized=i % 2 == 0)])
        tokenizer.add_tokens([AddedToken(f"{name}~", special=False, normalized=i % 2 == 1)])
    return tokenizer


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_every_token_is_what_the_tokenizer_adds_between_two_others(
    make: Callable[[], Tokenizer], caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = with_odd_added_tokens(make())
    with caplog.at_level(logging.WARNING):
        vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=tokenizer.token_to_id("</s>"))
    assert not caplog.records, "the description of the decoder has been read rightly"
    special = set(vocabulary.special_tokens.values())
    for i in range(vocabulary.size):
        between = tokenizer.decode(
            [tokenizer.token_to_id("x"), i, tokenizer.token_to_id("x")], skip_special_tokens=False
        )
        expected = b"x%sx" % (vocabulary.token_bytes(i) or b"")
        assert i in special or between == expected.decode(errors="replace"), tokenizer.id_to_token(i)


def test_added_spaces_are_no_other_characters() -> None:
    """Gemma 3 has 30 of them. JSON indented by four is written with them, and ``[^\\s]`` must not match them."""
    tokenizer = byte_fallback_bpe()
    tokenizer.add_tokens([AddedToken("▁▁▁▁", special=False, normalized=False)])
    vocabulary = Vocabulary.from_tokenizer(tokenizer, eos_token_ids=2)
    spaces = tokenizer.token_to_id("▁▁▁▁")
    assert vocabulary.token_bytes(spaces) == b"    "
    assert not Index.from_regex(r"[^\s]{1,10}", vocabulary).guide().advance(spaces)
    assert Index.from_regex(r"\s{1,10}", vocabulary).guide().advance(spaces)


class Odd:
    """A tokenizer with its own decoding and the interface of SentencePiece."""

    def __init__(self, pieces: list[str], decoded: Callable[[list[str]], str]) -> None:
        self.pieces, self.decoded = pieces, decoded

    def decode(self, ids: list[int]) -> str:
        return self.decoded([self.pieces[i] for i in ids])

    def id_to_piece(self, i: int) -> str:
        return self.pieces[i]

    def get_piece_size(self) -> int:
        return len(self.pieces)

    def eos_id(self) -> int:
        return 0

    def encode(self, text: str) -> list[int]:
        return [self.pieces.index(character) for character in text]

    IsByte = staticmethod(lambda i: False)
    IsControl = staticmethod(lambda i: i == 0)
    IsUnknown = IsUnused = IsByte


class TestDecodingIsBelieved:
    def test_what_differs_is_said(self, caplog: pytest.LogCaptureFixture) -> None:
        texts = {"<n>": "\n", "<gone>": "", "<half>": "\ufffd"}
        odd = Odd(
            ["</s>", "he", "<n>", "<gone>", "<half>", "é"], lambda pieces: "".join(texts.get(p, p) for p in pieces)
        )
        with caplog.at_level(logging.WARNING):
            vocabulary = Vocabulary.from_tokenizer(odd)
        (record,) = caplog.records
        assert "3 tokens" in record.getMessage() and r"2: b'<n>' is b'\n'" in record.getMessage()
        assert [vocabulary.token_bytes(i) for i in range(6)] == [None, b"he", b"\n", None, None, "é".encode()]

    def test_a_decoding_that_raises_leaves_the_token_out(self) -> None:
        def decoded(pieces: list[str]) -> str:
            if "<bad>" in pieces:
                raise KeyError("<bad>")
            return "".join(pieces)

        vocabulary = Vocabulary.from_tokenizer(Odd(["</s>", "he", "<bad>", "b"], decoded))
        assert [vocabulary.token_bytes(i) for i in range(4)] == [None, b"he", None, b"b"]

    def test_tokens_joined_by_something_are_refused(self) -> None:
        assert refused(Odd(["</s>", "he", "b"], " ".join)) == "decode"

    def test_parts_of_characters_may_be_decoded_to_nothing(self) -> None:
        """Some Python tokenizers decode with `errors="ignore"`, which is no evidence against a byte."""
        encoding = pytest.importorskip("tiktoken").Encoding(
            "small", pat_str=".", mergeable_ranks=ranks(), special_tokens={"<|endoftext|>": 300}
        )
        contents = read_tokenizer(encoding)
        ignoring = contents._replace(decode=lambda ids: encoding.decode(ids, errors="ignore"))
        assert as_decoded(ignoring).tokens == contents.tokens == ignoring.tokens
