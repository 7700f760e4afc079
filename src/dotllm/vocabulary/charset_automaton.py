"""The byte automaton of a character set: one UTF-8 encoded member of the set, over and over.

State 0 stands at a character boundary; every other state stands inside a character and can still finish one. The
sequences of ``CharSet.utf8`` make it deterministic by themselves: at one prefix, two of their byte ranges are equal or
disjoint (a range wider than one byte covers everything under its lead bytes).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dotllm import allocate
from dotllm.charset import CharSet
from dotllm.jit import kernel

BOUNDARY = 0
DEAD = -1


@kernel("int32[:, ::1](int32[::1], int32[::1])")
def _table(lengths: NDArray[Any], bounds: NDArray[Any]) -> NDArray[Any]:
    """lengths: int32[n] of byte ranges per sequence; bounds: int32[2 * sum(lengths)] low, high, low, high …"""
    delta = allocate.int_rows(64, 256)  # grows: many sequences share few states, 17,000 at most
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
