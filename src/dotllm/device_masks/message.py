"""The message that the engine core sends to the workers in place of vLLM's bitmask."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dotllm.arrays import Int32

TABLE_SLOTS = 16384  # the most rows kept on the device (256 MiB at 131,072 tokens); others are sent each time


@dataclass
class MaskRows:
    """The masks of one step. Every rank of a worker group gets the same message and keeps its own table.

    It takes the place of ``GrammarOutput.grammar_bitmask``; vLLM only passes that field on.

    sender: which engine core's table the slots belong to (a worker that meets another sender starts a new table).
    counts: int32 [requests], how many positions each constrained request has: one, plus one for each of its drafts.
        None: one each.
    slots: int32 [sum(counts)], the table slot of each position's mask; below 0: everything is allowed.
    fresh: int32 [sum(counts)], which of the new rows each position's slot gets; -1: the slot has its row. None if
        there are no new rows.
    new_slots, new_rows: int32 [n] and [n, words], slots to fill before anything is applied.
    results: the results of the step, to come, if its workers are in this process.
    """

    sender: int
    counts: Int32 | None
    slots: Int32
    fresh: Int32 | None
    new_slots: Int32
    new_rows: Int32
    results: object = None


def positions(counts: Int32 | None, first: npt.ArrayLike, most: npt.ArrayLike | None = None) -> Int32:
    """int32 [sum(counts)]: the positions of request i are first[i], first[i] + 1, … (below 0 if the request is not in
    this batch), at most ``most``[i] of them (at least one); the rest are below 0, too. ``counts`` None: one each."""
    start = np.asarray(first, np.int32)
    if counts is None:
        return start
    before = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.int32) - np.repeat(before, counts)
    out = np.repeat(start, counts) + steps
    out[np.repeat(start < 0, counts)] = -1
    if most is not None:
        out[steps >= np.repeat(np.asarray(most, np.int32), counts)] = -1
    return out.astype(np.int32)
