"""The kernel that writes the keys that an object may have in addition to some names (see `additional_keys`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.jit import kernel

Array = NDArray[Any]


@kernel("Tuple((int32[::1], int32[::1], int64[:, ::1]))(uint8[::1], int32[::1], int32[::1], int32[::1], int32)")
def key_networks(
    text: Array, groups: Array, letters: Array, default_edges: Array, quote: int
) -> tuple[Array, Array, Array]:
    """The texts after the opening quote of all strings except some words, for several groups of words.

    ``text`` uint8[bytes] holds the sorted distinct ASCII words, each ended by a byte 0, or by 1 if no string may
    begin with the word, either; ``groups`` int32[groups] holds where each group of words ends. Returns the layouts of
    `Grammar.network`, one after another, as int32; where each begins (and the last ends) as int32[groups + 1]; and
    int64[n, 3], the default edges that do not exist yet.

    A layout is the prefix tree of the words, with the expression ``quote`` where no word ends, and at each node a
    default edge: any character that leads to no other node. ``letters`` int32[128] are the expressions of the
    characters; ``default_edges`` int32[128] are those of the default edges of nodes with one child, by its character
    (at 0: of nodes with none); 0 stands for an expression that does not exist yet. Default edges that are not found
    there are left open: for each, its place in the layouts, and the characters of the node's children as bits, 64 per
    word.
    """
    size, longest = len(text), 0
    for g in range(len(groups)):
        longest = max(longest, groups[g] - (groups[g - 1] if g > 0 else 0))
    edges = allocate.int_rows(longest, 3)
    ends = allocate.ints(longest + 1)
    children = np.empty((longest + 1, 2), np.int64)
    only = allocate.ints(longest + 1)  # the character of the only child, 0 if there is none, -1 if there are more
    path = allocate.zero_ints(longest + 1)
    layout = allocate.ints(9 * size + 7 * len(groups))
    starts = allocate.zero_ints(len(groups) + 1)
    left_open = np.empty((size + len(groups), 3), np.int64)
    n_open = 0
    at = 0
    start = 0  # of a word
    for g in range(len(groups)):
        ends[0], children[0, 0], children[0, 1], only[0] = 0, 0, 0, 0
        nodes = 1
        before = -1  # where the previous word starts
        for i in range(start, groups[g]):
            if text[i] > 1:
                continue
            common = 0
            if before >= 0:
                while text[start + common] > 1 and text[start + common] == text[before + common]:
                    common += 1
                if text[before + common] == 1:  # this word begins with the previous one
                    start = i + 1
                    continue
            for depth in range(common, i - start):
                byte = text[start + depth]
                parent = path[depth]
                if text[i] == 1 and depth == i - start - 1:
                    children[parent, byte >> 6] |= np.int64(1) << np.int64(byte & 63)
                    only[parent] = byte if only[parent] == 0 else -1
                    break
                edges[nodes - 1, 0], edges[nodes - 1, 1], edges[nodes - 1, 2] = parent, letters[byte], nodes
                children[parent, byte >> 6] |= np.int64(1) << np.int64(byte & 63)
                only[parent] = byte if only[parent] == 0 else -1
                path[depth + 1] = nodes
                ends[nodes], children[nodes, 0], children[nodes, 1], only[nodes] = 0, 0, 0, 0
                nodes += 1
            if text[i] == 0:
                ends[path[i - start]] = 1
            before = start
            start = i + 1
        layout[at], layout[at + 1], layout[at + 2], layout[at + 3] = nodes + 1, 0, 1, nodes
        at += 4
        for node in range(nodes):
            if ends[node] == 0:
                layout[at], layout[at + 1], layout[at + 2] = node, quote, nodes
                at += 3
        for i in range(nodes - 1):
            layout[at], layout[at + 1], layout[at + 2] = edges[i, 0], edges[i, 1], edges[i, 2]
            at += 3
        for node in range(nodes):
            way = default_edges[only[node]] if only[node] >= 0 else 0
            if way == 0:
                left_open[n_open, 0] = at + 1
                left_open[n_open, 1], left_open[n_open, 2] = children[node, 0], children[node, 1]
                n_open += 1
            layout[at], layout[at + 1], layout[at + 2] = node, way, nodes
            at += 3
        starts[g + 1] = at
    return layout[:at], starts, left_open[:n_open]
