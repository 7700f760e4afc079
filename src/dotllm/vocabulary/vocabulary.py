"""Vocabulary: the tokens of a model as bytes, and everything that can be computed from them without a grammar.

All of it is in NumPy arrays: 131,072 Python objects would add some milliseconds to every garbage collection of the
process.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet
from dotllm.vocabulary.charset_table import (
    SAMPLE,
    CharsetTable,
    TableCache,
    build_charset_table,
    build_exit_words,
    count_tokens,
    sample_of,
)
from dotllm.vocabulary.content import Bytes, Content, Ints, ids_of
from dotllm.vocabulary.files import VocabularyFiles
from dotllm.vocabulary.readers import TokenizerContents, read_tokenizer
from dotllm.vocabulary.token_classes import Classifier
from dotllm.vocabulary.trie import Trie, build_trie, sorted_strings, spell_greedily

# Spells bytes as the model's own tokenizer does.
#
# Tokenizers read whole texts, and some put a space before them. A piece of a generated text does not begin a text, and
# may end inside a character. So `spell_canonically` tokenises the longest prefix that is UTF-8 and compares the bytes.
# If the tokenizer has added a space, it tries again with an anchor in front, and drops the anchor's tokens.

ANCHORS = ("", "\n", ".")
"""Texts put before the text to spell: none, then tokens that do not merge with most texts."""


def spell_canonically(
    text: bytes, encode: Callable[[str], list[int]], spelling: Callable[[int], bytes | None]
) -> tuple[list[int], int]:
    """Ids of the tokenizer's own spelling of a prefix of ``text``, and the length of that prefix.

    The prefix ends where ``text`` stops being UTF-8. It is empty if the tokenizer does not spell it exactly (a
    tokenizer that normalises may not). ``spelling`` gives the bytes of an id, None for an id that stands for no text.
    """
    try:
        prefix = text.decode()
    except UnicodeDecodeError as error:
        prefix = text[: error.start].decode()
    wanted = prefix.encode()
    for anchor in ANCHORS if wanted else ():
        ids = encode(anchor + prefix)
        strings = [spelling(i) for i in ids]
        dropped = sum(len(string or b"") for string in strings) - len(wanted)
        first = 0
        while first < len(ids) and dropped > 0:
            dropped -= len(strings[first] or b"")
            first += 1
        rest = strings[first:]
        if dropped == 0 and None not in rest and b"".join(string or b"" for string in rest) == wanted:
            return ids[first:], len(wanted)
    return [], 0


# Character sets that most grammars use; their tables are kept on disk with the vocabulary.
#
# Tables of sets of a few ranges cost little more to build than to read. The files mostly serve \w, whose UTF-8
# automaton alone takes milliseconds, and processes that share their pages.

JSON_STRING_CHARS = ~CharSet.of((0x00, 0x1F), '"\\')
"""The characters that stand unescaped in a JSON string (RFC 8259 §7)."""

_FEW_RANGES = frozenset(
    {
        JSON_STRING_CHARS,
        ANY_CHAR,
        ~CharSet.of("\n"),
        CharSet.of((0x61, 0x7A)),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), "_"),
        CharSet.of((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A), "_-"),
    }
)


@lru_cache(maxsize=1)
def word_characters() -> CharSet:
    r"""The set of \w as Python's ``re`` understands it for str patterns. Takes some 30 ms, once."""
    every = np.arange(MAX_CODE_POINT + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    return CharSet.of(*((result.start(), result.end() - 1) for result in re.finditer(r"\w+", every)))


def is_popular(charset: CharSet) -> bool:
    """Whether a table of this set is worth a file."""
    if len(charset.ranges) < 100:
        return charset in _FEW_RANGES
    return charset == word_characters()


def popular_charsets() -> list[CharSet]:
    """All popular character sets."""
    return [*_FEW_RANGES, word_characters()]


_WORTH_A_FILE = 8192
"""Vocabularies with fewer tokens are built faster than they are read from disk."""
_MOST_COUNTED = 1 << 17  # ranges of all sets whose tokens are counted: some 16 MB
_SHOWN = 8
"""Tokens that a warning names."""
logger = logging.getLogger(__name__)


class Vocabulary:
    """Immutable and thread-safe. Made by ``from_tokenizer`` or ``from_bytes``.

    Attributes:
        token_data: uint8[…], the byte strings of all ids one after another.
        token_offset: int32[size + 1]; id t is ``token_data[token_offset[t] : token_offset[t + 1]]`` (special: empty).
        trie: all tokens that have bytes.
        eos_token_ids: ids that end a text; they have no bytes.
        special_tokens: ids by name of tokens that stand for no text.
        added_tokens: ids by name of tokens that stand for their text, and can be asked for as tokens.
        fingerprint: SHA-256 of the content in hexadecimal.
        max_token_bytes: length of the longest token.
        missing_bytes: byte values that occur in no token: text with them cannot be generated.
        unspellable_bytes: byte values that are not tokens of their own.
    """

    def __init__(self, content: Content, encoder: Callable[[str], list[int]] | None = None) -> None:
        self._encoder = encoder
        self.token_data: Bytes = content.token_data
        self.token_offset: Ints = content.token_offset
        self.eos_token_ids: tuple[int, ...] = content.eos_token_ids
        self.special_tokens: Mapping[str, int] = dict(content.special_tokens)
        self.added_tokens: Mapping[str, int] = dict(content.added_tokens)
        self.size = content.size
        self.words = (content.size + 31) // 32
        self.fingerprint = content.fingerprint()
        self._files = VocabularyFiles(self.fingerprint) if content.size >= _WORTH_A_FILE else None
        self.trie = self._build_trie() if self._files is None else self._files.trie(self._build_trie)
        self._strings = sorted_strings(self.trie)
        self._tables = TableCache(self._table)
        self._classifier = Classifier(self.trie, self.words)
        self._sample = Classifier(sample_of(self._strings), self.words)
        self._tokens_at: dict[CharSet, tuple[int, int]] = {}  # needed again for every automaton that has the set
        self._counted = 0
        lengths = np.diff(self.token_offset)
        self.max_token_bytes = int(lengths.max(initial=0))
        single = self.token_data[self.token_offset[:-1][lengths == 1]]
        self.missing_bytes = frozenset(range(256)) - frozenset(np.unique(self.token_data).tolist())
        self.unspellable_bytes = frozenset(range(256)) - frozenset(np.unique(single).tolist())

    @classmethod
    def from_bytes(
        cls,
        tokens: Sequence[bytes | None],
        eos_token_ids: Iterable[int] | int,
        special_tokens: Mapping[str, int] | None = None,
        *,
        added_tokens: Mapping[str, int] | None = None,
        size: int | None = None,
    ) -> Vocabulary:
        """A vocabulary of byte strings by id; None (or b"") for ids that stand for no text, as EOS and special ids do.

        ``size`` pads with ids that are never allowed (for models whose output is wider than their tokenizer).

        Raises:
            TypeError: a token is something else, such as a string.
            ValueError: an id is out of range, or all tokens together have more than 2 GiB.
        """
        return cls(Content.of(tokens, eos_token_ids, special_tokens, added_tokens, size))

    @classmethod
    def from_tokenizer(
        cls,
        tokenizer: Any,
        *,
        eos_token_ids: Iterable[int] | int | None = None,
        further_eos_token_ids: Iterable[int] = (),
        size: int | None = None,
    ) -> Vocabulary:
        """The vocabulary of a tokenizer: of transformers (fast or slow), tokenizers, mistral_common, tiktoken,
        SentencePiece, or one of vLLM's wrappers around them. Each token has the bytes that the tokenizer decodes it to.

        ``eos_token_ids`` are all ids that end a text (as in a generation config); by default, the id that the tokenizer
        names. ``further_eos_token_ids`` are additional ids (a generation config may name several), without those that
        stand for text or that the tokenizer lacks. ``size`` is the width of the model's output if it is not the
        tokenizer's: tokens beyond it do not exist for the model, and are left out with a warning.

        Raises:
            UnsupportedError: the tokens have no bytes of their own; the keyword says which tokenizer.
            ValueError: no EOS is known, or ids are out of range.
        """
        contents = read_tokenizer(tokenizer)
        if size is not None:
            contents = _cut(contents, size)
        eos = ids_of(contents.eos_token_ids if eos_token_ids is None else eos_token_ids)
        tokens = contents.tokens
        eos += tuple(t for t in further_eos_token_ids if 0 <= t < len(tokens) and not tokens[t])
        if not eos:
            raise ValueError("the tokenizer names no EOS token: pass eos_token_ids=")
        content = Content.of(tokens, eos, contents.special_tokens, contents.added_tokens, size)
        return cls(content, contents.encode)

    def token_bytes(self, token_id: int) -> bytes | None:
        """The bytes of a token, None if it stands for no text. Raises IndexError if the vocabulary has no such id."""
        if not 0 <= token_id < self.size:
            raise IndexError(f"token id {token_id} is outside the vocabulary of size {self.size}")
        start, end = self.token_offset[token_id], self.token_offset[token_id + 1]
        return self.token_data[start:end].tobytes() if start < end else None

    def charset_table(self, charset: CharSet) -> CharsetTable:
        """What every token does to a loop over ``charset``. Takes a millisecond or two the first time.

        Tables are shared. Tables in use are kept, and so are the most recently used others, up to 32 MiB.
        """
        return self._tables.get(charset)

    def tokens_at(self, charset: CharSet) -> tuple[int, int]:
        """About how many tokens are inside ``charset``, and how many exit it (see `CharsetTable`)."""
        counts = self._tokens_at.get(charset)
        if counts is None:
            inside, exits = count_tokens(charset, self._sample)
            self._counted += len(charset.ranges)
            if self._counted > _MOST_COUNTED:
                self._counted = 0
                self._tokens_at.clear()
            counts = self._tokens_at[charset] = SAMPLE * inside, SAMPLE * exits
        return counts

    def exit_words(self, charset: CharSet) -> Trie:
        """The tokens that exit ``charset`` (see `CharsetTable`), with all their bytes. Built anew on each call."""
        return build_exit_words(charset, self._classifier, self._strings)

    def prepare(self) -> None:
        """Do now the work that would otherwise be done when first needed: tables of popular sets, a copy of the
        tokenizer."""
        for charset in popular_charsets():
            self.charset_table(charset)
        if self._encoder is not None:
            self._encoder(" ")

    def encode(self, text: str | bytes) -> list[int]:
        """Ids of tokens whose bytes are exactly ``text``; bytes may begin and end inside characters. Thread-safe.

        Uses the tokenizer's own spelling, as if ``text`` continued another text; the longest matches for parts that the
        tokenizer cannot spell exactly, or if there is no tokenizer. Raises ValueError if no tokens spell it.
        """
        if isinstance(text, str):
            text = text.encode()
        ids: list[int] = []
        spelt = 0
        if self._encoder is not None:
            ids, spelt = spell_canonically(text, self._encoder, self._spelling)
        return ids + spell_greedily(text[spelt:], self.trie) if spelt < len(text) else ids

    def _spelling(self, token_id: int) -> bytes | None:
        return self.token_bytes(token_id) if 0 <= token_id < self.size else None

    def _build_trie(self) -> Trie:
        lengths = np.diff(self.token_offset)
        ids = np.flatnonzero(lengths).astype(np.int32)
        return build_trie(self.token_data, self.token_offset[ids], lengths[ids], ids)

    def _table(self, charset: CharSet) -> CharsetTable:
        def build() -> CharsetTable:
            return build_charset_table(charset, self._classifier, self._strings)

        return self._files.table(charset, build) if self._files is not None and is_popular(charset) else build()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a Vocabulary cannot be pickled: make it from its tokenizer (the disk cache makes that fast)")

    def __repr__(self) -> str:
        return f"Vocabulary(size={self.size}, eos_token_ids={self.eos_token_ids}, {self.fingerprint[:12]})"


def _cut(contents: TokenizerContents, size: int) -> TokenizerContents:
    """``contents`` without the ids from ``size`` on; warns about those left out."""
    tokens, special = contents.tokens[:size], contents.special_tokens
    left_out = {i: name for name, i in special.items() if i >= size}
    left_out.update({i: text.decode(errors="replace") for i, text in enumerate(contents.tokens[size:], size) if text})
    if left_out:
        shown = ", ".join(f"{i}: {name!r}" for i, name in sorted(left_out.items())[:_SHOWN])
        logger.warning(
            "the tokenizer has %d tokens beyond the %d of the model's output; they are left out (%s%s)",
            len(left_out), size, shown, ", …" if len(left_out) > _SHOWN else "",
        )  # fmt: skip
    return contents._replace(
        tokens=tokens,
        special_tokens={name: i for name, i in special.items() if i < size},
        added_tokens={name: i for name, i in contents.added_tokens.items() if i < size},
    )
