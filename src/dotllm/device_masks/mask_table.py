"""Worker: the table of mask rows on the device, and how a step's row numbers and new rows get there.

Row numbers come in every step. Copying a few hundred of them would take the host longer than launching the kernel that
needs them. So the kernel itself reads them from the host's pinned memory, while the host does something else
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#mapped-memory). The kernel also reads a few
new rows there, and enters them into the table: copying them took the host 50 µs longer, and the device 70 to 160
(H200). Many new rows, as in a burst of new schemas, are copied.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import torch

from dotllm.arrays import Int32
from dotllm.device_masks.message import MaskRows

_FIRST_SLOTS = 512
_MIN_NUMBERS = 512  # room for this many numbers
FEW = 8  # the most new rows that the kernel reads from the host's memory (8 MiB of it at 131,072 tokens)
TURNS = 64


def turns(
    shape: tuple[int, ...], device: torch.device, dtype: torch.dtype = torch.int32
) -> list[tuple[Any, torch.Tensor]]:
    """Tensors of this shape for kernels on ``device``, to be used in turn; each with its array on the host.

    Pinning memory takes the host as long as launching a kernel. So some memory is pinned once, and writes take turns in
    it. There are more turns than an engine has steps in flight (two, or one for each pipeline stage). So nothing is
    overwritten before the device has read it, and the host never waits.
    """
    memory = torch.zeros((TURNS, *shape), dtype=dtype, pin_memory=device.type != "cpu")
    return [(turn.numpy(), turn) for turn in memory]


class Staging:
    """Int32 arrays of one length, ``arrays`` of them at a time, for kernels on ``device`` (see `turns`)."""

    def __init__(self, device: torch.device, arrays: int) -> None:
        self._device, self._arrays = device, arrays
        self._outgrown: list[Any] = []  # a launched kernel may still have to read it
        self._make_room(_MIN_NUMBERS)

    def write(self, first: Int32, *others: Int32 | None) -> list[torch.Tensor | None]:
        """Tensors that begin with these arrays; None for None."""
        count = len(first)
        if count > self._room:
            self._outgrown.append(self._places)
            self._make_room(2 * count)
        written: list[torch.Tensor | None] = []
        for array, (place, tensor) in zip((first, *others), next(self._places), strict=True):
            if array is not None:
                place[:count] = array
            written.append(None if array is None else tensor)
        return written

    def _make_room(self, numbers: int) -> None:
        self._room = numbers
        shape = self._arrays, numbers
        self._places = cycle([[*zip(places, turn, strict=True)] for places, turn in turns(shape, self._device)])


class MaskTable:
    """Rows by slot, int32 [slots, words] on ``device``; grows with new slots."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.sender: int | None = None
        self.rows = torch.zeros((0, 0), dtype=torch.int32, device=device)
        self._staging = Staging(device, 3)
        self._apply_rows: Callable[..., None]  # `kernels.apply_rows`, which needs Triton

    def apply(
        self, logits: Any, where: Int32 | None, message: MaskRows, starts: Any = None, most_positions: int = 1
    ) -> None:
        """Mask the row of the logits at ``where[i]`` with the row of position i of ``message``, for all positions.

        where, starts, most_positions: see `kernels.apply_rows`.
        """
        if message.sender != self.sender:
            self._begin(message)
        count, fresh, brought = len(message.new_slots), None, None
        if count:
            self._make_room(message)
            if count > FEW:
                self._copy(message)
            else:
                fresh, (rows, brought) = message.fresh, next(self._brought)
                rows[:count] = message.new_rows
        slots, places, new = self._staging.write(message.slots, where, fresh)
        self._apply_rows(logits, len(message.slots), slots, self.rows, places, new, brought, starts, most_positions)

    def _begin(self, message: MaskRows) -> None:
        """Begin anew: another engine core's slots mean other rows."""
        from dotllm.device_masks.kernels import apply_rows

        words = message.new_rows.shape[1]
        if self.rows.shape[1] != words:  # (else what was pinned when the kernel was warmed is pinned still: 30 ms)
            self._brought = cycle(turns((FEW, words), self.device))
        self.sender, self._apply_rows = message.sender, apply_rows
        self.rows = torch.zeros((_FIRST_SLOTS, words), dtype=torch.int32, device=self.device)

    def _make_room(self, message: MaskRows) -> None:
        room, needed = len(self.rows), int(message.new_slots.max()) + 1
        if needed > room:
            more = (max(needed, 2 * room) - room, self.rows.shape[1])
            self.rows = torch.cat([self.rows, torch.zeros(more, dtype=torch.int32, device=self.device)])

    @torch.inference_mode()  # vLLM's steps run in inference mode, outside of which their tensors cannot be written
    def _copy(self, message: MaskRows) -> None:
        """Copy the rows that ``message`` brings into the table, without waiting: torch keeps pinned memory until it has
        been copied (https://docs.pytorch.org/docs/stable/notes/cuda.html#use-pinned-memory-buffers)."""
        count, words = message.new_rows.shape
        host = torch.empty(count * (1 + words), dtype=torch.int32, pin_memory=self.device.type != "cpu")
        numbers = host.numpy()
        numbers[:count], numbers[count:] = message.new_slots, message.new_rows.ravel()
        slots, rows = host.to(self.device, non_blocking=True).split([count, count * words])
        self.rows.index_copy_(0, slots.long(), rows.view(count, words))
