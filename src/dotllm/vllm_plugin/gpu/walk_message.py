"""What travels in a step in which the GPU follows the grammars itself (see `walk`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from dotllm.vllm_plugin.gpu_masks.message import Int32

# columns of the table of known places, one row per slot
EPOCH, LENGTH, BASE, COLUMNS, CONFIG, MASK = range(6)
PLACE = 8  # ints in a row
# in column MASK, besides a slot of the mask table
ALL, MISSING = -1, -2
# in column CONFIG: no grammar holds yet; the place and its mask stay, whatever is sampled
FREE = -1


@dataclass
class Tokens:
    """The vocabulary, for the device: the bytes of every token, and which end a text."""

    data: npt.NDArray[np.uint8]
    offset: Int32
    ends: Int32
    """int32 [words], a bitmask"""


@dataclass
class WalkStep:
    """One step. It takes the place of ``GrammarOutput.grammar_bitmask``; every rank gets the same one.

    sender, new_slots, new_rows: as in `MaskRows`, the mask table.
    tokens: the vocabulary, in a sender's first message.
    runs, patch: int32 [n, 2] and [sum of runs[:, 1]], what to write into the heap of byte tables, before anything else:
    the next runs[i, 1] ints of ``patch`` to position runs[i, 0] and after it. Runs do not overlap.
    assigned, released: constrained requests and their slots, from now on.
    places: int32 [slots, PLACE], where the engine core knows each slot to be: after LENGTH tokens (prompt included) in
    configuration CONFIG of the table at BASE of the heap (rows of COLUMNS ints; 0: no table), with mask MASK, or FREE
    with mask MASK until it is told otherwise; or None: nothing that the GPU does not know.
    """

    sender: int
    new_slots: Int32
    new_rows: Int32
    runs: Int32
    patch: Int32
    places: Int32 | None
    assigned: list[tuple[str, int]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    tokens: Tokens | None = None
