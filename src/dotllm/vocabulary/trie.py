"""A set of byte strings as a flat trie in DFS preorder.

A walk is one loop over the arrays: go to ``v + 1`` to look inside a node, to ``end[v]`` to skip its subtree, which is
what a mask does at every byte the grammar refuses. There is no root node; several tokens may end at one node (tokens of
equal bytes, and equal suffixes of different tokens).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dotllm import allocate
from dotllm.jit import kernel
from dotllm.vocabulary.arrays import Bytes, Ints, U
from dotllm.vocabulary.string_sort import sort_strings

SLACK = 1 << 16
"""Larger arrays keep the room they were made with: what was never written takes no memory, and a copy would."""


class Trie(NamedTuple):
    """n nodes in preorder, children in byte order; m token ids in CSR form, hence in the order of their bytes."""

    byte: Bytes
    """uint8[n]: the byte of the edge into the node."""
    depth: Ints
    """int32[n]: length of the string that ends here; a first byte has depth 1."""
    end: Ints
    """int32[n]: index just past the node's subtree."""
    token_start: Ints
    """int32[n+1]: ``tokens[token_start[v] : token_start[v + 1]]`` end at v, to ``token_start[end[v]]`` at or below."""
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
    """One trie per group, one after another, of non-empty strings; ``order`` lists them sorted by (group, bytes).

    ``groups``: int32[n] of numbers ≥ 0 by string. The last array returned is int32[max group + 2]: where the nodes of
    each group start. Ends and token_start are absolute.
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
    path = allocate.ints(longest + 1)  # the node at each depth of the string before
    path_length = before = v = U(0)
    group = 0
    for i in range(U(count)):
        item = U(order[i])
        start, length = U(starts[item]), U(lengths[item])
        shared = U(0)  # bytes in common with the string before
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
