"""Worker: the table of mask rows on the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from dotllm.vllm_plugin.gpu.message import Int32, MaskRows, NewRows

_FIRST_SLOTS = 512


def to_device(array: Int32, device: torch.device) -> torch.Tensor:
    """A copy of ``array`` on ``device`` without waiting for it (torch keeps the pinned buffer until it is done)."""
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)


class MaskTable:
    """Rows by slot, int32 [slots, words] on ``device``; grows as slots come."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sender: int | None = None
        self.rows = torch.zeros((0, 0), dtype=torch.int32, device=device)

    def update(self, message: NewRows) -> None:
        """Fill the slots that ``message`` brings."""
        if message.sender != self.sender:  # another engine core: its slots mean other rows
            self.sender = message.sender
            words = message.new_rows.shape[1]
            self.rows = torch.zeros((_FIRST_SLOTS, words), dtype=torch.int32, device=self.device)
        if not len(message.new_slots):
            return
        needed = int(message.new_slots.max()) + 1
        if needed > len(self.rows):
            larger = torch.zeros(
                (max(needed, 2 * len(self.rows)), self.rows.shape[1]), dtype=torch.int32, device=self.device
            )
            larger[: len(self.rows)] = self.rows
            self.rows = larger
        slots = to_device(message.new_slots, self.device).long()
        self.rows[slots] = to_device(message.new_rows, self.device)

    def apply(self, logits: torch.Tensor, where: Int32, message: MaskRows) -> None:
        """Mask ``logits[where[i]]`` with the row of position i of ``message``, for all positions (-1: not here)."""
        from dotllm.vllm_plugin.gpu.kernels import apply_rows

        self.update(message)
        both = np.stack((where, message.slots))
        if (where < 0).any():
            both = np.ascontiguousarray(both[:, where >= 0])
        places = to_device(both, self.device)
        apply_rows(logits, places[0], places[1], self.rows)


def positions(counts: Int32, first: Sequence[int]) -> Int32:
    """Rows of logits of each position: request i owns first[i], first[i] + 1, … (below 0: it has none here)."""
    start = np.asarray(first, np.int32)
    if len(counts) == 0 or counts.max() == 1:
        return start
    before = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum()), dtype=np.int32) - np.repeat(before, counts)
    out = np.repeat(start, counts) + steps
    out[np.repeat(start < 0, counts)] = -1
    return out.astype(np.int32)
