"""SentencePiece models (Kudo and Richardson 2018): U+2581 for a space, ``<0x0A>`` for a byte.

The space that the model itself puts before a text (``add_dummy_prefix``) is not part of any token: a piece with a
leading U+2581 is a leading space.
"""

from __future__ import annotations

from typing import Any

from dotllm.vocabulary.readers.contents import TokenizerContents

SPACE = "\u2581"


def is_sentencepiece(tokenizer: object) -> bool:
    """Is it a ``sentencepiece.SentencePieceProcessor``?"""
    return all(hasattr(tokenizer, name) for name in ("id_to_piece", "get_piece_size", "IsByte", "IsControl"))


def read_sentencepiece(model: Any) -> TokenizerContents:
    """Contents of a SentencePieceProcessor; control, unknown and unused pieces stand for no text."""
    tokens: list[bytes | None] = []
    special: dict[str, int] = {}
    for i in range(model.get_piece_size()):
        piece = model.id_to_piece(i)
        if model.IsControl(i) or model.IsUnknown(i) or model.IsUnused(i):
            special[piece] = i
            tokens.append(None)
        elif model.IsByte(i):
            tokens.append(bytes.fromhex(piece[3:5]))
        else:
            tokens.append(piece.replace(SPACE, " ").encode())
    end = model.eos_id()
    return TokenizerContents(tokens, special, () if end < 0 else (end,), model.encode, model.decode)
