"""What a reader finds in a tokenizer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class TokenizerContents(NamedTuple):
    """The parts of a tokenizer that a vocabulary needs."""

    tokens: list[bytes | None]
    """By id, the bytes a token adds to a text that has already begun; None if it adds none."""
    special_tokens: dict[str, int]
    """Ids by name of the tokens that stand for no text."""
    eos_token_ids: tuple[int, ...]
    """Ids the tokenizer itself says end a text; may be empty."""
    encode: Callable[[str], list[int]]
    """Tokenises a text without adding special tokens; thread-safe, and nobody else's tokenizer is touched by it.
    It may still put a space before the text, as SentencePiece models do."""
    decode: Callable[[list[int]], str]
    """Text of tokens, with U+FFFD where their bytes are no UTF-8; thread-safe."""
    added_tokens: dict[str, int] = {}  # noqa: RUF012  # never changed
    """Ids by name of tokens that were added and stand for text."""
