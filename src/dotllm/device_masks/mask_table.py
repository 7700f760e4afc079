"""Worker: the table of mask rows on the device, and how a step's row numbers get there.

New rows are few, and one copy brings all of them to the device. Row numbers come in every step. Copying a few hundred
of them would take the host longer than launching the kernel that needs them. So the kernel itself reads them from the
host's pinned memory, while the host does something else
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#mapped-memory).
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import torch

from dotllm.arrays import Int32
from dotllm.device_masks.message import MaskRows

_FIRST_SLOTS = 512
_MIN_NUMBERS = 512  # room for this many numbers
TURNS = 64


class Staging:
    """Pairs of int32 arrays of one length, for kernels on ``device``.

    Pinning memory takes the host as long as launching a kernel. So some memory is pinned once, and writes take turns in
    it. There are more turns than an engine has steps in flight (two, or one for each pipeline stage). So nothing is
    overwritten before the device has read it, and the host never waits.
    """

    def __init__(self, device: torch.device) -> None:
        self._pinned = device.type != "cpu"
        self._outgrown: list[Any] = []  # a launched kernel may still have to read it
        self._make_room(_MIN_NUMBERS)

    def write(self, first: Int32, second: Int32) -> tuple[torch.Tensor, torch.Tensor]:
        """Tensors that begin with ``first`` and ``second``."""
        count = len(first)
        if count > self._room:
            self._outgrown.append(self._turns)
            self._make_room(2 * count)
        numbers, tensors = next(self._turns)
        numbers[0, :count] = first
        numbers[1, :count] = second
        return tensors

    def _make_room(self, numbers: int) -> None:
        self._room = numbers
        memory = torch.zeros((TURNS, 2, numbers), dtype=torch.int32, pin_memory=self._pinned)
        self._turns = cycle([(turn.numpy(), (turn[0], turn[1])) for turn in memory])


class MaskTable:
    """Rows by slot, int32 [slots, words] on ``device``; grows with new slots."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sender: int | None = None
        self.rows = torch.zeros((0, 0), dtype=torch.int32, device=device)
        self._staging = Staging(device)

    def apply(self, logits: Any, where: Int32, message: MaskRows, starts: Any = None, most_positions: int = 1) -> None:
        """Mask the row of the logits at ``where[i]`` with the row of position i of ``message``, for all positions.

        where, starts, most_positions: see `kernels.apply_rows`.
        """
        from dotllm.device_masks.kernels import apply_rows

        if len(message.new_slots) or message.sender != self.sender:
            self._take(message)
        apply_rows(logits, len(where), *self._staging.write(where, message.slots), self.rows, starts, most_positions)

    @torch.inference_mode()  # vLLM's steps run in inference mode, outside of which their tensors cannot be written
    def _take(self, message: MaskRows) -> None:
        """Take the rows that ``message`` brings."""
        if message.sender != self.sender:  # another engine core, whose slots mean other rows
            self.sender = message.sender
            words = message.new_rows.shape[1]
            self.rows = torch.zeros((_FIRST_SLOTS, words), dtype=torch.int32, device=self.device)
        if not len(message.new_slots):
            return
        room, needed = len(self.rows), int(message.new_slots.max()) + 1
        if needed > room:
            more = (max(needed, 2 * room) - room, self.rows.shape[1])
            self.rows = torch.cat([self.rows, torch.zeros(more, dtype=torch.int32, device=self.device)])
        # One copy, which the host does not wait for: torch keeps pinned memory until it has been copied
        # (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers).
        count, words = message.new_rows.shape
        host = torch.empty(count * (1 + words), dtype=torch.int32, pin_memory=self.device.type != "cpu")
        numbers = host.numpy()
        numbers[:count], numbers[count:] = message.new_slots, message.new_rows.ravel()
        slots, rows = host.to(self.device, non_blocking=True).split([count, count * words])
        self.rows.index_copy_(0, slots.long(), rows.view(count, words))
