"""Tables of what every token does to a loop over a character set: it stays inside, or leaves after some characters.

A string body, ``.``, ``\\w`` or any other loop over a character set K accepts most tokens of a vocabulary whatever
follows the loop. These tokens are known beforehand, as a row of bits for each number of characters (for ``{n,m}``).
Only the tokens that leave K need the grammar, and they have few distinct suffixes: in a JSON string, 2,500 trie nodes
instead of 266,000.

One walk of the token trie finds all of this (`token_classes`). Rows are kept for up to `COUNTED` characters; longer
tokens are listed.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.charset import CharSet
from dotllm.jit import kernel
from dotllm.vocabulary.content import Bytes, Ints, U
from dotllm.vocabulary.token_classes import COUNTED, Classifier
from dotllm.vocabulary.trie import SortedStrings, Trie, build_trie, sort_strings, sorted_forest

SAMPLE = 16
"""A table's cost is estimated from one token in this many."""


class CharsetTable(NamedTuple):
    """The tokens of a vocabulary seen from a loop over a character set K (``Vocabulary.charset_table``).

    A token is *inside* K if it is one or more characters of K, the last of which may be incomplete (a proper prefix of
    the UTF-8 form of some character of K, which counts as a character; it may be the only one). A token *exits* K if it
    starts with j ≥ 1 whole characters of K (as many as possible) and its *remainder*, the bytes after them, is neither
    empty nor such an incomplete character.
    """

    rows: Ints
    """int32[17, words]: bitmasks of inside tokens; ``rows[k]``: up to k characters (k = 1…16), ``rows[0]``: all."""
    long_tokens: Ints
    """int32[…]: inside tokens of more than 16 characters, most characters first."""
    long_chars: Ints
    """int32[…]: the numbers of characters of ``long_tokens``."""
    max_chars: int
    """The most characters of an inside token, 0 if there is none."""
    exits: Trie
    """Remainders of all exits."""
    exits_by_count: Trie
    """One trie of remainders for each j, one after another in the same arrays."""
    exits_by_count_start: Ints
    """int32[j_max + 2]: the nodes of j are ``[start[j], start[j + 1])`` of ``exits_by_count``."""

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        own = self.rows.nbytes + self.long_tokens.nbytes + self.long_chars.nbytes + self.exits_by_count_start.nbytes
        return own + self.exits.nbytes + self.exits_by_count.nbytes


@kernel("int32[:, ::1](uint8[::1])")
def _rows(counts: Bytes) -> NDArray[Any]:
    words = len(counts) // 32
    rows = allocate.int_rows(COUNTED + 1, words)
    bits = np.empty(COUNTED + 2, np.uint32)  # of one word, by number of characters
    token = U(0)
    for word in range(U(words)):
        bits[:] = 0
        for bit in range(32):
            bits[U(counts[token])] |= np.uint32(1) << np.uint32(bit)
            token += U(1)
        for k in range(2, COUNTED + 2):
            bits[U(k)] |= bits[U(k - 1)]
        for k in range(1, COUNTED + 1):
            rows[U(k), word] = np.int32(bits[U(k)])
        rows[U(0), word] = np.int32(bits[U(COUNTED + 1)])
    return rows


