"""tiktoken encodings, and Mistral's tekken, which is one behind a block of special ids."""

from __future__ import annotations

from typing import Any

from dotllm.vocabulary.readers.contents import TokenizerContents


def is_tiktoken(tokenizer: object) -> bool:
    """Is it a ``tiktoken.Encoding``?"""
    return all(hasattr(tokenizer, name) for name in ("_mergeable_ranks", "_special_tokens", "encode_ordinary"))


def is_tekken(tokenizer: object) -> bool:
    """Is it a ``mistral_common`` Tekkenizer?"""
    return all(hasattr(tokenizer, name) for name in ("id_to_byte_piece", "num_special_tokens", "n_words"))


def read_tiktoken(encoding: Any) -> TokenizerContents:
    """Contents of a ``tiktoken.Encoding``: its merge ranks are bytes already."""
    special = dict(encoding._special_tokens)
    texts: dict[int, bytes] = {rank: text for text, rank in encoding._mergeable_ranks.items()}
    size = max([*texts, *special.values()], default=-1) + 1
    end = special.get("<|endoftext|>")
    return TokenizerContents(
        list(map(texts.get, range(size))),
        special,
        () if end is None else (end,),
        encoding.encode_ordinary,
        encoding.decode,
    )


def read_tekken(tokenizer: Any) -> TokenizerContents:
    """Contents of a Tekkenizer: ids below ``num_special_tokens`` stand for no text."""
    first, size = tokenizer.num_special_tokens, tokenizer.n_words
    tokens: list[bytes | None] = [None] * first
    tokens.extend(tokenizer.id_to_byte_piece(i) for i in range(first, size))
    special = {tokenizer.id_to_piece(i): i for i in range(first)}

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text, bos=False, eos=False)
        return ids

    return TokenizerContents(tokens, special, (tokenizer.eos_id,), encode, tokenizer.decode)
