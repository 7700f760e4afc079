"""What travels from the engine core to the workers in place of vLLM's bitmask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

Int32 = npt.NDArray[np.int32]

NO_MASK = -1  # in place of a slot: everything is allowed

TABLE_SLOTS = 16384  # rows kept on the device at most (256 MiB at 131,072 tokens); others are sent each time


class NewRows(Protocol):
    """What every message says about the table of masks; see `MaskRows` for the fields."""

    sender: int
    new_slots: Int32
    new_rows: Int32


@dataclass
class MaskRows:
    """The masks of one step. Every rank of a worker group gets the same one and keeps its own table.

    It takes the place of ``GrammarOutput.grammar_bitmask``; vLLM only hands that on.

    sender: which engine core's table the slots belong to (a worker that meets another one begins anew).
    counts: int32 [requests], positions of each constrained request: one, and one more for each of its drafts.
    slots: int32 [sum(counts)], the table slot of each position's mask, or NO_MASK.
    new_slots, new_rows: int32 [n] and [n, words], slots to fill before anything is applied.
    """

    sender: int
    counts: Int32
    slots: Int32
    new_slots: Int32
    new_rows: Int32
