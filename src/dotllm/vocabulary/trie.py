"""A set of byte strings as a flat trie in DFS preorder.

A walk is one loop over the arrays: go to ``v + 1`` to look inside a node, to ``end[v]`` to skip its subtree, as a mask
does at every byte that the grammar refuses. There is no root node; several tokens may end at one node (tokens of equal
bytes, and equal suffixes of different tokens).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dotllm import allocate
from dotllm.jit import inner_kernel, kernel
from dotllm.vocabulary.content import Bytes, Ints, U

# Sorts many byte strings of one buffer in lexicographic order.
#
# A radix sort on seven bytes at a time, packed into one integer, and refined only where strings tie (MSD order of LSD
# passes). Comparison sorts of 131,072 tokens cost some 70 ms in NumPy and Python; this one costs a few milliseconds, so
# that the suffix tries of a character set (``charset_table``) can be built while a request waits.

KEY_BYTES = 7
"""Bytes of a string in one key; with 4 bits of length a key is a non-negative int64 (Numba makes uint64 a float)."""
SMALL_RUN = 32
"""Runs up to this length are sorted by insertion."""


@inner_kernel("int64(uint8[::1], uint64, uint64)", inlined=True)
def _key(data: Bytes, at: Any, end: Any) -> Any:
    """Seven bytes from ``at``, then their number (8: there are more), so that a prefix sorts before its extensions."""
    key = np.int64(0)
    count = min(end - at, U(KEY_BYTES + 1)) if at < end else U(0)
    stop = at + min(count, U(KEY_BYTES))
    while at < stop:
        key = key << 8 | data[at]
        at += U(1)
    missing = KEY_BYTES - np.int64(min(count, U(KEY_BYTES)))
    return (key << (8 * missing) << 4) | np.int64(count)


@inner_kernel("boolean(uint8[::1], uint64, uint64, uint64, uint64)", inlined=True)
def _less(data: Bytes, a: Any, a_end: Any, b: Any, b_end: Any) -> bool:
    while a < a_end and b < b_end:
        if data[a] != data[b]:
            return bool(data[a] < data[b])
        a += U(1)
        b += U(1)
    return bool(a >= a_end and b < b_end)


@inner_kernel("void(uint8[::1], int32[::1], int32[::1], int32[::1], int64, int64, int64)")
def _insertion_sort(data: Bytes, starts: Ints, lengths: Ints, order: Ints, low: int, high: int, skip: int) -> None:
    for i in range(U(low + 1), U(high)):
        item = order[i]
        start = U(starts[U(item)])
        at, end = start + U(skip), start + U(lengths[U(item)])
        j = i
        while j > U(low):
            before = order[j - U(1)]
            start = U(starts[U(before)])
            if not _less(data, at, end, start + U(skip), start + U(lengths[U(before)])):
                break
            order[j] = before
            j -= U(1)
        order[j] = item


@inner_kernel("void(int64[::1], int32[::1], int64[::1], int32[::1], int32[::1], int64)")
def _pass(keys: Ints, order: Ints, to_keys: Ints, to_order: Ints, counts: Ints, shift: int) -> None:
    """Move all keys by their eight bits at ``shift``; counts: int32[256], how many keys have each value."""
    at = np.int32(0)
    for value in range(U(256)):
        count = counts[value]
        counts[value] = at
        at += count
    for i in range(U(len(keys))):
        value = U((keys[i] >> shift) & 255)
        to = U(counts[value])
        counts[value] += np.int32(1)
        to_keys[to] = keys[i]
        to_order[to] = order[i]


@inner_kernel("void(int64[::1], int32[::1], int64[::1], int32[::1])")
def _radix_sort(keys: Ints, order: Ints, spare_keys: Ints, spare_order: Ints) -> None:
    """Sort ``keys``, and ``order`` alongside, stably: eight bits a pass, no pass where all keys agree."""
    counts = allocate.zero_int_rows(8, 256)
    for i in range(U(len(keys))):
        key = keys[i]
        for digit in range(U(8)):
            counts[digit, U(key & 255)] += np.int32(1)
            key >>= 8
    flipped = False
    for digit in range(8 if len(keys) > 0 else 0):
        if counts[digit, (keys[0] >> (8 * digit)) & 255] == len(keys):
            continue
        if flipped:
            _pass(spare_keys, spare_order, keys, order, counts[digit], 8 * digit)
        else:
            _pass(keys, order, spare_keys, spare_order, counts[digit], 8 * digit)
        flipped = not flipped
    if flipped:
        for i in range(U(len(keys))):  # a slice assignment would take Numba seconds to compile
            keys[i] = spare_keys[i]
            order[i] = spare_order[i]


@kernel("int32[::1](uint8[::1], int32[::1], int32[::1])")
def sort_strings(data: Bytes, starts: Ints, lengths: Ints) -> Ints:
    """The stable order of strings ``data[starts[i] : starts[i] + lengths[i]]`` by their bytes: int32[n] of indices."""
    n = len(starts)
    order = allocate.ints(n)
    for i in range(U(n)):
        order[i] = i
    keys, spare_keys = allocate.longs(n), allocate.longs(n)
    spare_order = allocate.ints(n)
    # Runs still to sort: low, high, number of bytes known to be equal. They are disjoint and larger than SMALL_RUN.
    runs = np.empty((n // SMALL_RUN + 1, 3), np.int64)
    runs[0, 0], runs[0, 1], runs[0, 2] = 0, n, 0
    pending = 1
    while pending > 0:
        pending -= 1
        low, high, skip = runs[pending, 0], runs[pending, 1], runs[pending, 2]
        for i in range(low, high):
            start = U(starts[U(order[i])])
            keys[i] = _key(data, start + U(skip), start + U(lengths[U(order[i])]))
        _radix_sort(keys[low:high], order[low:high], spare_keys[low:high], spare_order[low:high])
        i = low
        while i < high:
            j = i + 1
            while j < high and keys[j] == keys[i]:
                j += 1
            if j - i > 1 and (keys[i] & 15) > KEY_BYTES:
                if j - i <= SMALL_RUN:
                    _insertion_sort(data, starts, lengths, order, i, j, skip + KEY_BYTES)
                else:
                    runs[pending, 0], runs[pending, 1], runs[pending, 2] = i, j, skip + KEY_BYTES
                    pending += 1
            i = j
    return order


SLACK = 1 << 16
"""Larger arrays keep their spare room: pages that were never written take no memory, but a copy would."""


class Trie(NamedTuple):
    """n nodes in preorder, children in byte order; m token ids in CSR form, hence in the order of their bytes."""

    byte: Bytes
    """uint8[n]: the byte of the edge into the node."""
    depth: Ints
    """int32[n]: length of the string that ends here; a first byte has depth 1."""
    end: Ints
    """int32[n]: index just past the node's subtree."""
    token_start: Ints
    """int32[n+1]: ``tokens[token_start[v] : token_start[v + 1]]`` end at v; those up to ``token_start[end[v]]`` end at
    v or below it."""
    tokens: Ints
    """int32[m]: token ids."""

    @property
    def nbytes(self) -> int:
        """Size of the arrays in bytes."""
        return sum(array.nbytes for array in self)