def build_charset_table(charset: CharSet, classifier: Classifier, strings: SortedStrings) -> CharsetTable:
    """The table of ``charset`` over the tokens of the classifier's trie, whose strings are ``strings``."""
    counts, long_tokens, long_chars, positions, groups, whole = classifier.classes(charset)
    longest_first = np.argsort(-long_chars, kind="stable")
    tokens = classifier.trie.tokens[positions]
    starts = strings.offset[positions]
    lengths = strings.offset[positions + 1] - starts
    ungrouped = np.zeros(len(tokens), np.int32)
    starts += whole
    lengths -= whole
    order = sort_strings(strings.data, starts, lengths)
    exits = sorted_forest(strings.data, starts, lengths, tokens, ungrouped, order)
    # (NumPy sorts 16-bit numbers by radix.)
    keys = groups.astype(np.uint16) if groups.max(initial=0) < 1 << 16 else groups
    by_count = order[np.argsort(keys[order], kind="stable")]
    *exits_by_count, start = sorted_forest(strings.data, starts, lengths, tokens, groups, by_count)
    return CharsetTable(
        rows=_rows(counts),
        long_tokens=long_tokens[longest_first],
        long_chars=long_chars[longest_first],
        max_chars=int(long_chars.max(initial=counts.max(initial=0))),
        exits=Trie(*exits[:-1]),
        exits_by_count=Trie(*exits_by_count),
        exits_by_count_start=start if len(start) > 1 else np.zeros(2, np.int32),
    )


def sample_of(strings: SortedStrings) -> Trie:
    """One token in `SAMPLE`, for `count_tokens`."""
    starts, ends = strings.offset[:-1][::SAMPLE], strings.offset[1:][::SAMPLE]
    return build_trie(strings.data, starts.copy(), ends - starts, np.arange(len(starts), dtype=np.int32))


def count_tokens(charset: CharSet, classifier: Classifier) -> tuple[int, int]:
    """How many tokens are inside ``charset``, and how many exit it."""
    classes = classifier.classes(charset)
    return int(np.count_nonzero(classes.counts)), len(classes.exits)


def build_exit_words(charset: CharSet, classifier: Classifier, strings: SortedStrings) -> Trie:
    """The tokens that exit ``charset``, with all their bytes; large and rarely needed."""
    positions = classifier.classes(charset).exits
    starts = strings.offset[positions]
    lengths = strings.offset[positions + 1] - starts
    ungrouped, in_order = np.zeros(len(positions), np.int32), np.arange(len(positions), dtype=np.int32)
    tokens = classifier.trie.tokens[positions]
    return Trie(*sorted_forest(strings.data, starts, lengths, tokens, ungrouped, in_order)[:-1])


# Tables of character sets in memory, bounded in bytes: the least recently used is dropped first, but never one in use.

DEFAULT_LIMIT = 32 * 2**20
"""Bytes of tables kept per vocabulary."""
_OWN_REFERENCES = 2
"""The ``sys.getrefcount`` of a table that only the cache holds: the cache's reference and the function's argument."""


class TableCache:
    """Thread-safe; a table is built once however many threads ask for it.

    A table that an Index still holds is never dropped: its memory would not be freed, and the next request for it would
    build a second table. So tables in use may exceed the limit.
    """

    def __init__(self, build: Callable[[CharSet], CharsetTable], limit: int = DEFAULT_LIMIT) -> None:
        self._build = build
        self._limit = limit
        self._tables: OrderedDict[CharSet, CharsetTable] = OrderedDict()
        self._nbytes = 0
        self._lock = threading.Lock()
        self._build_lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all tables kept."""
        return self._nbytes

    def __len__(self) -> int:
        return len(self._tables)

    def get(self, charset: CharSet) -> CharsetTable:
        """The table of ``charset``, built if it is not kept."""
        table = self._find(charset)
        if table is not None:
            return table
        with self._build_lock:  # one at a time: builders would compete for the same cores, often for the same table
            table = self._find(charset)
            if table is None:
                table = self._build(charset)
                with self._lock:
                    self._tables[charset] = table
                    self._nbytes += table.nbytes
                    self._shrink()
        return table

    def _find(self, charset: CharSet) -> CharsetTable | None:
        with self._lock:
            table = self._tables.get(charset)
            if table is not None:
                self._tables.move_to_end(charset)
            return table

    def _shrink(self) -> None:
        if self._nbytes <= self._limit:
            return
        for charset in list(self._tables):
            if sys.getrefcount(self._tables[charset]) <= _OWN_REFERENCES:
                self._nbytes -= self._tables.pop(charset).nbytes
                if self._nbytes <= self._limit:
                    return
