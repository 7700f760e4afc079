"""The bytes of tokens against the tokenizer's own decoding, which is what the user of a model sees.

A reader works out what each token stands for. Here the tokenizer itself decodes every token between two anchors, some
thousands in one call; the text must be that of the bytes (where these are no UTF-8, with U+FFFD on both sides). If they
differ, the decoding counts: a token stands for the text that it adds between two others. A token stands for no text if
its decoding is not definite (a part of a character, where the reader found something else), or raises an exception.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dotllm.errors import UnsupportedError
from dotllm.vocabulary.readers.contents import TokenizerContents

_CHUNK = 8192
"""Tokens decoded by one call: enough that calls cost nothing, few enough to look for one that differs."""
_SHOWN = 8
"""Tokens that the warning names."""
_TRIED = 16
"""Anchors tried before the tokenizer is refused."""
_UNKNOWN = "\ufffd"
logger = logging.getLogger(__name__)

Decode = Callable[[list[int]], str]


def as_decoded(contents: TokenizerContents) -> TokenizerContents:
    """``contents`` with the bytes of all tokens as the tokenizer decodes them; a warning names those that differed.

    Raises UnsupportedError if the tokenizer joins its tokens by something that belongs to none of them.
    """
    tokens = contents.tokens
    anchor = _anchor(tokens, contents.decode)
    if anchor is None:
        return contents
    ids = [i for i, text in enumerate(tokens) if text is not None]
    found: dict[int, bytes | None] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        if not _agrees(chunk, tokens, anchor, contents.decode):
            found.update({i: _between(anchor, i, tokens, contents.decode) for i in chunk})
    different = {i: text for i, text in found.items() if text != tokens[i]}
    if not different:
        return contents
    shown = ", ".join(f"{i}: {tokens[i]!r} is {text!r}" for i, text in list(different.items())[:_SHOWN])
    more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    logger.warning(
        "%d tokens are decoded to other bytes than they are described by; the decoding is believed (%s%s)",
        len(different), shown, more,
    )  # fmt: skip
    return contents._replace(tokens=[different.get(i, text) for i, text in enumerate(tokens)])


def _anchor(tokens: Sequence[bytes | None], decode: Decode) -> int | None:
    """A token of visible ASCII that decodes to its own bytes, also several times in a row; None: no token is visible.

    A token of several letters is preferred: a token of a single byte may be decoded together with other bytes.

    Raises:
        UnsupportedError: there are visible tokens, but none decodes to its own bytes.
    """
    for length in (2, 3, 1):
        candidates = [i for i, text in enumerate(tokens) if text is not None and _is_visible(text, length)]
        for i in candidates[:_TRIED]:
            if _decoded([i, i, i], decode) == 3 * (tokens[i] or b"").decode():
                return i
        if candidates:
            raise UnsupportedError(
                "the tokenizer does not decode tokens one after another: what it puts between them belongs to none; "
                "build the vocabulary with Vocabulary.from_bytes if you know their bytes",
                keyword="decode",
                code="tokenizer",
            )
    return None


def _is_visible(text: bytes, length: int) -> bool:
    return len(text) == length and all(0x21 <= byte <= 0x7E for byte in text)


def _agrees(ids: Sequence[int], tokens: Sequence[bytes | None], anchor: int, decode: Decode) -> bool:
    """Whether ``ids``, each between two anchors, decode to their bytes."""
    sequence = [anchor] * (2 * len(ids) + 1)
    sequence[1::2] = ids
    expected = (tokens[anchor] or b"").join([b"", *(tokens[i] or b"" for i in ids), b""])
    return _decoded(sequence, decode) == expected.decode(errors="replace")


def _between(anchor: int, token: int, tokens: Sequence[bytes | None], decode: Decode) -> bytes | None:
    """The bytes that ``token`` adds between two anchors, None if that is not known."""
    described, mark = tokens[token] or b"", (tokens[anchor] or b"").decode()
    text = _decoded([anchor, token, anchor], decode)
    if text is None or len(text) < 2 * len(mark) or not (text.startswith(mark) and text.endswith(mark)):
        return None
    added = text[len(mark) : len(text) - len(mark)]
    if _definite(added) == _definite(described.decode(errors="replace")) and _is_part(described):
        return described
    return None if _UNKNOWN in added else added.encode() or None


def _decoded(ids: list[int], decode: Decode) -> str | None:
    try:
        return decode(ids)
    except Exception:  # whatever somebody's tokenizer raises for a token that it cannot decode
        return None


def _definite(text: str) -> str:
    """``text`` without the marks of what is no UTF-8: some tokenizers write one for each byte, some write none."""
    return text.replace(_UNKNOWN, "")


def _is_part(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False
