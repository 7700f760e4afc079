"""Hugging Face tokenizers: ``tokenizers.Tokenizer`` and the fast and slow tokenizers of transformers around one.

Recognised by what they offer, not by class, so that neither library is imported and wrappers (vLLM's cached and pooled
tokenizers, subclasses of the user's class) are read like what they wrap.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterable
from typing import Any

from dotllm.errors import UnsupportedError
from dotllm.vocabulary.readers.byte_level import decode_byte_level
from dotllm.vocabulary.readers.contents import TokenizerContents
from dotllm.vocabulary.readers.decoders import decode_tokens
from dotllm.vocabulary.readers.sentencepiece import read_sentencepiece


def is_tokenizers(tokenizer: object) -> bool:
    """Is it a ``tokenizers.Tokenizer``, or something that stands in for one?"""
    return all(hasattr(tokenizer, name) for name in ("get_added_tokens_decoder", "decoder", "model", "get_vocab"))


def is_slow_byte_level(tokenizer: object) -> bool:
    """Is it a tokenizer of transformers, in Python, that writes bytes as GPT-2 does?"""
    return all(hasattr(tokenizer, name) for name in ("byte_decoder", "get_vocab", "added_tokens_decoder", "encode"))


def read_tokenizers(tokenizer: Any) -> TokenizerContents:
    """Contents of a ``tokenizers.Tokenizer``."""
    model = type(tokenizer.model).__name__
    if model == "WordPiece":
        raise UnsupportedError(
            "WordPiece tokenizers leave the spaces between words to a decoder", keyword="WordPiece", code="tokenizer"
        )
    decoder = tokenizer.decoder
    added = tokenizer.get_added_tokens_decoder()
    ids = sorted({*tokenizer.get_vocab(with_added_tokens=True).values(), *added})
    # What the decoder is given: added tokens as they are normalised, and those that stand for a byte, like any other.
    strings = dict(zip(ids, map(tokenizer.id_to_token, ids), strict=True))
    decoded = decode_tokens(list(strings.values()), None if decoder is None else json.loads(decoder.__getstate__()))
    texts: dict[int, bytes | None] = dict(zip(ids, decoded, strict=True))
    special = {token.content: i for i, token in added.items() if token.special}
    unknown = getattr(tokenizer.model, "unk_token", None)
    number = None if unknown is None else tokenizer.token_to_id(unknown)
    if number is not None:
        special[unknown] = number
    texts.update(dict.fromkeys(special.values()))

    def decode(ids: list[int]) -> str:
        # Not `tokenizer.decode`: it would be in use while the server changes it (see `_PrivateCopy`).
        text: str = decoder.decode([strings[i] for i in ids])
        return text

    return TokenizerContents(_list_by_id(texts), special, (), _PrivateCopy(tokenizer), decode, _plain(added))


def is_slow_sentencepiece(tokenizer: object) -> bool:
    """Is it a tokenizer of transformers, in Python, around a SentencePiece model?"""
    return all(hasattr(tokenizer, name) for name in ("sp_model", "get_vocab", "added_tokens_decoder", "encode"))


def read_slow_sentencepiece(tokenizer: Any) -> TokenizerContents:
    """Contents of a Python tokenizer with an ``sp_model``; its ids need not be the model's own (fairseq's are not)."""
    inner = read_sentencepiece(tokenizer.sp_model)
    added = tokenizer.added_tokens_decoder
    ids = {string: i for string, i in tokenizer.get_vocab().items() if i not in added}
    pieces = [tokenizer.sp_model.piece_to_id(string) for string in ids]
    tokens, special = _by_id(ids.values(), [inner.tokens[piece] for piece in pieces], added)
    special.update({string: i for string, i in ids.items() if string in inner.special_tokens})
    locked = _Locked(tokenizer)
    return TokenizerContents(tokens, special, (), locked.encode, locked.decode, _plain(added))


def read_slow_byte_level(tokenizer: Any) -> TokenizerContents:
    """Contents of a Python tokenizer of transformers with a ``byte_decoder``."""
    added = tokenizer.added_tokens_decoder
    ids = {string: i for string, i in tokenizer.get_vocab().items() if i not in added}
    tokens, special = _by_id(ids.values(), decode_byte_level(list(ids)), added)
    locked = _Locked(tokenizer)
    return TokenizerContents(tokens, special, (), locked.encode, locked.decode, _plain(added))


def _by_id(
    ids: Iterable[int], decoded: Iterable[bytes | None], added: dict[int, Any]
) -> tuple[list[bytes | None], dict[str, int]]:
    """Tokens by id and special ids by name. ``added``: AddedToken by id; those not special stand for their own text."""
    texts: dict[int, bytes | None] = dict(zip(ids, decoded, strict=True))
    texts.update({i: None if token.special else token.content.encode() for i, token in added.items()})
    return _list_by_id(texts), {token.content: i for i, token in added.items() if token.special}


def _plain(added: dict[int, Any]) -> dict[str, int]:
    """Added tokens that are not special."""
    return {token.content: i for i, token in added.items() if not token.special}


def _list_by_id(texts: dict[int, bytes | None]) -> list[bytes | None]:
    return list(map(texts.get, range(max(texts, default=-1) + 1)))


class _PrivateCopy:
    """Encodes with a copy of a ``tokenizers.Tokenizer``.

    The original belongs to the server, whose threads change its truncation while it is used: "Already borrowed" is
    raised there if someone else is encoding. The copy also reads names of special tokens as ordinary text.
    """

    def __init__(self, original: Any) -> None:
        self._original = original
        self._copy: Any = None
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[int]:
        with self._lock:
            if self._copy is None:
                own = copy.deepcopy(self._original)
                own.no_truncation()
                own.no_padding()
                own.encode_special_tokens = True
                self._copy, self._original = own, None
            ids: list[int] = self._copy.encode(text, add_special_tokens=False).ids
        return ids


class _Locked:
    """Encodes and decodes with a slow tokenizer, one text at a time."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._lock = threading.Lock()

    def encode(self, text: str) -> list[int]:
        with self._lock:
            return list(map(int, self._tokenizer.encode(text, add_special_tokens=False)))

    def decode(self, ids: list[int]) -> str:
        with self._lock:
            text: str = self._tokenizer.decode(
                ids, skip_special_tokens=False, clean_up_tokenization_spaces=False, spaces_between_special_tokens=False
            )
        return text
