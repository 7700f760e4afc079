"""Finds which tokens stay inside a character set, and where the others leave it: the walk on which `charset_table` is
built.

Bytes that cannot belong to the set cut off whole subtrees of the token trie, so a narrow set takes little time. Most
sets in JSON Schemas are wide: all characters except some of ASCII. For a subtree without any of the missing characters
the result is the same as for the set of all characters, which is known. So only subtrees with a missing character are
walked: a tenth of the trie for ``[^/]``.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.charset import ANY_CHAR, MAX_CODE_POINT, CharSet
from dotllm.jit import kernel
from dotllm.vocabulary.content import Bytes, Ints, U
from dotllm.vocabulary.trie import Trie

# The byte automaton of a character set: it reads UTF-8 encoded members of the set, one after another.
#
# State 0 is at a character boundary; every other state is inside a character that can still be completed. The sequences
# of ``CharSet.utf8`` already make the automaton deterministic: after one prefix, two of their byte ranges are equal or
# disjoint (a range wider than one byte covers everything under its lead bytes).

BOUNDARY = 0
DEAD = -1


@kernel("int32[:, ::1](int32[::1], int32[::1])")
def _table(lengths: NDArray[Any], bounds: NDArray[Any]) -> NDArray[Any]:
    """lengths: int32[n] of byte ranges per sequence; bounds: int32[2 * sum(lengths)] low, high, low, high …"""
    delta = allocate.int_rows(64, 256)  # grows: many sequences share few states, at most 17,000
    for byte in range(256):
        delta[0, byte] = DEAD
    states = 1
    at = 0
    for i in range(len(lengths)):
        state = BOUNDARY
        for k in range(lengths[i]):
            low, high = bounds[at], bounds[at + 1]
            at += 2
            if k == lengths[i] - 1:
                for byte in range(low, high + 1):
                    delta[state, byte] = BOUNDARY
            else:
                if delta[state, low] == DEAD:
                    if states == len(delta):
                        larger = allocate.int_rows(2 * states, 256)
                        for s in range(states):
                            for byte in range(256):
                                larger[s, byte] = delta[s, byte]
                        delta = larger
                    for byte in range(256):
                        delta[states, byte] = DEAD
                    for byte in range(low, high + 1):
                        delta[state, byte] = states
                    states += 1
                state = delta[state, low]
    return delta[:states].copy()


def charset_automaton(charset: CharSet) -> NDArray[np.int32]:
    """``delta``: int32[states, 256], the state after a byte or -1."""
    sequences = charset.utf8()
    lengths = np.fromiter(map(len, sequences), np.int32, len(sequences))
    ranges = chain.from_iterable(sequences)
    bounds = np.fromiter(chain.from_iterable(ranges), np.int32, 2 * int(lengths.sum()))
    delta: NDArray[np.int32] = _table(lengths, bounds)
    return delta


COUNTED = 16
"""`TokenClasses.counts` does not distinguish larger numbers of characters."""


class TokenClasses(NamedTuple):
    """The tokens of a trie, seen from a loop over a character set (see `charset_table.CharsetTable`)."""

    counts: Bytes
    """uint8[32 * words]: the characters of inside tokens by id, 0 for others and 17 for more than 16."""
    long_tokens: Ints
    """int32[…]: the tokens of more than 16 characters, in the order of their bytes."""
    long_chars: Ints
    """int32[…]: the numbers of characters of ``long_tokens``."""
    exits: Ints
    """int32[…]: tokens that exit, as positions in ``trie.tokens``, in ascending order."""
    exit_chars: Ints
    """int32[…]: the numbers of whole characters with which ``exits`` begin."""
    exit_whole: Ints
    """int32[…]: the numbers of bytes of these characters."""


_I = "int32[::1]"
_RESULT = f"Tuple((uint8[::1], {_I}, {_I}, {_I}, {_I}, {_I}))"


@kernel(f"{_RESULT}(uint8[::1], {_I}, {_I}, {_I}, {_I}, int64, int32[:, ::1])")
def _classify(
    byte: Bytes, depth: Ints, end: Ints, token_start: Ints, tokens: Ints, words: int, delta: NDArray[Any]
) -> tuple[Bytes, Ints, Ints, Ints, Ints, Ints]:
    """`TokenClasses` of the set whose automaton is ``delta``."""
    longest = np.int64(0)
    for v in range(len(depth)):
        longest = max(longest, np.int64(depth[v]))
    state = allocate.zero_ints(longest + 1)  # by depth, of the current path
    chars = allocate.zero_ints(longest + 1)  # whole characters so far
    whole = allocate.zero_ints(longest + 1)  # and their bytes
    counts = np.zeros(32 * words, np.uint8)
    long_tokens, long_chars = allocate.ints(len(tokens)), allocate.ints(len(tokens))
    exits, exit_chars = allocate.ints(len(tokens)), allocate.ints(len(tokens))
    exit_whole = allocate.ints(len(tokens))
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
        allocate.copied_ints(long_tokens[:long_count]),
        allocate.copied_ints(long_chars[:long_count]),
        allocate.copied_ints(exits[:exit_count]),
        allocate.copied_ints(exit_chars[:exit_count]),
        allocate.copied_ints(exit_whole[:exit_count]),
    )


@kernel(f"uint64[:, ::1](uint8[::1], {_I})")
def _letters(byte: Bytes, depth: Ints) -> NDArray[Any]:
    """uint64[nodes, 2]: the ASCII bytes that occur in each node's subtree, its own byte included, as bits."""
    longest = np.int64(0)
    for v in range(len(depth)):
        longest = max(longest, np.int64(depth[v]))
    letters = allocate.zero_word_rows(len(byte), 2)
    below = allocate.zero_word_rows(longest + 2, 2)  # of the children seen since the last node of a depth
    for v in range(len(byte) - 1, -1, -1):
        d = depth[v]
        if byte[v] < 0x80:
            below[d + 1, byte[v] >> 6] |= np.uint64(1) << np.uint64(byte[v] & 63)
        for half in range(2):
            letters[v, half] = below[d + 1, half]
            below[d, half] |= below[d + 1, half]
            below[d + 1, half] = 0
    return letters


