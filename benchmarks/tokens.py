"""The vocabulary for measuring every engine: Mistral's tekken, 131,072 tokens, as a Hugging Face fast tokenizer.

This module decodes it (GPT-2's byte alphabet: 256 characters stand for 256 bytes), not one of the engines, so that an
engine's mistake about a token shows as a difference between engines.
"""

from __future__ import annotations

import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path

import tokenizers

SHARED = Path(os.environ.get("DOTLLM_SHARED", Path(__file__).resolve().parent.parent.parent / "shared"))
TEKKEN = SHARED / "data" / "tokenizers" / "tekken" / "tokenizer.json.gz"


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level BPE vocabulary (printable Latin-1 stands for itself)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(shifted)}


@dataclass(frozen=True)
class Tokens:
    """A vocabulary: ``tokens[id]`` are the token's bytes, None for a special token."""

    source: str
    """tokenizer.json as text"""
    encoder: tokenizers.Tokenizer
    tokens: list[bytes | None]
    eos: int

    @property
    def words(self) -> int:
        """int32 words of one mask row."""
        return (len(self.tokens) + 31) // 32

    def encode(self, text: str) -> list[int]:
        """Canonical token ids of a text, without added special tokens."""
        ids: list[int] = self.encoder.encode(text, add_special_tokens=False).ids
        return ids


def load(path: Path = TEKKEN, eos: str = "</s>") -> Tokens:
    """Read a byte-level BPE ``tokenizer.json`` (gzipped or not)."""
    raw = path.read_bytes()
    source = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    tree = json.loads(source)
    special = {token["id"] for token in tree["added_tokens"] if token["special"]}
    alphabet = byte_alphabet()
    vocabulary: dict[str, int] = tree["model"]["vocab"]
    tokens: list[bytes | None] = [None] * (max(vocabulary.values()) + 1)
    for text, token in vocabulary.items():
        if token not in special:
            tokens[token] = bytes(alphabet[char] for char in text)
    return Tokens(source, tokenizers.Tokenizer.from_str(source), tokens, vocabulary[eos])
