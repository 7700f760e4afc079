"""Readers of tokenizers: they turn any tokenizer that a server may use into tokens as bytes."""

from __future__ import annotations

import copy
import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dotllm.errors import UnsupportedError
from dotllm.vocabulary.content import ids_of

# The parts of a tokenizer that every reader returns.


class TokenizerContents(NamedTuple):
    """The parts of a tokenizer that a vocabulary needs."""

    tokens: list[bytes | None]
    """By id, the bytes a token adds to a text that has already begun; None if it adds none."""
    special_tokens: dict[str, int]
    """Ids by name of the tokens that stand for no text."""
    eos_token_ids: tuple[int, ...]
    """Ids that end a text, as the tokenizer itself says; may be empty."""
    encode: Callable[[str], list[int]]
    """Tokenises a text without adding special tokens; thread-safe, and changes no tokenizer that others use. It may
    still put a space before the text, as SentencePiece models do."""
    decode: Callable[[list[int]], str]
    """The text of tokens, with U+FFFD where their bytes are not UTF-8; thread-safe."""
    added_tokens: dict[str, int] = {}  # noqa: RUF012  # never changed
    """Ids by name of tokens that were added and stand for text."""


# Checks the bytes of tokens against the tokenizer's own decoding, which is the text that users of a model see.
#
# A reader works out what each token stands for. Here the tokenizer itself decodes every token between two anchors,
# several thousand in one call. The text must equal the decoded bytes (with U+FFFD on both sides where the bytes are not
# UTF-8). If they differ, the decoding prevails: a token stands for the text that it adds between two others. A token
# stands for no text if its decoding is not definite (a part of a character, where the reader found something else), or
# if decoding it raises an exception.

_CHUNK = 8192
"""Tokens decoded by one call: enough to make calls cheap, few enough to search for a token that differs."""
_SHOWN = 8
"""Tokens that the warning names."""
_TRIED = 16
"""Anchors tried before the tokenizer is refused."""
_UNKNOWN = "\ufffd"
logger = logging.getLogger(__name__)

Decode = Callable[[list[int]], str]


def as_decoded(contents: TokenizerContents) -> TokenizerContents:
    """``contents`` with the bytes of all tokens as the tokenizer decodes them; a warning names those that differed.

    Raises UnsupportedError if the tokenizer joins its tokens with text that belongs to none of them.
    """
    tokens = contents.tokens
    anchor = _anchor(tokens, contents.decode)
    if anchor is None:
        return contents
    ids = [i for i, text in enumerate(tokens) if text is not None]
    decoded: dict[int, bytes | None] = {}
    for start in range(0, len(ids), _CHUNK):
        chunk = ids[start : start + _CHUNK]
        if not _agrees(chunk, tokens, anchor, contents.decode):
            decoded.update({i: _between(anchor, i, tokens, contents.decode) for i in chunk})
    different = {i: text for i, text in decoded.items() if text != tokens[i]}
    if not different:
        return contents
    shown = ", ".join(f"{i}: {tokens[i]!r} is {text!r}" for i, text in list(different.items())[:_SHOWN])
    more = f" and {len(different) - _SHOWN} more" if len(different) > _SHOWN else ""
    logger.warning(
        "%d tokens decode to other bytes than their descriptions give; the decoded bytes are used (%s%s)",
        len(different), shown, more,
    )  # fmt: skip
    return contents._replace(tokens=[different.get(i, text) for i, text in enumerate(tokens)])