@kernel(
    "Tuple((uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))"
    "(uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1])"
)
def sorted_forest(
    data: Bytes, starts: Ints, lengths: Ints, ids: Ints, groups: Ints, order: Ints
) -> tuple[Bytes, Ints, Ints, Ints, Ints, Ints]:
    """Tries of non-empty strings, one per group, one after another. ``order``: the strings sorted by (group, bytes).

    ``groups``: int32[n], the number ≥ 0 of each string's group. The last array returned is int32[max group + 2]: where
    the nodes of each group start. Ends and token_start are absolute.
    """
    count = len(order)
    longest = most_nodes = np.int64(0)
    for i in range(count):
        longest = max(longest, np.int64(lengths[U(i)]))
        most_nodes += lengths[U(i)]
    byte = np.empty(most_nodes, np.uint8)
    depth = allocate.ints(most_nodes)
    end = allocate.ints(most_nodes)
    token_start = allocate.ints(most_nodes + 1)
    tokens = allocate.ints(count)
    group_count = np.int64(groups[order[count - 1]]) + 1 if count > 0 else np.int64(0)
    group_start = allocate.zero_ints(group_count + 1)
    path = allocate.ints(longest + 1)  # the node at each depth of the previous string
    path_length = before = v = U(0)
    group = 0
    for i in range(U(count)):
        item = U(order[i])
        start, length = U(starts[item]), U(lengths[item])
        shared = U(0)  # bytes in common with the previous string
        if group == groups[item]:
            limit = min(length, path_length)
            while shared < limit and data[before + shared] == data[start + shared]:
                shared += U(1)
        while group < groups[item]:
            group += 1
            group_start[group] = v
        while path_length > shared:
            end[U(path[path_length])] = v
            path_length -= U(1)
        while path_length < length:
            byte[v] = data[start + path_length]
            path_length += U(1)
            depth[v] = path_length
            token_start[v] = i
            path[path_length] = v
            v += U(1)
        before = start
        tokens[i] = ids[item]
    while path_length > U(0):
        end[U(path[path_length])] = v
        path_length -= U(1)
    token_start[v] = count
    group_start[group_count] = v
    if most_nodes > SLACK:
        return byte[:v], depth[:v], end[:v], token_start[: v + U(1)], tokens, group_start
    return (
        byte[:v].copy(),
        allocate.copied_ints(depth[:v]),
        allocate.copied_ints(end[:v]),
        allocate.copied_ints(token_start[: v + U(1)]),
        tokens,
        group_start,
    )


