"""Byte edges: those that no token can take, those of each node, and bytes that none of them tells apart."""

from __future__ import annotations

import numba as nb
import numpy as np

from dotllm import allocate
from dotllm.arrays import Bool, Int32
from dotllm.automata.kinds import N_BYTE
from dotllm.jit import I1, inner_kernel


@inner_kernel("int32[:, ::1](int32[:, ::1], boolean[::1])")
def producible(edges: Int32, alive: Bool) -> Int32:
    """``edges`` [e, 3] without bytes that occur in no token (``alive`` tells which do): a range is cut where some of
    its bytes are missing, which may make several of it."""
    missing = 0
    for byte in range(256):
        missing += not alive[byte]
    if missing == 0:
        return edges
    count = 0
    for i in range(edges.shape[0]):
        low, high = edges[i, 1] & 255, edges[i, 1] >> 8
        for byte in range(low, high + 1):
            if alive[byte] and (byte == low or not alive[byte - 1]):
                count += 1
    kept = allocate.int_rows(count, 3)
    count = 0
    for i in range(edges.shape[0]):
        byte, high = edges[i, 1] & 255, edges[i, 1] >> 8
        while byte <= high:
            first = byte
            while byte <= high and alive[byte]:
                byte += 1
            if byte > first:
                kept[count, 0], kept[count, 1], kept[count, 2] = edges[i, 0], first | (byte - 1) << 8, edges[i, 2]
                count += 1
            byte += 1
    return kept


@inner_kernel("Tuple((int32[::1], int32[::1], int32[::1]))(int32[:, ::1], int64, boolean[::1], int32[::1])")
def by_node(edges: Int32, n_edges: int, productive: Bool, kind: Int32) -> tuple[Int32, Int32, Int32]:
    """Edges to productive nodes: start of each node's, bytes, targets. Their nodes become BYTE nodes."""
    n = kind.shape[0]
    start = allocate.zero_ints(n + 1)
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            start[edges[i, 0] + 1] += 1
    for i in range(n):
        start[i + 1] += start[i]
        if start[i + 1] > start[i]:
            kind[i] = N_BYTE
    fill = allocate.copied_ints(start[:n])
    taken, target = allocate.ints(start[n]), allocate.ints(start[n])
    for i in range(n_edges):
        if productive[edges[i, 2]]:
            at = fill[edges[i, 0]]
            taken[at] = edges[i, 1]
            target[at] = edges[i, 2]
            fill[edges[i, 0]] += 1
    return start, taken, target


@inner_kernel(nb.int64(I1, I1, I1))
def byte_classes(taken: Int32, class_of: Int32, class_byte: Int32) -> int:
    """Bytes covered by the same edges are of one class; how many. ``class_byte``: one byte of each.

    A byte's signature is the sum of random numbers of its edges.
    """
    signature = allocate.zero_words(257)
    for i in range(taken.shape[0]):
        x = np.uint64(i + 1) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
        signature[taken[i] & 255] += x
        signature[(taken[i] >> 8) + 1] -= x
    classes = 0
    class_signature = np.empty(256, np.uint64)
    running = np.uint64(0)
    for byte in range(256):
        if byte > 0 and signature[byte] == 0:  # no edge begins or ends here
            class_of[byte] = class_of[byte - 1]
            continue
        running += signature[byte]
        found = -1
        for j in range(classes):
            if class_signature[j] == running:
                found = j
                break
        if found < 0:
            found = classes
            class_signature[classes] = running
            class_byte[classes] = byte
            classes += 1
        class_of[byte] = found
    return classes
