"""A set of byte strings as a flat trie in DFS preorder.

A walk is one loop over the arrays: go to ``v + 1`` to look inside a node, to ``end[v]`` to skip its subtree, which is
what a mask does at every byte the grammar refuses. There is no root node; several tokens may end at one node (tokens of
equal bytes, and equal suffixes of different tokens).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from dotllm.vocabulary.arrays import Bytes, Ints
from dotllm.vocabulary.string_sort import sort_strings


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


@njit(
    "Tuple((uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1]))"
    "(uint8[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1])",
    cache=True,
    nogil=True,
)
def sorted_forest(
    data: Bytes, starts: Ints, lengths: Ints, ids: Ints, groups: Ints, order: Ints
) -> tuple[Bytes, Ints, Ints, Ints, Ints, Ints]:
    """One trie per group, one after another, of non-empty strings; ``order`` lists them sorted by (group, bytes).

    ``groups``: int32[n] of numbers ≥ 0 by string. The last array returned is int32[max group + 2]: where the nodes of
    each group start. Ends and token_start are absolute.
    """
    count = len(order)
    shared = np.zeros(count, np.int32)  # length of the common prefix with the string before
    nodes = np.int64(0)
    longest = np.int64(0)
    for i in range(count):
        item = order[i]
        length = lengths[item]
        longest = max(longest, np.int64(length))
        if i > 0:
            before = order[i - 1]
            if groups[before] == groups[item]:
                limit = min(length, lengths[before])
                a, b = starts[before], starts[item]
                k = 0
                while k < limit and data[a + k] == data[b + k]:
                    k += 1
                shared[i] = k
        nodes += length - shared[i]
    byte = np.empty(nodes, np.uint8)
    depth = np.empty(nodes, np.int32)
    end = np.empty(nodes, np.int32)
    token_start = np.empty(nodes + 1, np.int32)
    tokens = np.empty(count, np.int32)
    group_count = np.int64(groups[order[count - 1]]) + 1 if count > 0 else np.int64(0)
    group_start = np.zeros(group_count + 1, np.int32)
    open_nodes = np.empty(longest + 1, np.int32)  # the node at each depth of the current path
    open_depth = 0
    v = 0
    group = 0
    for i in range(count):
        item = order[i]
        while group < groups[item]:
            group += 1
            group_start[group] = v
        for d in range(shared[i] + 1, open_depth + 1):
            end[open_nodes[d]] = v
        at = starts[item] - 1
        for d in range(shared[i] + 1, lengths[item] + 1):
            byte[v] = data[at + d]
            depth[v] = d
            token_start[v] = i
            open_nodes[d] = v
            v += 1
        open_depth = lengths[item]
        tokens[i] = ids[item]
    for d in range(1, open_depth + 1):
        end[open_nodes[d]] = v
    token_start[nodes] = count
    group_start[group_count] = v
    return byte, depth, end, token_start, tokens, group_start


def build_trie(data: Bytes, starts: Ints, lengths: Ints, ids: Ints) -> Trie:
    """The trie of n non-empty strings ``data[starts[i] : starts[i] + lengths[i]]`` of token ids ``ids[i]``, any order.

    data: uint8[…]; starts, lengths, ids: int32[n]. Tokens of equal bytes keep the order they were given in.
    """
    order = sort_strings(data, starts, lengths)
    *arrays, _ = sorted_forest(data, starts, lengths, ids, np.zeros(len(ids), np.int32), order)
    return Trie(*arrays)
