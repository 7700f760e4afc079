"""What every token does to a loop over a character set: it stays inside, or leaves after some characters.

A string body, ``.``, ``\\w`` or any other loop over a character set K accepts most tokens of a vocabulary whatever
follows the loop. These are rows of bits known beforehand, by number of characters (for ``{n,m}``); only the tokens that
leave K need the grammar, and they share few suffixes: in a JSON string, 2,500 trie nodes instead of 266,000.

One walk of the token trie finds all of it: bytes that cannot belong to K cut off whole subtrees.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotllm.automata.charset import CharSet
from dotllm.jit import kernel
from dotllm.vocabulary.arrays import Bytes, Ints, U
from dotllm.vocabulary.charset_automaton import BOUNDARY, DEAD, charset_automaton
from dotllm.vocabulary.string_sort import sort_strings
from dotllm.vocabulary.trie import SortedStrings, Trie, build_trie, sorted_forest

COUNTED = 16
"""Rows are kept for up to so many characters; longer tokens stand in a list."""


SAMPLE = 16
"""What a table costs is guessed from one token of so many."""


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
    """int32[…]: their numbers of characters."""
    max_chars: int
    """The most characters of an inside token, 0 if there is none."""
    exits: Trie
    """Remainders of all exits."""
    exits_by_count: Trie
    """One trie of remainders for each j, one after another in the same arrays."""
    exits_by_count_start: Ints
    """int32[j_max + 2]: nodes of j are ``[start[j], start[j + 1])`` of ``exits_by_count``."""

    @property
    def nbytes(self) -> int:
        """Size of all arrays in bytes."""
        own = self.rows.nbytes + self.long_tokens.nbytes + self.long_chars.nbytes + self.exits_by_count_start.nbytes
        return own + self.exits.nbytes + self.exits_by_count.nbytes


@kernel(
    "Tuple((uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))"
    "(uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int64, int32[:, ::1])"
)
def _classify(
    byte: Bytes, depth: Ints, end: Ints, token_start: Ints, tokens: Ints, words: int, delta: NDArray[Any]
) -> tuple[Bytes, Ints, Ints, Ints, Ints, Ints]:
    """Characters of inside tokens by id, uint8[32 * words], 0 for others and 17 for more than 16; the tokens of more
    and their characters, in the order of their bytes; exits as positions in ``tokens``, their whole characters, and the
    bytes of these."""
    longest = np.int64(0)
    for v in range(len(depth)):
        longest = max(longest, np.int64(depth[v]))
    state = np.zeros(longest + 1, np.int32)  # by depth, of the current path
    chars = np.zeros(longest + 1, np.int32)  # whole characters so far
    whole = np.zeros(longest + 1, np.int32)  # and their bytes
    counts = np.zeros(32 * words, np.uint8)
    long_tokens, long_chars = np.empty(len(tokens), np.int32), np.empty(len(tokens), np.int32)
    exits, exit_chars = np.empty(len(tokens), np.int32), np.empty(len(tokens), np.int32)
    exit_whole = np.empty(len(tokens), np.int32)
    long_count = exit_count = v = U(0)
    while v < U(len(byte)):
        d = U(depth[v])
        parent = d - U(1)
        after = delta[U(state[parent]), U(byte[v])]
        if after == DEAD:
            if chars[parent] > 0:
                for i in range(U(token_start[v]), U(token_start[U(end[v])])):
                    exits[exit_count] = i
                    exit_chars[exit_count] = chars[parent]
                    exit_whole[exit_count] = whole[parent]
                    exit_count += U(1)
            v = U(end[v])
            continue
        count = chars[parent] + 1
        state[d] = after
        chars[d] = count if after == BOUNDARY else chars[parent]
        whole[d] = depth[v] if after == BOUNDARY else whole[parent]
        for i in range(U(token_start[v]), U(token_start[v + U(1)])):
            counts[U(tokens[i])] = min(count, COUNTED + 1)
            if count > COUNTED:
                long_tokens[long_count] = tokens[i]
                long_chars[long_count] = count
                long_count += U(1)
        v += U(1)
    return (
        counts,
        long_tokens[:long_count].copy(),
        long_chars[:long_count].copy(),
        exits[:exit_count].copy(),
        exit_chars[:exit_count].copy(),
        exit_whole[:exit_count].copy(),
    )


@kernel("int32[:, ::1](uint8[::1])")
def _rows(counts: Bytes) -> NDArray[Any]:
    words = len(counts) // 32
    rows = np.empty((COUNTED + 1, words), np.int32)
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


def build_charset_table(charset: CharSet, trie: Trie, strings: SortedStrings, words: int) -> CharsetTable:
    """The table of ``charset`` over the tokens of ``trie``, whose strings are ``strings``."""
    counts, long_tokens, long_chars, positions, chars, whole = _classify(*trie, words, charset_automaton(charset))
    longest_first = np.argsort(-long_chars, kind="stable")
    tokens = trie.tokens[positions]
    starts = strings.offset[positions]
    lengths = strings.offset[positions + 1] - starts
    ungrouped = np.zeros(len(tokens), np.int32)
    starts += whole
    lengths -= whole
    order = sort_strings(strings.data, starts, lengths)
    exits = sorted_forest(strings.data, starts, lengths, tokens, ungrouped, order)
    by_count = order[np.argsort(chars[order], kind="stable")]
    *exits_by_count, start = sorted_forest(strings.data, starts, lengths, tokens, chars, by_count)
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
    """One token of `SAMPLE`, for `count_tokens`."""
    starts, ends = strings.offset[:-1][::SAMPLE], strings.offset[1:][::SAMPLE]
    return build_trie(strings.data, starts.copy(), ends - starts, np.arange(len(starts), dtype=np.int32))


def count_tokens(charset: CharSet, trie: Trie, words: int) -> tuple[int, int]:
    """How many of the tokens of ``trie`` (numbers below 32 * words) are inside ``charset``, and how many exit it."""
    counts, _, _, exits, _, _ = _classify(*trie, words, charset_automaton(charset))
    return int(np.count_nonzero(counts)), len(exits)


def build_exit_words(charset: CharSet, trie: Trie, strings: SortedStrings, words: int) -> Trie:
    """The tokens that exit ``charset``, with all their bytes: large, and rarely needed."""
    _, _, _, positions, _, _ = _classify(*trie, words, charset_automaton(charset))
    starts = strings.offset[positions]
    lengths = strings.offset[positions + 1] - starts
    ungrouped, in_order = np.zeros(len(positions), np.int32), np.arange(len(positions), dtype=np.int32)
    return Trie(*sorted_forest(strings.data, starts, lengths, trie.tokens[positions], ungrouped, in_order)[:-1])