@kernel("Tuple((uint8[::1], int32[::1]))(uint8[::1], int32[::1], int32[::1])")
def _spelled(byte: Bytes, depth: Ints, token_start: Ints) -> tuple[Bytes, Ints]:
    longest = total = np.int64(0)
    for v in range(U(len(byte))):
        longest = max(longest, np.int64(depth[v]))
        total += np.int64(depth[v]) * (token_start[v + U(1)] - token_start[v])
    path = np.empty(longest, np.uint8)
    data = np.empty(total, np.uint8)
    offset = allocate.zero_ints(token_start[-1] + 1)
    at = U(0)
    for v in range(U(len(byte))):
        length = U(depth[v])
        path[length - U(1)] = byte[v]
        for i in range(U(token_start[v]), U(token_start[v + U(1)])):
            for k in range(length):
                data[at] = path[k]
                at += U(1)
            offset[i + U(1)] = at
    return data, offset


class SortedStrings(NamedTuple):
    """The m strings of a trie in the order of its tokens, so that neighbours in the trie are neighbours in memory."""

    data: Bytes
    """uint8[…]: the strings one after another."""
    offset: Ints
    """int32[m+1]: string i is ``data[offset[i] : offset[i + 1]]``, the bytes of ``trie.tokens[i]``."""


def sorted_strings(trie: Trie) -> SortedStrings:
    """The strings of ``trie``."""
    return SortedStrings(*_spelled(trie.byte, trie.depth, trie.token_start))


def build_trie(data: Bytes, starts: Ints, lengths: Ints, ids: Ints) -> Trie:
    """The trie of n non-empty strings ``data[starts[i] : starts[i] + lengths[i]]`` of token ids ``ids[i]``, any order.

    data: uint8[…]; starts, lengths, ids: int32[n]. Tokens of equal bytes keep the order they were given in.
    """
    order = sort_strings(data, starts, lengths)
    *arrays, _ = sorted_forest(data, starts, lengths, ids, np.zeros(len(ids), np.int32), order)
    return Trie(*arrays)


# Spells bytes with tokens when there is no tokenizer: the longest token first, over the trie.


@kernel("Tuple((int32[::1], int64))(uint8[::1], uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1])")
def _longest_matches(
    text: Bytes, byte: Bytes, depth: Ints, end: Ints, token_start: Ints, tokens: Ints
) -> tuple[Ints, Any]:
    """Tokens, and the number of bytes they spell: fewer than ``len(text)`` if no token starts with the next byte."""
    first = allocate.filled_ints(256, -1)  # the node of each first byte
    v = np.int64(0)
    while v < len(byte):
        first[byte[v]] = v
        v = np.int64(end[v])
    out = allocate.ints(len(text))
    count = at = 0
    while at < len(text):
        token, length = np.int64(-1), 0
        v = np.int64(first[text[at]])
        d = 1
        while v >= 0:
            if token_start[v] < token_start[v + 1]:
                token, length = np.int64(tokens[token_start[v]]), d
            if at + d == len(text):
                break
            limit = np.int64(end[v])
            v += 1
            while v < limit and byte[v] < text[at + d]:
                v = np.int64(end[v])
            if v >= limit or byte[v] != text[at + d]:
                break
            d += 1
        if token < 0:
            break
        out[count] = token
        count += 1
        at += length
    return allocate.copied_ints(out[:count]), np.int64(at)


def spell_greedily(text: bytes, trie: Trie) -> list[int]:
    """Ids of tokens whose bytes together are ``text``. Raises ValueError if no token starts with the next byte."""
    tokens, spelt = _longest_matches(np.frombuffer(bytearray(text), np.uint8), *trie)
    if spelt < len(text):
        raise ValueError(f"no token of the vocabulary spells byte 0x{text[spelt]:02X} at offset {spelt}")
    ids: list[int] = tokens.tolist()
    return ids