@kernel(
    f"{_RESULT}(Tuple((uint8[::1], {_I}, {_I}, {_I}, {_I})), int32[:, ::1], uint64[:, ::1], uint64[::1], {_RESULT})"
)
def _classify_wide(
    trie: tuple[Bytes, Ints, Ints, Ints, Ints],
    delta: NDArray[Any],
    letters: NDArray[Any],
    lacking: NDArray[Any],
    of_all: tuple[Bytes, Ints, Ints, Ints, Ints, Ints],
) -> tuple[Bytes, Ints, Ints, Ints, Ints, Ints]:
    """`TokenClasses` of all characters except the ASCII characters in ``lacking`` (uint64[2], as bits).

    trie: see `Trie`. delta: int32[states, 256], the automaton of the set. letters: see `_letters`. of_all: the
    `TokenClasses` of all characters.
    """
    byte, depth, end, token_start, tokens = trie
    all_counts, all_long_tokens, all_long_chars, all_exits, all_exit_chars, all_exit_whole = of_all
    longest = np.int64(0)
    for v in range(len(depth)):
        longest = max(longest, np.int64(depth[v]))
    state = allocate.zero_ints(longest + 1)  # by depth, of the current path
    chars = allocate.zero_ints(longest + 1)
    whole = allocate.zero_ints(longest + 1)
    counts = all_counts.copy()
    exits, exit_chars = allocate.ints(len(tokens)), allocate.ints(len(tokens))
    exit_whole = allocate.ints(len(tokens))
    exit_count = known = v = U(0)
    while v < U(len(byte)):
        after_subtree = U(end[v])
        if letters[v, U(0)] & lacking[U(0)] == 0 and letters[v, U(1)] & lacking[U(1)] == 0:
            last = token_start[after_subtree]
            while known < U(len(all_exits)) and all_exits[known] < last:
                exits[exit_count] = all_exits[known]
                exit_chars[exit_count] = all_exit_chars[known]
                exit_whole[exit_count] = all_exit_whole[known]
                exit_count += U(1)
                known += U(1)
            v = after_subtree
            continue
        d = U(depth[v])
        parent = d - U(1)
        after = delta[U(state[parent]), U(byte[v])]
        if after == DEAD:
            last = token_start[after_subtree]
            for i in range(U(token_start[v]), U(last)):
                counts[U(tokens[i])] = 0
                if chars[parent] > 0:
                    exits[exit_count] = i
                    exit_chars[exit_count] = chars[parent]
                    exit_whole[exit_count] = whole[parent]
                    exit_count += U(1)
            while known < U(len(all_exits)) and all_exits[known] < last:
                known += U(1)
            v = after_subtree
            continue
        state[d] = after
        chars[d] = chars[parent] + 1 if after == BOUNDARY else chars[parent]
        whole[d] = depth[v] if after == BOUNDARY else whole[parent]
        v += U(1)
    long_tokens, long_chars = allocate.ints(len(all_long_tokens)), allocate.ints(len(all_long_tokens))
    long_count = U(0)
    for i in range(U(len(all_long_tokens))):
        if counts[U(all_long_tokens[i])] != 0:
            long_tokens[long_count], long_chars[long_count] = all_long_tokens[i], all_long_chars[i]
            long_count += U(1)
    return (
        counts,
        allocate.copied_ints(long_tokens[:long_count]),
        allocate.copied_ints(long_chars[:long_count]),
        allocate.copied_ints(exits[:exit_count]),
        allocate.copied_ints(exit_chars[:exit_count]),
        allocate.copied_ints(exit_whole[:exit_count]),
    )


class Classifier:
    """Finds the `TokenClasses` of character sets over one trie. ``words``: its token ids are below 32 * words."""

    def __init__(self, trie: Trie, words: int) -> None:
        self.trie = trie
        self._words = words
        self._wide: tuple[NDArray[Any], TokenClasses] | None = None

    def classes(self, charset: CharSet) -> TokenClasses:
        """What each token does to a loop over ``charset``."""
        lacking = _lacking(charset)
        if lacking is None:
            return self._walk(charset)
        if self._wide is None:
            self._wide = _letters(self.trie.byte, self.trie.depth), self._walk(ANY_CHAR)
        letters, of_all = self._wide
        return TokenClasses(
            *_classify_wide(tuple(self.trie), charset_automaton(charset), letters, lacking, tuple(of_all))
        )

    def _walk(self, charset: CharSet) -> TokenClasses:
        return TokenClasses(*_classify(*self.trie, self._words, charset_automaton(charset)))


def _lacking(charset: CharSet) -> NDArray[Any] | None:
    """The ASCII characters that the set lacks, as bits, 64 a word; None if it lacks other characters."""
    ranges = charset.ranges
    if len(ranges) < 2 or ranges[-1] != (0xE000, MAX_CODE_POINT) or ranges[-2][1] != 0xD7FF or ranges[-2][0] > 0x80:
        return None
    members = 0
    for low, high in ranges:
        if low < 0x80:
            members |= (2 << min(high, 0x7F)) - (1 << low)
    lacking = ~members
    return np.array([lacking & (1 << 64) - 1, lacking >> 64 & (1 << 64) - 1], np.uint64)
