"""Worker: the table of mask rows on the device."""

from __future__ import annotations

import numpy as np
import torch

from dotllm.vllm_plugin.gpu_masks.host_numbers import HostNumbers
from dotllm.vllm_plugin.gpu_masks.message import Int32, MaskRows, NewRows
from dotllm.vllm_plugin.gpu_masks.upload import runs_of, upload

_FIRST_SLOTS = 512
MAX_ROWS_ONE_BY_ONE = 2  # rows whose masks are launched one by one, with numbers for arguments


class MaskTable:
    """Rows by slot, int32 [slots, words] on ``device``; grows as slots come."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sender: int | None = None
        self.rows = torch.zeros((0, 0), dtype=torch.int32, device=device)
        self._numbers = HostNumbers(device)

    def make_room(self, message: NewRows) -> None:
        """For the slots that ``message`` brings."""
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

    def runs(self, message: NewRows, source: int) -> Int32:
        """What fills these slots, as runs into target 1 for `kernels.write_runs`; new_rows lie at ``source``."""
        words = np.full(len(message.new_slots), self.rows.shape[1], np.int32)
        return runs_of(1, message.new_slots * self.rows.shape[1], words, source)

    def apply(self, logits: torch.Tensor, where: Int32, message: MaskRows) -> None:
        """Mask ``logits[where[i]]`` with the row of position i of ``message``, for all positions (-1: not here)."""
        from dotllm.vllm_plugin.gpu_masks.kernels import apply_row, apply_rows, write_runs

        self.make_room(message)
        if len(message.new_slots):
            stage, (_, runs) = upload(self.device, (message.new_rows, self.runs(message, source=0)))
            write_runs(runs, stage, self.rows, self.rows)
        if len(where) > MAX_ROWS_ONE_BY_ONE:
            apply_rows(logits, len(where), *self._numbers.write(where, message.slots), self.rows)
            return
        for row, slot in zip(where.tolist(), message.slots.tolist(), strict=True):
            if row >= 0 and slot >= 0:
                apply_row(logits, row, slot, self.rows)