def _anchor(tokens: Sequence[bytes | None], decode: Decode) -> int | None:
    """A token of visible ASCII that decodes to its own bytes, even several times in a row; None: no token is visible.

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
                "the tokenizer joins tokens with text that belongs to none of them; build the vocabulary "
                "with Vocabulary.from_bytes if you know the tokens' bytes",
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
    """The bytes that ``token`` adds between two anchors; None if they are not known."""
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
    except Exception:  # a user's tokenizer may raise anything for a token that it cannot decode
        return None


def _definite(text: str) -> str:
    """``text`` without the marks of bytes that are not UTF-8: some tokenizers write a mark for each such byte, some
    write none."""
    return text.replace(_UNKNOWN, "")


def _is_part(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return True
    return False


# Byte-level BPE: every byte is written as one printable character, so that vocabularies can be text files.
#
# The alphabet is GPT-2's (Radford et al. 2019, ``bytes_to_unicode`` of its encoder): printable Latin-1 characters stand
# for themselves, the other 68 bytes for U+0100, U+0101 … in order.

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = np.full(0x100 + len(_OTHERS) + 1, -1, np.int16)  # by code point; the last entry is for any larger code point
_BYTE_OF[_PRINTABLE] = _PRINTABLE
_BYTE_OF[0x100:-1] = _OTHERS


def decode_byte_level(strings: Sequence[str]) -> list[bytes]:
    """The bytes of each string. A string with a character outside the alphabet stands for its own UTF-8 text."""
    code_points = np.frombuffer("".join(strings).encode("utf-32-le"), np.uint32)
    values = _BYTE_OF[np.minimum(code_points, len(_BYTE_OF) - 1)]
    raw = values.astype(np.uint8).tobytes()
    ends = np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings))).tolist()
    decoded = [raw[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for position in np.flatnonzero(values < 0).tolist():
        index = int(np.searchsorted(ends, position, side="right"))
        decoded[index] = strings[index].encode()
    return decoded


# Applies the ``decoder`` of a Hugging Face tokenizer to single tokens.
#
# A decoder turns a list of tokens into text (https://huggingface.co/docs/tokenizers/api/decoders). The decoders of
# language models work token by token, except at the very start of a text, where they remove a leading space. Generated
# text continues a prompt, so the exception does not concern it. Decoders that do not work token by token are refused by
# name.

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
        matches = map(_BYTE_TOKEN.fullmatch, texts)
        return [bytes.fromhex(byte[1]) if byte else text for text, byte in zip(texts, matches, strict=True)]
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
    """``text`` without up to ``start`` leading and up to ``stop`` trailing characters ``content``."""
    low = 0
    while low < min(start, len(text)) and text[low] == content:
        low += 1
    high = len(text)
    while high > max(low, len(text) - stop) and text[high - 1] == content:
        high -= 1
    return text[low:high]


# SentencePiece models (Kudo and Richardson 2018): U+2581 for a space, ``<0x0A>`` for a byte.
#
# The space that the model itself puts before a text (``add_dummy_prefix``) is not part of any token: a piece with a
# leading U+2581 is a leading space.

SPACE = "\u2581"


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


# Hugging Face tokenizers: ``tokenizers.Tokenizer``, the fast tokenizers of transformers around one, and the slow ones.
#
# They are recognised by their attributes, not by class. So neither library is imported, and wrappers (vLLM's cached and
# pooled tokenizers, subclasses of the user's class) are read like the tokenizer they wrap.


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
    # The decoder's input: added tokens in normalised form, and tokens that stand for a byte like all other tokens.
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
        # Not `tokenizer.decode`: the server may change the tokenizer during the call (see `_PrivateCopy`).
        text: str = decoder.decode([strings[i] for i in ids])
        return text

    return TokenizerContents(_list_by_id(texts), special, (), _PrivateCopy(tokenizer), decode, _plain(added))


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
    """Tokens by id and special ids by name. ``added``: AddedToken by id; if not special, it stands for its own text."""
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

    The original belongs to the server, whose threads change its truncation; that raises "Already borrowed" if another
    thread is encoding. The copy also reads names of special tokens as ordinary text.
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


# tiktoken encodings, and Mistral's tekken, which is a tiktoken encoding after a block of special ids.


def read_tiktoken(encoding: Any) -> TokenizerContents:
    """Contents of a ``tiktoken.Encoding``: the keys of its merge ranks are bytes already."""
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


__all__ = ["TokenizerContents", "read_tokenizer"]

_READERS: tuple[tuple[tuple[str, ...], Callable[[Any], TokenizerContents]], ...] = (
    (("get_added_tokens_decoder", "decoder", "model", "get_vocab"), read_tokenizers),
    (("sp_model", "get_vocab", "added_tokens_decoder", "encode"), read_slow_sentencepiece),
    (("byte_decoder", "get_vocab", "added_tokens_decoder", "encode"), read_slow_byte_level),
    (("id_to_byte_piece", "num_special_tokens", "n_words"), read_tekken),
    (("_mergeable_ranks", "_special_tokens", "encode_ordinary"), read_tiktoken),
    (("id_to_piece", "get_piece_size", "IsByte", "IsControl"), read_sentencepiece),
)
"""The attributes by which a tokenizer is recognised, and its reader; the first match counts."""
# The attributes in which wrappers keep the tokenizer that they wrap: transformers (_tokenizer, sp_model, tokenizer),
# Mistral's and vLLM's classes (instruct_tokenizer, tokenizer, _model), remote code around tiktoken (tokenizer, model,
# _tokenizer).
_INNER = ("_tokenizer", "sp_model", "instruct_tokenizer", "tokenizer", "model", "_model")
_MAX_LAYERS = 6


def read_tokenizer(tokenizer: Any) -> TokenizerContents:
    """Tokens as bytes, special tokens and EOS ids of any supported tokenizer.

    Wrappers and Python classes have the last word on EOS ids, special tokens, and added tokens.

    Raises:
        UnsupportedError: the tokens are not known to have bytes; the keyword is the tokenizer's class.
    """
    layers = list(_layers(tokenizer))
    for depth, layer in enumerate(layers):
        for attributes, read in _READERS:
            if all(hasattr(layer, name) for name in attributes):
                contents = read(layer)
                for outer in reversed(layers[: depth + 1]):
                    contents = _with_outer(contents, outer)
                return as_decoded(contents)
    name = type(tokenizer).__name__
    raise UnsupportedError(
        f"tokenizer class {name} is not supported: its tokens are not known to have bytes of their own; "
        "build the vocabulary with Vocabulary.from_bytes if you know them",
        keyword=name,
        code="tokenizer",
    )


def _layers(tokenizer: Any) -> Iterator[Any]:
    for _ in range(_MAX_LAYERS):
        yield tokenizer
        inner = [getattr(tokenizer, name, None) for name in _INNER]
        layers = [value for value in inner if value is not None and not isinstance(value, (str, type))]
        if not layers:
            return
        tokenizer = layers[0]


def _with_outer(contents: TokenizerContents, outer: Any) -> TokenizerContents:
    """Contents with the added tokens, special tokens and EOS of the wrapper ``outer``."""
    tokens, special = list(contents.tokens), dict(contents.special_tokens)
    added = getattr(outer, "added_tokens_decoder", None)
    if not isinstance(added, Mapping):  # mistral_common's tokenizer has a method of this name that raises
        added = {}
    named: dict[int, str] = {i: str(token) for i, token in added.items() if getattr(token, "special", True)}
    ids, names = getattr(outer, "all_special_ids", None), getattr(outer, "all_special_tokens", None)
    if ids is not None and names is not None:
        named.update(zip(ids, map(str, names), strict=False))
    size = max([len(tokens) - 1, *added, *named]) + 1
    tokens.extend([None] * (size - len(tokens)))
    for i, token in added.items():
        if i not in named and tokens[i] is None:  # tiktoken calls every added token special; the wrapper knows better
            tokens[i] = str(token).encode()
            special.pop(str(token), None)
    plain = contents.added_tokens | {str(token): i for i, token in added.items() if i not in named}
    for i, name in named.items():
        tokens[i] = None
        special.setdefault(name, i)
    eos = getattr(outer, "eos_token_id", None)
    eos_ids = contents.eos_token_ids if eos is None else ids_of(eos)
    plain = {name: i for name, i in plain.items() if i not in named and name not in special}
    return contents._replace(tokens=tokens, special_tokens=special, added_tokens=plain, eos_token_ids=eos_ids)
