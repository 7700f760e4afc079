"""What the ``decoder`` of a Hugging Face tokenizer makes of single tokens.

A decoder turns a list of tokens into text (https://huggingface.co/docs/tokenizers/api/decoders). The ones used by
language models are token by token, except for what they do at the very start of a text (a leading space goes away),
which does not concern generated text: it continues a prompt. Decoders that are not token by token are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dotllm.errors import UnsupportedError
from dotllm.vocabulary.readers.byte_level import decode_byte_level

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def decode_tokens(strings: Sequence[str], decoder: Mapping[str, Any] | None) -> list[bytes]:
    """The bytes of each token. ``decoder`` is the decoder's description as in ``tokenizer.json``.

    Raises:
        UnsupportedError: tokens have no bytes of their own under this decoder; the keyword is its type.
    """
    if decoder is None:
        raise UnsupportedError(
            "the tokenizer has no decoder: its tokens are joined by spaces, so they have no bytes of their own",
            keyword="decoder",
            code="tokenizer",
        )
    decoded: list[str | bytes] = list(strings)
    fused = False
    for step in _steps(decoder):
        kind = step["type"]
        if kind == "Fuse":
            fused = True
        elif kind == "Strip" and fused:
            if step["stop"]:
                raise UnsupportedError(
                    "the tokenizer's decoder strips the end of a text", keyword="Strip", code="tokenizer"
                )
        else:
            texts = [i for i, text in enumerate(decoded) if isinstance(text, str)]
            for i, text in zip(texts, _apply(step, [str(decoded[i]) for i in texts]), strict=True):
                decoded[i] = text
    return [text.encode() if isinstance(text, str) else text for text in decoded]


def _steps(decoder: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _steps(step)
    else:
        yield decoder


def _apply(step: Mapping[str, Any], texts: list[str]) -> Sequence[str | bytes]:
    kind = step["type"]
    if kind == "ByteLevel":
        return decode_byte_level(texts)
    if kind == "ByteFallback":
        found = map(_BYTE_TOKEN.fullmatch, texts)
        return [bytes.fromhex(byte[1]) if byte else text for text, byte in zip(texts, found, strict=True)]
    if kind == "Metaspace":
        return [text.replace(step["replacement"], " ") for text in texts]
    if kind == "Replace" and "String" in step["pattern"]:
        old, new = step["pattern"]["String"], step["content"]
        return [text.replace(old, new) for text in texts]
    if kind == "Strip":
        return [_strip(text, step["content"], step["start"], step["stop"]) for text in texts]
    raise UnsupportedError(
        f"the tokenizer's decoder {kind} does not give each token bytes of its own; "
        "build the vocabulary with Vocabulary.from_bytes if you know them",
        keyword=kind,
        code="tokenizer",
    )


def _strip(text: str, content: str, start: int, stop: int) -> str:
    """``text`` without up to ``start`` times the character ``content`` before and up to ``stop`` times after it."""
    low = 0
    while low < min(start, len(text)) and text[low] == content:
        low += 1
    high = len(text)
    while high > max(low, len(text) - stop) and text[high - 1] == content:
        high -= 1
    return text[low:high]
